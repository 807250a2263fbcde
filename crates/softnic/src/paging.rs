//! On-Demand Paging of this process's regions.
//!
//! The device reaches memory by the addresses of its process, so every page of a region is there
//! when it is needed, and what the process maps next is found at the same address. Without a
//! profile no access finds a page missing. Under a profile of an adapter pages come after the time
//! that they take there, and the engine acts as that adapter does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rdmalab_engine::odp::{Counters, PAGE_BYTES, Page, Paging};
use rdmalab_random::Random;
use rdmalab_wire::ids::Qpn;

use crate::memory_map::{self, Mapping};
use crate::memory_watch::{Change, MemoryWatch};
use crate::profile;

/// How old the last look at the memory map may be when a page is accessed, ns. By such a look the
/// device learns of changes that [`MemoryWatch`] cannot notice, such as `mprotect`.
const LOOK_NS: u64 = 50_000_000;

/// How long the counters of all regions are waited for.
const TOTALS_WAIT: Duration = Duration::from_millis(100);

/// The pages of the regions of this process.
pub(crate) struct ProcessPaging {
    /// Whether there is a region with pages that may be missing.
    is_active: AtomicBool,
    /// Whether something is still to happen.
    is_busy: AtomicBool,
    state: Mutex<PagingState>,
    /// Notices changes of the memory map.
    pub(crate) watch: MemoryWatch,
}

pub(crate) struct PagingState {
    pub(crate) pages: Paging,
    /// What happens when: by time and number.
    due: BTreeMap<(u64, u64), Due>,
    numbered: u64,
    /// Indices of the queue pairs that wait for pages.
    pub(crate) waiting: BTreeSet<u32>,
    /// Indices of the queue pairs whose RNR NAK for a page fault may leave, once for each NAK.
    pub(crate) naks: Vec<u32>,
    /// When the device can tell the next queue pair that its page has come.
    resume_free_ns: u64,
    random: Random,
    /// The memory that may have pages of the device, as it was mapped at the last look.
    mapped: Vec<Mapping>,
    /// Some of it cannot be watched.
    has_unwatched: bool,
    /// Pages that the process had at the last look; only kept if events do not tell all changes.
    seen: BTreeSet<u64>,
    /// When that look was.
    looked_ns: u64,
}

pub(crate) enum Due {
    /// A page comes.
    Page(Page),
    /// A queue pair learns that its pages have come.
    Resume(Qpn),
    /// Queue pairs that wait are looked at again.
    Retry,
    /// The RNR NAK leaves that a queue pair, given by its index, sends for a page fault.
    Nak(u32),
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
                naks: Vec::new(),
                resume_free_ns: 0,
                random: Random::new(u64::from(slot)),
                mapped: Vec::new(),
                has_unwatched: false,
                seen: BTreeSet::new(),
                looked_ns: 0,
            }),
            watch: MemoryWatch::default(),
        }
    }

    /// Whether there is a region with pages that may be missing.
    #[inline(always)]
    pub(crate) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// The state, without the pages that the process took away before this call.
    pub(crate) fn lock(&self) -> MutexGuard<'_, PagingState> {
        let mut state = self.state.lock();
        self.watch.take_changes(|change| state.forget(change));
        state
    }

    /// The same for an access. Looks at the memory map if that was long ago.
    pub(crate) fn lock_for_access(&self) -> MutexGuard<'_, PagingState> {
        let mut state = self.lock();
        let now_ns = crate::clock::coarse_ns();
        if now_ns.saturating_sub(state.looked_ns) > LOOK_NS {
            state.looked_ns = now_ns;
            let has_events = self.watch.works() && !state.has_unwatched;
            state.look(has_events);
        }
        state
    }

    /// The process forked: in both processes the pages are protected, so that the first one that
    /// writes gets a copy.
    pub(crate) fn forked(&self) {
        if self.is_active() {
            self.watch.everything_changed();
        }
    }

    /// What happened to pages of all regions; `None` if a signal handler has interrupted the thread
    /// that has the lock.
    pub(crate) fn totals(&self) -> Option<Counters> {
        let mut state = self.state.try_lock_for(TOTALS_WAIT)?;
        self.watch.take_changes(|change| state.forget(change));
        Some(state.pages.totals())
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
    pub(crate) fn forget_qp(&self, qpn: Qpn, index: u32) {
        if self.has_work() {
            let mut state = self.lock();
            state.pages.forget_qp(qpn);
            state.due.retain(|_, due| !matches!(due, Due::Nak(nak) if *nak == index));
            state.naks.retain(|nak| *nak != index);
        }
    }
}

impl PagingState {
    pub(crate) fn schedule(&mut self, at_ns: u64, due: Due) {
        self.numbered += 1;
        self.due.insert((at_ns, self.numbered), due);
    }

    /// The memory map changed.
    fn forget(&mut self, change: Change) {
        self.pages.invalidate(change.start, change.bytes);
        if change.is_unwatched {
            let end = change.start.saturating_add(change.bytes);
            memory_map::subtract(&mut self.mapped, change.start, end);
        }
        if let Some(address) = change.moved_to
            && let Some(mapping) = memory_map::at(&memory_map::mappings(), address)
        {
            memory_map::insert(&mut self.mapped, *mapping);
        }
    }

