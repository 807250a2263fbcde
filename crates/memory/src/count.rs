//! How many requests for memory got shared memory, and how many stayed private. The first that
//! stays private because there is no room is told at once. With `RDMALAB_DEBUG=1` both numbers are
//! told when the program returns from `main` or calls `exit`.

use core::ffi::CStr;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

static SHARED: AtomicUsize = AtomicUsize::new(0);
static PRIVATE: AtomicUsize = AtomicUsize::new(0);
/// Whether this program was told that memory stays private. A child by `fork` was told with it.
static IS_SAID: AtomicBool = AtomicBool::new(false);

/// Counts a request that got shared memory.
pub(crate) fn note_shared() {
    SHARED.fetch_add(1, Ordering::Relaxed);
}

/// Counts a request that stays private.
pub(crate) fn note_private() {
    PRIVATE.fetch_add(1, Ordering::Relaxed);
    if !IS_SAID.swap(true, Ordering::Relaxed) {
        print(format_args!(
            "a large buffer of this program stays private, because there is no room for more \
             memory that peers can map: their operations on it are system calls. Raise the limit \
             (of the memory cgroup, RLIMIT_AS, RLIMIT_FSIZE, vm.max_map_count), or leave out \
             --memory shared"
        ));
    }
}

/// The requests that got shared memory, and those that stayed private.
pub(crate) fn both() -> (usize, usize) {
    (SHARED.load(Ordering::Relaxed), PRIVATE.load(Ordering::Relaxed))
}

/// In a child by `fork`: its parent counts its own requests.
#[cfg(not(test))]
pub(crate) fn start_again() {
    SHARED.store(0, Ordering::Relaxed);
    PRIVATE.store(0, Ordering::Relaxed);
}

/// Tells both numbers with `RDMALAB_DEBUG=1`, if there were requests. Call it when the program
/// ends.
pub(crate) fn tell() {
    let (shared, private) = both();
    if (shared, private) != (0, 0) && is_debugged() {
        print(format_args!(
            "requests for large buffers: {shared} got shared memory, {private} private"
        ));
    }
}

/// Whether `RDMALAB_DEBUG` is 1.
fn is_debugged() -> bool {
    // SAFETY: the name is a C string; a running program does not change its environment.
    let value = unsafe { libc::getenv(c"RDMALAB_DEBUG".as_ptr()) };
    // SAFETY: a value in the environment is a C string.
    !value.is_null() && unsafe { CStr::from_ptr(value) } == c"1"
}

/// Prints a line. Allocates nothing.
fn print(sentence: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; 400], length: 0 };
    // A line that is too long ends early.
    let _ = writeln!(line, "rdmalab: {sentence}");
    // By the system call: the function is a cancellation point, and `malloc` is none.
    // SAFETY: writes from a live buffer.
    unsafe { libc::syscall(libc::SYS_write, 2, line.bytes.as_ptr(), line.length) };
}

struct Line {
    bytes: [u8; 400],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.length..).unwrap_or_default();
        let count = text.len().min(room.len());
        room[..count].copy_from_slice(&text.as_bytes()[..count]);
        self.length += count;
        Ok(())
    }
}
