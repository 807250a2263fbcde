//! The queue pairs of this process, by the index in their number.
//!
//! `T` is the object of a queue pair; the table does not use its contents.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicPtr, Ordering};

use parking_lot::Mutex;
use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_random::Random;

use crate::layout::{self, QPS_PER_PROCESS, QpWords};
use crate::profile;

/// The places of the process's queue pairs. A place is allocated at its first use and never freed.
pub(crate) struct QpTable<T: 'static> {
    /// The QP words, which initiators of one-sided operations read.
    pub(crate) words: QpWords,
    places: Box<[AtomicPtr<T>]>,
    /// Indices without a QP; the index that has been free for longest comes first.
    free: Mutex<VecDeque<u32>>,
    /// Number of indices that this process may use.
    usable: u32,
}

impl<T: 'static> QpTable<T> {
    /// An empty table for process slot `slot`. `seed` decides the order in which indices are used
    /// first: it must be unknown to others, because whoever guesses the QPN of a connection can
    /// send packets to it. `None`: in order, so that each run has the same.
    pub(crate) fn new(words: QpWords, slot: u16, seed: Option<u64>) -> QpTable<T> {
        let usable = usable_qps(slot);
        let mut order: Vec<u32> = (0..usable).collect();
        if let Some(seed) = seed {
            Random::new(seed).shuffle(&mut order);
        }
        QpTable {
            words,
            usable,
            places: (0..QPS_PER_PROCESS).map(|_| AtomicPtr::default()).collect(),
            free: Mutex::new(order.into()),
        }
    }

    /// Takes a place for a QP.
    pub(crate) fn allocate(&self, make: impl FnOnce(u32) -> T) -> VerbsResult<&'static T> {
        let most = profile::limits().max_qp;
        let mut free = self.free.lock();
        let in_use = self.usable - free.len() as u32;
        let index = if in_use < most { free.pop_front() } else { None }.ok_or_else(|| {
            VerbsError::no_room(format!(
                "a process can have {most} QPs on soft devices{}: destroy some first",
                profile::whose()
            ))
        })?;
        drop(free);
        let place = &self.places[index as usize];
        let mut object = place.load(Ordering::Acquire);
        if object.is_null() {
            object = Box::into_raw(Box::new(make(index)));
            place.store(object, Ordering::Release);
        }
        // SAFETY: places are never freed.
        Ok(unsafe { &*object })
    }

    /// Gives a place back; it is used again only after all others.
    pub(crate) fn release(&self, index: u32) {
        self.free.lock().push_back(index);
    }

    /// The place of a QP by its index, if it was ever used.
    #[inline]
    pub(crate) fn at(&self, index: usize) -> Option<&'static T> {
        // SAFETY: places are never freed.
        unsafe { self.places[index & (QPS_PER_PROCESS - 1)].load(Ordering::Acquire).as_ref() }
    }

    /// Every place that was ever used.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'static T> + '_ {
        // SAFETY: places are never freed.
        self.places.iter().filter_map(|place| unsafe { place.load(Ordering::Acquire).as_ref() })
    }
}

/// Number of usable QP indices of a slot. The very last QPN is the multicast QP (IBA vol. 1,
/// 10.5.2). The first two of slot 0 would be the management QPs, but no process has slot 0.
fn usable_qps(slot: u16) -> u32 {
    let all = QPS_PER_PROCESS as u32;
    let last = (slot as u32) << layout::QP_INDEX_BITS | (all - 1);
    if last == rdmalab_wire::ids::MASK_24 { all - 1 } else { all }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn table(words: &mut [u64], seed: impl Into<Option<u64>>) -> QpTable<u32> {
        let base = words.as_mut_ptr().cast();
        // SAFETY: the words have room for the whole segment, and outlive the table in each test.
        QpTable::new(unsafe { QpWords::attach(base) }, 1, seed.into())
    }

    fn take(table: &QpTable<u32>, count: usize) -> Vec<u32> {
        (0..count).map(|_| *table.allocate(|index| index).expect("a place")).collect()
    }

    #[test]
    fn each_index_is_used_once_in_an_order_that_the_seed_decides() {
        let mut words = vec![0; layout::SEGMENT_BYTES / 8];
        let (one, other) = (table(&mut words, 1), table(&mut words, 2));
        let all = take(&one, QPS_PER_PROCESS);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), QPS_PER_PROCESS);
        assert!(one.allocate(|index| index).is_err(), "the table is full");
        assert_ne!(all[..8], take(&other, 8)[..]);
        assert_eq!(take(&table(&mut words, None), 3), [0, 1, 2]);
        let successors = all.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
        assert!(successors < 32, "{successors} indices follow their predecessor");
    }

    #[test]
    fn the_index_that_is_free_for_longest_is_used_next() {
        let mut words = vec![0; layout::SEGMENT_BYTES / 8];
        let table = table(&mut words, 3);
        let all = take(&table, QPS_PER_PROCESS);
        for index in [&all[7], &all[5]] {
            table.release(*index);
        }
        assert_eq!(take(&table, 2), [all[7], all[5]]);
    }
}
