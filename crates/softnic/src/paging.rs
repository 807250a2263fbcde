//! On-Demand Paging of this process's regions.
//!
//! The device reaches memory by the addresses of its process, so every page of a region is there
//! when it is needed, and what the process maps next is found at the same address. Without a
//! profile no access finds a page missing. Under a profile of an adapter pages come after the time
//! that they take there, and the engine acts as that adapter does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rdmalab_engine::odp::{Page, Paging};
use rdmalab_random::Random;
use rdmalab_wire::ids::Qpn;

use crate::profile;

/// The pages of the regions of this process.
pub(crate) struct ProcessPaging {
    /// Whether there is a region with pages that may be missing.
    is_active: AtomicBool,
    /// Whether something is still to happen.
    is_busy: AtomicBool,
    pub(crate) state: Mutex<PagingState>,
}

pub(crate) struct PagingState {
    pub(crate) pages: Paging,
    /// What happens when: by time and number.
    due: BTreeMap<(u64, u64), Due>,
    numbered: u64,
    /// Indices of the queue pairs that wait for pages.
    pub(crate) waiting: BTreeSet<u32>,
    /// When the device can tell the next queue pair that its page has come.
    resume_free_ns: u64,
    random: Random,
}

pub(crate) enum Due {
    /// A page comes.
    Page(Page),
    /// A queue pair learns that its pages have come.
    Resume(Qpn),
    /// Queue pairs that wait are looked at again.
    Retry,
}

impl ProcessPaging {
    pub(crate) fn new(slot: u16) -> ProcessPaging {
        ProcessPaging {
            is_active: AtomicBool::new(false),
            is_busy: AtomicBool::new(false),
            state: Mutex::new(PagingState {
                pages: Paging::new(profile::adapter_values().odp_fault_contexts as usize),
                due: BTreeMap::new(),
                numbered: 0,
                waiting: BTreeSet::new(),
                resume_free_ns: 0,
                random: Random::new(u64::from(slot)),
            }),
        }
    }

    /// Whether there is a region with pages that may be missing.
    #[inline(always)]
    pub(crate) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// Whether there is such a region, or something is still to happen.
    pub(crate) fn has_work(&self) -> bool {
        self.is_active() || self.is_busy.load(Ordering::Acquire)
    }

    /// Notes after a change whether regions are left, and whether something is to happen.
    pub(crate) fn note(&self, state: &PagingState) {
        self.is_active.store(!state.pages.is_empty(), Ordering::Relaxed);
        self.is_busy.store(!state.due.is_empty(), Ordering::Release);
    }

    /// A queue pair was reset or destroyed.
    pub(crate) fn forget_qp(&self, qpn: Qpn) {
        if self.is_active() {
            self.state.lock().pages.forget_qp(qpn);
        }
    }
}

impl PagingState {
    pub(crate) fn schedule(&mut self, at_ns: u64, due: Due) {
        self.numbered += 1;
        self.due.insert((at_ns, self.numbered), due);
    }

    /// Schedules the pages that were asked for.
    pub(crate) fn fetch_raised(&mut self, now_ns: u64) {
        let all = profile::adapter_values();
        for page in self.pages.take_raised() {
            let more = -self.random.unit_above_0().ln() * all.odp_resolve_mean_ns as f64;
            self.schedule(now_ns + all.odp_resolve_ns + more as u64, Due::Page(page));
        }
    }

    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.due.first_key_value().map(|((at_ns, _), _)| *at_ns)
    }

    /// Lets happen what is due.
    pub(crate) fn advance(&mut self, now_ns: u64) {
        while let Some(entry) = self.due.first_entry().filter(|entry| entry.key().0 <= now_ns) {
            match entry.remove() {
                Due::Page(page) => {
                    for qpn in self.pages.resolve(page) {
                        let from_ns = self.resume_free_ns.max(now_ns);
                        self.resume_free_ns = from_ns + profile::adapter_values().odp_resume_ns;
                        self.schedule(self.resume_free_ns, Due::Resume(qpn));
                    }
                }
                Due::Resume(qpn) => self.pages.resume(qpn),
                Due::Retry => {}
            }
        }
    }
}
