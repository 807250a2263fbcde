//! `average`: the mean of some signals as a signal of its own.

use serde::{Deserialize, Serialize};

use super::select::{SignalKey, select};
use crate::hook::{Hook, HookError, Verdict};
use crate::kind::Kind;
use crate::option_error::OptionError;
use crate::sample::SampleMut;
use crate::signal::Signal;
use crate::timestamp::Timestamp;
use crate::value::Value;

/// The options of `average`.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// The number that the average gets among the signals. It must be given.
    pub offset: Option<usize>,
    /// A signal.
    pub signal: Option<SignalKey>,
    /// Several signals.
    pub signals: Vec<SignalKey>,
}

/// `average`: inserts the mean of some floats and integers as a signal `average`. It is
/// not-a-number if the sample has none of them.
#[derive(Clone, Debug)]
pub struct Average {
    offset: usize,
    signals: Vec<(usize, Kind)>,
}

impl Average {
    /// The hook with these options. It changes `signals` to what they are behind it.
    ///
    /// # Errors
    /// If there is no such signal, it is no number, or the offset is too large.
    pub fn new(options: Options, signals: &mut Vec<Signal>) -> Result<Self, OptionError> {
        let Options { offset, signal, signals: several } = options;
        let offset = OptionError::given("offset", offset)?;
        let selected = select(signal, several, signals)?;
        let selected: Vec<_> = selected.into_iter().map(|i| (i, signals[i].kind)).collect();
        let is_number = |(_, kind): &&(usize, Kind)| matches!(kind, Kind::Float | Kind::Integer);
        if let Some((i, kind)) = selected.iter().find(|signal| !is_number(signal)) {
            let what =
                format!("`{}` is {kind}: only floats and integers have a mean", signals[*i].name);
            return Err(OptionError::new("signals", what));
        }
        if offset > signals.len() {
            let what = format!("must be at most the number of signals, {}", signals.len());
            return Err(OptionError::new("offset", what));
        }
        signals.insert(offset, Signal::new("average", Kind::Float));
        Ok(Self { offset, signals: selected })
    }
}

impl Hook for Average {
    fn name(&self) -> &'static str {
        "average"
    }

    fn process(
        &mut self,
        sample: &mut SampleMut<'_>,
        _: &dyn Fn() -> Timestamp,
    ) -> Result<Verdict, HookError> {
        let known = sample.as_ref();
        let values =
            self.signals.iter().filter_map(|(i, kind)| Some(known.value(*i)?.to_float(*kind)));
        let (count, sum) = values.fold((0_u32, 0.0), |(n, sum), value| (n + 1, sum + value));
        let mean = sum / f64::from(count);
        let length = known.len();
        if length < self.offset {
            return Err(HookError::new(
                "the sample has fewer values than the offset of the average",
            ));
        }
        if !sample.push(Value::default()) {
            return Err(HookError::new("the sample has no room for the average"));
        }
        for i in (self.offset..length).rev() {
            let value = sample.as_ref().value(i).unwrap_or_default();
            sample.set_value(i + 1, value);
        }
        sample.set_value(self.offset, Value::from_float(mean));
        Ok(Verdict::Pass)
    }
}
