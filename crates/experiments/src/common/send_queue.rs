//! Counts the used slots of a send queue, and decides which requests must be signalled so that
//! slots become free again.

use crate::common::params::Signal;

/// A send queue as seen by its user: a slot becomes free only when the completion of its request,
/// or of a later request, has been *polled* (IBA 10.8.5).
#[derive(Clone, Debug)]
pub(crate) struct Account {
    /// Requests that may be under way.
    capacity: u64,
    /// One request in so many has a completion; `u64::MAX`: only those that must.
    every: u64,
    posted: u64,
    freed: u64,
    /// The number of requests up to and with the last one that has a completion.
    signalled: u64,
}

impl Account {
    pub fn new(capacity: u64, signal: Signal) -> Self {
        let every = match signal {
            Signal::Every(every) => u64::from(every),
            Signal::Max => u64::MAX,
        };
        Self { capacity, every, posted: 0, freed: 0, signalled: 0 }
    }

    /// Requests that fit an empty queue.
    #[inline]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Whether a completion is yet to come for all that was posted.
    #[inline]
    pub fn is_flushed(&self) -> bool {
        self.signalled == self.posted
    }

    /// Requests that fit now.
    #[inline]
    pub fn room(&self) -> u64 {
        self.capacity - self.under_way()
    }

    /// Whether a signalled request has not completed yet.
    #[inline]
    pub fn is_awaiting(&self) -> bool {
        self.signalled > self.freed
    }

    /// Requests whose slots are taken.
    #[inline]
    pub fn under_way(&self) -> u64 {
        self.posted - self.freed
    }

    /// Requests posted so far.
    #[inline]
    pub fn posted(&self) -> u64 {
        self.posted
    }

    /// Counts a request, and returns whether it must be signalled. `next`: the number of requests
    /// in the next post if this request is the last of its post, else 0. `flush`: no request
    /// follows soon, so that all requests have to complete.
    #[inline]
    pub fn take(&mut self, next: u64, flush: bool) -> bool {
        self.take_list(1, next, flush)
    }

    /// Like [`Self::take`], for `count` requests of which only the last may be signalled.
    #[inline]
    pub fn take_list(&mut self, count: u64, next: u64, flush: bool) -> bool {
        self.posted += count;
        let tail = self.posted - self.signalled;
        let signals = flush || tail >= self.every || (next > 0 && tail + next > self.capacity);
        if signals {
            self.signalled = self.posted;
        }
        signals
    }

    /// Records that the completion of the `count`-th request was polled. If threads share a queue,
    /// a completion from another thread may come after a later one, and then frees nothing.
    #[inline]
    pub fn free(&mut self, count: u64) {
        debug_assert!(count <= self.signalled, "{count} of {self:?}");
        self.freed = self.freed.max(count);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_request_or_one_in_some() {
        let mut each = Account::new(4, Signal::Every(1));
        assert!(each.take(1, false) && each.take(1, false));
        let mut third = Account::new(100, Signal::Every(3));
        let signals: Vec<bool> = (0..7).map(|_| third.take(1, false)).collect();
        assert_eq!(signals, [false, false, true, false, false, true, false]);
        assert!(third.take(1, true) && third.is_awaiting());
        third.free(8);
        assert!(!third.is_awaiting() && third.room() == 100);
    }

    #[test]
    fn at_most_means_where_the_queue_is_full() {
        let mut account = Account::new(4, Signal::Max);
        let signals: Vec<bool> = (0..4).map(|_| account.take(1, false)).collect();
        assert_eq!((signals, account.room()), (vec![false, false, false, true], 0));
        account.free(4);
        assert_eq!((account.room(), account.take(1, false)), (4, false));
    }

    #[test]
    fn a_completion_that_comes_late_takes_no_slot_back() {
        let mut account = Account::new(4, Signal::Every(1));
        assert!((0..4).all(|_| account.take(1, false)));
        account.free(3);
        account.free(2);
        assert_eq!(account.room(), 3);
    }

    proptest! {
        /// For all sizes, a completion is outstanding whenever the next post does not fit, so that
        /// waiting for room always ends.
        #[test]
        fn nobody_waits_for_ever(capacity in 1u64..70, every in 1u32..80, list in 1u64..70,
            max: bool, whole: bool) {
            let list = list.min(capacity);
            let signal = if max { Signal::Max } else { Signal::Every(every) };
            let mut account = Account::new(capacity, signal);
            let mut asked = std::collections::VecDeque::new();
            for _ in 0..200 {
                while account.room() < list {
                    prop_assert!(account.is_awaiting());
                    account.free(asked.pop_front().unwrap());
                }
                // Lists whose last request alone may have a completion, and requests one by one.
                if whole && account.take_list(list, list, false) {
                    asked.push_back(account.posted());
                }
                for i in 0..if whole { 0 } else { list } {
                    let next = if i + 1 == list { list } else { 0 };
                    if account.take(next, false) {
                        asked.push_back(account.posted());
                    }
                }
                prop_assert!(account.posted() - account.freed <= capacity);
            }
        }
    }
}
