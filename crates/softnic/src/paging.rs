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
use rdmalab_engine::mr::KeyEntry;
use rdmalab_engine::odp::{Counters, PAGE_BYTES, Page, Paging, Side, Span, Timeline};
use rdmalab_random::Random;
use rdmalab_wire::ids::Qpn;

use crate::memory_map::{self, Mapping};
use crate::memory_watch::{self, Change, MemoryWatch};
use crate::profile;
use crate::timers::{Alarm, Delays};

/// How old the last look at the memory map may be when a page is accessed, ns. By such a look the
/// device learns of changes that [`MemoryWatch`] cannot notice, such as `mprotect`.
const LOOK_NS: u64 = 50_000_000;

/// How long to wait for the lock of a queue pair that is told that pages have come, ns.
const RETRY_NS: u64 = 20_000;

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

struct PagingState {
    pages: Paging,
    /// What happens when: by time and number. With each the delay until then, ns.
    due: BTreeMap<(u64, u64), (u64, Due)>,
    numbered: u64,
    /// Indices of the queue pairs that wait for pages.
    waiting: BTreeSet<u32>,
    /// RNR NAKs for page faults that may leave: the index of the queue pair, and the number.
    naks: Vec<(u32, u64)>,
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
    /// When pages were found missing, taken away and prefetched.
    timeline: Timeline,
    /// What was counted when it was last added to.
    noted: Counters,
}

enum Due {
    /// A page comes.
    Page(Page),
    /// The queue pair with the fault context of this number learns that its pages have come.
    Resume(u64),
    /// Queue pairs that wait are looked at again.
    Retry,
    /// The RNR NAK leaves that a queue pair, given by its index, sends for a page fault. Its number
    /// is that of the event.
    Nak(u32),
}

