//! The functions of the C library that set handlers. For SIGSEGV and SIGBUS all of them end in
//! [`change`], with the flags and masks that the C library uses; for other signals the C library's
//! function is called.

use core::ffi::c_int;
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use libc::{SIG_ERR, sighandler_t};

use crate::next::{self, fail};
use crate::{change, index};

/// The result of [`sigset`] for a signal that was blocked, and its argument that blocks one.
const SIG_HOLD: sighandler_t = 2;

/// `SA_INTERRUPT`, which System V's `signal` sets and the kernel ignores.
const SA_INTERRUPT: c_int = 0x2000_0000;

/// Whether `siginterrupt` was called with 1, for SIGSEGV and SIGBUS: then `signal` sets a handler
/// that interrupts system calls.
static INTERRUPTS: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];

/// `sigaction`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { change(signal, new, old) }
}

/// The C library's other name of `sigaction`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { change(signal, new, old) }
}

/// `signal`, as BSD and the C library's default have it: the handler stays, and system calls
/// restart.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(number: c_int, handler: sighandler_t) -> sighandler_t {
    let Some(index) = index(number) else {
        // SAFETY: the caller's contract.
        return unsafe { next::SIGNAL.signal(number, handler) };
    };
    let restarts = !INTERRUPTS[index].load(Ordering::Relaxed);
    let flags = if restarts { libc::SA_RESTART } else { 0 };
    // SAFETY: the caller's contract.
    unsafe { set(number, handler, flags, true) }
}

/// `signal` by its BSD name.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsd_signal(number: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller's contract.
    unsafe { signal(number, handler) }
}

/// `signal` by its other name.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssignal(number: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller's contract.
    unsafe { signal(number, handler) }
}

/// `signal` as System V has it, which programs get that are compiled for strict POSIX: the handler
/// is removed when it is called, and the signal is not blocked meanwhile.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sysv_signal(number: c_int, handler: sighandler_t) -> sighandler_t {
    if index(number).is_none() {
        // SAFETY: the caller's contract.
        return unsafe { next::SYSV_SIGNAL.signal(number, handler) };
    }
    let flags = libc::SA_RESETHAND | libc::SA_NODEFER | SA_INTERRUPT;
    // SAFETY: the caller's contract.
    unsafe { set(number, handler, flags, false) }
}

/// [`__sysv_signal`] by its other name.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sysv_signal(number: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller's contract.
    unsafe { __sysv_signal(number, handler) }
}

/// `sigset` of System V: sets a handler and unblocks the signal, or blocks it (`SIG_HOLD`).
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigset(number: c_int, handler: sighandler_t) -> sighandler_t {
    if index(number).is_none() {
        // SAFETY: the caller's contract.
        return unsafe { next::SIGSET.signal(number, handler) };
    }
    let how = if handler == SIG_HOLD { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    // SAFETY: signal sets are plain data that these calls fill; otherwise the caller's contract.
    unsafe {
        let former = match handler {
            SIG_HOLD => query(number),
            _ => set(number, handler, 0, false),
        };
        if former == SIG_ERR {
            return SIG_ERR;
        }
        let mut this: libc::sigset_t = mem::zeroed();
        let mut before: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&mut this);
        libc::sigaddset(&mut this, number);
        if libc::sigprocmask(how, &this, &mut before) != 0 {
            return SIG_ERR;
        }
        if libc::sigismember(&before, number) == 1 { SIG_HOLD } else { former }
    }
}

/// `sigignore` of System V.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigignore(number: c_int) -> c_int {
    // SAFETY: an action of zeroes is complete; `change` accepts any signal.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = libc::SIG_IGN;
        change(number, &action, ptr::null_mut())
    }
}

/// `siginterrupt`: whether system calls restart after a handler of this signal.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siginterrupt(number: c_int, interrupts: c_int) -> c_int {
    let Some(index) = index(number) else {
        // SAFETY: the caller's contract.
        return unsafe { next::siginterrupt(number, interrupts) };
    };
    INTERRUPTS[index].store(interrupts != 0, Ordering::Relaxed);
    // SAFETY: an action of zeroes is complete, and the first call fills it.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        if change(number, ptr::null(), &mut action) != 0 {
            return -1;
        }
        match interrupts {
            0 => action.sa_flags |= libc::SA_RESTART,
            _ => action.sa_flags &= !libc::SA_RESTART,
        }
        change(number, &action, ptr::null_mut())
    }
}

/// Sets a handler, and returns the former one or `SIG_ERR`.
///
/// # Safety
/// As for `signal`.
unsafe fn set(
    number: c_int,
    handler: sighandler_t,
    flags: c_int,
    masks_itself: bool,
) -> sighandler_t {
    if handler == SIG_ERR {
        fail(libc::EINVAL);
        return SIG_ERR;
    }
    // SAFETY: an action of zeroes is complete: no flags, and an empty mask.
    unsafe {
        let mut new: libc::sigaction = mem::zeroed();
        let mut old: libc::sigaction = mem::zeroed();
        new.sa_sigaction = handler;
        new.sa_flags = flags;
        if masks_itself {
            libc::sigaddset(&mut new.sa_mask, number);
        }
        if change(number, &new, &mut old) != 0 { SIG_ERR } else { old.sa_sigaction }
    }
}

/// The handler of a signal, or `SIG_ERR`.
///
/// # Safety
/// As for `sigaction`.
unsafe fn query(number: c_int) -> sighandler_t {
    // SAFETY: an action of zeroes is complete, and the call fills it.
    unsafe {
        let mut old: libc::sigaction = mem::zeroed();
        if change(number, ptr::null(), &mut old) != 0 { SIG_ERR } else { old.sa_sigaction }
    }
}
