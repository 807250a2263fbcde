//! `round`: values with few decimals.

use serde::{Deserialize, Serialize};

use super::select::{SignalKey, select};
use crate::hook::{Hook, HookError, Verdict};
use crate::kind::Kind;
use crate::option_error::OptionError;
use crate::sample::SampleMut;
use crate::signal::Signal;
use crate::timestamp::Timestamp;
use crate::value::{Complex, Value};

/// The options of `round`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// A signal.
    pub signal: Option<SignalKey>,
    /// Several signals.
    pub signals: Vec<SignalKey>,
    /// Decimals that stay.
    pub precision: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { signal: None, signals: Vec::new(), precision: 1 }
    }
}

/// The most decimals: 10 to that power is a float.
const MAX_PRECISION: u32 = 300;

/// `round`: rounds floats and both parts of complex numbers, half away from zero. Other kinds stay.
#[derive(Clone, Debug)]
pub struct Round {
    signals: Vec<(usize, Kind)>,
    factor: f64,
}

impl Round {
    /// The hook with these options for samples of `signals`.
    ///
    /// # Errors
    /// If there is no such signal, or the precision is above 300.
    pub fn new(options: Options, signals: &[Signal]) -> Result<Self, OptionError> {
        if options.precision > MAX_PRECISION {
            return Err(OptionError::new("precision", "must be from 0 to 300"));
        }
        let selected = select(options.signal, options.signals, signals)?;
        let signals = selected.into_iter().map(|i| (i, signals[i].kind)).collect();
        Ok(Self { signals, factor: 10_f64.powi(options.precision as i32) })
    }

    fn rounded(&self, number: f64) -> f64 {
        let scaled = number * self.factor;
        // What is too large to be scaled has no decimals.
        if scaled.is_finite() { scaled.round() / self.factor } else { number }
    }
}

impl Hook for Round {
    fn name(&self) -> &'static str {
        "round"
    }

    fn process(
        &mut self,
        sample: &mut SampleMut<'_>,
        _: &dyn Fn() -> Timestamp,
    ) -> Result<Verdict, HookError> {
        for (i, kind) in &self.signals {
            let Some(value) = sample.as_ref().value(*i) else { continue };
            let value = match kind {
                Kind::Float => Value::from_float(self.rounded(value.float())),
                Kind::Complex => {
                    let part = |part: f32| self.rounded(f64::from(part)) as f32;
                    let Complex { real, imaginary } = value.complex();
                    let (real, imaginary) = (part(real), part(imaginary));
                    Value::from_complex(Complex { real, imaginary })
                }
                Kind::Integer | Kind::Boolean => continue,
            };
            sample.set_value(*i, value);
        }
        Ok(Verdict::Pass)
    }
}
