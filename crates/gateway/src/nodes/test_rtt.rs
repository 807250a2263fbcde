//! `test_rtt`: sends samples that another node returns, and writes how long each one was under way:
//! a case after the other, each with its rate, its number of values and a file of its own.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdmalab_config::{At, ConfigError, OneOrMany, group, one_of};
use rdmalab_sample::{Handle, Kind, Pool, Signal, Timestamp, Value};

use crate::counts::Latencies;
use crate::format::FormatChoice;
use crate::keys::{Half, NodeCommon, OutCommon, VALUES_MAX};
use crate::node::{Node, NodeCounts, Sink, Source, SourceState, Teller, World, wall_time};
use crate::timer::{Timer, TimerKind};
use crate::{strftime, writer};

/// Samples of a case that says nothing about it.
const COUNT: u64 = 1000;
/// How long the last samples of a case may be under way.
const LATE: Duration = Duration::from_secs(2);
/// The longest sleep between two cases, so that a request to end is seen.
const NAP: Duration = Duration::from_millis(1);
/// How long the file of a case may take.
const CLOSE_MAX: Duration = Duration::from_secs(5);

one_of! {
    /// When a case with both a count and a duration ends.
    enum Mode {
        /// With the first of both.
        Min = "min";
        /// With the last of both.
        Max = "max" | "at_least_count" | "at_least_duration";
        /// After the count.
        Count = "stop_after_count";
        /// After the duration.
        Duration = "stop_after_duration";
    }
}

group! {
    /// Cases: each of the rates with each number of values.
    struct Cases {
        /// Samples a second.
        rates: OneOrMany<f64>, in 1e-3..=1e9;
        /// Values of a sample.
        values: OneOrMany<usize>, in 1..=512;
        /// How many samples are sent.
        count: Option<u64>;
        /// The same.
        limit: Option<u64>;
        /// How long they are sent [s].
        duration: Option<f64>, in 0.0..=1e9;
        /// When a case with both ends.
        mode: Option<Mode>;
        /// How long samples are sent before those that are written [s].
        warmup: Option<f64>, in 0.0..=1e9;
    }
}

group! {
    /// The reading half.
    struct In with (half: Half) {}
    ignored {
        signals: "all are floats, as many as a case says";
    }
}

group! {
    /// Measures round trips.
    pub struct Config with (common: NodeCommon) {
        /// The cases.
        cases: Vec<At<Cases>>;
        /// The directory of the results.
        output: String = ".".to_owned();
        /// How the names of their files begin; the name of the node, if it is left out.
        prefix: Option<String>;
        /// Their form.
        format: FormatChoice = FormatChoice::named("villas.human");
        /// Time between two cases [s].
        cooldown: f64 = 0.0, in 0.0..=1e9;
        /// Of cases that do not say it.
        count: Option<u64>;
        /// Of cases that do not say it [s].
        duration: Option<f64>, in 0.0..=1e9;
        /// Of cases that do not say it.
        mode: Mode = Mode::Min;
        /// Of cases that do not say it [s].
        warmup: f64 = 0.0, in 0.0..=1e9;
        /// Ends the gateway after the last case.
        shutdown: bool = false;
        /// How it waits; as the gateway does, if it is left out.
        timer: Option<TimerKind>;
        /// The half that sends.
        r#in: Option<In>;
        /// The half that takes what came back.
        out: Option<OutCommon>;
    }
}

/// One measurement.
#[derive(Clone, Debug)]
struct Case {
    rate: f64,
    values: usize,
    /// Samples that are sent first, and not written.
    warmup: u64,
    /// All samples that are sent.
    samples: u64,
    file: PathBuf,
}

