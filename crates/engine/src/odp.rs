//! On-Demand Paging: which pages of its regions an adapter can reach, and for which queue pairs.
//!
//! A region registered with `IBV_ACCESS_ON_DEMAND` has no page at first, whatever the processor
//! has mapped. The adapter's first access to a page raises a fault, which the driver resolves
//! after some time with [`Paging::resolve`]. An invalidation takes pages away again.
//!
//! An adapter may keep the status of a page for each queue pair besides: mlx5 answers a fault for
//! each work request and queue pair, so a queue pair that faulted learns of its pages later than
//! others (`drivers/infiniband/hw/mlx5/odp.c`). Such a queue pair holds a fault context until
//! [`Paging::resume`]. Contexts are few; an access without one is simply tried again.

use std::collections::{BTreeMap, BTreeSet};

use rdmalab_wire::ids::Qpn;

use crate::backend::{VerbsError, VerbsResult};
use crate::mr::{self, KeyEntry, Refusal};
use crate::vocab::{Access, PdId, Sge};

mod counters;

pub use counters::{Counters, INTERVALS_MAX, Timeline};

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// What On-Demand Paging of a device can do (`struct ibv_odp_caps`): all 0 without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct OdpCaps {
    /// Bits of `enum ibv_odp_general_caps`.
    pub general: u64,
    /// Bits of `enum ibv_odp_transport_cap_bits` for reliable connections.
    pub rc: u32,
    /// The same for unreliable connections.
    pub uc: u32,
    /// The same for datagrams.
    pub ud: u32,
}

impl OdpCaps {
    /// Explicit and implicit regions, on all transports and with all their operations.
    pub const ALL: OdpCaps = OdpCaps { general: 3, rc: 0x3f, uc: 0x27, ud: 0x23 };
}

/// Advice about on-demand memory (`enum ib_uverbs_advise_mr_advice`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// It will be read.
    Prefetch = 0,
    /// It will be written.
    PrefetchWrite = 1,
    /// It will be read; pages that the process does not have are left out.
    PrefetchNoFault = 2,
}

impl Advice {
    /// By its number in C; `None` for another one.
    pub fn from_ibv(number: u32) -> Option<Advice> {
        let all = [Advice::Prefetch, Advice::PrefetchWrite, Advice::PrefetchNoFault];
        all.into_iter().find(|advice| *advice as u32 == number)
    }
}

/// The regions that advice names: key, address and bytes of each, after their checks.
pub fn advised(
    key: impl Fn(u32) -> Option<KeyEntry>,
    pd: PdId,
    advice: Advice,
    sges: &[Sge],
) -> VerbsResult<Vec<(u32, u64, u64)>> {
    let of = |sge: &Sge| {
        let entry = key(sge.lkey);
        let host = mr::check_local(entry.as_ref(), pd, sge, advice == Advice::PrefetchWrite);
        let (Some(entry), Ok(host)) = (entry, host) else {
            // ibv_advise_mr(3).
            let (errno, why) = match host.err() {
                Some(Refusal::Domain) => (VerbsError::EPERM, "the region is of another PD"),
                Some(Refusal::Rights) => {
                    (VerbsError::EPERM, "the region has no IBV_ACCESS_LOCAL_WRITE")
                }
                Some(Refusal::Bounds) => (VerbsError::EFAULT, "the region does not have them all"),
                _ => (VerbsError::EFAULT, "there is no such region"),
            };
            let (bytes, addr, lkey) = (sge.length, sge.addr, sge.lkey);
            let reason = format!("{bytes} bytes at {addr:#x} with lkey {lkey:#x}: {why}");
            return Err(VerbsError::new(errno, reason));
        };
        if !entry.access.contains(Access::ON_DEMAND) {
            return Err(VerbsError::invalid(format!(
                "the region with lkey {:#x} was not registered with IBV_ACCESS_ON_DEMAND",
                sge.lkey
            )));
        }
        Ok((entry.key, host, sge.length.into()))
    };
    sges.iter().filter(|sge| sge.length > 0).map(of).collect()
}

/// Which half of a queue pair accesses memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The requester: payload of a request, or a response.
    Requester,
    /// The responder: payload of a request that arrived, or of a READ response.
    Responder,
}

/// A page of a region.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Page {
    /// Key of the region.
    pub key: u32,
    /// Virtual address over [`PAGE_BYTES`].
    pub number: u64,
}

