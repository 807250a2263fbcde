//! Receive queues: a QP's own and the shared one, and the receive WQE that a message in progress
//! holds.

use crate::backend::{PostError, RecvWr};
use crate::vocab::{PdId, Sge};

/// Scatter/gather elements that a receive WQE may have.
pub const MAX_RECV_SGE: usize = 32;

/// A receive work request that was taken off its queue for a message.
#[derive(Clone, Copy, Debug)]
pub struct HeldRecv {
    /// The caller's number.
    pub wr_id: u64,
    sges: [Sge; MAX_RECV_SGE],
    count: u32,
    /// Bytes that fit.
    pub capacity: u64,
    /// The domain that its local keys are of: that of its queue (IBA vol. 1, 10.2.9.4).
    pub pd: PdId,
}

impl HeldRecv {
    /// One that holds nothing.
    pub const EMPTY: HeldRecv = HeldRecv {
        wr_id: 0,
        sges: [Sge { addr: 0, length: 0, lkey: 0 }; MAX_RECV_SGE],
        count: 0,
        capacity: 0,
        pd: PdId(0),
    };

    /// Its scatter list.
    #[inline]
    pub fn sges(&self) -> &[Sge] {
        &self.sges[..self.count as usize]
    }

    #[inline]
    fn fill<'a>(&mut self, wr_id: u64, sges: impl Iterator<Item = &'a Sge>) {
        (self.wr_id, self.count, self.capacity) = (wr_id, 0, 0);
        for (held, sge) in self.sges.iter_mut().zip(sges) {
            *held = *sge;
            self.count += 1;
            self.capacity += sge.length as u64;
        }
    }
}

/// The result of taking a receive WQE from a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TakeRecv {
    /// It is in the [`HeldRecv`] now.
    Taken,
    /// Something is posted, but the adapter has not read it yet: wait, do not NAK.
    NotFetched,
    /// Nothing is posted.
    Empty,
}

/// A FIFO of receive work requests. Cursors: `posted` >= `fetched` >= `consumed`, free-running.
///
/// [`RecvQueue::push`] moves `posted`; the driver moves `fetched` when its adapter has read the
/// WQEs; [`RecvQueue::take`] moves `consumed`. A message that finds no fetched WQE stalls if one is
/// posted; otherwise the receiver is not ready (RNR).
#[derive(Clone, Debug)]
pub struct RecvQueue {
    pd: PdId,
    wqes: Box<[RecvWqe]>,
    /// The elements after the first, for each slot one fewer than `max_sge`.
    more_sges: Box<[Sge]>,
    mask: u32,
    capacity: u32,
    max_sge: u32,
    posted: u32,
    /// Positions below this have been read by the adapter.
    fetched: u32,
    consumed: u32,
}

/// A receive work request in its queue. Most have one element, which then lies in the same half of
/// a cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
struct RecvWqe {
    wr_id: u64,
    first: Sge,
    /// Elements, with the first.
    count: u32,
}

const _: () = assert!(size_of::<RecvWqe>() == 32);

impl RecvQueue {
    /// A queue of `max_wr` requests with up to `max_sge` (at most [`MAX_RECV_SGE`]) elements each,
    /// whose local keys are of `pd`.
    pub fn new(pd: PdId, max_wr: u32, max_sge: u32) -> Self {
        let slots = max_wr.max(1).next_power_of_two() as usize;
        let max_sge = max_sge.min(MAX_RECV_SGE as u32);
        RecvQueue {
            pd,
            wqes: vec![RecvWqe::default(); slots].into(),
            more_sges: vec![Sge::default(); slots * max_sge.saturating_sub(1) as usize].into(),
            mask: slots as u32 - 1,
            capacity: max_wr,
            max_sge,
            posted: 0,
            fetched: 0,
            consumed: 0,
        }
    }

    /// Empties the queue.
    pub fn reset(&mut self) {
        self.posted = 0;
        self.fetched = 0;
        self.consumed = 0;
    }

