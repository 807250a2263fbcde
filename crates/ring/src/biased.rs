//! A lock that costs its usual user no locked instruction.
//!
//! Most locks of an RNIC are taken by one thread, again and again. A second thread (the helper, or
//! another thread of the program) takes them seldom, but must be safe when it does. A locked
//! instruction waits each time until all earlier stores have left the processor, and those often go
//! to lines that a peer's cache owns: that wait, not the lock, is the cost.
//!
//! So the first thread that takes the lock becomes its *owner*. The owner sets `inside` with a
//! plain store, and then checks whether the lock is *shared*. Any other thread takes an inner lock,
//! declares the lock shared, executes a barrier on all processors that run this process, and waits
//! until the owner has cleared `inside`. A shared lock works as an ordinary one, also for the
//! owner. After many uses by the owner in a row, it stops being shared.
//!
//! A thread that withdraws something which holders of many locks may use need not take them all. It
//! withdraws, calls [`fence_holders`], and waits for the locks that [`BiasedLock::may_be_held`]
//! names then: those who take a lock later see that the thing is gone.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use crate::fence;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Times in a row that the owner takes a shared lock before the lock stops being shared.
const CALM: u32 = if cfg!(loom) { 1 } else { 256 };

/// See the module's text.
#[derive(Debug)]
pub struct BiasedLock<T> {
    /// The owner's token; 0 while there is none.
    owner: AtomicU64,
    /// The owner holds the lock by the fast path, without `taken`.
    inside: AtomicBool,
    /// Other threads use the lock: every thread, also the owner, takes `taken`.
    shared: AtomicBool,
    taken: AtomicBool,
    /// Times in a row that the owner had `taken`.
    calm: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value moves between threads only through the lock.
unsafe impl<T: Send> Send for BiasedLock<T> {}
// SAFETY: the lock gives the value to one thread at a time: see `lock_as` and its model.
unsafe impl<T: Send> Sync for BiasedLock<T> {}

/// Exclusive access to the value; dropping it unlocks.
#[derive(Debug)]
pub struct BiasedGuard<'a, T> {
    lock: &'a BiasedLock<T>,
    short: bool,
}

/// A lock that stays locked after its guard: see [`BiasedGuard::keep`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Kept {
    /// Whether the owner holds it by the fast path.
    pub is_short: bool,
}

#[cfg(not(loom))]
std::thread_local! {
    static GUEST: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
}

/// Marks this thread as a guest, which never becomes an owner: it acts on behalf of others.
#[cfg(not(loom))]
pub fn be_guest() {
    GUEST.with(|guest| guest.set(true));
}

/// Runs `work` as a guest, whether or not this thread is one.
#[cfg(not(loom))]
pub fn as_guest<R>(work: impl FnOnce() -> R) -> R {
    /// Restores the state also after a panic, since a caller may catch that.
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            GUEST.with(|guest| guest.set(self.0));
        }
    }
    let _back = Back(GUEST.with(|guest| guest.replace(true)));
    work()
}

#[cfg(not(loom))]
fn is_guest() -> bool {
    GUEST.with(core::cell::Cell::get)
}

#[cfg(loom)]
fn is_guest() -> bool {
    false
}

/// A number that no other live thread of this process has, and never 0.
#[inline(always)]
#[cfg(not(loom))]
fn token() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let base: u64;
        // SAFETY: reads the first word of the thread's control block, which the x86-64 psABI makes
        // its own address.
        unsafe {
            core::arch::asm!(
                "mov {}, fs:0", out(reg) base, options(nostack, readonly, preserves_flags)
            );
        }
        base
    }
    #[cfg(target_arch = "aarch64")]
    {
        let base: u64;
        // SAFETY: reads the register that holds the thread's control block's address.
        unsafe {
            core::arch::asm!(
                "mrs {}, tpidr_el0", out(reg) base, options(nostack, nomem, preserves_flags)
            );
        }
        base
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        std::thread_local!(static HERE: u8 = const { 0 });
        HERE.with(|here| core::ptr::from_ref(here) as u64)
    }
}

/// Orders what this thread did before against all holders of biased locks in this process: a holder
/// that took its lock later sees it, and [`BiasedLock::may_be_held`] sees one that took it earlier.
/// A few microseconds, whatever the number of locks.
pub fn fence_holders() {
    fence::private_heavy();
}

