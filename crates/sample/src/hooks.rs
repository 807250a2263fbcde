//! The hooks, each in a file.

pub mod average;
pub mod cast;
pub mod decimate;
pub mod drop;
pub mod limit_rate;
pub mod limit_value;
pub mod print;
pub mod round;
pub mod scale;
pub mod select;
pub mod shift_seq;
pub mod shift_ts;
pub mod skip_first;
pub mod stats;
#[cfg(test)]
mod tests;
pub mod ts;

use serde::{Deserialize, Serialize};

use crate::hook::Hook;
use crate::option_error::OptionError;
use crate::signal::Signal;

/// A hook and its options, as an object of a configuration describes it: the member `type` names
/// the hook. The members `enabled` and `priority` are the caller's. Each option may be left out
/// here; [`HookOptions::build`] refuses a hook that lacks one without default.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum HookOptions {
    /// `average`
    Average(average::Options),
    /// `cast`
    Cast(cast::Options),
    /// `decimate`
    Decimate(decimate::Options),
    /// `drop`
    Drop {},
    /// `limit_rate`
    LimitRate(limit_rate::Options),
    /// `limit_value`
    LimitValue(limit_value::Options),
    /// `print`
    Print(print::Options),
    /// `round`
    Round(round::Options),
    /// `scale`
    Scale(scale::Options),
    /// `shift_seq`
    ShiftSeq(shift_seq::Options),
    /// `shift_ts`
    ShiftTs(shift_ts::Options),
    /// `skip_first`
    SkipFirst(skip_first::Options),
    /// `stats`
    Stats(stats::Options),
    /// `ts`
    Ts {},
}

impl HookOptions {
    /// The names of all hooks.
    pub const NAMES: [&str; 14] = [
        "average",
        "cast",
        "decimate",
        "drop",
        "limit_rate",
        "limit_value",
        "print",
        "round",
        "scale",
        "shift_seq",
        "shift_ts",
        "skip_first",
        "stats",
        "ts",
    ];

    /// The hook for samples of `signals`, which become what they are behind it.
    ///
    /// # Errors
    /// If an option is out of its range, or a signal is unknown or of the wrong kind.
    pub fn build(self, signals: &mut Vec<Signal>) -> Result<Box<dyn Hook>, OptionError> {
        Ok(match self {
            Self::Average(options) => Box::new(average::Average::new(options, signals)?),
            Self::Cast(options) => Box::new(cast::Cast::new(options, signals)?),
            Self::Decimate(options) => Box::new(decimate::Decimate::new(options)?),
            Self::Drop {} => Box::new(drop::Drop::default()),
            Self::LimitRate(options) => Box::new(limit_rate::LimitRate::new(options)?),
            Self::LimitValue(options) => Box::new(limit_value::LimitValue::new(options, signals)?),
            Self::Print(options) => Box::new(print::Print::new(options, signals)?),
            Self::Round(options) => Box::new(round::Round::new(options, signals)?),
            Self::Scale(options) => Box::new(scale::Scale::new(options, signals)?),
            Self::ShiftSeq(options) => Box::new(shift_seq::ShiftSeq::new(options)?),
            Self::ShiftTs(options) => Box::new(shift_ts::ShiftTs::new(options)?),
            Self::SkipFirst(options) => Box::new(skip_first::SkipFirst::new(options)?),
            Self::Stats(options) => Box::new(stats::Stats::new(&options)),
            Self::Ts {} => Box::new(ts::Ts),
        })
    }
}
