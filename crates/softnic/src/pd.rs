//! Protection domains.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rdmalab_engine::vocab::PdId;

use crate::context::ContextShared;

/// A protection domain.
pub(crate) struct PdObject {
    pub(crate) context: Arc<ContextShared>,
    pub(crate) id: PdId,
    objects: AtomicUsize,
}

impl PdObject {
    pub(crate) fn new(id: PdId, context: Arc<ContextShared>) -> PdObject {
        context.add_object();
        PdObject { context, id, objects: AtomicUsize::new(0) }
    }

    /// Adds one to the number of objects.
    pub(crate) fn add_object(&self) {
        self.objects.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts one from the number of objects.
    pub(crate) fn remove_object(&self) {
        self.objects.fetch_sub(1, Ordering::Relaxed);
    }

    /// Number of objects that use it.
    pub(crate) fn objects(&self) -> usize {
        self.objects.load(Ordering::Relaxed)
    }
}
