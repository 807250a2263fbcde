//! What the connection thread and the halves of a node exchange.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::link::{Link, Receives};

/// Between the thread that makes connections and the halves that use them.
#[derive(Debug, Default)]
pub struct Shared {
    /// A new link for the receiving half.
    pub receiving: Handover,
    /// A new link for the sending half.
    pub sending: Handover,
    /// The samples to receive into, while no link has them.
    reserve: Mutex<Option<Receives>>,
    /// The thread has to end.
    pub is_over: AtomicBool,
}

/// A link on its way to a half.
#[derive(Debug, Default)]
pub struct Handover {
    link: Mutex<Option<Arc<Link>>>,
    is_there: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Handover {
    /// For the half.
    pub fn put(&self, link: Arc<Link>) {
        *lock(&self.link) = Some(link);
        self.is_there.store(true, Ordering::Release);
    }

    /// Takes the link if there is one; costs one load otherwise.
    #[inline]
    pub fn take(&self) -> Option<Arc<Link>> {
        if !self.is_there.load(Ordering::Acquire) {
            return None;
        }
        self.is_there.store(false, Ordering::Relaxed);
        lock(&self.link).take()
    }
}

impl Shared {
    /// Samples to receive into.
    pub fn give(&self, receives: Receives) {
        *lock(&self.reserve) = Some(receives);
    }

    /// The samples to receive into, if no link has them.
    pub fn take_receives(&self) -> Option<Receives> {
        lock(&self.reserve).take()
    }

    /// Whether [`Shared::take_receives`] would give them.
    pub fn has_receives(&self) -> bool {
        lock(&self.reserve).is_some()
    }
}
