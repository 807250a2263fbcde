//! `stats`: statistics of other nodes as samples, at a fixed rate. It ends once the paths that read
//! those nodes have ended, with a last sample.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rdmalab_config::{
    At, ConfigError, Findings, FromValue, Kind as Form, Value as Tree, group, one_of,
};
use rdmalab_sample::hooks::stats::Statistics;
use rdmalab_sample::{Handle, Histogram, Kind, Pool, Signal, Value};
use serde_json::json;

use crate::keys::{Half, NodeCommon, VALUES_MAX};
use crate::node::{Node, NodeCounts, Observer, Sink, Source, SourceState, World};
use crate::timer::{Timer, TimerKind};

one_of! {
    /// What is measured.
    enum Metric {
        /// Time from origin to arrival.
        Owd = "owd";
        /// Time from one origin to the next.
        GapSent = "gap_sent";
        /// Time from one arrival to the next.
        GapReceived = "gap_received";
        /// All samples.
        Samples = "samples";
        /// Sequence numbers that were left out.
        Skipped = "skipped";
        /// Samples with the number of the one before them.
        Duplicate = "duplicate";
        /// Samples with a number below that of an earlier one.
        Reordered = "reordered";
    }
}

one_of! {
    /// Which number of it.
    enum Number {
        /// The latest.
        Last = "last";
        /// The highest.
        Highest = "highest";
        /// The lowest.
        Lowest = "lowest";
        /// The mean.
        Mean = "mean";
        /// The variance.
        Var = "var";
        /// The standard deviation.
        Stddev = "stddev";
        /// How many there were.
        Total = "total";
    }
}

/// What a signal shows.
#[derive(Clone, Debug)]
struct Shown {
    node: String,
    metric: Metric,
    number: Number,
}

/// The histogram of a metric of time, or the count that another one is.
fn measured(of: &Statistics, metric: Metric) -> Result<&Histogram, u64> {
    match metric {
        Metric::Owd => Ok(&of.owd),
        Metric::GapSent => Ok(&of.gap_sent),
        Metric::GapReceived => Ok(&of.gap_received),
        Metric::Samples => Err(of.samples),
        Metric::Skipped => Err(of.missing),
        Metric::Duplicate => Err(of.duplicate),
        Metric::Reordered => Err(of.reordered),
    }
}

impl Shown {
    fn parse(text: &str) -> Result<Self, String> {
        let [node, metric, number] = text.split('.').collect::<Vec<_>>()[..] else {
            return Err("it must be like \"node.owd.mean\"".to_owned());
        };
        fn named<T: Copy>(all: &[(&str, T)], name: &str) -> Result<T, String> {
            let found = all.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
            let names = || all.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
            found.ok_or_else(|| format!("{name:?} is none of {}", names()))
        }
        let metric = named(Metric::NAMES, metric)?;
        let number = named(Number::NAMES, number)?;
        if measured(&Statistics::default(), metric).is_err() && number != Number::Total {
            return Err(format!("of {}, there is total only", metric.name()));
        }
        Ok(Self { node: node.to_owned(), metric, number })
    }

    /// Its value, in seconds where it is a time. A time without samples is not a number.
    fn value(&self, of: &Statistics) -> Value {
        let times = match measured(of, self.metric) {
            Ok(times) => times,
            Err(count) => return Value::from_integer(count.cast_signed()),
        };
        let ns = |found: Option<i64>| found.map(|ns| ns as f64);
        let found_ns = match self.number {
            Number::Total => return Value::from_integer(times.count().cast_signed()),
            Number::Last => ns(times.last()),
            Number::Highest => ns(times.highest()),
            Number::Lowest => ns(times.lowest()),
            Number::Mean => times.mean(),
            Number::Stddev => times.deviation(),
            Number::Var => times.deviation().map(|ns| ns * ns / 1e9),
        };
        Value::from_float(found_ns.map_or(f64::NAN, |ns| ns / 1e9))
    }
}

