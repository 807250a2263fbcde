//! Lost messages on unreliable transports: how many losses in a row are tolerated, and how many
//! mean that the other end is gone.

use rdmalab_rank::Stopped;

/// How often the message that ends a part is sent, if messages may be lost.
pub(crate) const DONE_REPEATS: usize = 3;

/// After this many lost messages in a row, the answering end considers the part to be over.
const LOSSES_TOLERATED: u64 = 20;

/// After this many lost answers in a row, the asking end considers the other end to be gone; by
/// then the answering end has stopped waiting.
pub(crate) const LOST_IN_A_ROW: u64 = 3 * LOSSES_TOLERATED;

/// How long the answering end waits for the next message, if the asking end waits `limit_ns` for an
/// answer that may be lost. After a loss the asking end continues with the next message, and at the
/// end of the part it sends a message that says so.
pub(crate) const fn through_losses_ns(limit_ns: u64) -> u64 {
    /// Added to the time of the tolerated losses.
    const GRACE_NS: u64 = 1_000_000_000;
    limit_ns.saturating_mul(LOSSES_TOLERATED).saturating_add(GRACE_NS)
}

/// Answers that were lost one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Losses {
    in_a_row: u64,
}

impl Losses {
    /// Records whether an answer came within `limit_ns`.
    ///
    /// # Errors
    /// When so many answers are missing that the other end must be gone. Without this, a rank would
    /// go on until it has sent all its messages, while the other ranks wait for it.
    #[inline]
    pub fn note(
        &mut self,
        came: bool,
        limit_ns: u64,
        whose: impl std::fmt::Display,
    ) -> Result<(), Stopped> {
        self.in_a_row = if came { 0 } else { self.in_a_row + 1 };
        if self.in_a_row < LOST_IN_A_ROW {
            return Ok(());
        }
        Err(Stopped::TimedOut(format!(
            "{LOST_IN_A_ROW} answers of {whose} in a row did not come within {} s each: it is \
             stopped, or all packets are lost",
            limit_ns as f64 / 1e9
        )))
    }
}
