//! What this process counted beside its queue pairs, and the sum of those that are gone.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rdmalab_engine::qp::Tally;

use crate::clock::now_ns;

/// How long the lock of the sum is waited for.
const PAST_WAIT: Duration = Duration::from_millis(100);

/// What the queue pairs of a process counted that exist no more, and where the sum goes.
pub(crate) struct Counters {
    /// What the queue pairs counted that are gone.
    ///
    /// Whoever holds this lock sees each queue pair either here or in its place. The lock of a
    /// queue pair is only tried meanwhile.
    past: Mutex<Tally>,
    /// Queue pairs that were made.
    pub(crate) queue_pairs: AtomicU64,
    /// Trains that were dropped.
    pub(crate) dropped: AtomicU64,
    /// How many of them were reported.
    reported_drops: AtomicU64,
    /// Devices that are open now.
    pub(crate) open: AtomicU64,
    /// The file for all of it.
    pub(crate) file: Option<PathBuf>,
}

impl Counters {
    /// All zero; the environment tells whether a file is written.
    pub(crate) fn from_environment() -> Counters {
        let directory = std::env::var_os("RDMALAB_COUNTERS").filter(|name| !name.is_empty());
        // A process ID may be used again while the directory exists.
        let name = format!("{}-{}", std::process::id(), now_ns());
        Counters {
            past: Mutex::new(Tally::default()),
            queue_pairs: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            reported_drops: AtomicU64::new(0),
            open: AtomicU64::new(0),
            file: directory.map(|directory| Path::new(&directory).join(name)),
        }
    }

    /// A queue pair was made.
    pub(crate) fn queue_pair_made(&self) {
        self.queue_pairs.fetch_add(1, Ordering::Relaxed);
    }

    /// A queue pair is destroyed: `try_take` takes it out of its place, unless another thread has
    /// its lock, which `wait` waits for. `tally` says what it had counted.
    pub(crate) fn queue_pair_gone<T>(
        &self,
        wait: impl Fn(),
        try_take: impl Fn() -> Option<Option<T>>,
        tally: impl FnOnce(&T) -> Tally,
    ) -> Option<T> {
        loop {
            // That may take long, so nobody else may have to wait for the sum meanwhile.
            wait();
            let mut past = self.past.lock();
            let Some(gone) = try_take() else { continue };
            if let Some(one) = &gone {
                past.add(&tally(one));
            }
            return gone;
        }
    }

    /// What the queue pairs counted that are gone, and those that `add_living` adds while none can
    /// go; and how many it could not add, or 1 if the sum of the past ones cannot be read.
    pub(crate) fn of_queue_pairs(
        &self,
        add_living: impl FnOnce(&mut Tally) -> u64,
    ) -> (Tally, u64) {
        // A signal handler that calls exit() may have interrupted a thread that has the lock.
        let past = self.past.try_lock_for(PAST_WAIT);
        let mut tally = past.as_deref().copied().unwrap_or_default();
        let uncounted = add_living(&mut tally);
        (tally, uncounted + u64::from(past.is_none()))
    }

    /// A train was dropped.
    pub(crate) fn count_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// How many trains were dropped since this was called last.
    pub(crate) fn take_dropped(&self) -> u64 {
        let dropped = self.dropped.load(Ordering::Relaxed);
        dropped.saturating_sub(self.reported_drops.fetch_max(dropped, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Each of the queue pairs counted one message. A thread destroys them meanwhile.
    #[test]
    fn a_queue_pair_that_is_destroyed_meanwhile_is_counted_once() {
        const QPS: u64 = 16;
        for _ in 0..100 {
            let counters = Counters::from_environment();
            let one = Tally { messages: 1, ..Tally::default() };
            let places: Vec<_> = (0..QPS).map(|_| Mutex::new(Some(one))).collect();
            let living = |tally: &mut Tally| {
                for place in &places {
                    place.lock().iter().for_each(|one| tally.add(one));
                    std::thread::yield_now();
                }
                0
            };
            std::thread::scope(|scope| {
                let destroyer = scope.spawn(|| {
                    // From the last to the first, towards the reader.
                    for place in places.iter().rev() {
                        counters.queue_pair_gone(
                            || drop(place.lock()),
                            || place.try_lock().map(|mut one| one.take()),
                            |one| *one,
                        );
                        std::thread::yield_now();
                    }
                });
                while !destroyer.is_finished() {
                    // A thread that lost its processor may have the lock for longer than the limit.
                    let (sum, uncounted) = counters.of_queue_pairs(living);
                    assert!(sum.messages == QPS || uncounted > 0, "{} of {QPS}", sum.messages);
                }
            });
            assert_eq!(counters.of_queue_pairs(|_| 0), (Tally { messages: QPS, ..one }, 0));
        }
    }

    /// Another thread takes the lock of the queue pair twice, just before it could be taken out.
    #[test]
    fn the_sum_can_be_read_while_a_queue_pair_is_waited_for() {
        let counters = Counters::from_environment();
        let one = Tally { messages: 1, ..Tally::default() };
        let tries = Cell::new(0);
        let wait = || assert_eq!(counters.of_queue_pairs(|_| 0), (Tally::default(), 0));
        let try_take = || {
            tries.set(tries.get() + 1);
            (tries.get() > 2).then_some(Some(one))
        };
        assert_eq!(counters.queue_pair_gone(wait, try_take, |one| *one), Some(one));
        assert_eq!((tries.get(), counters.of_queue_pairs(|_| 0)), (3, (one, 0)));
    }

    #[test]
    fn a_dropped_train_is_reported_once() {
        let counters = Counters::from_environment();
        (0..3).for_each(|_| counters.count_dropped());
        assert_eq!((counters.take_dropped(), counters.take_dropped()), (3, 0));
        counters.count_dropped();
        assert_eq!(counters.take_dropped(), 1);
        assert_eq!(counters.dropped.load(Ordering::Relaxed), 4);
    }
}
