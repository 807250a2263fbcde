//! `decimate`: one of every few samples.

use serde::{Deserialize, Serialize};

use crate::hook::{Hook, HookError, Verdict};
use crate::option_error::OptionError;
use crate::sample::SampleMut;
use crate::timestamp::Timestamp;

/// The options of `decimate`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// One of how many samples passes. It must be given.
    pub ratio: Option<u64>,
    /// Whether sequence numbers are divided by the ratio.
    pub renumber: bool,
}

/// `decimate`: lets the first of every few samples pass.
#[derive(Clone, Copy, Debug)]
pub struct Decimate {
    ratio: u64,
    renumber: bool,
    /// Samples since the last one that passed.
    count: u64,
}

impl Decimate {
    /// The hook with these options.
    ///
    /// # Errors
    /// If the ratio is 0 or not given.
    pub fn new(options: Options) -> Result<Self, OptionError> {
        let ratio = OptionError::given("ratio", options.ratio)?;
        if ratio == 0 {
            return Err(OptionError::new("ratio", "must be at least 1"));
        }
        Ok(Self { ratio, renumber: options.renumber, count: 0 })
    }
}

impl Hook for Decimate {
    fn name(&self) -> &'static str {
        "decimate"
    }

    fn process(
        &mut self,
        sample: &mut SampleMut<'_>,
        _: &dyn Fn() -> Timestamp,
    ) -> Result<Verdict, HookError> {
        let passes = self.count == 0;
        self.count = (self.count + 1) % self.ratio;
        if !passes {
            return Ok(Verdict::Drop);
        }
        if let Some(sequence) = sample.as_ref().sequence().filter(|_| self.renumber) {
            sample.set_sequence(sequence / self.ratio);
        }
        Ok(Verdict::Pass)
    }

    fn restart(&mut self) {
        self.count = 0;
    }
}