impl FromValue for Shown {
    fn from_value(value: &Tree, key: &str, findings: &mut Findings) -> Option<Self> {
        let parsed = match &value.kind {
            Form::Text(text) => Self::parse(text),
            _ => Err(format!("it must be {}", Self::expected())),
        };
        let wrong = |why: String| {
            let what = format!("{key} is {}", value.quoted());
            findings.error(ConfigError::new(&value.at, what).right(why));
        };
        parsed.map_err(wrong).ok()
    }

    fn expected() -> String {
        "a statistic like \"node.owd.mean\"".to_owned()
    }

    fn schema() -> serde_json::Value {
        json!({ "type": "string" })
    }
}

group! {
    /// A signal.
    struct Statistic {
        /// The node, the metric and the number, such as `node.owd.mean`.
        stats: At<Shown>;
        /// Its name; that of the statistic, if it is left out.
        name: String = String::new();
        /// Its unit.
        unit: Option<String>;
    }
    ignored {
        type: "each statistic has its type";
    }
}

group! {
    /// The reading half.
    pub struct In with (half: Half) {
        /// The statistics.
        signals: At<Vec<Statistic>>;
    }
}

group! {
    /// Statistics of other nodes.
    pub struct Config with (common: NodeCommon) {
        /// Samples a second.
        rate: f64, in 1e-9..=1e9;
        /// How it waits; as the gateway does, if it is left out.
        timer: Option<TimerKind>;
        /// The reading half.
        r#in: In;
    }
}

/// The node.
struct Stats {
    signals: Vec<Signal>,
    shown: Vec<(Shown, Observer)>,
    /// Where the nodes are named.
    names: Vec<At<String>>,
    rate: f64,
    timer: Option<TimerKind>,
    counts: NodeCounts,
}

impl Config {
    /// The node.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn node(self, _name: &At<String>) -> Result<Box<dyn Node>, ConfigError> {
        let At { value: listed, at } = self.r#in.signals;
        if !(1..=VALUES_MAX).contains(&listed.len()) {
            let what = format!("in.signals has {} signals", listed.len());
            return Err(ConfigError::new(&at, what).right(format!("1 to {VALUES_MAX}")));
        }
        let (mut signals, mut names) = (Vec::new(), Vec::new());
        let mut shown: Vec<(Shown, Observer)> = Vec::new();
        for Statistic { stats: At { value: statistic, at }, name, unit } in listed {
            let is_time = measured(&Statistics::default(), statistic.metric).is_ok();
            let kind = if statistic.number == Number::Total { Kind::Integer } else { Kind::Float };
            let default = match statistic.number {
                Number::Var => "seconds^2",
                _ if is_time && kind == Kind::Float => "seconds",
                _ => "samples",
            };
            let Shown { node, metric, number } = &statistic;
            let name = match name.as_str() {
                "" => format!("{node}.{}.{}", metric.name(), number.name()),
                name => name.to_owned(),
            };
            let unit = unit.unwrap_or_else(|| default.to_owned());
            signals.push(Signal { unit, ..Signal::new(name, kind) });
            names.push(At { value: node.clone(), at });
            let same = shown.iter().find(|(other, _)| other.node == *node);
            let observer = same.map(|(_, observer)| observer.clone()).unwrap_or_default();
            shown.push((statistic, observer));
        }
        let (rate, timer, counts) = (self.rate, self.timer, NodeCounts::default());
        Ok(Box::new(Stats { signals, shown, names, rate, timer, counts }))
    }
}

impl Node for Stats {
    fn signals(&self) -> &[Signal] {
        &self.signals
    }

    fn observes(&self) -> Vec<(At<String>, Observer)> {
        let observers = self.shown.iter().map(|(_, observer)| observer.clone());
        let all = self.names.iter().cloned().zip(observers);
        let mut each: Vec<(At<String>, Observer)> = Vec::new();
        for (name, observer) in all {
            if each.iter().all(|(other, _)| other.value != name.value) {
                each.push((name, observer));
            }
        }
        each
    }

