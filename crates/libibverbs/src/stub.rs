//! Return values of the functions that always fail.

use core::ffi::c_int;
use rdmalab_abi::inline::set_errno;

/// Returns `EOPNOTSUPP`, and sets `errno` to it.
pub fn error() -> c_int {
    set_errno(libc::EOPNOTSUPP);
    libc::EOPNOTSUPP
}

/// Returns -1, and sets `errno` to `EOPNOTSUPP`.
pub fn minus_one() -> c_int {
    set_errno(libc::EOPNOTSUPP);
    -1
}

/// Returns null, and sets `errno` to `EOPNOTSUPP`.
pub fn null<T>() -> *mut T {
    set_errno(libc::EOPNOTSUPP);
    core::ptr::null_mut()
}
