//! The timers of queue pairs, and when a thread has to check them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

/// See the module's text.
pub(crate) struct Timers {
    /// Indices of the QPs whose timer runs.
    pub(crate) watched: Mutex<Vec<u32>>,
    /// Held by the one thread that checks the timers.
    pub(crate) tick_lock: Mutex<()>,
    /// A QP came to `watched` since somebody looked.
    pub(crate) changed: AtomicBool,
    /// When a thread must check the timers, ns; `u64::MAX`: no deadline.
    pub(crate) deadline_ns: AtomicU64,
    /// When a caller next checks the timers, ns.
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
    /// Watches the timer of one more QP.
    pub(crate) fn watch(&self, index: u32) {
        self.watched.lock().push(index);
        self.changed.store(true, Ordering::Release);
    }
}