    fn source(&mut self, world: &World) -> Result<Box<dyn Source>, String> {
        Ok(Box::new(Reading {
            shown: std::mem::take(&mut self.shown),
            rate: self.rate,
            kind: self.timer.unwrap_or(world.timer),
            timer: None,
            next: 0,
            world: world.clone(),
            counts: self.counts.clone(),
        }))
    }

    fn sink(&mut self, _: &World, _: &[Signal]) -> Result<Box<dyn Sink>, String> {
        Err("stats nodes only read".to_owned())
    }

    fn counts(&self) -> NodeCounts {
        self.counts.clone()
    }
}

struct Reading {
    shown: Vec<(Shown, Observer)>,
    rate: f64,
    kind: TimerKind,
    timer: Option<Timer>,
    /// The tick after the last one.
    next: u64,
    world: World,
    counts: NodeCounts,
}

impl Reading {
    /// Whether the paths that read the nodes have ended: then nobody else has the observers.
    fn is_over(&self) -> bool {
        let own = |observer: &Observer| {
            self.shown.iter().filter(|(_, other)| Arc::ptr_eq(observer, other)).count()
        };
        let is_alone = |observer: &Observer| Arc::strong_count(observer) == own(observer);
        self.world.stop.is_set() || self.shown.iter().all(|(_, observer)| is_alone(observer))
    }
}

impl Source for Reading {
    fn skips_missed(&self) -> bool {
        true
    }

    fn start(&mut self) -> Result<(), String> {
        self.timer = Some(Timer::start(self.kind, self.rate, &self.world.clock)?);
        Ok(())
    }

    fn read(
        &mut self,
        pool: &mut Pool,
        to: &mut Vec<Handle>,
        patience: Duration,
    ) -> Result<SourceState, String> {
        let is_over = self.is_over();
        let tick = match &mut self.timer {
            Some(timer) if !is_over => timer.wait(patience)?,
            _ => Some(self.next),
        };
        let Some(tick) = tick else { return Ok(SourceState::Open) };
        self.counts.missed.add(tick - self.next);
        self.next = tick + 1;
        if let Some(mut one) = pool.take() {
            let mut sample = pool.get_mut(&mut one);
            sample.clear();
            sample.set_sequence(tick);
            for (shown, observer) in &self.shown {
                let observed = observer.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = sample.push(shown.value(observed.statistics()));
            }
            to.push(one);
        }
        Ok(if is_over { SourceState::Ended } else { SourceState::Open })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_have_names() {
        for (text, wrong) in [
            ("a.owd.mean", None),
            ("a.skipped.total", None),
            ("a.owd", Some("node.owd.mean")),
            ("a.age.mean", Some("none of owd, gap_sent")),
            ("a.owd.median", Some("none of last, highest")),
            ("a.reordered.mean", Some("total only")),
        ] {
            let said = Shown::parse(text).err();
            match wrong {
                None => assert_eq!(said, None, "{text}"),
                Some(wrong) => assert!(said.as_ref().unwrap().contains(wrong), "{text}: {said:?}"),
            }
        }
    }

    #[test]
    fn values_are_those_of_the_statistics() {
        let mut of = Statistics::default();
        let value = |of: &Statistics, text: &str| Shown::parse(text).unwrap().value(of);
        assert!(value(&of, "a.owd.mean").float().is_nan());
        [1_000, 3_000].into_iter().for_each(|ns| of.owd.add(ns));
        of.missing = 7;
        let close = |text: &str, wanted: f64| {
            let found = value(&of, text).float();
            assert!((found / wanted - 1.0).abs() < 1e-9, "{text}: {found}");
        };
        close("a.owd.mean", 2e-6);
        close("a.owd.last", 3e-6);
        close("a.owd.lowest", 1e-6);
        close("a.owd.stddev", 2e-6_f64.sqrt() * 1e-3);
        close("a.owd.var", 2e-12);
        assert_eq!(value(&of, "a.owd.total").integer(), 2);
        assert_eq!(value(&of, "a.skipped.total").integer(), 7);
    }
}
