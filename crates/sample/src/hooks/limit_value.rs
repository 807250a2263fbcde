//! `limit_value`: values within a range.

use serde::{Deserialize, Serialize};

use super::select::{SignalKey, select};
use crate::hook::{Hook, HookError, Verdict};
use crate::kind::Kind;
use crate::option_error::OptionError;
use crate::sample::SampleMut;
use crate::signal::Signal;
use crate::timestamp::Timestamp;
use crate::value::Value;

/// The options of `limit_value`.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// A signal.
    pub signal: Option<SignalKey>,
    /// Several signals.
    pub signals: Vec<SignalKey>,
    /// The lowest value that passes unchanged. It must be given.
    pub min: Option<f64>,
    /// The highest value that passes unchanged. It must be given.
    pub max: Option<f64>,
}

/// `limit_value`: moves floats and integers into a range. Not-a-number stays.
#[derive(Clone, Debug)]
pub struct LimitValue {
    signals: Vec<(usize, Kind)>,
    min: f64,
    max: f64,
}

impl LimitValue {
    /// The hook with these options for samples of `signals`.
    ///
    /// # Errors
    /// If there is no such signal, it is no number, or the range is empty.
    pub fn new(options: Options, signals: &[Signal]) -> Result<Self, OptionError> {
        let Options { signal, signals: several, min, max } = options;
        let (min, max) = (OptionError::given("min", min)?, OptionError::given("max", max)?);
        if min.is_nan() || max.is_nan() || min > max {
            return Err(OptionError::new("min", "must be a number that is not above `max`"));
        }
        let selected = select(signal, several, signals)?;
        let selected: Vec<_> = selected.into_iter().map(|i| (i, signals[i].kind)).collect();
        let is_number = |kind: Kind| matches!(kind, Kind::Float | Kind::Integer);
        if let Some((i, kind)) = selected.iter().find(|(_, kind)| !is_number(*kind)) {
            let what =
                format!("`{}` is {kind}: only floats and integers have limits", signals[*i].name);
            return Err(OptionError::new("signals", what));
        }
        Ok(Self { signals: selected, min, max })
    }
}

impl Hook for LimitValue {
    fn name(&self) -> &'static str {
        "limit_value"
    }

    fn process(
        &mut self,
        sample: &mut SampleMut<'_>,
        _: &dyn Fn() -> Timestamp,
    ) -> Result<Verdict, HookError> {
        for (i, kind) in &self.signals {
            let Some(value) = sample.as_ref().value(*i) else { continue };
            let number = value.to_float(*kind);
            if number < self.min || number > self.max {
                let limit = Value::from_float(number.clamp(self.min, self.max));
                sample.set_value(*i, limit.cast(Kind::Float, *kind));
            }
        }
        Ok(Verdict::Pass)
    }
}
