//! What the functions that only fail answer.

use core::ffi::c_int;
use rdmalab_abi::inline::set_errno;

/// "Not supported", as an error number and in `errno`.
pub fn error() -> c_int {
    set_errno(libc::EOPNOTSUPP);
    libc::EOPNOTSUPP
}

/// -1, and "not supported" in `errno`.
pub fn minus_one() -> c_int {
    set_errno(libc::EOPNOTSUPP);
    -1
}

/// Null, and "not supported" in `errno`.
pub fn null<T>() -> *mut T {
    set_errno(libc::EOPNOTSUPP);
    core::ptr::null_mut()
}
