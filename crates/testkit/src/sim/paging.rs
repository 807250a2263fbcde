//! On-Demand Paging of a device: pages come some random time after they were asked for, and queue
//! pairs with a fault context learn of them later still.

use rdmalab_engine::odp::{Page, Paging};
use rdmalab_random::Random;
use rdmalab_wire::ids::Qpn;

/// Longest time until a page comes, and then until a queue pair learns of it, ns.
const LONGEST_NS: u64 = 1_000_000;

/// The pages of a device whose regions are all paged on demand.
#[derive(Debug)]
pub struct PagedMemory {
    /// Which pages the device can reach.
    pub pages: Paging,
    /// What will happen when: a page comes, or a queue pair learns that it has.
    due: Vec<(u64, Page, Option<Qpn>)>,
    random: Random,
}

impl PagedMemory {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let contexts = random.pick(&[0, 0, 1, 3]);
        PagedMemory { pages: Paging::new(contexts), due: Vec::new(), random }
    }

    fn draw_ns(&mut self, now_ns: u64) -> u64 {
        now_ns + self.random.between(1, LONGEST_NS)
    }

    /// Schedules what was asked for, and lets come what is due. Says whether something came.
    pub(super) fn work(&mut self, now_ns: u64) -> bool {
        for page in self.pages.take_raised() {
            let at_ns = self.draw_ns(now_ns);
            self.due.push((at_ns, page, None));
        }
        let (due, later) =
            std::mem::take(&mut self.due).into_iter().partition(|(at_ns, ..)| *at_ns <= now_ns);
        self.due = later;
        let due: Vec<(u64, Page, Option<Qpn>)> = due;
        for (_, page, qpn) in &due {
            match qpn {
                Some(qpn) => self.pages.resume(*page, *qpn),
                None => {
                    for qpn in self.pages.resolve(*page) {
                        let at_ns = self.draw_ns(now_ns);
                        self.due.push((at_ns, *page, Some(qpn)));
                    }
                }
            }
        }
        !due.is_empty()
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
