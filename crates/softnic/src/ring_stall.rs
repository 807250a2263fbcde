//! Detects a ring that stays full because its reader is stopped.

use std::sync::atomic::{AtomicU64, Ordering};

/// How long datagrams wait for a peer that takes nothing from its full ring, ns. A running process
/// empties its rings even if no receives are posted; a stopped one does not.
pub(crate) const STUCK_NS: u64 = 100_000_000;

/// Measures how long a ring has been full without its reader taking anything.
#[derive(Default)]
pub(crate) struct RingStall {
    consumed: AtomicU64,
    since_ns: AtomicU64,
}

impl RingStall {
    /// Whether a full ring has been full for too long. `consumed`: bytes that its reader has taken.
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
    fn a_ring_is_not_stuck_while_its_reader_takes_something() {
        let ring_stall = RingStall::default();
        assert!(!ring_stall.is_stuck(0, 1));
        assert!(!ring_stall.is_stuck(0, STUCK_NS));
        assert!(ring_stall.is_stuck(0, STUCK_NS + 1));
        assert!(ring_stall.is_stuck(0, 2 * STUCK_NS));
        assert!(!ring_stall.is_stuck(64, 2 * STUCK_NS), "it took something");
        assert!(ring_stall.is_stuck(64, 3 * STUCK_NS));
    }
}
