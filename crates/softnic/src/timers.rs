//! The list of queue pairs with running timers, the time when a thread must check them, and which
//! delays ended late.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use parking_lot::Mutex;

use crate::progress_thread::ProgressThread;

/// How long callers have to do what is due before another thread does, ns. Waking it sooner would
/// take the processor from a caller.
pub(crate) const GRACE_NS: u64 = 20_000;
/// The least time for which the progress thread watches callers, ns: else it would wake up all the
/// time where something is due all the time.
pub(crate) const SHORT_WATCH_NS: u64 = 100_000;
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

/// The delays of a process that ended: pages that came, pauses, and packets that a rule delays.
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
    /// Makes some thread check the timers at `at_ns`: a caller, or soon after that time the
    /// progress thread.
    pub(crate) fn set(self, at_ns: u64) {
        self.note(at_ns);
        // With the fence of the progress thread: it finds the deadline, or its watch is seen here.
        fence(Ordering::SeqCst);
        let watches_until_ns = &self.progress_thread.watches_until_ns;
        let due_ns = at_ns.saturating_add(GRACE_NS);
        if watches_until_ns.load(Ordering::Relaxed) > due_ns.saturating_add(SHORT_WATCH_NS) {
            // Later alarms need not wake it again.
            watches_until_ns.store(due_ns, Ordering::Relaxed);
            self.progress_thread.wake();
        }
    }

    /// The same, but if callers stop before that time, it may take until the progress thread has
    /// noticed that. For what another thread does then.
    pub(crate) fn note(self, at_ns: u64) {
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

    #[test]
    fn an_alarm_ends_a_watch_that_would_be_too_long() {
        let timers = Timers::default();
        let progress_thread = ProgressThread::new(Box::leak(Box::default())).unwrap();
        let alarm = Alarm { timers: &timers, progress_thread: &progress_thread };
        let is_woken = |watches_until_ns| {
            progress_thread.watches_until_ns.store(watches_until_ns, Ordering::Relaxed);
            alarm.set(1_000_000);
            progress_thread.kick.take_one()
        };
        assert!(!is_woken(0), "it does not watch");
        assert!(!is_woken(1_000_000 + GRACE_NS + SHORT_WATCH_NS), "it wakes up soon enough");
        assert!(is_woken(1_000_001 + GRACE_NS + SHORT_WATCH_NS));
        alarm.set(1_000_000);
        assert!(!progress_thread.kick.take_one(), "it was woken for that time before");
        alarm.note(1_000_000);
        assert!(!progress_thread.kick.take_one());
        assert_eq!(timers.deadline_ns.load(Ordering::Relaxed), 1_000_000);
    }
}
