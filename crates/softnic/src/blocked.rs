//! The queue pairs that wait for room in a peer's ring.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::qp::QpObject;

/// See the module's text.
#[derive(Default)]
pub(crate) struct BlockedQueue {
    waiting: Mutex<Vec<&'static QpObject>>,
    /// Some QP waits: read by every thread that makes progress.
    pub(crate) any: AtomicBool,
}

impl BlockedQueue {
    /// Adds a QP. Returns whether it did not wait before.
    pub(crate) fn add(&self, object: &'static QpObject) -> bool {
        let is_new = !object.in_blocked.swap(true, Ordering::AcqRel);
        if is_new {
            self.waiting.lock().push(object);
            self.any.store(true, Ordering::Release);
        }
        is_new
    }

    /// Takes all of them.
    pub(crate) fn take(&self) -> Vec<&'static QpObject> {
        let mut waiting = self.waiting.lock();
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut *waiting)
    }
}