/// A set of page numbers. A word holds 64 of them, so that untouched memory costs nothing.
#[derive(Clone, Debug, Default)]
struct Pages(BTreeMap<u64, u64>);

impl Pages {
    fn has(&self, number: u64) -> bool {
        self.0.get(&(number / 64)).is_some_and(|word| word >> (number % 64) & 1 != 0)
    }

    fn add(&mut self, number: u64) {
        *self.0.entry(number / 64).or_default() |= 1 << (number % 64);
    }

    /// Says whether it was there.
    fn remove(&mut self, number: u64) -> bool {
        let Some(word) = self.0.get_mut(&(number / 64)) else { return false };
        let bit = 1 << (number % 64);
        let was_there = *word & bit != 0;
        *word &= !bit;
        if *word == 0 {
            self.0.remove(&(number / 64));
        }
        was_there
    }

    /// Removes all from `first` to `last`; returns how many there were.
    fn remove_range(&mut self, first: u64, last: u64) -> u64 {
        debug_assert!(first <= last, "a range of pages ends before it begins");
        let words: Vec<(u64, u64)> =
            self.0.range(first / 64..=last / 64).map(|(index, word)| (*index, *word)).collect();
        let mut removed = 0;
        for (index, word) in words {
            debug_assert!(word != 0, "a word without pages is kept");
            for bit in (0..64).filter(|bit| word >> bit & 1 != 0) {
                let number = index * 64 + bit;
                removed += u64::from((first..=last).contains(&number) && self.remove(number));
            }
        }
        removed
    }
}

#[derive(Clone, Debug, Default)]
struct Region {
    present: Pages,
    faulting: Pages,
    counters: Counters,
}

impl Region {
    /// Whether a page is there; if not, it may be on its way.
    fn has(&self, number: u64) -> bool {
        let is_present = self.present.has(number);
        debug_assert!(
            !(is_present && self.faulting.has(number)),
            "page {number} is there and on its way"
        );
        is_present
    }
}

/// A queue pair that does not know yet that pages have come.
#[derive(Clone, Debug, Default)]
struct Context {
    /// Changes when it begins to wait again, so that an old [`Paging::resume`] does not end it.
    number: u64,
    /// The pages that it faulted on.
    pages: BTreeSet<Page>,
    /// Those of them that have not come.
    left: BTreeSet<Page>,
}

/// The state of the on-demand regions of an adapter.
#[derive(Clone, Debug, Default)]
pub struct Paging {
    regions: BTreeMap<u32, Region>,
    /// The fault contexts of queue pairs.
    contexts: BTreeMap<Qpn, Context>,
    /// How many numbers they got so far.
    numbered: u64,
    /// Most of these; 0: queue pairs have no page status of their own.
    max_contexts: usize,
    raised: Vec<Page>,
    /// What happened to pages of all regions, also of those that are gone.
    totals: Counters,
}

/// A part of a region that an adapter accesses.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Virtual address of its first byte.
    pub host_addr: u64,
    /// How many bytes are accessed now, at least one.
    pub bytes: u64,
    /// How many bytes from the first on the message has there, at least `bytes`. If a page is
    /// missing, all of them are asked for.
    pub message_bytes: u64,
}

/// The numbers of the pages of a range.
fn pages_of(host_addr: u64, bytes: u64) -> core::ops::RangeInclusive<u64> {
    let last = host_addr.saturating_add(bytes.max(1) - 1);
    host_addr / PAGE_BYTES..=last / PAGE_BYTES
}

impl Paging {
    /// Without regions. At most `max_contexts` queue pairs hold a fault context at a time; 0: queue
    /// pairs have no page status of their own.
    pub fn new(max_contexts: usize) -> Paging {
        Paging { max_contexts, ..Paging::default() }
    }

    /// Whether there is no on-demand region.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Adds a region without pages. An earlier region of this key is forgotten.
    pub fn register(&mut self, key: u32) {
        self.deregister(key);
        debug_assert!(
            self.raised.iter().all(|page| page.key != key),
            "a page of a region that is gone is still asked for"
        );
        self.regions.insert(key, Region::default());
    }

    /// Forgets a region, if it is one of these.
    pub fn deregister(&mut self, key: u32) {
        if self.regions.remove(&key).is_some() {
            self.contexts.retain(|_, context| {
                let waited = !context.left.is_empty();
                context.pages.retain(|page| page.key != key);
                context.left.retain(|page| page.key != key);
                // If it misses nothing any more, no page will come that ends it.
                !context.pages.is_empty() && (!waited || !context.left.is_empty())
            });
            self.raised.retain(|page| page.key != key);
        }
    }

