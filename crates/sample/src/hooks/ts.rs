//! `ts`: the time of arrival as origin.

use crate::hook::{Hook, HookError, Verdict};
use crate::sample::SampleMut;
use crate::timestamp::Timestamp;

/// `ts`: the origin becomes the time of arrival, or now if that is not known.
#[derive(Clone, Copy, Debug)]
pub struct Ts;

impl Hook for Ts {
    fn name(&self) -> &'static str {
        "ts"
    }

    fn process(
        &mut self,
        sample: &mut SampleMut<'_>,
        now: &dyn Fn() -> Timestamp,
    ) -> Result<Verdict, HookError> {
        let received = sample.as_ref().received();
        sample.set_origin(received.unwrap_or_else(now));
        Ok(Verdict::Pass)
    }
}
