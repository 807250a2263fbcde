//! On-Demand Paging of a device: pages come some random time after they were asked for, and queue
//! pairs with a fault context learn of them later still.

use std::collections::BTreeSet;

use rdmalab_engine::odp::{Page, Paging, Side, Span};
use rdmalab_random::Random;
use rdmalab_wire::ids::Qpn;

/// Longest time until a page comes, and then until a queue pair learns of it, ns.
const LONGEST_NS: u64 = 1_000_000;

/// The pages of a device whose regions are all paged on demand.
#[derive(Debug)]
pub struct PagedMemory {
    /// Which pages the device can reach.
    pub pages: Paging,
    /// What happens when.
    due: Vec<(u64, Due)>,
    /// The queue pairs that found a page missing: nobody else is told that one has come.
    pub(super) waiting: BTreeSet<Qpn>,
    /// The queue pairs that hold back an RNR NAK for a fault until now, once for each NAK.
    pub(super) naks: Vec<Qpn>,
    /// Those that began to do so since the last call of [`PagedMemory::work`].
    held: Vec<Qpn>,
    random: Random,
}

#[derive(Clone, Copy, Debug)]
enum Due {
    Page(Page),
    Resume(Qpn),
    Nak(Qpn),
}

impl PagedMemory {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let contexts = random.pick(&[0, 0, 1, 3]);
        PagedMemory {
            pages: Paging::new(contexts),
            due: Vec::new(),
            waiting: BTreeSet::new(),
            naks: Vec::new(),
            held: Vec::new(),
            random,
        }
    }

    fn draw_ns(&mut self, now_ns: u64) -> u64 {
        now_ns + self.random.between(1, LONGEST_NS)
    }

    /// Schedules what was asked for, and lets come what is due. Says whether something came.
    pub(super) fn work(&mut self, now_ns: u64) -> bool {
        for page in self.pages.take_raised() {
            let at_ns = self.draw_ns(now_ns);
            self.due.push((at_ns, Due::Page(page)));
        }
        for qpn in std::mem::take(&mut self.held) {
            let at_ns = self.draw_ns(now_ns);
            self.due.push((at_ns, Due::Nak(qpn)));
        }
        let is_due = |(at_ns, _): &(u64, Due)| *at_ns <= now_ns;
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.due).into_iter().partition(is_due);
        self.due = later;
        for (_, due) in &due {
            match *due {
                Due::Resume(qpn) => self.pages.resume(qpn),
                Due::Nak(qpn) => self.naks.push(qpn),
                Due::Page(page) => {
                    for qpn in self.pages.resolve(page) {
                        let at_ns = self.draw_ns(now_ns);
                        self.due.push((at_ns, Due::Resume(qpn)));
                    }
                }
            }
        }
        !due.is_empty()
    }

    pub(super) fn access(&mut self, key: u32, span: &Span, qpn: Qpn, side: Side) -> u64 {
        let present = self.pages.access(key, span, qpn, side);
        if present < span.bytes {
            self.waiting.insert(qpn);
        }
        present
    }

    /// Whether the RNR NAK for a fault leaves later: every second one.
    pub(super) fn holds_nak(&mut self, qpn: Qpn) -> bool {
        let holds = self.random.pick(&[true, false]);
        if holds {
            self.held.push(qpn);
        }
        holds
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        self.due.iter().map(|(at_ns, ..)| *at_ns).min()
    }

    /// Takes some pages away, as a change of the memory map does.
    pub fn invalidate_some(&mut self, base: u64, bytes: u64) {
        let from = base + self.random.below(bytes);
        let length = self.random.between(1, 20_000);
        self.pages.invalidate(from, length);
    }
}
