//! What the connection thread and the halves of a node exchange.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::link::{Link, Receives};

/// Between the thread that makes connections and the halves that use them.
#[derive(Debug, Default)]
pub struct Shared {
    /// A new link for the receiving half.
    pub receiving: Handover<Link>,
    /// A new link for the sending half.
    pub sending: Handover<Link>,
    /// The samples to receive into, while no link has them.
    reserve: Mutex<Option<Receives>>,
    /// The thread has to end.
    pub is_over: AtomicBool,
}

/// A link on its way to a half.
#[derive(Debug)]
pub struct Handover<T> {
    place: Mutex<Place<T>>,
    is_there: AtomicBool,
}

#[derive(Debug)]
enum Place<T> {
    Free,
    Waits(Arc<T>),
    /// The half is gone.
    Closed,
}

impl<T> Default for Handover<T> {
    fn default() -> Self {
        Self { place: Mutex::new(Place::Free), is_there: AtomicBool::new(false) }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Handover<T> {
    /// For the half, if it is not gone.
    pub fn put(&self, link: Arc<T>) {
        let mut place = lock(&self.place);
        if !matches!(*place, Place::Closed) {
            *place = Place::Waits(link);
            self.is_there.store(true, Ordering::Release);
        }
    }

    /// Takes the link if there is one; costs one load otherwise.
    #[inline]
    pub fn take(&self) -> Option<Arc<T>> {
        if !self.is_there.load(Ordering::Acquire) {
            return None;
        }
        self.take_if(|_| true)
    }

    /// Takes this link back, if the half has not taken it.
    pub fn discard(&self, link: &Arc<T>) {
        self.take_if(|waits| Arc::ptr_eq(waits, link));
    }

    fn take_if(&self, wanted: impl FnOnce(&Arc<T>) -> bool) -> Option<Arc<T>> {
        let mut place = lock(&self.place);
        if !matches!(&*place, Place::Waits(link) if wanted(link)) {
            return None;
        }
        self.is_there.store(false, Ordering::Relaxed);
        match std::mem::replace(&mut *place, Place::Free) {
            Place::Waits(link) => Some(link),
            Place::Free | Place::Closed => None,
        }
    }

    /// The half is gone: nobody takes a link any more.
    pub fn close(&self) {
        *lock(&self.place) = Place::Closed;
    }
}

impl Shared {
    /// Samples to receive into.
    pub fn give(&self, receives: Receives) {
        *lock(&self.reserve) = Some(receives);
    }

    /// Ends a link that no half has. If none has taken its samples either, they are for the next.
    pub fn free(&self, mut link: Link) {
        if let Some((memory, samples)) = link.unpost() {
            drop(link);
            self.give(Receives { memory, samples });
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_nobody_takes_is_let_go() {
        let (handover, link) = (Handover::default(), Arc::new(1));
        handover.put(link.clone());
        handover.discard(&Arc::new(1));
        assert_eq!(Arc::strong_count(&link), 2, "another link was discarded");
        handover.discard(&link);
        assert_eq!((Arc::strong_count(&link), handover.take()), (1, None));
        handover.put(link.clone());
        assert_eq!(handover.take(), Some(link.clone()));
        handover.put(link.clone());
        handover.close();
        assert_eq!((Arc::strong_count(&link), handover.take()), (1, None));
        handover.put(link.clone());
        assert_eq!((Arc::strong_count(&link), handover.take()), (1, None));
    }
}