/// What a queue pair is told.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PageNews {
    /// Pages that it waited for have come.
    pub(crate) have_come: bool,
    /// The numbers of the RNR NAKs for page faults that may leave.
    pub(crate) naks: Vec<u64>,
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
                timeline: Timeline::default(),
                noted: Counters::default(),
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
    fn lock(&self) -> MutexGuard<'_, PagingState> {
        let mut state = self.state.lock();
        self.watch.take_changes(|at_ns, change| state.forget(at_ns, change));
        state
    }

    /// The same for an access. Looks at the memory map if that was long ago.
    fn lock_for_access(&self) -> MutexGuard<'_, PagingState> {
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

    /// What happened to pages of all regions, and when; `None` if a signal handler has interrupted
    /// the thread that has the lock.
    pub(crate) fn totals(&self) -> Option<(Counters, Timeline)> {
        let mut state = self.state.try_lock_for(TOTALS_WAIT)?;
        self.watch.take_changes(|at_ns, change| state.forget(at_ns, change));
        Some((state.pages.totals(), state.timeline.clone()))
    }

    /// Whether there is such a region, or something is still to happen.
    fn has_work(&self) -> bool {
        self.is_active() || self.is_busy.load(Ordering::Acquire)
    }

    /// Notes after a change whether regions are left, and whether something is to happen.
    fn note(&self, state: &PagingState) {
        self.is_active.store(!state.pages.is_empty(), Ordering::Relaxed);
        self.is_busy.store(!state.due.is_empty(), Ordering::Release);
    }

    /// A queue pair was reset or destroyed.
    pub(crate) fn forget_qp(&self, qpn: Qpn) {
        if self.has_work() {
            self.lock().pages.forget_qp(qpn);
        }
    }

    /// A region begins, without pages if it is an on-demand one.
    pub(crate) fn begin(&'static self, entry: &KeyEntry, alarm: Alarm<'_>) {
        if !entry.on_demand {
            return self.end(entry.key, alarm);
        }
        if !self.watch.start() && !memory_watch::is_forbidden() {
            say_that_changes_are_seen_late();
        }
        let mut state = self.lock();
        state.pages.register(entry.key);
        self.note(&state);
    }

    /// A region is gone: queue pairs that wait for its pages are told.
    pub(crate) fn end(&self, key: u32, alarm: Alarm<'_>) {
        if !self.has_work() {
            return;
        }
        let mut state = self.lock();
        if let Some(counters) = state.pages.counters(key) {
            let all = counters.named().map(|(name, count)| format!("{name} {count}"));
            crate::debug(&format!("region with lkey {key:#x}: {}", all.join(", ")));
        }
        state.pages.deregister(key);
        state.end_watch(&self.watch);
        if !state.waiting.is_empty() {
            state.schedule(crate::clock::now_ns(), 0, Due::Retry);
        }
        self.fetch(&mut state, alarm);
    }

    /// [`rdmalab_engine::qp::Env::access_pages`] of a queue pair, by its index and number, for a
    /// region. The caller holds the lock of the queue pair.
    #[cold]
    pub(crate) fn access(
        &self,
        (index, qpn): (u32, Qpn),
        region: u32,
        span: &Span,
        side: Side,
        alarm: Alarm<'_>,
    ) -> u64 {
        let mut state = self.lock_for_access();
        let present = state.pages.access(region, span, qpn, side);
        if present < span.bytes {
            state.waiting.insert(index);
            self.fetch(&mut state, alarm);
        }
        present
    }

    /// [`rdmalab_engine::qp::Env::hold_fault_nak`] of the queue pair with this index, whose lock
    /// the caller holds. The number stays due if the queue pair is reset, and then releases
    /// nothing.
    #[cold]
    pub(crate) fn hold_fault_nak(
        &self,
        index: u32,
        is_read: bool,
        alarm: Alarm<'_>,
    ) -> Option<u64> {
        let all = profile::adapter_values();
        let delay_ns = if is_read { all.odp_read_nak_ns } else { all.odp_nak_ns };
        if delay_ns == 0 {
            return None;
        }
        let mut state = self.lock();
        let number = state.schedule(crate::clock::now_ns(), delay_ns, Due::Nak(index));
        self.fetch(&mut state, alarm);
        Some(number)
    }

    /// Fetches the pages of ranges before they are accessed: each has the key of its region, an
    /// address, and a number of bytes. Returns whether all are there. The caller asks again until
    /// then, as pages may be taken away meanwhile. A region that another thread deregisters has all
    /// its pages.
    pub(crate) fn prefetch(&self, ranges: &[(u32, u64, u64)], alarm: Alarm<'_>) -> bool {
        let mut state = self.lock();
        let mut all = true;
        for (key, host_addr, bytes) in ranges {
            state.pages.prefetch(*key, *host_addr, *bytes);
            all &= state.pages.is_present(*key, *host_addr, *bytes);
        }
        self.fetch(&mut state, alarm);
        all
    }

    fn fetch(&self, state: &mut PagingState, alarm: Alarm<'_>) {
        state.fetch_raised(crate::clock::now_ns(), &self.watch);
        self.note(state);
        state.set_alarm(alarm);
    }

    /// Lets pages come that are due. `tell` tells a queue pair, by its index, what concerns it, and
    /// returns `false` if another thread holds its lock: then it is told later.
    pub(crate) fn let_pages_come(
        &self,
        now_ns: u64,
        alarm: Alarm<'_>,
        tell: impl Fn(u32, &PageNews) -> bool,
    ) {
        if !self.has_work() {
            return;
        }
        let (waiting, naks) = {
            let mut state = self.lock();
            if state.next_ns().is_none_or(|at_ns| at_ns > now_ns) {
                return state.set_alarm(alarm);
            }
            state.advance(now_ns, &alarm.timers.delays);
            (std::mem::take(&mut state.waiting), std::mem::take(&mut state.naks))
        };
        let mut news: BTreeMap<u32, PageNews> = BTreeMap::new();
        for index in waiting {
            news.entry(index).or_default().have_come = true;
        }
        for (index, number) in naks {
            news.entry(index).or_default().naks.push(number);
        }
        news.retain(|index, news| !tell(*index, news));
        let mut state = self.lock();
        if !news.is_empty() {
            state.schedule(now_ns, RETRY_NS, Due::Retry);
        }
        for (index, news) in news {
            state.naks.extend(news.naks.iter().map(|number| (index, *number)));
            state.waiting.extend(news.have_come.then_some(index));
        }
        self.note(&state);
        state.set_alarm(alarm);
    }
}

#[cold]
fn say_that_changes_are_seen_late() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        crate::warn(
            "the kernel does not tell this process of changes of its memory map (userfaultfd). So \
             on-demand paging looks for them, at most every 50 ms: a page may stay with the device \
             for so long after munmap, mremap, madvise or mprotect",
        );
    });
}

