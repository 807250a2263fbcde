//! The node itself: computes samples, one each tick.

use std::time::Duration;

use rdmalab_config::{Findings, FromValue, Value as Tree, alternatives, choice};
use rdmalab_sample::{
    Generator, Handle, Pool, SampleMut, Shape, Signal, Timestamp, Value, time_ns,
};
use serde_json::json;

use crate::node::{Node, NodeCounts, Sink, Source, SourceState, World, wall_time};
use crate::timer::{Timer, TimerKind};

/// The shape of a signal in a configuration.
#[derive(Clone, Copy, Debug)]
pub struct ShapeName(pub Shape);

impl FromValue for ShapeName {
    fn from_value(value: &Tree, key: &str, findings: &mut Findings) -> Option<Self> {
        let names = Shape::NAMES.map(|name| (name, name));
        let name = choice(value, key, &names, findings)?;
        serde_json::from_value(name.into()).ok().map(Self)
    }

    fn expected() -> String {
        alternatives(&Shape::NAMES)
    }

    fn schema() -> serde_json::Value {
        json!({ "enum": Shape::NAMES })
    }

    fn shown(&self) -> serde_json::Value {
        json!(self.0)
    }
}

/// The node.
pub struct Computed {
    /// Its signals.
    pub signals: Vec<Signal>,
    /// What computes each of them.
    pub generators: Vec<Generator>,
    /// Ticks a second.
    pub rate: f64,
    /// Ends after so many ticks, if not negative.
    pub limit: i64,
    /// Waits for ticks.
    pub realtime: bool,
    /// How; as the gateway does, if it is left out.
    pub timer: Option<TimerKind>,
    /// What it counts.
    pub counts: NodeCounts,
}

impl Node for Computed {
    fn signals(&self) -> &[Signal] {
        &self.signals
    }

    fn source(&mut self, world: &World) -> Result<Box<dyn Source>, String> {
        let timer = self.timer.unwrap_or(world.timer);
        Ok(Box::new(Reading {
            generators: self.generators.clone(),
            rate: self.rate,
            limit: u64::try_from(self.limit).unwrap_or(u64::MAX),
            kind: timer,
            realtime: self.realtime,
            world: world.clone(),
            timer: None,
            next: 0,
            start: wall_time(),
            counts: self.counts.clone(),
        }))
    }

    fn sink(&mut self, _: &World, _: &[Signal]) -> Result<Box<dyn Sink>, String> {
        Err("signal nodes only read".to_owned())
    }

    fn counts(&self) -> NodeCounts {
        self.counts.clone()
    }
}

struct Reading {
    generators: Vec<Generator>,
    rate: f64,
    limit: u64,
    kind: TimerKind,
    realtime: bool,
    world: World,
    timer: Option<Timer>,
    /// The tick after the last one.
    next: u64,
    start: Timestamp,
    counts: NodeCounts,
}

impl Reading {
    fn fill(&mut self, tick: u64, to: &mut SampleMut<'_>) {
        to.set_sequence(tick);
        let time_ns = time_ns(tick, self.rate);
        for generator in &mut self.generators {
            let _ = to.push(Value::from_float(generator.value(tick, time_ns, self.rate)));
        }
        // The stamp is the last thing, so that no time of this node is in the latency.
        let origin = match self.realtime {
            true => wall_time(),
            false => self.start.plus_ns(time_ns.into()),
        };
        to.set_origin(origin);
    }
}

impl Source for Reading {
    fn is_paced(&self) -> bool {
        self.realtime
    }

    fn skips_missed(&self) -> bool {
        true
    }

    fn start(&mut self) -> Result<(), String> {
        if self.realtime {
            self.timer = Some(Timer::start(self.kind, self.rate, &self.world.clock)?);
        }
        self.start = wall_time();
        Ok(())
    }

    fn read(
        &mut self,
        pool: &mut Pool,
        to: &mut Vec<Handle>,
        patience: Duration,
    ) -> Result<SourceState, String> {
        if self.next >= self.limit || self.world.stop.is_set() {
            return Ok(SourceState::Ended);
        }
        let tick = match &mut self.timer {
            Some(timer) => timer.wait(patience)?,
            None => Some(self.next),
        };
        let Some(tick) = tick else { return Ok(SourceState::Open) };
        self.counts.missed.add(tick.min(self.limit) - self.next);
        self.next = tick + 1;
        if tick >= self.limit {
            return Ok(SourceState::Ended);
        }
        if let Some(mut one) = pool.take() {
            self.fill(tick, &mut pool.get_mut(&mut one));
            to.push(one);
        }
        Ok(SourceState::Open)
    }
}
