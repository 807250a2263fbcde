//! When the helper looks at the network although callers are active.
//!
//! A caller that polls reads the socket itself, and being woken for each packet would only take its
//! processor away. But a caller that posts, and then spins on memory that a peer will WRITE to,
//! reads nothing: from the outside both look alike. So the helper is woken by packets as long as
//! that is of use, and leaves the network alone for a while when callers were faster each time.

use std::sync::atomic::Ordering;

use super::Wire;
use crate::process::Process;

/// Pauses of the processor while the helper waits whether a caller looks: about a microsecond.
const GRACE_LOOKS: u32 = 40;
/// So often in a row callers have to be faster.
const VAIN_MAX: u32 = 4;
/// The network is left alone for so many rounds of the helper (of 2 ms) at most.
const ROUNDS_MAX: u32 = 16;

/// See the module's text.
#[derive(Default)]
pub(crate) struct Vigil {
    /// Times in a row that a caller was faster.
    vain: u32,
    /// Rounds to leave the network alone.
    skip: u32,
    /// How many rounds it will be next.
    next_skip: u32,
}

impl Vigil {
    /// Whether packets are to wake the helper in this round; a program that sleeps on a channel's
    /// descriptor (`asked`) needs it in every one.
    pub(crate) fn is_due(&mut self, asked: bool) -> bool {
        if asked || self.skip == 0 {
            return true;
        }
        self.skip -= 1;
        false
    }

    /// The round is over: takes what came, unless a caller does.
    pub(crate) fn look(&mut self, process: &Process, wire: &Wire) {
        let before = wire.looks.load(Ordering::Relaxed);
        for _ in 0..GRACE_LOOKS {
            std::hint::spin_loop();
            if wire.looks.load(Ordering::Relaxed) != before {
                return self.was_vain();
            }
        }
        if process.take_from_wire() > 0 {
            self.was_of_use();
        }
    }

    fn was_of_use(&mut self) {
        (self.vain, self.next_skip) = (0, 1);
    }

    fn was_vain(&mut self) {
        self.vain += 1;
        if self.vain >= VAIN_MAX {
            self.vain = 0;
            self.skip = self.next_skip.max(1);
            self.next_skip = (self.skip * 2).min(ROUNDS_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_longer_and_longer_while_callers_are_faster() {
        let mut vigil = Vigil::default();
        for expected in [1, 2, 4, 8, 16, 16] {
            for _ in 0..VAIN_MAX {
                assert!(vigil.is_due(false));
                vigil.was_vain();
            }
            for _ in 0..expected {
                assert!(!vigil.is_due(false));
            }
        }
        vigil.was_of_use();
        for _ in 0..VAIN_MAX {
            assert!(vigil.is_due(false));
            vigil.was_vain();
        }
        assert!(!vigil.is_due(false), "one round again");
        vigil.skip = 1;
        assert!(vigil.is_due(true), "a sleeper needs it");
        assert!(!vigil.is_due(false));
        assert!(vigil.is_due(false));
    }
}
