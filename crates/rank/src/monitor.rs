//! State that the threads of a rank share, and how they wait for it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

use crate::Stopped;

/// State that one thread of a rank uses at a time. Threads reach it through their rank
/// ([`Locks`]), so that they wait for each other in its time.
#[derive(Debug, Default)]
pub struct Monitor<S> {
    state: Mutex<S>,
    /// Threads sleep on it.
    woken: Condvar,
}

impl<S> Monitor<S> {
    /// A monitor of the state.
    pub const fn new(state: S) -> Self {
        Self { state: Mutex::new(state), woken: Condvar::new() }
    }

    /// Waits as a thread of the system does.
    #[inline(always)]
    pub(crate) fn lock(&self) -> MutexGuard<'_, S> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, or `None` if a thread uses it now. For ranks that wait in virtual time.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, S>> {
        match self.state.try_lock() {
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Ok(state) => Some(state),
        }
    }

    /// Lets the state go, and sleeps until [`Self::wake_all`] or for no reason.
    #[inline(always)]
    pub(crate) fn sleep(&self, state: MutexGuard<'_, S>) {
        drop(self.woken.wait(state).unwrap_or_else(PoisonError::into_inner));
    }

    /// Wakes all threads that sleep.
    #[inline(always)]
    pub(crate) fn wake_all(&self) {
        self.woken.notify_all();
    }
}

/// How the threads of a rank wait for each other. What is here is for threads of the system; in
/// virtual time a rank has its own ways.
pub trait Locks {
    /// Calls `act` with the state, which no other thread of this rank uses meanwhile.
    ///
    /// # Errors
    /// In virtual time only: all ranks end while it waits.
    #[inline(always)]
    fn locked<S, T>(
        &self,
        monitor: &Monitor<S>,
        act: impl FnOnce(&mut S) -> T,
    ) -> Result<T, Stopped> {
        Ok(act(&mut monitor.lock()))
    }

    /// [`Locks::locked`] without waiting: `None` if another thread uses the state now.
    #[inline(always)]
    fn try_locked<S, T>(&self, monitor: &Monitor<S>, act: impl FnOnce(&mut S) -> T) -> Option<T> {
        monitor.try_lock().map(|mut state| act(&mut state))
    }

    /// [`Locks::locked`], but if `act` returns `None`, sleeps until another thread calls
    /// [`Locks::wake_all`] after that. It may also wake up earlier. There is no time limit.
    ///
    /// # Errors
    /// As [`Locks::locked`]; in virtual time also when it was asked to stop.
    #[inline(always)]
    fn locked_or_sleep<S, T>(
        &self,
        monitor: &Monitor<S>,
        act: impl FnOnce(&mut S) -> Option<T>,
    ) -> Result<Option<T>, Stopped> {
        let mut state = monitor.lock();
        let found = act(&mut state);
        if found.is_none() {
            monitor.sleep(state);
        }
        Ok(found)
    }

    /// Wakes all threads of this rank that sleep in [`Locks::locked_or_sleep`].
    #[inline(always)]
    fn wake_all<S>(&self, monitor: &Monitor<S>) {
        monitor.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_used_by_one_at_a_time_also_after_a_panic() {
        let monitor = Monitor::new(1);
        let held = monitor.lock();
        assert!(monitor.try_lock().is_none());
        drop(held);
        std::thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let _held = monitor.lock();
                panic!("on purpose");
            });
            assert!(panics.join().is_err());
        });
        assert_eq!(monitor.try_lock().as_deref(), Some(&1));
        assert_eq!(*monitor.lock(), 1);
    }
}