    /// Accesses a part of region `key` for a queue pair. Returns how many bytes, from the first on,
    /// are on pages that it can reach. Pages that are missing are asked for, see
    /// [`Paging::take_raised`], unless the first of them is on its way.
    pub fn access(&mut self, key: u32, span: &Span, qpn: Qpn, side: Side) -> u64 {
        debug_assert!(span.bytes > 0, "no bytes are accessed");
        debug_assert!(span.bytes <= span.message_bytes, "an access leaves its message: {span:?}");
        let Some(region) = self.regions.get(&key) else { return span.bytes };
        let context = self.contexts.get(&qpn);
        let is_missing = |number: &u64| {
            let page = Page { key, number: *number };
            !region.has(*number) || context.is_some_and(|context| context.pages.contains(&page))
        };
        let missing = pages_of(span.host_addr, span.bytes).find(is_missing);
        let Some(missing) = missing else { return span.bytes };
        let page = Page { key, number: missing };
        let (is_present, is_faulting) = (region.has(missing), region.faulting.has(missing));
        if !is_present && !is_faulting {
            let all = missing..=*pages_of(span.host_addr, span.message_bytes).end();
            self.raise(key, all, |counters| &mut counters.page_faults);
        }
        if !is_present && side == Side::Requester {
            self.hold_context(page, qpn);
        }
        let present = (missing * PAGE_BYTES).saturating_sub(span.host_addr);
        debug_assert!(present < span.bytes, "{present} bytes of {span:?}, and a page is missing");
        present
    }

    /// Asks for those pages of a region that are missing; each counts once.
    fn raise(
        &mut self,
        key: u32,
        numbers: core::ops::RangeInclusive<u64>,
        counter: impl Fn(&mut Counters) -> &mut u64,
    ) {
        let Some(region) = self.regions.get_mut(&key) else { return };
        for number in numbers {
            if !region.has(number) && !region.faulting.has(number) {
                region.faulting.add(number);
                *counter(&mut region.counters) += 1;
                *counter(&mut self.totals) += 1;
                self.raised.push(Page { key, number });
            }
        }
    }

    /// Adds a page to the fault context of a queue pair. Without room for another context it has
    /// none, and finds the page as soon as it has come.
    fn hold_context(&mut self, page: Page, qpn: Qpn) {
        if self.contexts.contains_key(&qpn) || self.contexts.len() < self.max_contexts {
            let context = self.contexts.entry(qpn).or_default();
            if context.left.is_empty() {
                self.numbered += 1;
                context.number = self.numbered;
            }
            context.pages.insert(page);
            context.left.insert(page);
            debug_assert!(
                context.left.is_subset(&context.pages),
                "a fault context waits for a page that it did not fault on"
            );
        }
    }

    /// Asks for all pages of a range that are missing, as `ibv_advise_mr` does.
    pub fn prefetch(&mut self, key: u32, host_addr: u64, bytes: u64) {
        self.raise(key, pages_of(host_addr, bytes), |counters| &mut counters.page_prefetches);
    }

    /// Whether a range has all its pages.
    pub fn is_present(&self, key: u32, host_addr: u64, bytes: u64) -> bool {
        let Some(region) = self.regions.get(&key) else { return true };
        pages_of(host_addr, bytes).all(|number| region.present.has(number))
    }

    /// The pages that are asked for since the last call. The driver resolves each of them later.
    pub fn take_raised(&mut self) -> Vec<Page> {
        std::mem::take(&mut self.raised)
    }

    /// A page has come. Returns the numbers of the fault contexts that miss no other page; their
    /// queue pairs cannot reach their pages before [`Paging::resume`]. A page that was invalidated
    /// since it was asked for does not come: the next access asks again.
    pub fn resolve(&mut self, page: Page) -> Vec<u64> {
        let Some(region) = self.regions.get_mut(&page.key) else { return Vec::new() };
        if region.faulting.remove(page.number) {
            region.present.add(page.number);
        }
        debug_assert!(!region.faulting.has(page.number), "a page has come and is on its way");
        debug_assert!(
            self.contexts.len() <= self.max_contexts,
            "more fault contexts than the adapter has"
        );
        let has_all = |context: &mut Context| {
            (context.left.remove(&page) && context.left.is_empty()).then_some(context.number)
        };
        self.contexts.values_mut().filter_map(has_all).collect()
    }

