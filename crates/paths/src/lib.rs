//! `librdmalab-paths.so`: a preload library for programs that look for devices behind the back of
//! libibverbs.
//!
//! UCX asks whether `/dev/infiniband/uverbs0` is a device file, and reads GID types from
//! `/sys/class/infiniband`. Without a kernel driver neither is there, and to make them takes root.
//! So this library stands in front of the C library's functions that take paths, and sends those
//! paths, and no others, to a tree of ordinary files, which `rdmalab exec` makes and names in
//! `RDMALAB_PATHS`. Listing a directory and relative paths then work by themselves.
//!
//! On any other path the cost is the comparison of a few bytes: no allocation, no lock, `errno`
//! as it was; so it may happen in a signal handler, before `main`, and in a child of `vfork`.
//! Without the variable nothing is sent anywhere.
//!
//! Not seen: system calls that do not go through the C library's functions (static programs, Go),
//! and what that library calls inside itself (`glob`, `ftw`, `fts`).

// The tests of this crate are a program, whose own functions would go in front of the C library's.
#![cfg_attr(test, allow(dead_code))]

#[cfg(not(test))]
mod exports;
#[cfg(not(test))]
mod links;
mod place;
mod real;

/// Runs when the library is loaded: finds the functions behind ours and reads the variable, so that
/// calls have neither to do.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = {
    extern "C" fn start() {
        exports::find_all();
        links::find_all();
        place::tree();
    }
    start
};
