//! Functions for programs that fork. An adapter writes to pinned physical pages, and the parent's
//! first write after a fork moves the parent to a copy of the page. The soft device writes to
//! virtual addresses, so a program may fork without telling it.

use core::ffi::{c_int, c_void};
use rdmalab_abi::consts::IBV_FORK_UNNEEDED;

/// Does nothing; returns 0.
pub fn ibv_fork_init() -> c_int {
    0
}

/// Says that no preparation is needed.
pub fn ibv_is_fork_initialized() -> u32 {
    IBV_FORK_UNNEEDED
}

/// Does nothing; returns 0.
pub fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

/// Does nothing; returns 0.
pub fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}
