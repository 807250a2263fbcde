//! `shift_seq`: other sequence numbers.

use serde::{Deserialize, Serialize};

use crate::hook::{Hook, HookError, Verdict};
use crate::sample::SampleMut;
use crate::timestamp::Timestamp;

/// The options of `shift_seq`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// What is added, in 64 bits that wrap around.
    pub offset: i64,
}

/// `shift_seq`: adds to the sequence number, if it is known.
#[derive(Clone, Copy, Debug)]
pub struct ShiftSeq {
    options: Options,
}

impl ShiftSeq {
    /// The hook with these options.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options }
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
            sample.set_sequence(sequence.wrapping_add_signed(self.options.offset));
        }
        Ok(Verdict::Pass)
    }
}
