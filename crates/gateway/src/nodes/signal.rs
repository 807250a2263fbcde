//! `signal`: samples that are computed, one each period of a rate. Its sequence numbers are the
//! numbers of ticks, so a tick that was missed leaves a gap.

use std::time::Duration;

use rdmalab_config::{At, ConfigError, OneOrMany, group, one_of};
use rdmalab_random::Random;
use rdmalab_sample::{Handle, Kind, Pool, SampleMut, Signal, Timestamp, Value};

use crate::config::{InCommon, NodeCommon, Timers};
use crate::node::{Node, NodeCounts, Sink, Source, State, Stop, World, wall_time};
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

/// What "mixed" goes through.
const MIXED: [Shape; 7] = [
    Shape::Random,
    Shape::Sine,
    Shape::Square,
    Shape::Triangle,
    Shape::Ramp,
    Shape::Counter,
    Shape::Constant,
];

group! {
    /// Signals that are computed.
    pub struct Config with (common: NodeCommon) {
        /// The shape of all values, or of each.
        signal: OneOrMany<Shape> = OneOrMany(vec![Shape::Mixed]);
        /// How many values a sample has.
        values: usize = 1, in 1..=512;
        /// Samples a second.
        rate: f64 = 10.0, in 1e-9..=1e9;
        /// Periods a second.
        frequency: OneOrMany<f64> = OneOrMany(vec![1.0]);
        /// The height.
        amplitude: OneOrMany<f64> = OneOrMany(vec![1.0]);
        /// What is added.
        offset: OneOrMany<f64> = OneOrMany(vec![0.0]);
        /// The deviation of each step of a random walk.
        stddev: OneOrMany<f64> = OneOrMany(vec![0.2]);
        /// The phase [rad].
        phase: OneOrMany<f64> = OneOrMany(vec![0.0]);
        /// How long a pulse is high, in periods.
        pulse_width: OneOrMany<f64> = OneOrMany(vec![1.0]);
        /// The lower part of a pulse.
        pulse_low: OneOrMany<f64> = OneOrMany(vec![0.0]);
        /// The upper part of a pulse.
        pulse_high: OneOrMany<f64> = OneOrMany(vec![1.0]);
        /// Ends after so many ticks; -1 never.
        limit: i64 = -1;
        /// One sample each tick of the clock; else as fast as the path takes them.
        realtime: bool = true;
        /// Tells at the end how many ticks were missed. They are counted in any case.
        monitor_missed: bool = true;
        /// How it waits; as the gateway does, if it is left out.
        timer: Option<Timers>;
        /// The seed of what is random.
        seed: u64 = 1;
        /// Keys of its reading half.
        r#in: Option<InCommon>;
    }
}

/// One value.
#[derive(Clone, Copy, Debug)]
struct Wave {
    shape: Shape,
    frequency: f64,
    amplitude: f64,
    offset: f64,
    stddev: f64,
    phase: f64,
    pulse: [f64; 3],
    /// Of a random walk.
    last: f64,
}

