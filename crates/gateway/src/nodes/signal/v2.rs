//! `signal.v2`: each signal has keys of its own.

use rdmalab_config::{At, ConfigError, Findings, FromValue, Kind as Form, Value as Tree, group};
use rdmalab_sample::{Generator, Kind, Shape, Signal, Waveform};

use super::computed::{Computed, ShapeName};
use crate::keys::{Half, NodeCommon, VALUES_MAX};
use crate::node::{Node, NodeCounts};
use crate::timer::TimerKind;

group! {
    /// One signal, or several that are alike.
    pub struct Wave {
        /// Its name.
        name: String = String::new();
        /// Its unit.
        unit: String = String::new();
        /// How many there are of it.
        count: usize = 1, in 1..=512;
        /// Its shape.
        signal: ShapeName = ShapeName(Shape::Mixed);
        /// Periods a second.
        frequency: f64 = 1.0;
        /// The height.
        amplitude: f64 = 1.0;
        /// What is added.
        offset: f64 = 0.0;
        /// The deviation of each step of a random walk.
        stddev: f64 = 0.2;
        /// The phase [rad].
        phase: f64 = 0.0;
        /// How long a pulse is high, in ticks.
        pulse_width: f64 = 1.0;
        /// The lower part of a pulse.
        pulse_low: f64 = 0.0;
        /// The upper part of a pulse.
        pulse_high: f64 = 1.0;
    }
}

/// A list of signals, or one group for several.
#[derive(Clone, Debug)]
pub struct Waves(Vec<Wave>);

impl FromValue for Waves {
    fn from_value(value: &Tree, key: &str, findings: &mut Findings) -> Option<Self> {
        let waves = match &value.kind {
            Form::Group(_) => vec![Wave::from_value(value, key, findings)?],
            _ => Vec::<Wave>::from_value(value, key, findings)?,
        };
        let count: usize = waves.iter().map(|wave| wave.count).sum();
        if !(1..=VALUES_MAX).contains(&count) {
            let error = ConfigError::new(&value.at, format!("{key} has {count} signals"));
            findings.error(error.right(format!("1 to {VALUES_MAX}")));
            return None;
        }
        Some(Self(waves))
    }

    fn expected() -> String {
        "a list of signals, or a group with count".to_owned()
    }

    fn schema() -> rdmalab_config::serde_json::Value {
        rdmalab_config::serde_json::json!({ "anyOf": [Vec::<Wave>::schema(), Wave::schema()] })
    }
}

group! {
    /// The reading half.
    pub struct In with (half: Half) {
        /// The signals.
        signals: Waves;
    }
}

group! {
    /// Signals that are computed, each by its own keys.
    pub struct Config with (common: NodeCommon) {
        /// Samples a second.
        rate: f64 = 10.0, in 1e-9..=1e9;
        /// Ends after so many ticks; -1 never.
        limit: i64 = -1;
        /// One sample each tick of the clock; else as fast as the path takes them.
        realtime: bool = true;
        /// How it waits; as the gateway does, if it is left out.
        timer: Option<TimerKind>;
        /// The seed of what is random.
        seed: u64 = 1;
        /// The reading half.
        r#in: In;
    }
    ignored {
        monitor_missed: "missed ticks are always counted";
    }
}

impl Config {
    /// The node.
    ///
    /// # Errors
    /// None.
    pub fn node(self, _name: &At<String>) -> Result<Box<dyn Node>, ConfigError> {
        let (mut signals, mut generators) = (Vec::new(), Vec::new());
        for wave in &self.r#in.signals.0 {
            for _ in 0..wave.count {
                let at = signals.len();
                let name = match wave.name.as_str() {
                    "" => format!("signal{at}"),
                    name => name.to_owned(),
                };
                let unit = wave.unit.clone();
                signals.push(Signal { unit, ..Signal::new(name, Kind::Float) });
                let waveform = Waveform {
                    signal: wave.signal.0,
                    frequency: wave.frequency,
                    amplitude: wave.amplitude,
                    offset: wave.offset,
                    stddev: wave.stddev,
                    phase: wave.phase,
                    pulse_width: wave.pulse_width,
                    pulse_low: wave.pulse_low,
                    pulse_high: wave.pulse_high,
                };
                generators.push(Generator::new(waveform, at, self.seed));
            }
        }
        let Self { rate, limit, realtime, timer, .. } = self;
        let counts = NodeCounts::default();
        Ok(Box::new(Computed { signals, generators, rate, limit, realtime, timer, counts }))
    }
}
