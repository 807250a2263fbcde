//! `librdmalab-paths.so`: a preload library for programs that find devices without libibverbs.
//!
//! UCX checks that `/dev/infiniband/uverbs0` is a device file, and reads GID types from
//! `/sys/class/infiniband`. Without a kernel driver these files do not exist, and only root can
//! create them. So this library replaces the C library's functions that take paths. It redirects
//! these paths, and no others, to a tree of ordinary files, which `rdmalab exec` creates and names
//! in `RDMALAB_PATHS`. Directory listings and relative paths then work without further code.
//!
//! Any other path costs the comparison of a few bytes. There is no allocation and no lock, and
//! `errno` stays as it was. So the functions may be called in a signal handler, before `main`, and
//! in a child of `vfork`. Without the variable no path is redirected.
//!
//! This library does not see system calls that bypass the C library's functions (static programs,
//! Go), nor calls inside the C library (`glob`, `ftw`, `fts`).

// In the test program of this crate, these functions would replace the C library's.
#![cfg_attr(test, allow(dead_code))]

#[cfg(not(test))]
mod exports;
#[cfg(not(test))]
mod links;
mod place;
mod real;

/// Runs when the library is loaded: looks up the C library's functions and reads the variable, so
/// that calls need not do so.
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