impl<T> BiasedLock<T> {
    /// A lock without an owner.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> BiasedLock<T> {
        BiasedLock {
            owner: AtomicU64::new(0),
            inside: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            taken: AtomicBool::new(false),
            calm: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// A lock without an owner.
    #[cfg(loom)]
    pub fn new(value: T) -> BiasedLock<T> {
        BiasedLock {
            owner: AtomicU64::new(0),
            inside: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            taken: AtomicBool::new(false),
            calm: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the lock and returns access to the value.
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn lock(&self) -> BiasedGuard<'_, T> {
        self.lock_as(token())
    }

    /// Access to the value, unless another thread has the lock.
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn try_lock(&self) -> Option<BiasedGuard<'_, T>> {
        self.try_lock_as(token())
    }

    /// Unlocks what [`BiasedGuard::keep`] left locked.
    ///
    /// # Safety
    /// `kept` is the state of this lock, which is locked, and nothing refers to the value any more.
    #[inline(always)]
    pub unsafe fn unlock(&self, kept: Kept) {
        drop(BiasedGuard { lock: self, short: kept.is_short });
    }

    /// Whether a thread may hold the lock that took it before this thread last called
    /// [`fence_holders`]. If not, everything that such a thread did with the lock has happened. It
    /// costs the owner nothing.
    pub fn may_be_held(&self) -> bool {
        // One holder sets one of the two for all of its time, so each may be read at its own time.
        self.inside.load(Ordering::Acquire) || self.taken.load(Ordering::Acquire)
    }

    /// [`BiasedLock::lock`] by the thread with this token.
    #[inline(always)]
    fn lock_as(&self, me: u64) -> BiasedGuard<'_, T> {
        if self.enter_short(me) {
            return BiasedGuard { lock: self, short: true };
        }
        self.lock_long(me)
    }

    #[inline(always)]
    fn try_lock_as(&self, me: u64) -> Option<BiasedGuard<'_, T>> {
        if self.enter_short(me) {
            return Some(BiasedGuard { lock: self, short: true });
        }
        self.try_lock_long(me)
    }

    /// The owner's fast path: a store and a load, with a light fence between them. The heavy fence
    /// of the pair is in [`BiasedLock::evict`].
    #[inline(always)]
    fn enter_short(&self, me: u64) -> bool {
        if self.owner.load(Ordering::Relaxed) != me {
            return false;
        }
        // A signal handler that interrupts the owner inside must wait as other threads do, and so
        // must an owner that has kept the lock.
        if self.inside.load(Ordering::Relaxed) {
            return false;
        }
        self.inside.store(true, Ordering::Relaxed);
        fence::private_light();
        if self.shared.load(Ordering::Acquire) {
            self.inside.store(false, Ordering::Release);
            return false;
        }
        true
    }

    #[cold]
    #[inline(never)]
    fn lock_long(&self, me: u64) -> BiasedGuard<'_, T> {
        let mut backoff = Backoff::default();
        while self.taken.swap(true, Ordering::Acquire) {
            while self.taken.load(Ordering::Relaxed) {
                backoff.wait();
            }
        }
        // Pairs with `fence_holders`, as in `enter_short`.
        fence::private_light();
        if self.evict(me) {
            while self.inside.load(Ordering::Acquire) {
                backoff.wait();
            }
        }
        BiasedGuard { lock: self, short: false }
    }

    #[cold]
    #[inline(never)]
    fn try_lock_long(&self, me: u64) -> Option<BiasedGuard<'_, T>> {
        if self.taken.load(Ordering::Relaxed) || self.taken.swap(true, Ordering::Acquire) {
            return None;
        }
        fence::private_light();
        if self.evict(me) && self.inside.load(Ordering::Acquire) {
            self.taken.store(false, Ordering::Release);
            return None;
        }
        Some(BiasedGuard { lock: self, short: false })
    }

    /// With the inner lock held: makes sure that the owner takes it too. Returns whether the owner
    /// may still be inside by the fast path.
    fn evict(&self, me: u64) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner == 0 {
            if !is_guest() {
                self.owner.store(me, Ordering::Relaxed);
            }
            return false;
        }
        if owner == me {
            let calm = self.calm.load(Ordering::Relaxed) + 1;
            if calm < CALM {
                self.calm.store(calm, Ordering::Relaxed);
            } else {
                // No other thread relies on `shared` now: we hold `taken`.
                self.calm.store(0, Ordering::Relaxed);
                self.shared.store(false, Ordering::Release);
            }
            // True if this is a signal handler that interrupted the owner inside, or if the owner
            // has kept the lock. `lock` then waits until another thread unlocks it.
            return self.inside.load(Ordering::Relaxed);
        }
        self.calm.store(0, Ordering::Relaxed);
        if !self.shared.load(Ordering::Relaxed) {
            self.shared.store(true, Ordering::Relaxed);
            fence::private_heavy();
        }
        true
    }
}

impl<T> BiasedGuard<'_, T> {
    /// Leaves the lock locked, until [`BiasedLock::unlock`].
    #[inline(always)]
    pub fn keep(self) -> Kept {
        let kept = Kept { is_short: self.short };
        core::mem::forget(self);
        kept
    }
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one, and it is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.short {
            self.lock.inside.store(false, Ordering::Release);
        } else {
            self.lock.taken.store(false, Ordering::Release);
        }
    }
}

/// `std::thread::sleep` calls `nanosleep`, where a thread can be cancelled. Verbs take these locks,
/// and must not be cancelled in the middle.
#[cfg(not(loom))]
fn sleep_20_us() {
    let time = libc::timespec { tv_sec: 0, tv_nsec: 20_000 };
    // SAFETY: the time is valid during the call, which writes nothing.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, core::ptr::null::<u8>()) };
}

