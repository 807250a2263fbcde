//! The list of queue pairs with running timers, the time when a thread must check them, and which
//! delays ended late.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::progress_thread::ProgressThread;

/// Shorter delays are not counted: a thread that wakes up is often late by a tenth of them, ns.
const COUNTED_NS: u64 = 50_000;

/// The timers of this process.
pub(crate) struct Timers {
    /// Indices of the QPs with a running timer.
    pub(crate) watched: Mutex<Vec<u32>>,
    /// Held by the thread that checks the timers.
    pub(crate) tick_lock: Mutex<()>,
    /// A QP was added to `watched` since the last check.
    pub(crate) changed: AtomicBool,
    /// Time when a thread must check the timers, ns; `u64::MAX`: no deadline.
    pub(crate) deadline_ns: AtomicU64,
    /// Time of the next check by a caller, ns.
    pub(crate) next_tick_ns: AtomicU64,
    /// Delays that ended.
    pub(crate) delays: Delays,
}

/// The delays of a process that ended under a profile that pages: pages that came, RNR NAKs that
/// were held, and pauses.
#[derive(Default)]
pub(crate) struct Delays {
    ended: AtomicU64,
    late: AtomicU64,
}

impl Delays {
    /// A delay of this length ended so much after its time.
    pub(crate) fn note(&self, delay_ns: u64, late_ns: u64) {
        if delay_ns >= COUNTED_NS {
            self.ended.fetch_add(1, Ordering::Relaxed);
            self.late.fetch_add(u64::from(late_ns > delay_ns / 10), Ordering::Relaxed);
        }
    }

    /// How many ended that should last 50 us or more, and those of them that lasted more than a
    /// tenth too long.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.ended.load(Ordering::Relaxed), self.late.load(Ordering::Relaxed))
    }
}

impl Default for Timers {
    fn default() -> Timers {
        Timers {
            watched: Mutex::new(Vec::new()),
            tick_lock: Mutex::new(()),
            changed: AtomicBool::new(false),
            deadline_ns: AtomicU64::new(u64::MAX),
            next_tick_ns: AtomicU64::new(0),
            delays: Delays::default(),
        }
    }
}

impl Timers {
    /// Adds a QP to the list.
    pub(crate) fn watch(&self, index: u32) {
        self.watched.lock().push(index);
        self.changed.store(true, Ordering::Release);
    }
}

/// Sets the time when a thread must check the timers.
#[derive(Clone, Copy)]
pub(crate) struct Alarm<'a> {
    pub(crate) timers: &'a Timers,
    pub(crate) progress_thread: &'a ProgressThread,
}

impl Alarm<'_> {
    /// Makes some thread check the timers at `at_ns`.
    pub(crate) fn set(self, at_ns: u64) {
        self.timers.deadline_ns.fetch_min(at_ns, Ordering::AcqRel);
        self.progress_thread.wake_if_asleep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_that_lasts_a_tenth_too_long_is_late() {
        let delays = Delays::default();
        for (delay_ns, late_ns) in [(50_000, 5_000), (50_000, 5_001), (4_000_000, 400_001)] {
            delays.note(delay_ns, late_ns);
        }
        delays.note(COUNTED_NS - 1, u64::MAX);
        assert_eq!(delays.counts(), (3, 2));
    }
}
