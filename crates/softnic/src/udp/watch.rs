//! The thread of a process that does not read the socket, and watches whether anybody does.
//!
//! While nothing comes and nobody looks it sleeps in the kernel, so an idle host costs nothing.
//! Else it looks some times a second, by the clock: to be woken by packets would take time from
//! whoever reads them.

use std::time::Duration;

use super::Network;
use super::share::INTRODUCTION_MS;
use super::stall::{BETWEEN_NS, Sight, Stall, Verdict};
use crate::helper::{readable, wait_for, wait_readable};
use crate::process::Process;

impl Network {
    fn sight(&self) -> Sight {
        let mut polls = readable(&[self.fd()]);
        // What is not taken lies there before and after the other looks.
        let (term, looks) = (self.office.term(), self.office.looks());
        wait_for(&mut polls, 0);
        Sight { term, looks, readable: polls[0].revents & libc::POLLIN != 0 }
    }
}

impl Process {
    /// Takes the place of a reader that stalls, over and over.
    pub(super) fn watch_reader(&self, network: &Network) {
        let mut stall = Stall::default();
        loop {
            network.office.wait_while_ours();
            match stall.look(network.sight()) {
                Verdict::Lively => {}
                Verdict::Idle => {
                    wait_readable(&[network.fd()], -1);
                    // If it was an error that woke us, nothing lies there: the pause follows.
                    stall.look(network.sight());
                }
                Verdict::Stalled => self.take_the_place(network, &mut stall),
            }
            std::thread::sleep(Duration::from_nanos(BETWEEN_NS));
        }
    }

    fn take_the_place(&self, network: &Network, stall: &mut Stall) {
        let strangers = self.introduce_within(INTRODUCTION_MS);
        let sight = network.sight();
        if stall.look(sight) == Verdict::Stalled
            && self.begin_to_read(network, sight.term)
            && !strangers.is_empty()
        {
            self.introduce_to_everybody();
        }
    }
}