impl Config {
    /// The keys of its halves.
    pub fn halves(&self) -> (Option<&Half>, Option<&OutCommon>) {
        (self.r#in.as_ref().map(|half| &half.half), self.out.as_ref())
    }

    fn samples(&self, cases: &Cases, rate: f64) -> u64 {
        let count = cases.count.or(cases.limit).or(self.count);
        let timed = cases.duration.or(self.duration).map(|s| (s * rate).ceil() as u64);
        let both = count.zip(timed).map(|(count, timed)| match cases.mode.unwrap_or(self.mode) {
            Mode::Min => count.min(timed),
            Mode::Max => count.max(timed),
            Mode::Count => count,
            Mode::Duration => timed,
        });
        both.or(count).or(timed).unwrap_or(COUNT)
    }

    fn case(&self, prefix: &str, cases: &Cases, rate: f64, values: usize) -> Result<Case, String> {
        let now = wall_time();
        let directory = strftime::expand(&self.output, now)?;
        let name = format!("{}_values{values}_rate{rate}.log", strftime::expand(prefix, now)?);
        let warmup = (cases.warmup.unwrap_or(self.warmup) * rate).ceil() as u64;
        let samples = warmup.saturating_add(self.samples(cases, rate));
        Ok(Case { rate, values, warmup, samples, file: Path::new(&directory).join(name) })
    }

    /// The node.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn node(self, name: &At<String>) -> Result<Box<dyn Node>, ConfigError> {
        let prefix = self.prefix.as_ref().unwrap_or(&name.value);
        let mut all: Vec<Case> = Vec::new();
        for At { value: cases, at } in &self.cases {
            for &rate in &cases.rates.0 {
                for &values in &cases.values.0 {
                    let case = self.case(prefix, cases, rate, values);
                    let case = case.map_err(|why| ConfigError::new(at, why))?;
                    if all.iter().any(|other| other.file == case.file) {
                        let what = format!("{} is the file of two cases", case.file.display());
                        return Err(ConfigError::new(at, what));
                    }
                    all.push(case);
                }
            }
        }
        let values = all.iter().map(|case| case.values).max();
        let values = values.ok_or_else(|| {
            ConfigError::new(&name.at, format!("{} has no cases", name.value))
                .right("each with rates and values")
        })?;
        debug_assert!(values <= VALUES_MAX, "checked with the key");
        Ok(Box::new(TestRtt {
            name: name.value.clone(),
            signals: Signal::numbered(values, Kind::Float),
            cases: all,
            config: self,
            running: Running::default(),
            counts: NodeCounts::default(),
        }))
    }
}

/// The node.
struct TestRtt {
    name: String,
    signals: Vec<Signal>,
    cases: Vec<Case>,
    config: Config,
    running: Running,
    counts: NodeCounts,
}

/// The case that runs, which both halves know.
#[derive(Clone, Default)]
struct Running(Arc<Mutex<Option<Open>>>);

/// A case that runs.
struct Open {
    case: Case,
    /// The number of its first sample.
    first: u64,
    /// What was sent earlier belongs to another case.
    since: Timestamp,
    file: Box<dyn Sink>,
    came_back: u64,
    times: Latencies,
}

impl Running {
    fn get(&self) -> MutexGuard<'_, Option<Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node for TestRtt {
    fn signals(&self) -> &[Signal] {
        &self.signals
    }

    fn source(&mut self, world: &World) -> Result<Box<dyn Source>, String> {
        Ok(Box::new(Reading {
            cases: self.cases.clone(),
            next_case: 0,
            format: self.config.format.clone(),
            cooldown: Duration::from_secs_f64(self.config.cooldown),
            kind: self.config.timer.unwrap_or(world.timer),
            shutdown: self.config.shutdown,
            state: State::Between,
            first: 0,
            sent: 0,
            next: 0,
            running: self.running.clone(),
            teller: Teller::new(&self.name, &world.log),
            world: world.clone(),
            counts: self.counts.clone(),
        }))
    }

    fn sink(&mut self, _: &World, _: &[Signal]) -> Result<Box<dyn Sink>, String> {
        Ok(Box::new(Writing { running: self.running.clone(), counts: self.counts.clone() }))
    }

    fn counts(&self) -> NodeCounts {
        self.counts.clone()
    }
}

enum State {
    Between,
    Sending(Timer),
    /// All were sent, at that time.
    Waiting(Instant),
}

/// The half that sends.
struct Reading {
    cases: Vec<Case>,
    next_case: usize,
    format: FormatChoice,
    cooldown: Duration,
    kind: TimerKind,
    shutdown: bool,
    state: State,
    /// The number of the case's first sample: numbers go on from case to case.
    first: u64,
    sent: u64,
    /// The tick after the last one.
    next: u64,
    running: Running,
    teller: Teller,
    world: World,
    counts: NodeCounts,
}

impl Reading {
    fn begin(&mut self, case: Case) -> Result<State, String> {
        let format = self.format.build();
        let file = writer::open(case.file.clone(), format, &[], false, 0, &self.world)?;
        let timer = Timer::start(self.kind, case.rate, &self.world.clock)?;
        let (since, times) = (wall_time(), Latencies::default());
        let first = self.first;
        *self.running.get() = Some(Open { case, first, since, file, came_back: 0, times });
        (self.sent, self.next) = (0, 0);
        Ok(State::Sending(timer))
    }

