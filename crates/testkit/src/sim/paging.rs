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
    /// The RNR NAKs for faults that are held back until now: their queue pairs and numbers.
    pub(super) naks: Vec<(Qpn, u64)>,
    /// Those that are held back since the last call of [`PagedMemory::work`].
    held: Vec<(Qpn, u64)>,
    /// How many were held back so far.
    pub naks_held: u64,
    /// How long each one is held back, ns. `None`: every second one, for some random time.
    pub nak_ns: Option<u64>,
    random: Random,
}

#[derive(Clone, Copy, Debug)]
enum Due {
    Page(Page),
    /// The fault context of this number ends.
    Resume(u64),
    Nak(Qpn, u64),
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
            naks_held: 0,
            nak_ns: None,
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
        for (qpn, number) in std::mem::take(&mut self.held) {
            let at_ns = match self.nak_ns {
                Some(nak_ns) => now_ns + nak_ns,
                None => self.draw_ns(now_ns),
            };
            self.due.push((at_ns, Due::Nak(qpn, number)));
        }
        let is_due = |(at_ns, _): &(u64, Due)| *at_ns <= now_ns;
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.due).into_iter().partition(is_due);
        self.due = later;
        for (_, due) in &due {
            match *due {
                Due::Resume(context) => self.pages.resume(context),
                Due::Nak(qpn, number) => self.naks.push((qpn, number)),
                Due::Page(page) => {
                    for context in self.pages.resolve(page) {
                        let at_ns = self.draw_ns(now_ns);
                        self.due.push((at_ns, Due::Resume(context)));
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

    /// The number of the RNR NAK for a fault, if it leaves later.
    pub(super) fn hold_nak(&mut self, qpn: Qpn) -> Option<u64> {
        if self.nak_ns.is_none() && !self.random.pick(&[true, false]) {
            return None;
        }
        self.naks_held += 1;
        self.held.push((qpn, self.naks_held));
        Some(self.naks_held)
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
