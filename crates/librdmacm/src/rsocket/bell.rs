//! How threads that sleep on one socket hear of each other.
//!
//! They sleep on the same descriptors. Of one completion all would hear; but the first to wake may
//! take what the descriptor was readable for, with what the others wait for, and they sleep on. So
//! each thread has a descriptor of its own, on which it sleeps too: whoever brings news of a socket
//! rings all that sleep on it.

use std::cell::OnceCell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use crate::channel;

thread_local! {
    static BELL: OnceCell<Bell> = const { OnceCell::new() };
}

/// The descriptor of one thread, made when it first sleeps.
#[derive(Clone)]
pub struct Bell(Arc<OwnedFd>);

impl PartialEq for Bell {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Bell {
    /// That of this thread; `None` while the process has no descriptor left.
    pub fn own() -> Option<Self> {
        let made = |bell: &OnceCell<Bell>| {
            if bell.get().is_none() {
                let _only_this_thread_sets_it = bell.set(Self(Arc::new(channel::event_fd().ok()?)));
            }
            bell.get().cloned()
        };
        BELL.try_with(made).ok().flatten()
    }

    /// Wakes its thread, or keeps it from sleeping.
    pub fn ring(&self) {
        channel::add_one(self.0.as_fd());
    }

    /// What becomes readable when it rings.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// It was heard.
    pub fn silence(&self) {
        channel::drain(self.0.as_fd());
    }
}

/// The bells of those that sleep on a socket.
#[derive(Default)]
pub struct Sleepers(Vec<Bell>);

impl Sleepers {
    /// From now on this thread hears of news.
    pub fn enter(&mut self, bell: Option<&Bell>) {
        if let Some(bell) = bell
            && !self.0.contains(bell)
        {
            self.0.push(bell.clone());
        }
    }

    /// It looks for itself again.
    pub fn leave(&mut self, bell: Option<&Bell>) {
        self.0.retain(|other| Some(other) != bell);
    }

    /// There are news; this thread knows.
    pub fn wake(&self) {
        if self.0.is_empty() {
            return;
        }
        let own = Bell::own();
        self.0.iter().filter(|bell| Some(*bell) != own.as_ref()).for_each(Bell::ring);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rings(bell: &Bell) -> bool {
        let mut poll = libc::pollfd { fd: bell.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live pollfd.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    /// Each of the others hears, whoever wakes first, and who has left does not.
    #[test]
    fn all_others_hear() {
        let own = Bell::own().unwrap();
        assert!(Bell::own().unwrap() == own);
        let other = || std::thread::spawn(|| Bell::own().unwrap()).join().unwrap();
        let others = [other(), other()];
        let mut sleepers = Sleepers::default();
        for bell in others.iter().chain([&own, &own]) {
            sleepers.enter(Some(bell));
        }
        sleepers.wake();
        assert!(rings(&others[0]) && rings(&others[1]) && !rings(&own));
        others[0].silence();
        assert!(!rings(&others[0]) && rings(&others[1]));
        others[1].silence();
        sleepers.leave(Some(&others[0]));
        sleepers.leave(Some(&own));
        sleepers.leave(None);
        sleepers.wake();
        assert!(!rings(&others[0]) && rings(&others[1]) && !rings(&own));
    }
}
