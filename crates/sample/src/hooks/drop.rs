//! `drop`: no sample that is not newer than the last one.

use crate::hook::{Hook, HookError, Verdict};
use crate::sample::SampleMut;
use crate::timestamp::Timestamp;

/// `drop`: drops a sample whose sequence number is not above that of the last one that passed. The
/// numbers may wrap around. A sample without one passes.
#[derive(Clone, Copy, Default, Debug)]
pub struct Drop {
    last: Option<u64>,
}

impl Hook for Drop {
    fn name(&self) -> &'static str {
        "drop"
    }

    fn process(
        &mut self,
        sample: &mut SampleMut<'_>,
        _: &dyn Fn() -> Timestamp,
    ) -> Result<Verdict, HookError> {
        let Some(sequence) = sample.as_ref().sequence() else { return Ok(Verdict::Pass) };
        if self.last.is_some_and(|last| sequence.wrapping_sub(last).cast_signed() <= 0) {
            return Ok(Verdict::Drop);
        }
        self.last = Some(sequence);
        Ok(Verdict::Pass)
    }

    fn restart(&mut self) {
        self.last = None;
    }
}
