//! `shift_seq`: other sequence numbers.

use serde::{Deserialize, Serialize};

use crate::hook::{Hook, HookError, Verdict};
use crate::option_error::OptionError;
use crate::sample::SampleMut;
use crate::timestamp::Timestamp;

/// The options of `shift_seq`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// What is added, in 64 bits that wrap around. It must be given.
    pub offset: Option<i64>,
}

/// `shift_seq`: adds to the sequence number, if it is known.
#[derive(Clone, Copy, Debug)]
pub struct ShiftSeq {
    offset: i64,
}

impl ShiftSeq {
    /// The hook with these options.
    ///
    /// # Errors
    /// If the offset is not given.
    pub fn new(options: Options) -> Result<Self, OptionError> {
        Ok(Self { offset: OptionError::given("offset", options.offset)? })
    }
}

impl Hook for ShiftSeq {
    fn name(&self) -> &'static str {
        "shift_seq"
    }

    fn process(
        &mut self,
        sample: &mut SampleMut<'_>,
        _: &dyn Fn() -> Timestamp,
    ) -> Result<Verdict, HookError> {
        if let Some(sequence) = sample.as_ref().sequence() {
            sample.set_sequence(sequence.wrapping_add_signed(self.offset));
        }
        Ok(Verdict::Pass)
    }
}
