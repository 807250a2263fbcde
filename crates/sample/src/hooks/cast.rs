//! `cast`: another kind, name or unit for signals.

use serde::{Deserialize, Serialize};

use super::select::{SignalKey, select};
use crate::hook::{Hook, HookError, Verdict};
use crate::kind::Kind;
use crate::option_error::OptionError;
use crate::sample::SampleMut;
use crate::signal::Signal;
use crate::timestamp::Timestamp;

/// The options of `cast`.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// A signal.
    pub signal: Option<SignalKey>,
    /// Several signals.
    pub signals: Vec<SignalKey>,
    /// The kind that they get, if another one.
    pub new_type: Option<Kind>,
    /// The name that they get, if another one.
    pub new_name: Option<String>,
    /// The unit that they get, if another one.
    pub new_unit: Option<String>,
}

/// `cast`: gives signals another kind, name or unit. See [`crate::Value::cast`].
#[derive(Clone, Debug)]
pub struct Cast {
    /// Numbers of the signals, and their kinds before and after.
    signals: Vec<(usize, Kind, Kind)>,
}

impl Cast {
    /// The hook with these options. It changes `signals` to what they are behind it.
    ///
    /// # Errors
    /// If there is no such signal.
    pub fn new(options: Options, signals: &mut [Signal]) -> Result<Self, OptionError> {
        let mut selected = select(options.signal, options.signals, signals)?;
        selected.sort_unstable();
        selected.dedup();
        let cast = |i: usize| {
            let signal = &mut signals[i];
            let (before, after) = (signal.kind, options.new_type.unwrap_or(signal.kind));
            signal.init = signal.init.cast(before, after);
            signal.kind = after;
            options.new_name.iter().for_each(|name| signal.name.clone_from(name));
            options.new_unit.iter().for_each(|unit| signal.unit.clone_from(unit));
            (i, before, after)
        };
        Ok(Self { signals: selected.into_iter().map(cast).collect() })
    }
}

impl Hook for Cast {
    fn name(&self) -> &'static str {
        "cast"
    }

    fn process(
        &mut self,
        sample: &mut SampleMut<'_>,
        _: &dyn Fn() -> Timestamp,
    ) -> Result<Verdict, HookError> {
        for (i, before, after) in &self.signals {
            if let Some(value) = sample.as_ref().value(*i) {
                sample.set_value(*i, value.cast(*before, *after));
            }
        }
        Ok(Verdict::Pass)
    }
}
