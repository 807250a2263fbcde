//! Fences of unequal cost, for protocols in which one side acts often and the other seldom.
//!
//! Two protocols need this. A pusher pushes, then checks whether the peer sleeps, while the peer
//! announces its sleep, then checks its rings. An initiator marks itself as inside, then checks the
//! key, while the target invalidates the key, then checks who is inside. Each side needs a full
//! fence between its store and its load. `membarrier(2)` lets the seldom side (*heavy*) execute the
//! fence on behalf of every processor that runs a registered process, so that the frequent side
//! (*light*) needs a compiler fence only.
//!
//! That is sound only if the light side has registered *and* the heavy side can call membarrier.
//! [`register`] tells the first; the heavy side publishes the second once in its shared segment,
//! and the light side chooses a [`Strength`]. Unless both hold, both sides execute full fences.

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

/// The state of the registration. Both are process-wide, and a forked child inherits both.
static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);

/// The state of the registration for pairs within this process.
static PRIVATE: AtomicU32 = AtomicU32::new(UNKNOWN);

/// The fence that the frequent side of a pair executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strength {
    /// A compiler fence: this process is registered, and the other side has published that it can
    /// execute the heavy fence.
    Light,
    /// A full fence of the processor.
    Full,
}

impl Strength {
    /// The strength that this process needs towards an owner that published `owner_has_heavy`.
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

/// Registers this process for the heavy fences of other processes. Cheap after the first call.
/// False when the kernel (or a seccomp filter) does not allow it.
pub fn register() -> bool {
    match STATE.load(core::sync::atomic::Ordering::Acquire) {
        UNKNOWN => register_now(),
        state => state == REGISTERED,
    }
}

/// Registers again, even if the result is known. For the child of a fork.
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

/// Whether [`heavy`] reaches other processes, as far as is known. Owners publish this value.
pub fn heavy_available() -> bool {
    register()
}

/// A full fence here, and at this moment also on every processor that runs a registered process. A
/// few microseconds. False when only the fence here was executed: then a light side that relies on
/// the heavy fence may not be ordered against this side. A caller that sleeps must then do so with
/// a bound, and a caller that waits for quiescence must first let the others' stores drain.
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

/// Registers this process for heavy fences of pairs within it (`biased`), before any is used.
/// Before that, and where the kernel does not allow it, both sides execute full fences.
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
            // A seccomp filter forbids it now: use full fences from now on, and wait until the
            // stores of threads that executed the light fence are visible.
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
