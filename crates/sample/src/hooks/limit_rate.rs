//! `limit_rate`: not more than so many samples a second.

use serde::{Deserialize, Serialize};

use crate::hook::{Hook, HookError, Verdict};
use crate::option_error::OptionError;
use crate::sample::SampleMut;
use crate::timestamp::Timestamp;

/// Whose time counts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The time when the sample passes here.
    #[default]
    Local,
    /// The time of arrival.
    Received,
    /// The time of origin.
    Origin,
}

/// The options of `limit_rate`.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// How many samples a second pass at most. It must be given.
    pub rate: Option<f64>,
    /// Whose time counts.
    pub mode: Mode,
}

/// `limit_rate`: drops a sample that comes too soon after the last one that passed. A sample
/// without the time that counts passes.
#[derive(Clone, Copy, Debug)]
pub struct LimitRate {
    mode: Mode,
    dead_time_ns: i128,
    last: Option<Timestamp>,
}

impl LimitRate {
    /// The hook with these options.
    ///
    /// # Errors
    /// If the rate is not given or not above 0.
    pub fn new(options: Options) -> Result<Self, OptionError> {
        let rate = OptionError::given("rate", options.rate)?;
        if !(rate > 0.0 && rate.is_finite()) {
            return Err(OptionError::new("rate", "must be above 0"));
        }
        let dead_time_ns = (1e9 / rate).round() as i128;
        Ok(Self { mode: options.mode, dead_time_ns, last: None })
    }
}

impl Hook for LimitRate {
    fn name(&self) -> &'static str {
        "limit_rate"
    }

    fn process(
        &mut self,
        sample: &mut SampleMut<'_>,
        now: &dyn Fn() -> Timestamp,
    ) -> Result<Verdict, HookError> {
        let time = match self.mode {
            Mode::Local => Some(now()),
            Mode::Received => sample.as_ref().received(),
            Mode::Origin => sample.as_ref().origin(),
        };
        let Some(time) = time else { return Ok(Verdict::Pass) };
        if self.last.is_some_and(|last| time.ns_since(last) < self.dead_time_ns) {
            return Ok(Verdict::Drop);
        }
        self.last = Some(time);
        Ok(Verdict::Pass)
    }

    fn restart(&mut self) {
        self.last = None;
    }
}
