//! Event counters of the kernel (`eventfd(2)`). They are blocking: programs look at the flags of
//! the descriptor of an event channel, and may set `O_NONBLOCK` there.

use core::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Creates a counter at 0.
///
/// # Errors
/// The kernel's error.
pub fn create() -> io::Result<OwnedFd> {
    // SAFETY: takes integers only.
    let raw = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Moves a descriptor to a number of at least `lowest` and below `FD_SETSIZE`, the limit of
/// `select(2)`. If none is free, the descriptor keeps its number.
pub fn move_up(fd: OwnedFd, lowest: RawFd) -> OwnedFd {
    // SAFETY: takes integers only.
    let raw = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, lowest) };
    if raw < 0 {
        return fd;
    }
    // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
    let moved = unsafe { OwnedFd::from_raw_fd(raw) };
    if raw < libc::FD_SETSIZE as RawFd { moved } else { fd }
}

/// Adds 1, which makes the counter readable.
pub fn signal(fd: BorrowedFd<'_>) {
    let one = 1u64;
    // SAFETY: reads eight bytes of a live number. A write to a full counter changes nothing, and a
    // full counter is readable.
    unsafe { libc::write(fd.as_raw_fd(), (&raw const one).cast::<c_void>(), 8) };
}

/// Sets the counter to 0, which makes it unreadable. Polls first, because a read of 0 would block.
pub fn clear(fd: BorrowedFd<'_>) {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one live pollfd, and eight bytes to write to.
    unsafe {
        if libc::poll(&raw mut poll, 1, 0) == 1 {
            let mut count = 0u64;
            libc::read(fd.as_raw_fd(), (&raw mut count).cast::<c_void>(), 8);
        }
    }
}