    /// Ends the case, and tells what it has found.
    fn finish(&mut self) -> Result<(), String> {
        let Some(mut open) = self.running.get().take() else { return Ok(()) };
        let (at, of, sent) = (self.next_case, self.cases.len(), self.sent);
        let Case { values, rate, .. } = open.case;
        let times = open.times.quantiles().map_or_else(String::new, |q| {
            let us = |ns: f64| ns / 1e3;
            format!("; round trip {:.1} us (median), {:.1} us (p99)", us(q.p50_ns), us(q.p99_ns))
        });
        let came_back = open.came_back;
        self.first = self.first.saturating_add(open.case.samples);
        let lost = match open.file.close(CLOSE_MAX)? {
            0 => String::new(),
            lost => format!("; {lost} of them could not be written in time"),
        };
        self.teller.say(format_args!(
            "case {at} of {of}, {values} values at {rate} Hz: {sent} sent, {came_back} came \
             back{lost}{times}"
        ));
        Ok(())
    }

    fn tick(
        &mut self,
        timer: &mut Timer,
        pool: &mut Pool,
        to: &mut Vec<Handle>,
        patience: Duration,
    ) -> Result<bool, String> {
        let Some(tick) = timer.wait(patience)? else { return Ok(false) };
        let case = &self.cases[self.next_case - 1];
        self.counts.missed.add(tick.min(case.samples) - self.next);
        self.next = tick.min(case.samples) + 1;
        if tick >= case.samples {
            return Ok(true);
        }
        if let Some(mut one) = pool.take() {
            let mut sample = pool.get_mut(&mut one);
            sample.clear();
            sample.set_sequence(self.first.saturating_add(tick));
            for _ in 0..case.values {
                let _ = sample.push(Value::from_float(tick as f64));
            }
            sample.set_origin(wall_time());
            to.push(one);
            self.sent += 1;
        }
        Ok(tick + 1 == case.samples)
    }
}

impl Source for Reading {
    fn skips_missed(&self) -> bool {
        true
    }

    fn read(
        &mut self,
        pool: &mut Pool,
        to: &mut Vec<Handle>,
        patience: Duration,
    ) -> Result<SourceState, String> {
        if self.world.stop.is_set() {
            self.finish()?;
            return Ok(SourceState::Ended);
        }
        self.state = match std::mem::replace(&mut self.state, State::Between) {
            State::Between => match self.cases.get(self.next_case).cloned() {
                Some(case) => {
                    self.next_case += 1;
                    self.begin(case)?
                }
                None => {
                    if self.shutdown {
                        self.world.stop.set();
                    }
                    return Ok(SourceState::Ended);
                }
            },
            State::Sending(mut timer) => match self.tick(&mut timer, pool, to, patience)? {
                true => State::Waiting(Instant::now()),
                false => State::Sending(timer),
            },
            State::Waiting(since) => {
                let came_back = self.running.get().as_ref().map_or(0, |open| open.came_back);
                let waited = since.elapsed();
                if waited >= self.cooldown && (came_back >= self.sent || waited >= LATE) {
                    self.finish()?;
                    State::Between
                } else {
                    std::thread::sleep(patience.min(NAP));
                    State::Waiting(since)
                }
            }
        };
        Ok(SourceState::Open)
    }
}

/// The half that takes what came back.
struct Writing {
    running: Running,
    counts: NodeCounts,
}

impl Sink for Writing {
    fn write(&mut self, pool: &Pool, sample: &Handle) -> Result<bool, String> {
        let view = pool.get(sample);
        let mut running = self.running.get();
        let own = running.as_mut().filter(|open| {
            view.len() == open.case.values
                && view.origin().is_some_and(|at| at.ns_since(open.since) >= 0)
        });
        let Some(open) = own else {
            // Late, or not from here.
            self.counts.garbage.add(1);
            return Ok(true);
        };
        open.came_back += 1;
        if view
            .sequence()
            .is_some_and(|number| number < open.first.saturating_add(open.case.warmup))
        {
            return Ok(true);
        }
        if let Some(ns) = view.offset_ns() {
            open.times.push(i64::try_from(ns).unwrap_or(i64::MAX));
        }
        open.file.write(pool, sample)
    }

    fn may_retry(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_says_which_end_counts() {
        let samples = |keys: &str| {
            let text = format!("cases = ( {{ rates = 100.0, values = 1, {keys} }} )");
            let tree = rdmalab_config::parse("a.conf", &text).unwrap();
            let (config, _) = rdmalab_config::read::<Config>(&tree).unwrap();
            config.samples(&config.cases[0].value, 100.0)
        };
        assert_eq!(samples(""), COUNT);
        assert_eq!(samples("limit = 7"), 7);
        assert_eq!(samples("duration = 0.5"), 50);
        for (mode, wanted) in [
            ("min", 50),
            ("max", 70),
            ("at_least_count", 70),
            ("stop_after_count", 70),
            ("stop_after_duration", 50),
        ] {
            let keys = format!("count = 70, duration = 0.5, mode = \"{mode}\"");
            assert_eq!(samples(&keys), wanted, "{mode}");
        }
    }
}
