//! Shared receive queues.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use rdmalab_engine::qp::recv_queue::{HeldRecv, SharedRecvQueue, TakeRecv};
use rdmalab_engine::vocab::AsyncEventType;
use rdmalab_ring::biased::BiasedLock;

use crate::pd::PdObject;

/// A shared receive queue.
pub(crate) struct SrqObject {
    pub(crate) queue: BiasedLock<SharedRecvQueue>,
    pub(crate) pd: Arc<PdObject>,
    pub(crate) max_sge: u32,
    pub(crate) cookie: u64,
    /// Number of QPs that use it.
    pub(crate) users: AtomicUsize,
}

impl SrqObject {
    /// Takes a receive WQE, and raises the limit event if it is due.
    #[inline]
    pub(crate) fn take(&self, held: &mut HeldRecv) -> TakeRecv {
        let (taken, limit_reached) = self.queue.lock().take(held);
        if limit_reached {
            self.pd.context.raise(AsyncEventType::SrqLimitReached, self.cookie);
        }
        taken
    }
}
