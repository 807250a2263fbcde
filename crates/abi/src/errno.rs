//! The error number of C.

use core::ffi::c_int;

/// Sets `errno` of this thread.
pub fn set_errno(value: c_int) {
    // SAFETY: the address is that of this thread's own variable.
    unsafe { *libc::__errno_location() = value }
}
