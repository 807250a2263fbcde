//! `scale`: values times a factor, plus an offset.

use serde::{Deserialize, Serialize};

use super::select::{SignalKey, select};
use crate::hook::{Hook, HookError, Verdict};
use crate::kind::Kind;
use crate::option_error::OptionError;
use crate::sample::SampleMut;
use crate::signal::Signal;
use crate::timestamp::Timestamp;
use crate::value::{Complex, Value};

/// The options of `scale`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// A signal.
    pub signal: Option<SignalKey>,
    /// Several signals.
    pub signals: Vec<SignalKey>,
    /// The factor. The key may be `gain`.
    #[serde(alias = "gain")]
    pub scale: f64,
    /// What is added afterwards.
    pub offset: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { signal: None, signals: Vec::new(), scale: 1.0, offset: 0.0 }
    }
}

/// `scale`: multiplies values and adds to them. Integers are calculated as floats and cut towards
/// zero; booleans are 0 or 1, and true if the result is not 0.
#[derive(Clone, Debug)]
pub struct Scale {
    /// Numbers and kinds of the signals.
    signals: Vec<(usize, Kind)>,
    scale: f64,
    offset: f64,
}

impl Scale {
    /// The hook with these options for samples of `signals`.
    ///
    /// # Errors
    /// If there is no such signal.
    pub fn new(options: Options, signals: &[Signal]) -> Result<Self, OptionError> {
        let Options { signal, signals: several, scale, offset } = options;
        let selected = select(signal, several, signals)?;
        let signals = selected.into_iter().map(|i| (i, signals[i].kind)).collect();
        Ok(Self { signals, scale, offset })
    }

    fn scaled(&self, value: Value, kind: Kind) -> Value {
        let scaled = |number: f64| number * self.scale + self.offset;
        match kind {
            Kind::Float => Value::from_float(scaled(value.float())),
            Kind::Integer => Value::from_integer(scaled(value.integer() as f64) as i64),
            Kind::Boolean => Value::from_boolean(scaled(value.to_float(kind)) != 0.0),
            Kind::Complex => {
                let Complex { real, imaginary } = value.complex();
                Value::from_complex(Complex {
                    real: scaled(f64::from(real)) as f32,
                    imaginary: (f64::from(imaginary) * self.scale) as f32,
                })
            }
        }
    }
}

impl Hook for Scale {
    fn name(&self) -> &'static str {
        "scale"
    }

    fn process(
        &mut self,
        sample: &mut SampleMut<'_>,
        _: &dyn Fn() -> Timestamp,
    ) -> Result<Verdict, HookError> {
        for (i, kind) in &self.signals {
            if let Some(value) = sample.as_ref().value(*i) {
                sample.set_value(*i, self.scaled(value, *kind));
            }
        }
        Ok(Verdict::Pass)
    }
}
