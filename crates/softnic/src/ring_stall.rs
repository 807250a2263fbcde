//! A full ring that its reader leaves as it is.

use std::sync::atomic::{AtomicU64, Ordering};

/// How long datagrams wait for a peer that takes nothing out of its full ring, ns. Whoever makes
/// progress empties it, whether receives are posted or not; only a stopped process does not.
pub(crate) const STUCK_NS: u64 = 100_000_000;

/// How long a peer has left its full ring as it is.
#[derive(Default)]
pub(crate) struct RingStall {
    consumed: AtomicU64,
    since_ns: AtomicU64,
}

impl RingStall {
    /// Whether a ring that is full now, with `consumed` bytes taken, was so for too long.
    pub(crate) fn is_stuck(&self, consumed: u64, now_ns: u64) -> bool {
        if self.consumed.swap(consumed, Ordering::Relaxed) != consumed
            || self.since_ns.load(Ordering::Relaxed) == 0
        {
            self.since_ns.store(now_ns, Ordering::Relaxed);
        }
        now_ns.saturating_sub(self.since_ns.load(Ordering::Relaxed)) >= STUCK_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_lasts_while_something_moves() {
        let ring_stall = RingStall::default();
        assert!(!ring_stall.is_stuck(0, 1));
        assert!(!ring_stall.is_stuck(0, STUCK_NS));
        assert!(ring_stall.is_stuck(0, STUCK_NS + 1));
        assert!(ring_stall.is_stuck(0, 2 * STUCK_NS));
        assert!(!ring_stall.is_stuck(64, 2 * STUCK_NS), "it took something");
        assert!(ring_stall.is_stuck(64, 3 * STUCK_NS));
    }
}