/// Spins for a moment, then yields, then sleeps, so that a preempted holder of the lock gets a
/// processor, even if the waiter has a higher real-time priority.
#[derive(Default)]
struct Backoff {
    looks: u32,
}

impl Backoff {
    fn wait(&mut self) {
        self.looks = self.looks.saturating_add(1);
        #[cfg(loom)]
        loom::thread::yield_now();
        #[cfg(not(loom))]
        match self.looks {
            ..200 => core::hint::spin_loop(),
            200..250 => std::thread::yield_now(),
            _ => sleep_20_us(),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn counts_of_many_threads_add_up() {
        fence::register_private();
        static COUNT: BiasedLock<u64> = BiasedLock::new(0);
        drop(COUNT.lock());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| *COUNT.lock() += 1));
            }
            for _ in 0..10_000 {
                if let Some(mut count) = COUNT.try_lock() {
                    *count += 1;
                } else {
                    *COUNT.lock() += 1;
                }
            }
        });
        assert_eq!(*COUNT.lock(), 50_000);
    }

    #[test]
    fn a_guest_never_owns() {
        let lock = BiasedLock::new(());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                be_guest();
                assert!(!lock.lock().short);
                assert!(!lock.lock().short);
            });
        });
        drop(lock.lock());
        assert!(lock.lock().short);
    }

    #[test]
    fn a_holder_is_seen_and_stays_the_owner() {
        fence::register_private();
        let lock = BiasedLock::new(());
        drop(lock.lock());
        let looks = || {
            std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    fence_holders();
                    lock.may_be_held()
                });
                other.join().expect("it looks")
            })
        };
        assert!(!looks());
        let held = lock.lock();
        assert!(held.short && looks());
        drop(held);
        assert!(!looks());
        assert!(lock.lock().short, "a look does not end the bias");
        let long = lock.lock_as(1);
        assert!(!long.short && looks());
    }

    #[test]
    fn the_owner_keeps_others_out_and_they_keep_it_out() {
        fence::register_private();
        let lock = BiasedLock::new(());
        drop(lock.lock());
        let held = lock.lock();
        assert!(held.short, "the first thread is the owner");
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(lock.try_lock().is_none()));
        });
        drop(held);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let held = lock.try_lock();
                assert!(held.is_some());
                std::thread::scope(|inner| {
                    inner.spawn(|| assert!(lock.try_lock().is_none()));
                });
            });
        });
        for _ in 0..=CALM {
            drop(lock.lock());
        }
        assert!(lock.lock().short, "calm, so the owner's alone again");
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;

    /// Owner and another thread each enter twice, one of them with `try_lock`; a plain cell checks
    /// that they never are inside at the same time.
    #[test]
    fn loom_owner_and_stranger_never_meet() {
        loom::model(|| {
            let lock = Arc::new((BiasedLock::new(()), loom::cell::UnsafeCell::new(0)));
            drop(lock.0.lock_as(1));
            let other = lock.clone();
            let stranger = loom::thread::spawn(move || {
                let guard = other.0.lock_as(2);
                // SAFETY: loom checks that nobody else is here.
                other.1.with_mut(|value| unsafe { *value += 1 });
                drop(guard);
            });
            for _ in 0..2 {
                if let Some(guard) = lock.0.try_lock_as(1) {
                    // SAFETY: as above.
                    lock.1.with_mut(|value| unsafe { *value += 1 });
                    drop(guard);
                }
            }
            stranger.join().unwrap();
        });
    }

    /// A thread with this token uses memory while the lock is its own and the memory is published;
    /// another withdraws the memory, and takes the lock only if it may be held.
    fn withdrawn_from(user: u64) {
        loom::model(move || {
            let shared =
                (BiasedLock::new(()), loom::cell::UnsafeCell::new(0), AtomicBool::new(true));
            let here = Arc::new(shared);
            drop(here.0.lock_as(1));
            let there = here.clone();
            let copier = loom::thread::spawn(move || {
                let guard = there.0.lock_as(user);
                if there.2.load(Ordering::Acquire) {
                    // SAFETY: loom checks that it is not withdrawn meanwhile.
                    there.1.with(|value| unsafe { *value });
                }
                drop(guard);
            });
            here.2.store(false, Ordering::Release);
            fence_holders();
            // It would wait for the lock; the model has no time for that.
            let is_over = !here.0.may_be_held() || here.0.try_lock_as(3).is_some();
            if is_over {
                // SAFETY: as above.
                here.1.with_mut(|value| unsafe { *value += 1 });
            }
            copier.join().unwrap();
        });
    }

    #[test]
    fn loom_the_owner_uses_nothing_that_was_withdrawn() {
        withdrawn_from(1);
    }

    #[test]
    fn loom_a_stranger_uses_nothing_that_was_withdrawn() {
        withdrawn_from(2);
    }
}