    /// How many requests wait.
    #[inline]
    pub fn len(&self) -> u32 {
        self.posted.wrapping_sub(self.consumed)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many fit.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Queues a request.
    #[inline]
    pub fn push(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        if self.len() >= self.capacity {
            return Err(PostError::QueueFull);
        }
        if wr.sges.len() > self.max_sge as usize {
            return Err(PostError::TooManySges);
        }
        let slot = (self.posted & self.mask) as usize;
        let first = wr.sges.first().copied().unwrap_or_default();
        self.wqes[slot] = RecvWqe { wr_id: wr.wr_id, first, count: wr.sges.len() as u32 };
        if let [_, more @ ..] = wr.sges
            && !more.is_empty()
        {
            let start = self.first_more(slot);
            self.more_sges[start..start + more.len()].copy_from_slice(more);
        }
        self.posted = self.posted.wrapping_add(1);
        self.assert_cursors();
        Ok(())
    }

    /// Where the elements after the first begin.
    fn first_more(&self, slot: usize) -> usize {
        slot * self.max_sge.saturating_sub(1) as usize
    }

    /// The elements of the request in a slot.
    fn sges(&self, slot: usize) -> impl Iterator<Item = &Sge> {
        let RecvWqe { first, count, .. } = &self.wqes[slot];
        let (first, more) = match *count {
            0 => (None, 0),
            count => (Some(first), count as usize - 1),
        };
        let start = self.first_more(slot);
        first.into_iter().chain(&self.more_sges[start..start + more])
    }

    /// Asserts the order of the cursors.
    #[inline(always)]
    fn assert_cursors(&self) {
        debug_assert!(self.unfetched() <= self.len(), "a request was consumed before its fetch");
        debug_assert!(
            self.len() <= self.capacity,
            "more requests wait than the queue has room for"
        );
    }

    /// How many posted requests the adapter has not read yet.
    #[inline]
    pub fn unfetched(&self) -> u32 {
        self.posted.wrapping_sub(self.fetched)
    }

    /// The adapter has read the next `count` posted requests, or all if fewer wait.
    pub fn fetch(&mut self, count: u32) {
        self.fetched = self.fetched.wrapping_add(count.min(self.unfetched()));
        self.assert_cursors();
    }

    /// The adapter has read everything that was posted.
    #[inline(always)]
    pub fn fetch_all(&mut self) {
        self.fetched = self.posted;
        self.assert_cursors();
    }

    /// Moves the oldest request into `held`.
    #[inline]
    pub fn take(&mut self, held: &mut HeldRecv) -> TakeRecv {
        if self.consumed == self.fetched {
            return if self.is_empty() { TakeRecv::Empty } else { TakeRecv::NotFetched };
        }
        let slot = (self.consumed & self.mask) as usize;
        held.pd = self.pd;
        held.fill(self.wqes[slot].wr_id, self.sges(slot));
        self.consumed = self.consumed.wrapping_add(1);
        self.assert_cursors();
        TakeRecv::Taken
    }

    /// The oldest request, if it has one scatter/gather element and the adapter has read it.
    #[inline(always)]
    pub fn next_of_one_piece(&self) -> Option<(u64, &Sge)> {
        let wqe = &self.wqes[(self.consumed & self.mask) as usize];
        (self.consumed != self.fetched && wqe.count == 1).then_some((wqe.wr_id, &wqe.first))
    }

    /// Drops the request that [`RecvQueue::next_of_one_piece`] returned.
    #[inline(always)]
    pub fn skip_one(&mut self) {
        debug_assert!(self.consumed != self.fetched, "there is no fetched request to drop");
        self.consumed = self.consumed.wrapping_add(1);
        self.assert_cursors();
    }

    /// Moves the waiting requests into a queue of another size, which must hold them. Requests that
    /// the adapter has read stay read.
    pub fn resized(&self, max_wr: u32) -> RecvQueue {
        let mut other = RecvQueue::new(self.pd, max_wr, self.max_sge);
        for position in 0..self.len() {
            let slot = (self.consumed.wrapping_add(position) & self.mask) as usize;
            let sges: Vec<Sge> = self.sges(slot).copied().collect();
            let pushed = other.push(&RecvWr { wr_id: self.wqes[slot].wr_id, sges: &sges });
            debug_assert!(pushed.is_ok(), "a queue shrinks below what waits in it: {pushed:?}");
        }
        other.fetch(self.fetched.wrapping_sub(self.consumed));
        debug_assert!(
            (other.len(), other.unfetched()) == (self.len(), self.unfetched()),
            "a queue of another size holds other requests"
        );
        other
    }
}

/// A shared receive queue with its limit (IBA vol. 1, 10.2.9).
#[derive(Debug)]
pub struct SharedRecvQueue {
    /// The requests.
    pub queue: RecvQueue,
    limit: u32,
}

impl SharedRecvQueue {
    /// An SRQ; `limit` 0 means that no event is armed.
    pub fn new(pd: PdId, max_wr: u32, max_sge: u32, limit: u32) -> Self {
        SharedRecvQueue { queue: RecvQueue::new(pd, max_wr, max_sge), limit }
    }

