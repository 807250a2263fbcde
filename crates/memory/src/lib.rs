//! `librdmalab-memory.so`: a preload library that gives a program buffers which peers can map.
//!
//! The soft device executes a WRITE or READ by a plain copy if the buffer at the other end is
//! mapped here; otherwise each operation is a system call. Buffers of programs come from `malloc`
//! and `mmap`, which give private memory. This library replaces them: memory of 64 KiB and more,
//! memory that is aligned to pages, and private anonymous mappings are pages of one memfd
//! (module `arena`). All other memory comes from the C library.
//!
//! The device finds the memory by [`rdmalab_memory_find_1`], and sends the file to its peers.
//!
//! What differs from private memory: a child by the system calls `fork` or `clone`, past the C
//! library, does not have these pages; `fork` takes the time to copy them, and gives all of them
//! read and write access in the child; they count as shared memory of the process, and are huge
//! pages only if the system allows that for shared memory.

// Tests call the allocator of pages only.
#![cfg_attr(test, allow(dead_code))]

mod arena;
mod buddy;
mod cgroup;
mod count;
// The tests' own program keeps its allocator.
#[cfg(not(test))]
mod fork;
#[cfg(not(test))]
mod heap;
#[cfg(not(test))]
mod mapping;
#[cfg(not(test))]
mod next;
mod system;

use core::ffi::{c_int, c_void};

/// Finds the file behind `bytes` bytes at `at`. Returns its descriptor, which stays this library's,
/// and writes the position of `at` in the file to `offset`; or returns -1, if part of the range is
/// not shared memory.
///
/// # Safety
/// `offset` has room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmalab_memory_find_1(
    at: *const c_void,
    bytes: usize,
    offset: *mut u64,
) -> c_int {
    let last = at.wrapping_byte_add(bytes.saturating_sub(1));
    if !arena::contains(at) || !arena::contains(last) || last < at {
        return -1;
    }
    let found = arena::with(|arena| {
        let position = at.addr() - arena.bounds().0;
        let is_shared = arena.is_shared(at.addr(), bytes.max(1));
        arena.file().filter(|_| is_shared).map(|fd| (fd, position))
    });
    let Some((fd, position)) = found.flatten() else { return -1 };
    // SAFETY: the contract.
    unsafe { offset.write(position as u64) };
    fd
}

/// The descriptor of the file, which stays this library's; -1 without one, or if the program has
/// closed it.
#[unsafe(no_mangle)]
pub extern "C" fn rdmalab_memory_file_1() -> c_int {
    arena::with(|arena| arena.file()).flatten().unwrap_or(-1)
}

/// Writes the number of requests that got shared memory, and of those that stayed private because
/// there was no room.
///
/// # Safety
/// Both have room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmalab_memory_counts_1(shared: *mut u64, private: *mut u64) {
    let counts = count::both();
    // SAFETY: the contract.
    unsafe {
        shared.write(counts.0 as u64);
        private.write(counts.1 as u64);
    }
}

/// Runs when the library is loaded.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = {
    extern "C" fn start() {
        next::find_all();
        fork::register();
    }
    start
};

/// Runs when the program ends.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = {
    extern "C" fn end() {
        count::tell();
    }
    end
};
