//! The critical sections that the manual pages promise around extended polling and posting.

use core::sync::atomic::{AtomicBool, Ordering};

use rdmalab_ring::biased::{BiasedLock, Kept};

/// A lock that one call takes and a later call of the same thread releases, with the program's code
/// in between. Backends never take it, so a program that stays in its critical section delays only
/// threads that want to enter the same one. It is biased, because a locked instruction waits for
/// all earlier stores, and one of them goes to a cache line that the peer still holds.
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
    ///
    /// # Safety
    /// The caller is inside, or acts for the thread that is, after synchronising with it.
    #[inline]
    pub(crate) unsafe fn leave(&self) {
        let kept = Kept { is_short: self.is_short.load(Ordering::Relaxed) };
        // SAFETY: the section is entered by the contract, and nothing refers to its value.
        unsafe { self.lock.unlock(kept) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn only_one_thread_is_inside() {
        rdmalab_ring::fence::register_private();
        let shared = Arc::new((CriticalSection::default(), AtomicBool::new(false)));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    for _ in 0..1000 {
                        shared.0.enter();
                        assert!(!shared.1.swap(true, Ordering::Relaxed), "two are inside");
                        shared.1.store(false, Ordering::Relaxed);
                        // SAFETY: this thread entered above.
                        unsafe { shared.0.leave() };
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no thread saw two inside");
        }
    }

    #[test]
    fn another_thread_may_leave_and_strangers_wait() {
        rdmalab_ring::fence::register_private();
        let section = CriticalSection::default();
        let is_inside = AtomicBool::new(false);
        let visit = || {
            section.enter();
            assert!(!is_inside.swap(true, Ordering::Relaxed), "two are inside");
            is_inside.store(false, Ordering::Relaxed);
            // SAFETY: this thread entered above.
            unsafe { section.leave() };
        };
        // This thread becomes the owner. Then it enters by the short way.
        visit();
        for _ in 0..100 {
            section.enter();
            is_inside.store(true, Ordering::Relaxed);
            std::thread::scope(|scope| {
                let stranger = scope.spawn(visit);
                scope.spawn(|| {
                    is_inside.store(false, Ordering::Relaxed);
                    // SAFETY: the thread that entered waits for this one.
                    unsafe { section.leave() };
                });
                stranger.join().expect("it found nobody inside");
            });
            visit();
        }
    }
}
