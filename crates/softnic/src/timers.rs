//! The list of queue pairs with running timers, and the time when a thread must check them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::progress_thread::ProgressThread;

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
}

impl Default for Timers {
    fn default() -> Timers {
        Timers {
            watched: Mutex::new(Vec::new()),
            tick_lock: Mutex::new(()),
            changed: AtomicBool::new(false),
            deadline_ns: AtomicU64::new(u64::MAX),
            next_tick_ns: AtomicU64::new(0),
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
