//! The live objects of a context, so that an event never refers to a destroyed one.
//!
//! An event carries a cookie. Between the moment a thread takes an event from the backend and the
//! moment it reads the object, another thread may destroy the object; the registry's lock orders
//! the two. Cookies are never reused, so a stale one finds nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdmalab_abi::{ibv_cq, ibv_qp, ibv_srq};
use rdmalab_engine::vocab::AsyncEventObject;

/// An object that events may refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    Cq(*mut ibv_cq),
    Qp(*mut ibv_qp),
    Srq(*mut ibv_srq),
}

impl Element {
    /// The kind of the object.
    fn kind(self) -> AsyncEventObject {
        match self {
            Element::Cq(_) => AsyncEventObject::Cq,
            Element::Qp(_) => AsyncEventObject::Qp,
            Element::Srq(_) => AsyncEventObject::Srq,
        }
    }
}

/// How many events were delivered to the program, modulo 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivered {
    pub(crate) completions: u32,
    pub(crate) asynchronous: u32,
}

struct Entry {
    element: Element,
    delivered: Delivered,
}

/// The living objects of one context.
#[derive(Default)]
pub(crate) struct Registry {
    live: Mutex<BTreeMap<u64, Entry>>,
}

/// A cookie that no object of this process has had.
pub(crate) fn new_cookie() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Registry {
    fn live(&self) -> MutexGuard<'_, BTreeMap<u64, Entry>> {
        // No code panics while the lock is held, and the map is consistent between operations.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an object, so that events may refer to it.
    pub(crate) fn add(&self, cookie: u64, element: Element) {
        self.live().insert(cookie, Entry { element, delivered: Delivered::default() });
    }

    /// Removes an object, so that no event refers to it; returns how many events did, which the
    /// program has to acknowledge before the object may be freed.
    pub(crate) fn remove(&self, cookie: u64) -> Delivered {
        self.live().remove(&cookie).map_or_else(Delivered::default, |entry| entry.delivered)
    }

    /// The CQ of a completion event, counted as delivered; `None` when it is gone.
    pub(crate) fn deliver_completion(&self, cookie: u64) -> Option<*mut ibv_cq> {
        let mut live = self.live();
        let entry = live.get_mut(&cookie)?;
        let Element::Cq(cq) = entry.element else { return None };
        entry.delivered.completions = entry.delivered.completions.wrapping_add(1);
        Some(cq)
    }

    /// The object of an asynchronous event, counted as delivered; `None` when it is gone.
    pub(crate) fn deliver_asynchronous(
        &self,
        cookie: u64,
        kind: AsyncEventObject,
    ) -> Option<Element> {
        let mut live = self.live();
        let entry = live.get_mut(&cookie)?;
        if entry.element.kind() != kind {
            return None;
        }
        entry.delivered.asynchronous = entry.delivered.asynchronous.wrapping_add(1);
        Some(entry.element)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_object_gets_no_event_and_tells_how_many_it_had() {
        let registry = Registry::default();
        let (cookie, cq) = (new_cookie(), core::ptr::dangling_mut());
        registry.add(cookie, Element::Cq(cq));
        assert_eq!(registry.deliver_completion(cookie), Some(cq));
        assert_eq!(registry.deliver_asynchronous(cookie, AsyncEventObject::Qp), None);
        let found = registry.deliver_asynchronous(cookie, AsyncEventObject::Cq);
        assert_eq!(found, Some(Element::Cq(cq)));
        assert_eq!(registry.remove(cookie), Delivered { completions: 1, asynchronous: 1 });
        assert_eq!(registry.deliver_completion(cookie), None);
        assert_ne!(new_cookie(), cookie);
    }
}
