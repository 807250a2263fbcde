//! How threads that sleep on one socket hear of each other.
//!
//! They sleep on the same descriptors. Of one completion all would hear; but the first to wake may
//! take what the descriptor was readable for, with what the others wait for, and they sleep on. So
//! each thread has a descriptor of its own, on which it sleeps too: whoever brings news of a socket
//! is_signalled all that sleep on it.

use std::cell::OnceCell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use crate::eventfd;

thread_local! {
    static WAKEUP: OnceCell<Wakeup> = const { OnceCell::new() };
}

/// The descriptor of one thread, made when it first sleeps.
#[derive(Clone)]
pub struct Wakeup(Arc<OwnedFd>);

impl PartialEq for Wakeup {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Wakeup {
    /// That of this thread; `None` while the process has no descriptor left.
    pub fn own() -> Option<Self> {
        let made = |wakeup: &OnceCell<Wakeup>| {
            if wakeup.get().is_none() {
                let _only_this_thread_sets_it = wakeup.set(Self(Arc::new(eventfd::create().ok()?)));
            }
            wakeup.get().cloned()
        };
        WAKEUP.try_with(made).ok().flatten()
    }

    /// Wakes its thread, or keeps it from sleeping.
    pub fn signal(&self) {
        eventfd::signal(self.0.as_fd());
    }

    /// What becomes readable when it is_signalled.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// It was heard.
    pub fn clear(&self) {
        eventfd::clear(self.0.as_fd());
    }
}

/// The bells of those that sleep on a socket.
#[derive(Default)]
pub struct Waiters(Vec<Wakeup>);

impl Waiters {
    /// From now on this thread hears of news.
    pub fn add(&mut self, wakeup: Option<&Wakeup>) {
        if let Some(wakeup) = wakeup
            && !self.0.contains(wakeup)
        {
            self.0.push(wakeup.clone());
        }
    }

    /// It looks for itself again.
    pub fn remove(&mut self, wakeup: Option<&Wakeup>) {
        self.0.retain(|other| Some(other) != wakeup);
    }

    /// There are news; this thread knows.
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

    /// Each of the others hears, whoever wakes first, and who has left does not.
    #[test]
    fn all_others_hear() {
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
