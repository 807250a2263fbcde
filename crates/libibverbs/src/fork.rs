//! Fork. An adapter that writes to pinned physical pages needs care, since the first write after
//! a fork moves the parent to new ones. The soft device writes to addresses of a process: a
//! program may fork without telling us.

use core::ffi::{c_int, c_void};
use rdmalab_abi::consts::IBV_FORK_UNNEEDED;

/// Nothing to prepare; 0.
pub fn ibv_fork_init() -> c_int {
    0
}

/// That nothing needs preparing.
pub fn ibv_is_fork_initialized() -> u32 {
    IBV_FORK_UNNEEDED
}

/// Nothing to protect; 0.
pub fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

/// Nothing to release; 0.
pub fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}
