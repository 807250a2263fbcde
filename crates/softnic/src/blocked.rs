//! The queue pairs that wait for room in a peer's ring, by index.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// The queue of these queue pairs.
#[derive(Default)]
pub(crate) struct BlockedQueue {
    waiting: Mutex<Vec<u32>>,
    /// Whether a QP waits; every thread that makes progress reads this.
    pub(crate) any: AtomicBool,
}

impl BlockedQueue {
    /// Adds a QP that is not in the queue.
    pub(crate) fn add(&self, index: u32) {
        self.waiting.lock().push(index);
        self.any.store(true, Ordering::Release);
    }

    /// Takes all QPs.
    pub(crate) fn take(&self) -> Vec<u32> {
        let mut waiting = self.waiting.lock();
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut *waiting)
    }
}
