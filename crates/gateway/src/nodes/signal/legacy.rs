//! `signal`: the same keys for all values, or a list of them.

use rdmalab_config::{At, ConfigError, OneOrMany, group};
use rdmalab_sample::{Generator, Kind, Shape, Signal, Waveform};

use super::computed::{Computed, ShapeName};
use crate::keys::{Half, NodeCommon};
use crate::node::{Node, NodeCounts};
use crate::timer::TimerKind;

group! {
    /// The reading half.
    pub struct In with (half: Half) {}
    ignored {
        signals: "all are floats, as many as values says";
    }
}

group! {
    /// Signals that are computed.
    pub struct Config with (common: NodeCommon) {
        /// The shape of all values, or of each.
        signal: OneOrMany<ShapeName> = OneOrMany(vec![ShapeName(Shape::Mixed)]);
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
        /// How long a pulse is high, in ticks.
        pulse_width: OneOrMany<f64> = OneOrMany(vec![1.0]);
        /// The lower part of a pulse.
        pulse_low: OneOrMany<f64> = OneOrMany(vec![0.0]);
        /// The upper part of a pulse.
        pulse_high: OneOrMany<f64> = OneOrMany(vec![1.0]);
        /// Ends after so many ticks; -1 never.
        limit: i64 = -1;
        /// One sample each tick of the clock; else as fast as the path takes them.
        realtime: bool = true;
        /// How it waits; as the gateway does, if it is left out.
        timer: Option<TimerKind>;
        /// The seed of what is random.
        seed: u64 = 1;
        /// Keys of its reading half.
        r#in: Option<In>;
    }
    ignored {
        monitor_missed: "missed ticks are always counted";
    }
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
            ("pulse_width", self.pulse_width.0.len()),
            ("pulse_low", self.pulse_low.0.len()),
            ("pulse_high", self.pulse_high.0.len()),
            ("signal", self.signal.0.len()),
        ];
        let values = self.values;
        if let Some((key, count)) = lists.iter().find(|(_, count)| ![1, values].contains(count)) {
            let what = format!("{key} of {} has {count} elements", name.value);
            return Err(ConfigError::new(&name.at, what).right(format!("1 or {values}")));
        }
        let of = |list: &OneOrMany<f64>, at: usize| list.0[at.min(list.0.len() - 1)];
        let generator = |at: usize| {
            let waveform = Waveform {
                signal: self.signal.0[at.min(self.signal.0.len() - 1)].0,
                frequency: of(&self.frequency, at),
                amplitude: of(&self.amplitude, at),
                offset: of(&self.offset, at),
                stddev: of(&self.stddev, at),
                phase: of(&self.phase, at),
                pulse_width: of(&self.pulse_width, at),
                pulse_low: of(&self.pulse_low, at),
                pulse_high: of(&self.pulse_high, at),
            };
            Generator::new(waveform, at, self.seed)
        };
        Ok(Box::new(Computed {
            signals: Signal::numbered(values, Kind::Float),
            generators: (0..values).map(generator).collect(),
            rate: self.rate,
            limit: self.limit,
            realtime: self.realtime,
            timer: self.timer,
            counts: NodeCounts::default(),
        }))
    }
}