    /// A queue pair learns that its pages have come, and gives up the fault context of this number.
    /// Nothing happens if it gave it up before, or has faulted on another page since then.
    pub fn resume(&mut self, number: u64) {
        self.contexts.retain(|_, context| context.number != number);
    }

    /// A queue pair was reset or destroyed: it gives up its fault context.
    pub fn forget_qp(&mut self, qpn: Qpn) {
        self.contexts.remove(&qpn);
    }

    /// Takes the pages of a range away from the adapter, in all regions: the memory map of the
    /// process changed. A page that is being fetched does not come either.
    pub fn invalidate(&mut self, host_addr: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let (first, last) = pages_of(host_addr, bytes).into_inner();
        for region in self.regions.values_mut() {
            let removed = region.present.remove_range(first, last);
            region.counters.page_invalidations += removed;
            self.totals.page_invalidations += removed;
            region.faulting.remove_range(first, last);
        }
    }

    /// The numbers of the pages that the adapter can reach. One that several regions have comes
    /// several times.
    pub fn present(&self) -> impl Iterator<Item = u64> + '_ {
        let words = self.regions.values().flat_map(|region| &region.present.0);
        words.flat_map(|(index, word)| {
            (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| index * 64 + bit)
        })
    }

    /// What happened to the pages of all regions, also of those that are gone.
    pub fn totals(&self) -> Counters {
        self.totals
    }

    /// What happened to the pages of a region; `None` if it is not an on-demand region.
    pub fn counters(&self, key: u32) -> Option<Counters> {
        self.regions.get(&key).map(|region| region.counters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QP: Qpn = Qpn::new(7);

    fn access(paging: &mut Paging, host_addr: u64, bytes: u64) -> u64 {
        paging.access(1, &whole(host_addr, bytes), QP, Side::Requester)
    }

    fn whole(host_addr: u64, bytes: u64) -> Span {
        Span { host_addr, bytes, message_bytes: bytes }
    }

    fn page(number: u64) -> Page {
        Page { key: 1, number }
    }

    #[test]
    fn the_first_access_faults_once_for_each_page() {
        let mut paging = Paging::new(0);
        assert!(paging.is_empty());
        paging.register(1);
        assert_eq!(access(&mut paging, 4096 * 3 + 100, 8000), 0);
        assert_eq!(access(&mut paging, 4096 * 3, 1), 0);
        assert_eq!(paging.take_raised(), [page(3), page(4)]);
        assert_eq!(paging.resolve(page(3)), []);
        // From the first byte on, up to the page that is missing.
        assert_eq!(access(&mut paging, 4096 * 3 + 100, 8000), 3996);
        paging.resolve(page(4));
        assert_eq!(access(&mut paging, 4096 * 3 + 100, 8000), 8000);
        assert_eq!(paging.take_raised(), []);
        assert_eq!(paging.counters(1).unwrap().page_faults, 2);
        // Other regions have pages of their own, or are pinned.
        paging.register(2);
        assert_eq!(paging.access(2, &whole(4096 * 3, 1), QP, Side::Responder), 0);
        assert_eq!(paging.access(9, &whole(4096 * 3, 5), QP, Side::Responder), 5);
    }

    #[test]
    fn invalidated_pages_fault_again_even_while_they_are_fetched() {
        let mut paging = Paging::new(0);
        paging.register(1);
        access(&mut paging, 0, 70 * 4096);
        for page in paging.take_raised() {
            paging.resolve(page);
        }
        paging.invalidate(4096 * 63 + 5, 4096);
        assert_eq!(access(&mut paging, 0, 70 * 4096), 63 * 4096);
        assert_eq!(paging.take_raised(), [page(63), page(64)]);
        paging.invalidate(4096 * 64, 1);
        paging.resolve(page(63));
        paging.resolve(page(64));
        assert_eq!(access(&mut paging, 0, 70 * 4096), 64 * 4096);
        let counters = paging.counters(1).unwrap();
        assert_eq!((counters.page_faults, counters.page_invalidations), (73, 2));
        // A region that is registered again begins without pages.
        paging.register(1);
        assert_eq!(paging.take_raised(), []);
        assert_eq!(access(&mut paging, 0, 1), 0);
    }

    #[test]
    fn a_prefetch_asks_for_what_is_missing() {
        let mut paging = Paging::new(0);
        paging.register(1);
        access(&mut paging, 0, 1);
        paging.prefetch(1, 0, 3 * 4096);
        assert_eq!(paging.take_raised(), [page(0), page(1), page(2)]);
        let counters = paging.counters(1).unwrap();
        assert_eq!((counters.page_faults, counters.page_prefetches), (1, 2));
        for number in [0, 1] {
            paging.resolve(page(number));
        }
        assert!(paging.is_present(1, 0, 2 * 4096) && !paging.is_present(1, 0, 2 * 4096 + 1));
        assert!(paging.is_present(9, 0, 1), "a pinned region");
    }

    #[test]
    fn the_first_missing_page_asks_for_those_of_the_message() {
        let mut paging = Paging::new(0);
        paging.register(1);
        let packet = Span { host_addr: 4096, bytes: 256, message_bytes: 3 * 4096 };
        assert_eq!(paging.access(1, &packet, QP, Side::Responder), 0);
        assert_eq!(paging.take_raised(), [page(1), page(2), page(3)]);
        paging.resolve(page(1));
        assert_eq!(paging.access(1, &packet, QP, Side::Responder), 256);
    }

    #[test]
    fn queue_pairs_with_a_fault_context_learn_of_their_pages_later() {
        let mut paging = Paging::new(2);
        paging.register(1);
        let read = |paging: &mut Paging, qpn, number: u64| {
            let bytes =
                paging.access(1, &whole(number * 4096, 100), Qpn::new(qpn), Side::Requester);
            bytes == 100
        };
        for qpn in [5, 6, 7] {
            assert!(!read(&mut paging, qpn, 0));
        }
        // A queue pair has one context for all its pages.
        assert!(!read(&mut paging, 5, 1));
        assert_eq!(paging.access(1, &whole(0, 100), Qpn::new(8), Side::Responder), 0);
        let of_six = paging.resolve(page(0));
        let of_five = paging.resolve(page(1));
        assert_eq!((of_six.len(), of_five.len()), (1, 1));
        // The third had no context, and responders need none.
        assert!(read(&mut paging, 7, 0) && read(&mut paging, 7, 1));
        assert_eq!(paging.access(1, &whole(0, 100), Qpn::new(8), Side::Responder), 100);
        assert!(!read(&mut paging, 5, 0));
        paging.resume(of_five[0]);
        assert!(read(&mut paging, 5, 0) && read(&mut paging, 5, 1));
        paging.forget_qp(Qpn::new(6));
        assert!(read(&mut paging, 6, 0));
        // A region that is gone leaves no context behind, even if a page of another one has come.
        paging.register(2);
        paging.invalidate(0, 4096);
        assert!(!read(&mut paging, 9, 0));
        assert_eq!(paging.access(2, &whole(0, 100), Qpn::new(9), Side::Requester), 0);
        assert!(paging.resolve(page(0)).is_empty());
        paging.deregister(2);
        assert!(read(&mut paging, 9, 0));
        paging.invalidate(0, 4096);
        assert!(!read(&mut paging, 9, 0));
        paging.deregister(1);
        assert!(paging.contexts.is_empty());
    }

    #[test]
    fn a_resume_ends_no_later_fault_context() {
        let mut paging = Paging::new(1);
        paging.register(1);
        let fault = |paging: &mut Paging, number| {
            assert_eq!(access(paging, number * 4096, 100), 0);
            paging.resolve(page(number))
        };
        let discarded = fault(&mut paging, 0);
        paging.forget_qp(QP);
        let first = fault(&mut paging, 1);
        paging.resume(discarded[0]);
        assert_eq!(access(&mut paging, 4096, 100), 0, "the queue pair was reset meanwhile");
        // It faults on another page before it learns of the first one.
        assert_eq!(access(&mut paging, 2 * 4096, 100), 0);
        paging.resume(first[0]);
        assert_eq!(access(&mut paging, 4096, 100), 0, "another page is missing");
        let second = paging.resolve(page(2));
        paging.resume(first[0]);
        assert_eq!(access(&mut paging, 2 * 4096, 100), 0, "it is not told of the other page");
        paging.resume(second[0]);
        assert_eq!(access(&mut paging, 4096, 2 * 4096), 2 * 4096);
    }
}
