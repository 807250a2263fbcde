//! The critical sections that the manual pages promise around extended polling and posting.

use core::sync::atomic::{AtomicBool, Ordering};

/// A lock that one call takes and a later call of the same thread releases, with the program's code
/// in between. Backends never take it, so a program that stays in its critical section delays only
/// threads that want to enter the same one.
#[derive(Debug, Default)]
pub(crate) struct SpinLock(AtomicBool);

impl SpinLock {
    /// Waits until the section is free and enters it.
    #[inline]
    pub(crate) fn enter(&self) {
        if self.0.swap(true, Ordering::Acquire) {
            self.wait();
        }
    }

    /// Leaves the section.
    #[inline]
    pub(crate) fn leave(&self) {
        self.0.store(false, Ordering::Release);
    }

    #[cold]
    fn wait(&self) {
        loop {
            for _ in 0..100 {
                core::hint::spin_loop();
                if !self.0.load(Ordering::Relaxed) && !self.0.swap(true, Ordering::Acquire) {
                    return;
                }
            }
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn only_one_thread_is_inside() {
        let shared = Arc::new((SpinLock::default(), AtomicBool::new(false)));
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
