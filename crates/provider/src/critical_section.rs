//! The critical sections that the manual pages promise around extended polling and posting.

use core::sync::atomic::{AtomicBool, Ordering};

use rdmalab_ring::biased::{BiasedLock, Kept};

/// A lock that one call takes and a later call of the same thread releases, with the program's code
/// in between. Backends never take it, so a program that stays in its critical section delays only
/// threads that want to enter the same one. It is biased, because a locked instruction would wait
/// until the peer has given up the cache line of the message before.
#[derive(Debug)]
pub(crate) struct CriticalSection {
    lock: BiasedLock<()>,
    /// How the thread inside holds the lock.
    is_short: AtomicBool,
}

impl Default for CriticalSection {
    fn default() -> CriticalSection {
        CriticalSection { lock: BiasedLock::new(()), is_short: AtomicBool::new(false) }
    }
}

impl CriticalSection {
    /// Waits until the section is free and enters it.
    #[inline]
    pub(crate) fn enter(&self) {
        let kept = self.lock.lock().keep();
        self.is_short.store(kept.is_short, Ordering::Relaxed);
    }

    /// Leaves the section.
    #[inline]
    pub(crate) fn leave(&self) {
        let kept = Kept { is_short: self.is_short.load(Ordering::Relaxed) };
        // SAFETY: the thread that entered last is inside, and keeps no reference to the value.
        unsafe { self.lock.unlock(kept) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn only_one_thread_is_inside() {
        let shared = Arc::new((CriticalSection::default(), AtomicBool::new(false)));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    for _ in 0..1000 {
                        shared.0.enter();
                        assert!(!shared.1.swap(true, Ordering::Relaxed), "two are inside");
                        shared.1.store(false, Ordering::Relaxed);
                        shared.0.leave();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no thread saw two inside");
        }
    }
}
