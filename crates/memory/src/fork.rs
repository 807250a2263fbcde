//! `fork`: the child gets a private copy of the arena, as of all private memory. The kernel does
//! not copy shared mappings, so the child copies, and the thread that called `fork` waits until it
//! has. `vfork` and `posix_spawn` call none of this.
//!
//! `fork` is no cancellation point, so reading and writing are system calls here.
//!
//! The handlers of other libraries may use memory of the arena, so ours must be registered before
//! theirs: then they run last before the fork, and first after it.

use core::ffi::{c_int, c_void};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::{arena, count, system};

type Handler = Option<unsafe extern "C" fn()>;
type Register = unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int;

/// The ends of the pipe by which the child says that it has copied; -1 without one.
static PIPE: [AtomicI32; 2] = [AtomicI32::new(-1), AtomicI32::new(-1)];

/// The C library's function behind `pthread_atfork`. Libraries whose constructors run before ours
/// call it first.
///
/// # Safety
/// As for `pthread_atfork`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __register_atfork(
    before: Handler,
    in_parent: Handler,
    in_child: Handler,
    object: *mut c_void,
) -> c_int {
    register();
    // SAFETY: the caller's contract.
    unsafe { next_register(before, in_parent, in_child, object) }
}

/// Registers our handlers, once.
pub(crate) fn register() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if !IS_DONE.swap(true, Ordering::AcqRel) {
        // SAFETY: functions of the right type, in a library that stays.
        unsafe { next_register(Some(before), Some(in_parent), Some(in_child), ptr::null_mut()) };
    }
}

/// # Safety
/// As for `pthread_atfork`.
unsafe fn next_register(
    before: Handler,
    in_parent: Handler,
    in_child: Handler,
    object: *mut c_void,
) -> c_int {
    // SAFETY: the function of this name has this type; null is `None`.
    let next = unsafe {
        let found = libc::dlsym(libc::RTLD_NEXT, c"__register_atfork".as_ptr());
        transmute::<*mut c_void, Option<Register>>(found)
    };
    // SAFETY: the caller's contract.
    next.map_or(libc::ENOMEM, |next| unsafe { next(before, in_parent, in_child, object) })
}

unsafe extern "C" fn before() {
    // This blocks signals, because no handler must run while the child has no memory yet.
    arena::lock();
    // SAFETY: this thread has the lock, and the array has room for both ends.
    unsafe {
        let mut ends: [c_int; 2] = [-1; 2];
        if arena::with_locked(|arena| arena.needs_copy()) == Some(true)
            && libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0
        {
            print(
                b"rdmalab: no descriptor for a pipe: the child may get memory that changes while \
                  it is copied\n",
            );
        }
        PIPE.iter().zip(ends).for_each(|(end, fd)| end.store(fd, Ordering::Relaxed));
    }
}

fn end(index: usize) -> c_int {
    PIPE[index].swap(-1, Ordering::Relaxed)
}

fn close(fd: c_int) {
    if fd >= 0 {
        system::close(fd);
    }
}

fn print(text: &[u8]) {
    // SAFETY: writes from a live buffer.
    unsafe { libc::syscall(libc::SYS_write, 2, text.as_ptr(), text.len()) };
}

unsafe extern "C" fn in_parent() {
    let (read, write) = (end(0), end(1));
    close(write);
    if read >= 0 {
        let mut byte = 0_u8;
        // Ends when the child has written, died, or executed another program. Signals are blocked.
        // SAFETY: room for one byte.
        unsafe { libc::syscall(libc::SYS_read, read, &raw mut byte, 1) };
    }
    close(read);
    arena::unlock();
}

unsafe extern "C" fn in_child() {
    let (read, write) = (end(0), end(1));
    close(read);
    count::start_again();
    // SAFETY: the parent locked the arena, and this is the child's only thread.
    let copied = unsafe { arena::with_locked(arena::Arena::become_private) };
    if copied == Some(false) {
        print(
            b"rdmalab: a child by fork cannot have its memory: there is no room for the copy, or \
              the program has closed a descriptor that it did not open\n",
        );
        // SAFETY: ends the process.
        unsafe { libc::abort() };
    }
    if write >= 0 {
        // SAFETY: writes one byte from a live buffer.
        unsafe { libc::syscall(libc::SYS_write, write, b"c".as_ptr(), 1) };
    }
    close(write);
    arena::unlock();
}
