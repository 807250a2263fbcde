//! Adaptive wake-up: when packets wake the progress thread although callers are active.
//!
//! A caller that polls reads the socket itself. Waking the progress thread for each packet would
//! only take the processor from this caller. A program that posts, and then spins on memory to
//! which a peer will WRITE, does not read the socket. The device cannot tell these two apart. So
//! packets wake the thread as long as it takes them before callers do. After callers were faster
//! several times, the thread ignores the network for a while.
//!
//! A useless wake-up is expensive if thread and caller share a processor: the thread preempts the
//! caller, finds the socket empty and sleeps again, all inside one `poll` call, which does not
//! report it. With each end bound to a processor, a round trip took 52 us instead of 11. So the
//! thread waits for a short time only, and then checks which packets callers took meanwhile.

use std::sync::atomic::Ordering;

use super::UdpIo;
use super::connect_policy::READS_PER_SHARED_READ;
use crate::clock::now_ns;
use crate::poll::{readable, wait_for};

/// How long callers get to take a packet that woke the progress thread, ns: longer than a polling
/// caller takes between two polls, with a send in between. A WRITE to a program that spins on
/// memory is delayed by this time.
const CALLER_GRACE_NS: u64 = 20_000;
/// After this many useless wake-ups in a row the thread ignores the network for a while.
const USELESS_MAX: u32 = 4;
/// While the thread ignores the network, it naps this long and then checks whether callers still
/// poll, ns. If no caller polled during a nap, they have stopped. If one did, the next nap is twice
/// as long, because waking takes the processor from a caller that is bound to it. With naps of 0.4
/// ms throughout, a tenth of all round trips took twice as long.
const NAP_NS: u64 = 400_000;
/// Naps are doubled this often at most; then a nap lasts a whole round.
const NAP_DOUBLINGS: u32 = 3;
/// The first wait for packets that callers may take as well, ns. While none comes, each wait is
/// twice as long as the one before.
const PROBE_NS: u64 = 100_000;
/// The thread skips the network for at most this many of its rounds (of 2 ms).
const ROUNDS_MAX: u32 = 16;

/// See the module's text.
#[derive(Default)]
pub(crate) struct AdaptiveWakeup {
    /// Useless wake-ups in a row: a caller was faster.
    useless_wakeups: u32,
    /// Rounds left in which the network is ignored.
    rounds_to_skip: u32,
    /// How many rounds will be skipped the next time.
    next_rounds_to_skip: u32,
    /// How often the nap was doubled.
    nap_doublings: u32,
}

impl AdaptiveWakeup {
    /// Sleeps for `round_ns`, or until one of `others` is readable. Meanwhile takes the packets
    /// that callers do not take. If a program sleeps on a channel's descriptor (`sleeper`), packets
    /// wake the thread in every round. Returns whether one of `others` is readable.
    pub(crate) fn wait_round(&mut self, udp: UdpIo<'_>, others: [i32; 3], round_ns: u64) -> bool {
        let UdpIo { process, network } = udp;
        let sleeper = process.progress_thread.keeps_doorbell_armed();
        let end_ns = now_ns() + round_ns;
        let mut wakes_on_packets = self.begin_round(sleeper);
        let mut probe_ns = PROBE_NS;
        loop {
            let left_ns = end_ns.saturating_sub(now_ns());
            if left_ns == 0 {
                return false;
            }
            let network_fd = if wakes_on_packets { network.fd_to_poll() } else { -1 };
            let mut polls = readable(&[others[0], others[1], others[2], network_fd]);
            let taken = network.caller_packets.load(Ordering::Relaxed);
            let caller_polls = network.caller_polls.load(Ordering::Relaxed);
            let naps = !wakes_on_packets && left_ns >= NAP_NS;
            let pause_ns = if wakes_on_packets { probe_ns } else { NAP_NS << self.nap_doublings };
            wait_for(&mut polls, left_ns.min(pause_ns));
            let [others @ .., network_ready] = polls.map(|poll| poll.revents != 0);
            let woken = network_ready || others.contains(&true);
            let looked = network.caller_polls.load(Ordering::Relaxed).wrapping_sub(caller_polls);
            if !woken && looked < u64::from(READS_PER_SHARED_READ) && network.has_connected() {
                // Callers hardly read the connected socket, and its packets wake no thread.
                udp.disconnect_peer_socket();
            }
            if network_ready {
                wakes_on_packets = self.take_unless_callers_do(udp, sleeper);
            } else if wakes_on_packets && network.caller_packets.load(Ordering::Relaxed) != taken {
                // Each of these packets may have woken this thread in `poll`, and was gone then.
                self.was_useless();
                wakes_on_packets = sleeper || self.rounds_to_skip == 0;
            } else {
                probe_ns *= 2;
            }
            if others.contains(&true) {
                return true;
            }
            if naps {
                wakes_on_packets =
                    self.after_nap(network.caller_polls.load(Ordering::Relaxed) != caller_polls);
            }
        }
    }

