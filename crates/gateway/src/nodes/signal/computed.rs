//! The node itself: computes samples, one each tick.

use std::time::Duration;

use rdmalab_config::one_of;
use rdmalab_sample::{Generator, Handle, Pool, SampleMut, Signal, Timestamp, Value};

use crate::node::{Node, NodeCounts, Sink, Source, SourceState, Stop, World, wall_time};
use crate::timer::{Timer, TimerKind};

one_of! {
    /// The shape of a signal.
    pub enum Shape {
        /// Each value another shape, in the order of this list.
        Mixed = "mixed";
        /// A random walk.
        Random = "random";
        /// A sine.
        Sine = "sine";
        /// The lower half, then the upper one.
        Square = "square";
        /// Down and up.
        Triangle = "triangle";
        /// Up, then back at once.
        Ramp = "ramp";
        /// The number of the tick.
        Counter = "counter";
        /// One value.
        Constant = "constant";
        /// A short high part.
        Pulse = "pulse";
    }
}

impl Shape {
    /// As the generator names it.
    #[must_use]
    pub const fn of_generator(self) -> rdmalab_sample::Shape {
        use rdmalab_sample::Shape as Of;
        match self {
            Self::Mixed => Of::Mixed,
            Self::Random => Of::Random,
            Self::Sine => Of::Sine,
            Self::Square => Of::Square,
            Self::Triangle => Of::Triangle,
            Self::Ramp => Of::Ramp,
            Self::Counter => Of::Counter,
            Self::Constant => Of::Constant,
            Self::Pulse => Of::Pulse,
        }
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
            stop: world.stop.clone(),
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
    stop: Stop,
    counts: NodeCounts,
}

impl Reading {
    fn fill(&mut self, tick: u64, to: &mut SampleMut<'_>) {
        let seconds = tick as f64 / self.rate;
        to.set_sequence(tick);
        let time_ns = (seconds * 1e9) as u64;
        for generator in &mut self.generators {
            let _ = to.push(Value::from_float(generator.value(tick, time_ns, self.rate)));
        }
        // The stamp is the last thing, so that no time of this node is in the latency.
        let origin = match self.realtime {
            true => wall_time(),
            false => self.start.plus_ns((seconds * 1e9) as i128),
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
        if self.next >= self.limit || self.stop.is_set() {
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
