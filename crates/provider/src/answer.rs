//! Converts results to the return values of C functions, by the conventions of the manual pages.

use core::ffi::c_int;
use core::ptr;

use rdmalab_engine::backend::{VerbsError, VerbsResult};

use crate::diag;

/// Sets the calling thread's `errno`.
pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: glibc's location of this thread's `errno` is always valid for this thread.
    unsafe { *libc::__errno_location() = errno };
}

/// Notes the error, sets `errno`, and returns its number, which is always positive.
#[cold]
pub(crate) fn number(verb: &'static str, error: &VerbsError) -> c_int {
    // An error with number 0 must not look like success.
    let errno = if error.errno > 0 { error.errno } else { libc::EIO };
    // `EAGAIN` on a non-blocking descriptor is normal, not an error.
    if errno != libc::EAGAIN {
        diag::note(verb, &error.message);
    }
    set_errno(errno);
    errno
}

/// 0, or the error's number: the convention of most verbs.
#[inline]
pub(crate) fn status(verb: &'static str, result: VerbsResult<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => number(verb, &error),
    }
}

/// 0, or -1 with `errno` set: the convention of the oldest verbs.
pub(crate) fn minus_one(verb: &'static str, result: VerbsResult<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            number(verb, &error);
            -1
        }
    }
}

/// The pointer, or null with `errno` set: the convention of verbs that create objects.
pub(crate) fn pointer<T>(verb: &'static str, result: VerbsResult<*mut T>) -> *mut T {
    match result {
        Ok(pointer) => pointer,
        Err(error) => {
            number(verb, &error);
            ptr::null_mut()
        }
    }
}

/// The error of a verb that this project's devices do not support.
pub(crate) fn not_here(verb: &'static str) -> VerbsError {
    VerbsError::unsupported(format!("this device has no {verb}"))
}
