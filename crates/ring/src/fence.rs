//! Fences of unequal weight, for protocols in which one side acts all the time and the other
//! seldom.
//!
//! Both "push, then look whether the peer sleeps" against "say that I sleep, then look whether
//! something came", and "say that I am inside, then look whether the key is valid" against
//! "invalidate the key, then look who is inside", are store-load pairs: each side needs a full
//! fence between its store and its load. `membarrier(2)` lets the rare side (*heavy*) execute the
//! fence on behalf of every processor that runs a registered process, so that the frequent side
//! (*light*) needs a compiler fence only.
//!
//! That is sound for a pair only if the light side has registered *and* the heavy side can call
//! membarrier. The first is known by [`register`]; the second is told by the heavy side in its
//! shared segment, once, as a [`Strength`]. Where either does not hold both execute full fences.

use crate::sync::{Ordering, fence};
use core::sync::atomic::AtomicU32;

const CMD_QUERY: libc::c_int = 0;
const CMD_GLOBAL_EXPEDITED: libc::c_int = 1 << 1;
const CMD_REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;

const CMD_PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const CMD_REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

const UNKNOWN: u32 = 0;
const REGISTERED: u32 = 1;
const UNAVAILABLE: u32 = 2;

/// Process-wide, as the registration is. A forked child inherits both.
static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);

/// The same for pairs within this process.
static PRIVATE: AtomicU32 = AtomicU32::new(UNKNOWN);

/// Which fence the frequent side of a pair executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strength {
    /// A compiler fence: this process is registered, and the other side has said that it can
    /// execute the heavy fence.
    Light,
    /// A full fence of the processor.
    Full,
}

impl Strength {
    /// The strength that this process needs towards an owner of which `owner_has_heavy` is known.
    pub fn towards(owner_has_heavy: bool) -> Strength {
        if owner_has_heavy && register() { Strength::Light } else { Strength::Full }
    }

    /// The fence between the frequent side's store and its load.
    #[inline(always)]
    pub fn fence(self) {
        if cfg!(loom) || self == Strength::Full {
            fence(Ordering::SeqCst);
        } else {
            core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
        }
    }
}

fn membarrier(command: libc::c_int) -> libc::c_long {
    // SAFETY: membarrier takes integers, and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}

/// Registers this process as one whose processors a heavy fence of another process reaches. Cheap
/// after the first call. False when the kernel (or a seccomp filter) does not allow it.
pub fn register() -> bool {
    match STATE.load(core::sync::atomic::Ordering::Acquire) {
        UNKNOWN => register_now(),
        state => state == REGISTERED,
    }
}

/// Registers anew, whatever is known. For the child of a fork.
#[cold]
pub fn register_now() -> bool {
    let wanted = libc::c_long::from(CMD_GLOBAL_EXPEDITED | CMD_REGISTER_GLOBAL_EXPEDITED);
    let offered = membarrier(CMD_QUERY);
    let done = !cfg!(loom)
        && offered >= 0
        && offered & wanted == wanted
        && membarrier(CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
    let state = if done { REGISTERED } else { UNAVAILABLE };
    STATE.store(state, core::sync::atomic::Ordering::Release);
    done
}

/// Whether [`heavy`] reaches other processes, as far as is known. What an owner publishes.
pub fn heavy_available() -> bool {
    register()
}

/// A full fence here, and at this moment also on every processor that runs a registered process.
/// A few microseconds. False when it could be executed here only: then a light side that was told
/// otherwise may not be ordered against this side, and a caller that sleeps must do so with a
/// bound, and a caller that waits for quiescence must first let the others' stores drain.
#[must_use = "without the heavy fence the caller must not rely on the light side's order"]
pub fn heavy() -> bool {
    fence(Ordering::SeqCst);
    if cfg!(loom) {
        return true;
    }
    if !register() {
        return false;
    }
    let done = membarrier(CMD_GLOBAL_EXPEDITED) == 0;
    fence(Ordering::SeqCst);
    done
}

/// Registers this process for heavy fences of pairs within it (`biased`), before any is used. Until
/// then, and where the kernel does not allow it, both sides execute full fences.
pub fn register_private() -> bool {
    let wanted = libc::c_long::from(CMD_PRIVATE_EXPEDITED | CMD_REGISTER_PRIVATE_EXPEDITED);
    let offered = membarrier(CMD_QUERY);
    let done = offered >= 0
        && offered & wanted == wanted
        && membarrier(CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
    let state = if done { REGISTERED } else { UNAVAILABLE };
    PRIVATE.store(state, core::sync::atomic::Ordering::Release);
    done
}

/// The frequent side's fence of a pair within this process.
#[inline(always)]
pub(crate) fn private_light() {
    let registered = PRIVATE.load(core::sync::atomic::Ordering::Relaxed) == REGISTERED;
    if cfg!(loom) || !registered {
        fence(Ordering::SeqCst);
    } else {
        core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    }
}

/// The seldom side's fence of a pair within this process: a full fence here and on every processor
/// that runs one of its threads.
pub(crate) fn private_heavy() {
    fence(Ordering::SeqCst);
    if !cfg!(loom) && PRIVATE.load(core::sync::atomic::Ordering::Relaxed) == REGISTERED {
        if membarrier(CMD_PRIVATE_EXPEDITED) != 0 {
            // Forbidden meanwhile (a seccomp filter): full fences from now on, and time enough for
            // whoever passed the light one to have its store seen.
            PRIVATE.store(UNAVAILABLE, core::sync::atomic::Ordering::SeqCst);
            std::thread::sleep(core::time::Duration::from_millis(10));
        }
        fence(Ordering::SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn heavy_works_exactly_when_registered() {
        assert_eq!(register(), register_now());
        assert_eq!(heavy(), heavy_available());
        assert_eq!(Strength::towards(true) == Strength::Light, register());
        assert_eq!(Strength::towards(false), Strength::Full);
        Strength::towards(true).fence();
        Strength::Full.fence();
    }
}
