//! The C library's functions that execute another program. A program inherits that a signal is
//! ignored, but handlers become the default, and where the program ignores SIGSEGV or SIGBUS the
//! kernel has the device's handler. So these functions let the kernel ignore the signal first.
//!
//! If the other program cannot be executed, the device's handler comes back. A copy of another
//! thread that faults in between kills the process. Programs with threads execute others in a
//! child, where there is no other thread, or which has actions of its own (`vfork`).
//!
//! Functions that make the child themselves, as `posix_spawn`, are in `spawn`.

use core::ffi::{c_char, c_int};
use core::mem;
use core::ptr;
use core::sync::atomic::Ordering;

use crate::next::{self, List};
use crate::{FRONT, SIGNALS, attached};

/// Executes a program by `execute`, which returns only if it fails.
fn passing_on(execute: impl FnOnce() -> c_int) -> c_int {
    let before = SIGNALS.map(ignore);
    let status = execute();
    if let Some(next) = next::sigaction() {
        for (signal, action) in SIGNALS.into_iter().zip(&before) {
            if let Some(action) = action {
                // SAFETY: the kernel returned this action when it was replaced.
                unsafe { next(signal, action, ptr::null_mut()) };
            }
        }
    }
    status
}

/// Lets the kernel ignore a signal if the program does, and returns the action that it had instead.
fn ignore(signal: c_int) -> Option<libc::sigaction> {
    let (device, next) = (attached()?, next::sigaction()?);
    // SAFETY: actions of zeroes are complete, and the calls fill them; code is only removed.
    unsafe {
        let mut installed: libc::sigaction = mem::zeroed();
        let mut behind: libc::sigaction = mem::zeroed();
        let is_known = next(signal, ptr::null(), &mut installed) == 0
            && device(signal, ptr::null(), &mut behind) == 0;
        let is_front = installed.sa_sigaction == FRONT.load(Ordering::Relaxed);
        if !is_known || !is_front || behind.sa_sigaction != libc::SIG_IGN {
            return None;
        }
        (next(signal, &behind, ptr::null_mut()) == 0).then_some(installed)
    }
}

/// `execve`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: *const c_char, words: List, variables: List) -> c_int {
    // SAFETY: the caller's contract.
    passing_on(|| unsafe { next::execute_with(&next::EXECVE, path, words, variables) })
}

/// `execvpe`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(file: *const c_char, words: List, variables: List) -> c_int {
    // SAFETY: the caller's contract.
    passing_on(|| unsafe { next::execute_with(&next::EXECVPE, file, words, variables) })
}

/// `execv`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, words: List) -> c_int {
    // SAFETY: the caller's contract.
    passing_on(|| unsafe { next::execute(&next::EXECV, path, words) })
}

/// `execvp`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, words: List) -> c_int {
    // SAFETY: the caller's contract.
    passing_on(|| unsafe { next::execute(&next::EXECVP, file, words) })
}

/// `fexecve`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(fd: c_int, words: List, variables: List) -> c_int {
    // SAFETY: the caller's contract.
    passing_on(|| unsafe { next::execute_file(fd, words, variables) })
}

/// `execveat`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    directory: c_int,
    path: *const c_char,
    words: List,
    variables: List,
    flags: c_int,
) -> c_int {
    let call = libc::SYS_execveat;
    // The C library has this function from version 2.34 on.
    // SAFETY: the caller's contract.
    passing_on(|| unsafe { libc::syscall(call, directory, path, words, variables, flags) as c_int })
}
