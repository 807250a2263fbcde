//! `fork`: the child gets a private copy of the arena, as of all private memory. The kernel does
//! not copy shared mappings, so the child copies, and the parent waits until it has. `vfork` and
//! `posix_spawn` call none of this.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering};

use crate::arena;

/// The ends of the pipe by which the child says that it has copied; -1 without one.
static PIPE: [AtomicI32; 2] = [AtomicI32::new(-1), AtomicI32::new(-1)];

/// Registers the handlers. To be called before any library that registers others, so that theirs
/// find the memory.
pub(crate) fn register() {
    // SAFETY: functions of the right type.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

extern "C" fn before() {
    arena::lock();
    let mut ends: [c_int; 2] = [-1; 2];
    // SAFETY: this thread has locked the arena; room for two descriptors.
    unsafe {
        if arena::with_locked(|arena| arena.needs_copy()) == Some(true) {
            libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC);
        }
    }
    PIPE.iter().zip(ends).for_each(|(end, fd)| end.store(fd, Ordering::Relaxed));
}

fn end(index: usize) -> c_int {
    PIPE[index].swap(-1, Ordering::Relaxed)
}

fn close(fd: c_int) {
    if fd >= 0 {
        // SAFETY: a descriptor of this module.
        unsafe { libc::close(fd) };
    }
}

extern "C" fn in_parent() {
    let (read, write) = (end(0), end(1));
    close(write);
    if read >= 0 {
        let mut byte = 0_u8;
        // Ends when the child has written, died, or executed another program.
        // SAFETY: room for one byte; a signal only repeats the call.
        while unsafe { libc::read(read, (&raw mut byte).cast(), 1) } < 0
            // SAFETY: the thread's own variable.
            && unsafe { *libc::__errno_location() } == libc::EINTR
        {}
    }
    close(read);
    arena::unlock();
}

extern "C" fn in_child() {
    let (read, write) = (end(0), end(1));
    close(read);
    // SAFETY: the parent locked the arena, and this is the child's only thread.
    let copied = unsafe { arena::with_locked(arena::Arena::become_private) };
    if copied == Some(false) {
        let said = b"rdmalab: no memory for the copy that a child by fork needs\n";
        // SAFETY: the child cannot run without its memory.
        unsafe {
            libc::write(2, said.as_ptr().cast(), said.len());
            libc::abort();
        }
    }
    if write >= 0 {
        // SAFETY: writes one byte from a live buffer.
        unsafe { libc::write(write, b"c".as_ptr().cast(), 1) };
    }
    close(write);
    arena::unlock();
}
