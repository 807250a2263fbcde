//! The lock of hot, short critical sections: one atomic exchange to take it, one store to give it
//! back. Whoever waits spins for a moment, then yields, then sleeps, so that a holder that lost its
//! processor gets it back, also from a waiter of higher real-time priority.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Looks before a waiter yields.
const SPINS: u32 = 200;
/// Yields before a waiter sleeps.
const YIELDS: u32 = 50;
/// How long it sleeps between two looks.
const NAP: Duration = Duration::from_micros(20);

/// A value that one thread at a time may use.
pub(crate) struct SpinLock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value moves between threads only through the lock.
unsafe impl<T: Send> Send for SpinLock<T> {}
// SAFETY: the lock gives the value to one thread at a time.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    pub(crate) const fn new(value: T) -> SpinLock<T> {
        SpinLock { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// The value, as soon as nobody else has it.
    #[inline]
    pub(crate) fn lock(&self) -> SpinGuard<'_, T> {
        if self.taken.swap(true, Ordering::Acquire) {
            self.wait();
        }
        SpinGuard { lock: self }
    }

    /// The value, unless another thread has it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        if self.taken.load(Ordering::Relaxed) || self.taken.swap(true, Ordering::Acquire) {
            return None;
        }
        Some(SpinGuard { lock: self })
    }

    #[cold]
    fn wait(&self) {
        let mut looks = 0u32;
        loop {
            if !self.taken.load(Ordering::Relaxed) && !self.taken.swap(true, Ordering::Acquire) {
                return;
            }
            looks = looks.saturating_add(1);
            match looks {
                ..SPINS => std::hint::spin_loop(),
                SPINS..250 => std::thread::yield_now(),
                _ => std::thread::sleep(NAP),
            }
        }
    }
}

const _: () = assert!(SPINS + YIELDS == 250);

/// Use of the value; dropping it gives it back.
pub(crate) struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one, and it is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_many_threads_add_up() {
        static COUNT: SpinLock<u64> = SpinLock::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| *COUNT.lock() += 1));
            }
        });
        assert_eq!(*COUNT.lock(), 40_000);
        let held = COUNT.lock();
        assert!(COUNT.try_lock().is_none());
        drop(held);
        assert!(COUNT.try_lock().is_some());
    }
}
