//! `shift_ts`: other times.

use serde::{Deserialize, Serialize};

use crate::hook::{Hook, HookError, Verdict};
use crate::option_error::OptionError;
use crate::sample::SampleMut;
use crate::timestamp::Timestamp;

/// Which time is shifted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The time of origin.
    #[default]
    Origin,
    /// The time of arrival.
    Received,
}

/// The options of `shift_ts`.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Which time is shifted.
    pub mode: Mode,
    /// Seconds that are added. They must be given.
    pub offset: Option<f64>,
}

/// `shift_ts`: adds to a time, if it is known.
#[derive(Clone, Copy, Debug)]
pub struct ShiftTs {
    mode: Mode,
    offset_ns: i128,
}

impl ShiftTs {
    /// The hook with these options.
    ///
    /// # Errors
    /// If the offset is not given or no number.
    pub fn new(options: Options) -> Result<Self, OptionError> {
        let offset = OptionError::given("offset", options.offset)?;
        if !offset.is_finite() {
            return Err(OptionError::new("offset", "must be a number of seconds"));
        }
        Ok(Self { mode: options.mode, offset_ns: (offset * 1e9).round() as i128 })
    }
}

impl Hook for ShiftTs {
    fn name(&self) -> &'static str {
        "shift_ts"
    }

    fn process(
        &mut self,
        sample: &mut SampleMut<'_>,
        _: &dyn Fn() -> Timestamp,
    ) -> Result<Verdict, HookError> {
        let known = sample.as_ref();
        match self.mode {
            Mode::Origin => {
                if let Some(origin) = known.origin() {
                    sample.set_origin(origin.plus_ns(self.offset_ns));
                }
            }
            Mode::Received => {
                if let Some(received) = known.received() {
                    sample.set_received(received.plus_ns(self.offset_ns));
                }
            }
        }
        Ok(Verdict::Pass)
    }
}