    /// Whether packets are to wake the progress thread in this round.
    fn begin_round(&mut self, sleeper: bool) -> bool {
        if sleeper || self.rounds_to_skip == 0 {
            return true;
        }
        self.rounds_to_skip -= 1;
        false
    }

    /// Takes a packet that came, unless a caller takes it first. Returns whether packets wake the
    /// thread from now on.
    fn take_unless_callers_do(&mut self, udp: UdpIo<'_>, sleeper: bool) -> bool {
        let network = udp.network;
        let caller_polls = network.caller_polls.load(Ordering::Relaxed);
        // In any case: a caller that did not poll lately may wait for this processor.
        let_callers_run();
        if network.caller_polls.load(Ordering::Relaxed) != caller_polls {
            self.was_useless();
            return sleeper || self.rounds_to_skip == 0;
        }
        if udp.read(false) > 0 {
            self.was_useful();
            return true;
        }
        // A caller has the packet, or is taking it and perhaps waits for this processor. Looking
        // again at once would keep the processor from the caller.
        let_callers_run();
        self.was_useless();
        sleeper || self.rounds_to_skip == 0
    }

    /// Ends a nap in which a caller `polled`, or none. Returns whether packets wake the thread now.
    fn after_nap(&mut self, polled: bool) -> bool {
        if polled {
            self.nap_doublings = (self.nap_doublings + 1).min(NAP_DOUBLINGS);
            return false;
        }
        // No caller polls any more: this thread takes the packets from now on.
        (self.rounds_to_skip, self.nap_doublings) = (0, 0);
        true
    }

    fn was_useful(&mut self) {
        (self.useless_wakeups, self.next_rounds_to_skip, self.nap_doublings) =
            (0, self.next_rounds_to_skip / 2, 0);
    }

    fn was_useless(&mut self) {
        self.useless_wakeups += 1;
        if self.useless_wakeups >= USELESS_MAX {
            // Until a wake-up is useful again, one more useless one is enough.
            self.useless_wakeups = USELESS_MAX - 1;
            self.rounds_to_skip = self.next_rounds_to_skip.max(1);
            self.next_rounds_to_skip = (self.rounds_to_skip * 2).min(ROUNDS_MAX);
        }
    }
}

/// Sleeps and does not spin: a caller may need this processor.
fn let_callers_run() {
    std::thread::sleep(std::time::Duration::from_nanos(CALLER_GRACE_NS));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_grow_while_callers_poll_and_end_when_they_stop() {
        let mut wakeup = AdaptiveWakeup { rounds_to_skip: 5, ..AdaptiveWakeup::default() };
        for nap_doublings in [1, 2, 3, 3] {
            assert!(!wakeup.after_nap(true));
            assert_eq!((wakeup.nap_doublings, wakeup.rounds_to_skip), (nap_doublings, 5));
        }
        assert!(wakeup.after_nap(false), "nobody reads the network");
        assert_eq!((wakeup.nap_doublings, wakeup.rounds_to_skip), (0, 0));
        wakeup.after_nap(true);
        wakeup.was_useful();
        assert_eq!(wakeup.nap_doublings, 0);
    }

    #[test]
    fn it_rests_longer_and_longer_while_callers_are_faster() {
        let mut wakeup = AdaptiveWakeup::default();
        for _ in 1..USELESS_MAX {
            wakeup.was_useless();
        }
        for expected in [1, 2, 4, 8, 16, 16] {
            assert!(wakeup.begin_round(false));
            wakeup.was_useless();
            for _ in 0..expected {
                assert!(!wakeup.begin_round(false));
            }
        }
        for _ in 0..5 {
            wakeup.was_useful();
        }
        for _ in 0..USELESS_MAX {
            assert!(wakeup.begin_round(false));
            wakeup.was_useless();
        }
        assert!(!wakeup.begin_round(false), "one round again");
        wakeup.rounds_to_skip = 1;
        assert!(wakeup.begin_round(true), "a sleeper needs it");
        assert!(!wakeup.begin_round(false));
        assert!(wakeup.begin_round(false));
    }
}
