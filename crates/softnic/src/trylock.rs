//! A lock that nobody waits for: who finds it taken goes on with something else.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// A value that one thread at a time may try to use.
pub(crate) struct TryLock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value moves between threads only through the lock.
unsafe impl<T: Send> Send for TryLock<T> {}
// SAFETY: `try_lock` gives the value to one thread at a time.
unsafe impl<T: Send> Sync for TryLock<T> {}

impl<T> TryLock<T> {
    pub(crate) const fn new(value: T) -> TryLock<T> {
        TryLock { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// The value, unless another thread has it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<TryGuard<'_, T>> {
        if self.taken.swap(true, Ordering::Acquire) {
            return None;
        }
        Some(TryGuard { lock: self })
    }
}

/// Use of the value; dropping it gives it back.
pub(crate) struct TryGuard<'a, T> {
    lock: &'a TryLock<T>,
}

impl<T> Deref for TryGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for TryGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one, and it is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for TryGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.taken.store(false, Ordering::Release);
    }
}
