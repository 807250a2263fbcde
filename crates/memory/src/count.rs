//! How many requests for memory got shared memory, and how many stayed private. With
//! `RDMALAB_DEBUG=1` the first that stays private is told at once, and both numbers when the
//! program returns from `main` or calls `exit`.

use core::ffi::CStr;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicUsize, Ordering};

static SHARED: AtomicUsize = AtomicUsize::new(0);
static PRIVATE: AtomicUsize = AtomicUsize::new(0);

/// Counts a request that got shared memory.
pub(crate) fn note_shared() {
    SHARED.fetch_add(1, Ordering::Relaxed);
}

/// Counts a request that stays private.
pub(crate) fn note_private() {
    if PRIVATE.fetch_add(1, Ordering::Relaxed) == 0 {
        say(format_args!(
            "memory that was asked for stays private, so that peers cannot map it: no room, or a \
             limit (RLIMIT_AS, RLIMIT_FSIZE, vm.max_map_count)"
        ));
    }
}

/// Tells both numbers, if there were requests. Call it when the program ends.
pub(crate) fn tell() {
    let (shared, private) = (SHARED.load(Ordering::Relaxed), PRIVATE.load(Ordering::Relaxed));
    if (shared, private) == (0, 0) {
        return;
    }
    say(format_args!("requests for large buffers: {shared} got shared memory, {private} private"));
}

/// Prints a line if `RDMALAB_DEBUG` is 1. Allocates nothing.
fn say(sentence: fmt::Arguments<'_>) {
    // SAFETY: the name is a C string; a running program does not change its environment.
    let value = unsafe { libc::getenv(c"RDMALAB_DEBUG".as_ptr()) };
    // SAFETY: a value in the environment is a C string.
    if value.is_null() || unsafe { CStr::from_ptr(value) } != c"1" {
        return;
    }
    let mut line = Line { bytes: [0; 240], length: 0 };
    // A line that is too long ends early.
    let _ = writeln!(line, "rdmalab: {sentence}");
    // SAFETY: writes from a live buffer.
    unsafe { libc::write(2, line.bytes.as_ptr().cast(), line.length) };
}

struct Line {
    bytes: [u8; 240],
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
