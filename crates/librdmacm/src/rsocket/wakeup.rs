//! Wakes the threads that wait for one socket.
//!
//! Such threads poll the same descriptors. The first thread that wakes up takes the event, and
//! handles completions that other threads wait for. Then the descriptor is not readable any more,
//! and the other threads sleep on. So each thread also polls its own eventfd, and a thread that
//! changes the state of a socket signals all threads that wait for it.

use std::cell::OnceCell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use crate::eventfd;

thread_local! {
    static WAKEUP: OnceCell<Wakeup> = const { OnceCell::new() };
}

/// The eventfd of one thread, created when the thread first sleeps.
#[derive(Clone)]
pub struct Wakeup(Arc<OwnedFd>);

impl PartialEq for Wakeup {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Wakeup {
    /// The eventfd of this thread; `None` while the process has no free descriptor.
    pub fn own() -> Option<Self> {
        let made = |wakeup: &OnceCell<Wakeup>| {
            if wakeup.get().is_none() {
                let _only_this_thread_sets_it = wakeup.set(Self(Arc::new(eventfd::create().ok()?)));
            }
            wakeup.get().cloned()
        };
        WAKEUP.try_with(made).ok().flatten()
    }

    /// Wakes the thread, or keeps it from sleeping.
    pub fn signal(&self) {
        eventfd::signal(self.0.as_fd());
    }

    /// The descriptor, readable while it is signalled.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Makes the descriptor unreadable again.
    pub fn clear(&self) {
        eventfd::clear(self.0.as_fd());
    }
}

/// The threads that wait for a socket.
#[derive(Default)]
pub struct Waiters(Vec<Wakeup>);

impl Waiters {
    /// Adds a thread that is about to sleep.
    pub fn add(&mut self, wakeup: Option<&Wakeup>) {
        if let Some(wakeup) = wakeup
            && !self.0.contains(wakeup)
        {
            self.0.push(wakeup.clone());
        }
    }

    /// Removes a thread that woke up.
    pub fn remove(&mut self, wakeup: Option<&Wakeup>) {
        self.0.retain(|other| Some(other) != wakeup);
    }

    /// Signals all waiting threads but this one.
    pub fn wake(&self) {
        if self.0.is_empty() {
            return;
        }
        let own = Wakeup::own();
        self.0.iter().filter(|wakeup| Some(*wakeup) != own.as_ref()).for_each(Wakeup::signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_signalled(wakeup: &Wakeup) -> bool {
        let mut poll = libc::pollfd { fd: wakeup.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live pollfd.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    /// All other threads are signalled, also after one of them woke up. A removed thread is not.
    #[test]
    fn all_other_threads_are_signalled() {
        let own = Wakeup::own().unwrap();
        assert!(Wakeup::own().unwrap() == own);
        let other = || std::thread::spawn(|| Wakeup::own().unwrap()).join().unwrap();
        let others = [other(), other()];
        let mut waiters = Waiters::default();
        for wakeup in others.iter().chain([&own, &own]) {
            waiters.add(Some(wakeup));
        }
        waiters.wake();
        assert!(is_signalled(&others[0]) && is_signalled(&others[1]) && !is_signalled(&own));
        others[0].clear();
        assert!(!is_signalled(&others[0]) && is_signalled(&others[1]));
        others[1].clear();
        waiters.remove(Some(&others[0]));
        waiters.remove(Some(&own));
        waiters.remove(None);
        waiters.wake();
        assert!(!is_signalled(&others[0]) && is_signalled(&others[1]) && !is_signalled(&own));
    }
}
