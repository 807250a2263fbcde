//! The C library's functions that make a child and execute another program in it. The child has the
//! actions that the kernel has when it is made. So the device removes its handler before, where the
//! program ignores the signal, and meanwhile copies in another way.
//!
//! The function `system` returns when the other program has ended, so the device copies slowly for
//! as long as that runs.

use core::ffi::{c_char, c_int};
use core::ptr;

use crate::next::{self, List, Next};
use crate::{in_own_process, make_child};

const CANCEL_DISABLE: c_int = 1;

// A thread may end in the second, which unwinds.
unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn pthread_testcancel();
}

/// A child is being made for which the kernel ignores signals.
struct Child {
    device: crate::MakeChild,
}

impl Child {
    /// `None` if the program ignores neither signal, or if this is a child by `vfork`.
    fn begin() -> Option<Child> {
        let device = make_child().filter(|_| in_own_process())?;
        (device(1) != 0).then_some(Child { device })
    }

    /// Keeps `errno`.
    fn end(self) {
        // SAFETY: the thread's own variable.
        let errno = unsafe { *libc::__errno_location() };
        (self.device)(0);
        next::fail(errno);
    }
}

/// # Safety
/// As for `posix_spawn`.
unsafe fn spawn(
    next: &Next,
    pid: *mut libc::pid_t,
    path: *const c_char,
    actions: *const libc::posix_spawn_file_actions_t,
    attributes: *const libc::posix_spawnattr_t,
    words: List,
    variables: List,
) -> c_int {
    let Some(next) = next.spawn() else { return libc::ENOSYS };
    let child = Child::begin();
    // SAFETY: the caller's contract.
    let status = unsafe { next(pid, path, actions, attributes, words, variables) };
    if let Some(child) = child {
        child.end();
    }
    status
}

/// `posix_spawn`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn(
    pid: *mut libc::pid_t,
    path: *const c_char,
    actions: *const libc::posix_spawn_file_actions_t,
    attributes: *const libc::posix_spawnattr_t,
    words: List,
    variables: List,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { spawn(&next::POSIX_SPAWN, pid, path, actions, attributes, words, variables) }
}

/// `posix_spawnp`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawnp(
    pid: *mut libc::pid_t,
    file: *const c_char,
    actions: *const libc::posix_spawn_file_actions_t,
    attributes: *const libc::posix_spawnattr_t,
    words: List,
    variables: List,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { spawn(&next::POSIX_SPAWNP, pid, file, actions, attributes, words, variables) }
}

/// `popen`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn popen(command: *const c_char, kind: *const c_char) -> *mut libc::FILE {
    let Some(next) = next::popen() else {
        next::not_found();
        return ptr::null_mut();
    };
    let child = Child::begin();
    // SAFETY: the caller's contract.
    let file = unsafe { next(command, kind) };
    if let Some(child) = child {
        child.end();
    }
    file
}

/// `system`. A thread may be cancelled in it: at once, or, where the program ignores one of the
/// signals, after the command has ended.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn system(command: *const c_char) -> c_int {
    let Some(next) = next::system() else { return next::not_found() };
    let Some(child) = Child::begin() else {
        // SAFETY: the caller's contract.
        return unsafe { next(command) };
    };
    let mut before = CANCEL_DISABLE;
    // SAFETY: a pointer to a live integer, and the caller's contract.
    let status = unsafe {
        pthread_setcancelstate(CANCEL_DISABLE, &raw mut before);
        next(command)
    };
    child.end();
    // SAFETY: as above; nothing here needs to be dropped if the thread ends.
    unsafe {
        pthread_setcancelstate(before, ptr::null_mut());
        pthread_testcancel();
    }
    status
}