    /// Looks at the memory map for changes that no event told.
    fn look(&mut self, has_events: bool) {
        let (changed, mapped) = memory_map::compare(&self.mapped, &memory_map::mappings());
        for (start, end) in changed {
            self.pages.invalidate(start, end - start);
        }
        self.mapped = mapped;
        if !has_events {
            let there: BTreeSet<u64> = memory_map::mapped_pages(self.pages.present()).collect();
            for number in self.seen.difference(&there) {
                self.pages.invalidate(number * PAGE_BYTES, 1);
            }
            self.seen = there;
        }
    }

    /// Watches the memory around a page that the device will have.
    fn watch_around(&mut self, page: Page, watch: &MemoryWatch) {
        let address = page.number * PAGE_BYTES;
        if memory_map::at(&self.mapped, address).is_some() {
            return;
        }
        if let Some(mapping) = memory_map::at(&memory_map::mappings(), address) {
            // What cannot be watched is only looked at.
            self.has_unwatched |= !watch.add(mapping.start, mapping.end);
            memory_map::insert(&mut self.mapped, *mapping);
        }
    }

    /// Watches nothing any more, if there is no region left.
    pub(crate) fn end_watch(&mut self, watch: &MemoryWatch) {
        if self.pages.is_empty() {
            self.mapped.drain(..).for_each(|mapping| watch.remove(mapping.start, mapping.end));
            self.seen.clear();
            self.has_unwatched = false;
        }
    }

    /// Schedules the pages that were asked for.
    pub(crate) fn fetch_raised(&mut self, now_ns: u64, watch: &MemoryWatch) {
        let all = profile::adapter_values();
        for page in self.pages.take_raised() {
            self.watch_around(page, watch);
            let more = self.random.exponential() * all.odp_resolve_mean_ns as f64;
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
                Due::Nak(index) => self.naks.push(index),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 4 * PAGE_BYTES as usize;

    /// New memory between pages without rights, so that it is a mapping of its own.
    fn memory() -> *mut libc::c_void {
        let page = PAGE_BYTES as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new memory, which no one else knows.
        unsafe {
            let base = libc::mmap(std::ptr::null_mut(), BYTES + 2 * page, 0, flags, -1, 0);
            assert!(base != libc::MAP_FAILED);
            let base = base.byte_add(page);
            assert_eq!(libc::mprotect(base, BYTES, libc::PROT_READ | libc::PROT_WRITE), 0);
            base
        }
    }

    fn page_at(address: *mut libc::c_void) -> Page {
        Page { key: 1, number: address as u64 / PAGE_BYTES }
    }

    #[test]
    fn moved_memory_is_watched_until_no_region_is_left() {
        let paging: &'static ProcessPaging = Box::leak(Box::new(ProcessPaging::new(0)));
        if !paging.watch.start() {
            return rdmalab_testing::skipped("moved memory", "the kernel refuses userfaultfd");
        }
        let base = memory();
        paging.lock().watch_around(page_at(base), &paging.watch);
        // SAFETY: memory of this test alone, here and below.
        let moved = unsafe { libc::mremap(base, BYTES, 2 * BYTES, libc::MREMAP_MAYMOVE) };
        assert!(moved != libc::MAP_FAILED && moved != base);
        let mut state = paging.lock();
        let found = memory_map::at(&state.mapped, moved as u64).expect("it is still watched");
        assert_eq!(found.end, moved as u64 + 2 * BYTES as u64);
        state.end_watch(&paging.watch);
        // SAFETY: see above.
        unsafe { libc::madvise(moved, 2 * BYTES, libc::MADV_DONTNEED) };
        paging.watch.take_changes(|change| panic!("{change:?}"));
    }

    #[test]
    fn memory_that_cannot_be_watched_is_looked_at() {
        let [paging, other]: [&'static ProcessPaging; 2] =
            [0, 1].map(|slot| &*Box::leak(Box::new(ProcessPaging::new(slot))));
        if !paging.watch.start() || !other.watch.start() {
            return rdmalab_testing::skipped("unwatched memory", "the kernel refuses userfaultfd");
        }
        let base = memory();
        // The kernel lets one descriptor only watch it.
        assert!(other.watch.add(base as u64, base as u64 + BYTES as u64));
        let mut state = paging.lock();
        state.watch_around(page_at(base), &paging.watch);
        assert!(state.has_unwatched);
        state.end_watch(&paging.watch);
        assert!(!state.has_unwatched);
    }

    #[test]
    fn a_nak_that_is_due_ends_with_the_life_of_its_queue_pair() {
        let paging = ProcessPaging::new(0);
        let mut state = paging.lock();
        for (at_ns, index) in [(1, 4), (1, 5), (2, 4), (9, 4), (9, 5)] {
            state.schedule(at_ns, Due::Nak(index));
        }
        state.advance(2);
        assert_eq!(state.naks, [4, 5, 4]);
        paging.note(&state);
        drop(state);
        paging.forget_qp(Qpn::new(0x40), 4);
        let mut state = paging.lock();
        state.advance(9);
        assert_eq!(state.naks, [5, 5]);
    }
}
