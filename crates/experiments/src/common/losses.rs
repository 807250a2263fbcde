//! Messages that are lost where the transport may lose them: how many in a row are a loss, and how
//! many mean that the other end is gone.

use rdmalab_rank::Stopped;

/// Times that the end of a part is sent where messages may be lost.
pub(crate) const DONE_REPEATS: usize = 3;

/// After so many lost messages in a row an answering end takes a part to be over.
const LOSSES_TOLERATED: u64 = 20;

/// After so many lost answers in a row an asking end takes the other end to be gone, which has then
/// stopped waiting.
pub(crate) const LOST_IN_A_ROW: u64 = 3 * LOSSES_TOLERATED;

/// How long an answering end waits for the next message, where the asking one waits `limit_ns` for
/// an answer that may be lost: it goes on asking, so that a loss costs one trip; and when it is
/// through, it says so.
pub(crate) const fn through_losses_ns(limit_ns: u64) -> u64 {
    /// So much longer than that takes, ns.
    const GRACE_NS: u64 = 1_000_000_000;
    limit_ns.saturating_mul(LOSSES_TOLERATED).saturating_add(GRACE_NS)
}

/// Answers that were lost one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Losses {
    in_a_row: u64,
}

impl Losses {
    /// An answer came, or did not within `limit_ns`.
    ///
    /// # Errors
    /// When so many did not that nobody can be there. Else a rank would go on for as long as it has
    /// messages, and the others would miss it.
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
             stopped, or everything is lost on the way",
            limit_ns as f64 / 1e9
        )))
    }
}