impl Wave {
    fn at(&mut self, seconds: f64, tick: u64, random: &mut Random) -> f64 {
        let turns = seconds * self.frequency + self.phase / std::f64::consts::TAU;
        let up = match self.shape {
            Shape::Constant | Shape::Mixed => 1.0,
            Shape::Counter => tick as f64,
            Shape::Sine => (turns * std::f64::consts::TAU).sin(),
            Shape::Square if turns.rem_euclid(1.0) < 0.5 => -1.0,
            Shape::Square => 1.0,
            Shape::Triangle => ((turns.rem_euclid(1.0) - 0.5).abs() - 0.25) * 4.0,
            Shape::Ramp => turns.rem_euclid(1.0),
            Shape::Pulse => {
                let [width, low, high] = self.pulse;
                return self.offset + if turns.rem_euclid(1.0) <= width { high } else { low };
            }
            Shape::Random => {
                // Box and Muller.
                let (a, b) = (random.unit_above_0(), random.unit());
                self.last +=
                    self.stddev * (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
                self.last
            }
        };
        self.offset + self.amplitude * up
    }
}

/// The node.
struct Computed {
    signals: Vec<Signal>,
    waves: Vec<Wave>,
    config: Config,
    counts: NodeCounts,
}

impl Config {
    /// The node.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn node(self, name: &At<String>) -> Result<Box<dyn Node>, ConfigError> {
        let lists = [
            ("frequency", self.frequency.0.len()),
            ("amplitude", self.amplitude.0.len()),
            ("offset", self.offset.0.len()),
            ("stddev", self.stddev.0.len()),
            ("phase", self.phase.0.len()),
            ("signal", self.signal.0.len()),
        ];
        let values = self.values;
        if let Some((key, count)) = lists.iter().find(|(_, count)| ![1, values].contains(count)) {
            let what = format!("{key} of {} has {count} elements", name.value);
            return Err(ConfigError::new(&name.at, what).right(format!("1 or {values}")));
        }
        let of = |list: &OneOrMany<f64>, at: usize| list.0[at.min(list.0.len() - 1)];
        let wave = |at: usize| {
            let shape = self.signal.0[at.min(self.signal.0.len() - 1)];
            let shape = if shape == Shape::Mixed { MIXED[at % MIXED.len()] } else { shape };
            Wave {
                shape,
                frequency: of(&self.frequency, at),
                amplitude: of(&self.amplitude, at),
                offset: of(&self.offset, at),
                stddev: of(&self.stddev, at),
                phase: of(&self.phase, at),
                pulse: [&self.pulse_width, &self.pulse_low, &self.pulse_high].map(|p| of(p, at)),
                last: 0.0,
            }
        };
        Ok(Box::new(Computed {
            signals: Signal::numbered(values, Kind::Float),
            waves: (0..values).map(wave).collect(),
            config: self,
            counts: NodeCounts::default(),
        }))
    }
}

impl Node for Computed {
    fn signals(&self) -> &[Signal] {
        &self.signals
    }

    fn source(&mut self, world: &World) -> Result<Box<dyn Source>, String> {
        let timer = self.config.timer.unwrap_or(world.timer);
        Ok(Box::new(Reading {
            waves: self.waves.clone(),
            rate: self.config.rate,
            limit: u64::try_from(self.config.limit).unwrap_or(u64::MAX),
            kind: match timer {
                Timers::Timerfd => TimerKind::Timerfd,
                Timers::Tsc => TimerKind::Tsc,
            },
            realtime: self.config.realtime,
            world: world.clone(),
            timer: None,
            next: 0,
            start: wall_time(),
            random: Random::new(self.config.seed),
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
    waves: Vec<Wave>,
    rate: f64,
    limit: u64,
    kind: TimerKind,
    realtime: bool,
    world: World,
    timer: Option<Timer>,
    /// The tick after the last one.
    next: u64,
    start: Timestamp,
    random: Random,
    stop: Stop,
    counts: NodeCounts,
}

impl Reading {
    fn fill(&mut self, tick: u64, to: &mut SampleMut<'_>) {
        let seconds = tick as f64 / self.rate;
        to.set_sequence(tick);
        for wave in &mut self.waves {
            let _ = to.push(Value::from_float(wave.at(seconds, tick, &mut self.random)));
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
    fn begin(&mut self, _: &mut Pool) -> Result<(), String> {
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
    ) -> Result<State, String> {
        if self.next >= self.limit || self.stop.is_set() {
            return Ok(State::Ended);
        }
        let tick = match &mut self.timer {
            Some(timer) => timer.wait(patience)?,
            None => Some(self.next),
        };
        let Some(tick) = tick else { return Ok(State::Open) };
        self.counts.missed.add(tick.min(self.limit) - self.next);
        self.next = tick + 1;
        if tick >= self.limit {
            return Ok(State::Ended);
        }
        if let Some(mut one) = pool.take() {
            self.fill(tick, &mut pool.get_mut(&mut one));
            to.push(one);
        }
        Ok(State::Open)
    }
}