    /// Arms the limit event, or disarms it with 0.
    pub fn arm_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// The limit that is armed.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// As [`RecvQueue::take`]; the second value says that the limit event is due, once per arming.
    pub fn take(&mut self, held: &mut HeldRecv) -> (TakeRecv, bool) {
        let taken = self.queue.take(held);
        let due = self.limit != 0 && self.queue.len() < self.limit;
        if due {
            self.limit = 0;
        }
        (taken, due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(queue: &mut RecvQueue, wr_id: u64) -> Result<(), PostError> {
        let posted = queue.push(&RecvWr { wr_id, sges: &[Sge { addr: 1, length: 64, lkey: 2 }] });
        queue.fetch_all();
        posted
    }

    #[test]
    fn refuses_one_more_than_its_capacity() {
        let mut queue = RecvQueue::new(PdId(1), 3, 1);
        for wr_id in 0..3 {
            post(&mut queue, wr_id).unwrap();
        }
        assert_eq!(post(&mut queue, 3), Err(PostError::QueueFull));
        let mut held = HeldRecv::EMPTY;
        assert_eq!(queue.take(&mut held), TakeRecv::Taken);
        assert_eq!((held.wr_id, held.capacity), (0, 64));
        post(&mut queue, 3).unwrap();
    }

    #[test]
    fn posted_but_not_fetched_is_no_reason_for_rnr() {
        let mut queue = RecvQueue::new(PdId(1), 2, 1);
        let mut held = HeldRecv::EMPTY;
        assert_eq!(queue.take(&mut held), TakeRecv::Empty);
        for wr_id in 0..2 {
            queue.push(&RecvWr { wr_id, sges: &[] }).unwrap();
        }
        assert_eq!(queue.take(&mut held), TakeRecv::NotFetched);
        queue.fetch(1);
        assert_eq!((queue.take(&mut held), queue.unfetched()), (TakeRecv::Taken, 1));
        assert_eq!(queue.take(&mut held), TakeRecv::NotFetched);
        queue.fetch(7);
        assert_eq!((queue.take(&mut held), queue.unfetched()), (TakeRecv::Taken, 0));
        assert_eq!(queue.take(&mut held), TakeRecv::Empty);
    }

    #[test]
    fn the_limit_fires_once_per_arming() {
        let mut srq = SharedRecvQueue::new(PdId(1), 8, 1, 2);
        let mut held = HeldRecv::EMPTY;
        for wr_id in 0..3 {
            post(&mut srq.queue, wr_id).unwrap();
        }
        assert_eq!(srq.take(&mut held), (TakeRecv::Taken, false));
        assert_eq!(srq.take(&mut held), (TakeRecv::Taken, true));
        assert_eq!(srq.take(&mut held), (TakeRecv::Taken, false));
    }

    #[test]
    fn resizing_keeps_order_and_what_was_fetched() {
        let mut queue = RecvQueue::new(PdId(1), 4, 1);
        for wr_id in 0..3 {
            post(&mut queue, wr_id).unwrap();
        }
        queue.push(&RecvWr { wr_id: 3, sges: &[] }).unwrap();
        let mut held = HeldRecv::EMPTY;
        queue.take(&mut held);
        let mut bigger = queue.resized(16);
        let order: Vec<u64> = std::iter::from_fn(|| {
            (bigger.take(&mut held) == TakeRecv::Taken).then_some(held.wr_id)
        })
        .collect();
        assert_eq!((order, bigger.unfetched()), (vec![1, 2], 1));
        bigger.fetch_all();
        assert_eq!((bigger.take(&mut held), held.wr_id), (TakeRecv::Taken, 3));
    }
}
