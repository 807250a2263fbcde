//! The watchdog: the thread of a process that does not own the socket, which checks that the owner
//! reads it.
//!
//! While no packet comes and nobody reads, the watchdog sleeps in the kernel, so that an idle host
//! costs nothing. Otherwise it observes the socket a few times a second. Packets do not wake it,
//! because that would take time from the owner.

use std::time::Duration;

use super::Network;
use super::handover::HANDSHAKE_MS;
use super::io::UdpIo;
use super::stall_detector::{OBSERVATION_PERIOD_NS, Observation, StallDetector, Verdict};
use crate::poll::{readable, wait_for, wait_readable};

impl Network {
    fn observation(&self) -> Observation {
        let mut polls = readable(&[self.fd()]);
        // Unread packets lie in the socket before and after these two loads.
        let (term, reads) = (self.ownership.term(), self.ownership.reads());
        wait_for(&mut polls, 0);
        Observation { term, reads, readable: polls[0].revents & libc::POLLIN != 0 }
    }
}

impl UdpIo<'_> {
    /// The body of the watchdog thread: takes ownership whenever the owner has stalled.
    pub(super) fn watch_owner(self) {
        let network = self.network;
        let mut detector = StallDetector::default();
        loop {
            network.ownership.wait_while_owner();
            match detector.observe(network.observation()) {
                Verdict::Active => {}
                Verdict::Idle => {
                    wait_readable(&[network.fd()], -1);
                    // An error of the socket may have woken this thread: then the pause follows.
                    detector.observe(network.observation());
                }
                Verdict::Stalled => self.take_over(&mut detector),
            }
            std::thread::sleep(Duration::from_nanos(OBSERVATION_PERIOD_NS));
        }
    }

    fn take_over(self, detector: &mut StallDetector) {
        let UdpIo { process, network } = self;
        let unmet = process.host.exchange_hellos_within(HANDSHAKE_MS);
        let observation = network.observation();
        if detector.observe(observation) == Verdict::Stalled
            && self.begin_to_read(observation.term)
            && !unmet.is_empty()
        {
            process.host.exchange_hellos();
        }
    }
}