impl PagingState {
    /// Returns the number of the event.
    fn schedule(&mut self, now_ns: u64, delay_ns: u64, due: Due) -> u64 {
        self.numbered += 1;
        self.due.insert((now_ns + delay_ns, self.numbered), (delay_ns, due));
        self.numbered
    }

    /// Adds what was counted since the last call to the timeline.
    fn note_counts(&mut self, at_ns: u64) {
        let totals = self.pages.totals();
        if totals != self.noted {
            self.timeline.add(at_ns, &totals.since(&self.noted));
            self.noted = totals;
        }
    }

    /// The memory map changed.
    fn forget(&mut self, at_ns: u64, change: Change) {
        self.pages.invalidate(change.start, change.bytes);
        self.note_counts(at_ns);
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
        self.note_counts(crate::clock::now_ns());
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
    fn end_watch(&mut self, watch: &MemoryWatch) {
        if self.pages.is_empty() {
            self.mapped.drain(..).for_each(|mapping| watch.remove(mapping.start, mapping.end));
            self.seen.clear();
            self.has_unwatched = false;
        }
    }

    /// Schedules the pages that were asked for.
    fn fetch_raised(&mut self, now_ns: u64, watch: &MemoryWatch) {
        self.note_counts(now_ns);
        let all = profile::adapter_values();
        for page in self.pages.take_raised() {
            self.watch_around(page, watch);
            let more = self.random.exponential() * all.odp_resolve_mean_ns as f64;
            self.schedule(now_ns, all.odp_resolve_ns + more as u64, Due::Page(page));
        }
    }

    fn next_ns(&self) -> Option<u64> {
        self.due.first_key_value().map(|((at_ns, _), _)| *at_ns)
    }

    fn set_alarm(&self, alarm: Alarm<'_>) {
        self.next_ns().into_iter().for_each(|at_ns| alarm.set(at_ns));
    }

    /// Lets happen what is due.
    fn advance(&mut self, now_ns: u64, delays: &Delays) {
        while let Some(entry) = self.due.first_entry().filter(|entry| entry.key().0 <= now_ns) {
            let (at_ns, number) = *entry.key();
            let (delay_ns, due) = entry.remove();
            delays.note(delay_ns, now_ns - at_ns);
            match due {
                Due::Page(page) => {
                    for context in self.pages.resolve(page) {
                        let from_ns = self.resume_free_ns.max(now_ns);
                        self.resume_free_ns = from_ns + profile::adapter_values().odp_resume_ns;
                        let delay_ns = self.resume_free_ns - now_ns;
                        self.schedule(now_ns, delay_ns, Due::Resume(context));
                    }
                }
                Due::Resume(context) => self.pages.resume(context),
                Due::Retry => {}
                Due::Nak(index) => self.naks.push((index, number)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::progress_thread::ProgressThread;
    use crate::timers::Timers;

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
        paging.watch.take_changes(|_, change| panic!("{change:?}"));
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
    fn a_queue_pair_whose_lock_is_held_is_told_later() {
        static CALLS: AtomicU64 = AtomicU64::new(0);
        let (paging, timers) = (ProcessPaging::new(0), Timers::default());
        let progress_thread = ProgressThread::new(&CALLS).expect("a descriptor");
        let alarm = Alarm { timers: &timers, progress_thread: &progress_thread };
        let mut state = paging.lock();
        for index in [4, 4, 5] {
            state.schedule(0, 1, Due::Nak(index));
        }
        paging.note(&state);
        drop(state);
        let told = |now_ns, held| {
            let told = RefCell::new(Vec::new());
            paging.let_pages_come(now_ns, alarm, |index, news| {
                told.borrow_mut().push((index, news.naks.clone()));
                index != held
            });
            told.into_inner()
        };
        assert_eq!(told(0, 4), []);
        assert_eq!(told(1, 4), [(4, vec![1, 2]), (5, vec![3])]);
        assert_eq!(timers.deadline_ns.load(Ordering::Relaxed), 1);
        assert_eq!(told(RETRY_NS, 9), []);
        assert_eq!(told(1 + RETRY_NS, 9), [(4, vec![1, 2])]);
        assert_eq!(told(u64::MAX, 9), []);
    }
}
