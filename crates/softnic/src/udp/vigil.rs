//! When the helper looks at the network although callers are active.
//!
//! A caller that polls reads the socket itself, and being woken for each packet would only take its
//! processor away. But a caller that posts, and then spins on memory that a peer will WRITE to,
//! reads nothing: from the outside both look alike. So the helper is woken by packets as long as
//! that is of use, and leaves the network alone for a while when callers were faster each time.
//!
//! Being woken in vain is dear where both share a processor: the helper takes it from the caller,
//! finds the socket empty and sleeps on, all within one call, and never learns of it. Measured with
//! each end bound to a processor: round trips of 52 us instead of 11. So it does not wait long at a
//! time, and looks what callers took meanwhile.

use std::sync::atomic::Ordering;

use super::Network;
use super::course::LOOKS_PER_TURN;
use crate::clock::now_ns;
use crate::helper::{readable, wait_for};
use crate::process::Process;

/// What callers are given to take a packet that woke the helper, ns: more than one that polls takes
/// between two looks, sending in between. It is what a WRITE to a program that spins on memory
/// pays.
const LATELY_NS: u64 = 20_000;
/// So often in a row callers have to be faster.
const VAIN_MAX: u32 = 4;
/// While the network is left alone, the helper looks after so long whether callers still poll, ns.
/// Those that did not look for all that time have stopped. Each time they did, the next nap is
/// twice as long: waking takes the processor from a caller that is bound to it. Measured with a nap
/// of 0.4 ms throughout: a tenth of all round trips took twice as long.
const NAP_NS: u64 = 400_000;
/// Naps are doubled so often at most: then they last for a whole round.
const NAP_DOUBLINGS: u32 = 3;
/// The first wait for packets that callers may take as well, ns. As long as nothing comes at all,
/// each is twice as long as the one before.
const PROBE_NS: u64 = 100_000;
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
    /// How often the nap was doubled.
    doublings: u32,
}

impl Vigil {
    /// One round of watching: sleeps for `round_ns`, or until one of `others` is readable, and
    /// meanwhile takes from the network what callers do not. A program that sleeps on a channel's
    /// descriptor (`asked`) needs that in every round. Returns whether one of `others` is readable.
    pub(crate) fn watch(
        &mut self,
        process: &Process,
        network: &Network,
        others: [i32; 3],
        round_ns: u64,
    ) -> bool {
        let asked = process.helper.wants_bell_armed();
        let end_ns = now_ns() + round_ns;
        let mut heed = self.begin(asked);
        let mut probe_ns = PROBE_NS;
        loop {
            let left_ns = end_ns.saturating_sub(now_ns());
            if left_ns == 0 {
                return false;
            }
            let network_fd = if heed { network.fd_to_poll() } else { -1 };
            let mut polls = readable(&[others[0], others[1], others[2], network_fd]);
            let taken = network.taken.load(Ordering::Relaxed);
            let looks = network.looks.load(Ordering::Relaxed);
            let naps = !heed && left_ns >= NAP_NS;
            let pause_ns = if heed { probe_ns } else { NAP_NS << self.doublings };
            wait_for(&mut polls, left_ns.min(pause_ns));
            let [others @ .., network_fd] = polls.map(|poll| poll.revents != 0);
            let woken = network_fd || others.contains(&true);
            let looked = network.looks.load(Ordering::Relaxed).wrapping_sub(looks);
            if !woken && looked < u64::from(LOOKS_PER_TURN) && network.has_flow() {
                // Hardly anybody reads a peer's own socket, and it wakes nobody.
                process.end_flow();
            }
            if network_fd {
                heed = self.look(process, network, asked);
            } else if heed && network.taken.load(Ordering::Relaxed) != taken {
                // Each of these packets woke us, perhaps, and was gone when we looked.
                self.was_vain();
                heed = asked || self.skip == 0;
            } else {
                probe_ns *= 2;
            }
            if others.contains(&true) {
                return true;
            }
            if naps {
                heed = self.rested(network.looks.load(Ordering::Relaxed) != looks);
            }
        }
    }

    /// Whether packets are to wake the helper in this round.
    fn begin(&mut self, asked: bool) -> bool {
        if asked || self.skip == 0 {
            return true;
        }
        self.skip -= 1;
        false
    }

    /// Something came: takes it, unless a caller does. Returns whether to go on heeding.
    fn look(&mut self, process: &Process, network: &Network, asked: bool) -> bool {
        let looks = network.looks.load(Ordering::Relaxed);
        // Always: a caller that did not look lately may have had no processor because of us.
        rest();
        if network.looks.load(Ordering::Relaxed) != looks {
            self.was_vain();
            return asked || self.skip == 0;
        }
        if process.read_network() > 0 {
            self.was_of_use();
            return true;
        }
        // A caller has it, or is at it and perhaps waits for this very processor, which we would
        // keep from it by looking again at once.
        rest();
        self.was_vain();
        asked || self.skip == 0
    }

    /// After a nap in which callers polled, or did not. Returns whether to heed the network.
    fn rested(&mut self, polled: bool) -> bool {
        if polled {
            self.doublings = (self.doublings + 1).min(NAP_DOUBLINGS);
            return false;
        }
        // Whoever polled has stopped: what comes now is ours.
        (self.skip, self.doublings) = (0, 0);
        true
    }

    fn was_of_use(&mut self) {
        (self.vain, self.next_skip, self.doublings) = (0, self.next_skip / 2, 0);
    }

    fn was_vain(&mut self) {
        self.vain += 1;
        if self.vain >= VAIN_MAX {
            // Until it is of use again, once more is enough.
            self.vain = VAIN_MAX - 1;
            self.skip = self.next_skip.max(1);
            self.next_skip = (self.skip * 2).min(ROUNDS_MAX);
        }
    }
}

/// Not spinning: a caller may need this very processor.
fn rest() {
    std::thread::sleep(std::time::Duration::from_nanos(LATELY_NS));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_grow_while_callers_poll_and_end_when_they_stop() {
        let mut vigil = Vigil { skip: 5, ..Vigil::default() };
        for doublings in [1, 2, 3, 3] {
            assert!(!vigil.rested(true));
            assert_eq!((vigil.doublings, vigil.skip), (doublings, 5));
        }
        assert!(vigil.rested(false), "nobody reads the network");
        assert_eq!((vigil.doublings, vigil.skip), (0, 0));
        vigil.rested(true);
        vigil.was_of_use();
        assert_eq!(vigil.doublings, 0);
    }

    #[test]
    fn it_rests_longer_and_longer_while_callers_are_faster() {
        let mut vigil = Vigil::default();
        for _ in 1..VAIN_MAX {
            vigil.was_vain();
        }
        for expected in [1, 2, 4, 8, 16, 16] {
            assert!(vigil.begin(false));
            vigil.was_vain();
            for _ in 0..expected {
                assert!(!vigil.begin(false));
            }
        }
        for _ in 0..5 {
            vigil.was_of_use();
        }
        for _ in 0..VAIN_MAX {
            assert!(vigil.begin(false));
            vigil.was_vain();
        }
        assert!(!vigil.begin(false), "one round again");
        vigil.skip = 1;
        assert!(vigil.begin(true), "a sleeper needs it");
        assert!(!vigil.begin(false));
        assert!(vigil.begin(false));
    }
}
