//! What rules about options have in common.

use rdmalab_rank::Stopped;

use crate::common::completions::failed;
use crate::common::params::{Common, Op, Polling};

/// Most memory for messages at one end.
pub const MEMORY_MAX_BYTES: u64 = 8 << 30;
/// Most messages of a point that have samples each: an end keeps up to 27 bytes of each.
pub const SAMPLES_MAX: u64 = 1 << 25;
/// Bytes that an atomic works on (IBA 9.4.5).
pub const ATOMIC_BYTES: u64 = 8;
/// Bytes of a message that carry its number.
pub const NUMBER_BYTES: u64 = 8;

/// What a rule finds: the option, and why.
pub type Fault = (&'static str, String);

pub(crate) fn must(
    holds: bool,
    option: &'static str,
    reason: impl FnOnce() -> String,
) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err((option, reason())) }
}

/// The failure of a rule that can be checked only at run time, when the number of ranks is known.
pub(crate) fn refused((option, reason): Fault) -> Stopped {
    failed(format!("--{option}: {reason}"))
}

/// Rejects waiting for events if the target has to notice a WRITE, which raises no event.
pub(crate) fn write_is_looked_for(common: &Common) -> Result<(), Fault> {
    let looks = common.op == Op::Write;
    must(!looks || common.poll_recv == Polling::Busy, "poll-recv", || {
        "a WRITE raises no event at its target, which must poll its memory: choose --op \
         write_imm, or --poll-recv busy"
            .to_owned()
    })
}

/// Checks that each thread's share of the send queue has at least `least` requests.
pub(crate) fn share_of_send_queue(common: &Common, least: u32) -> Result<(), Fault> {
    let share = common.of_a_thread().tx_depth;
    must(common.sharers() == 1 || share >= least, "tx-depth", || {
        format!(
            "{} threads share the send queue, and each needs room for {least} requests: choose {} \
             or more",
            common.threads,
            least * common.threads
        )
    })
}
