//! Copies through a pipe, whose `write` and `read` report a bad address in two steps.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Mutex;

use super::fault::{Fault, Side, TAIL_BYTES};

/// Asks the kernel whether the byte at `at` can be read now.
pub(super) fn is_readable(at: *const u8) -> bool {
    let Ok(pipe) = Pipe::new() else {
        return true;
    };
    pipe.write(at, 1).is_ok()
}

/// As [`super::copy`], through a pipe.
///
/// # Safety
/// As for [`super::copy`].
pub(super) unsafe fn copy_by_pipe(dst: *mut u8, src: *const u8, len: usize) -> Result<(), Fault> {
    static SHARED: Mutex<Option<Pipe>> = Mutex::new(None);
    // If another thread holds the lock, perhaps one that a fork left behind, use a new pipe.
    let mut shared = SHARED.try_lock().ok();
    let mut own = None;
    let slot = shared.as_deref_mut().unwrap_or(&mut own);
    // After a fork, child and parent must not use the same pipe.
    if slot.as_ref().is_none_or(|p| p.owner != std::process::id()) {
        *slot = Pipe::new().ok();
    }
    let Some(pipe) = slot.as_ref() else {
        return Err(Fault { side: Side::Unknown });
    };
    let body = len.saturating_sub(TAIL_BYTES);
    let parts = [(0, body), (body, len - body)];
    let done = parts.iter().try_for_each(|&(at, bytes)| {
        // SAFETY: `at + bytes <= len`, within ranges that the caller grants.
        unsafe { pipe.carry(dst.add(at), src.add(at), bytes) }
    });
    if done.is_err() {
        // Bytes may be left in the pipe.
        *slot = None;
    }
    done
}

struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    /// The process that created the pipe.
    owner: u32,
}

impl Pipe {
    /// Default capacity of a pipe. A smaller pipe takes fewer bytes at a time.
    const CHUNK: usize = 64 << 10;

    fn new() -> io::Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: `ends` has room for the two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptors are new, and nothing else uses them.
        let [reader, writer] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        Ok(Self { reader, writer, owner: std::process::id() })
    }

    /// Writes up to `len` bytes from `src`; returns how many.
    fn write(&self, src: *const u8, len: usize) -> io::Result<usize> {
        // SAFETY: the kernel reads `src` and reports a bad address.
        counted(|| unsafe { libc::write(self.writer.as_raw_fd(), src.cast(), len) })
    }

    /// Carries `len` bytes from `src` to `dst`.
    ///
    /// # Safety
    /// As for [`super::copy`].
    unsafe fn carry(&self, dst: *mut u8, src: *const u8, len: usize) -> Result<(), Fault> {
        let mut done = 0;
        while done < len {
            let from = src.wrapping_add(done);
            let written = self
                .write(from, (len - done).min(Self::CHUNK))
                .map_err(|_| Fault { side: Side::Source })?;
            let mut read = 0;
            while read < written {
                let to = dst.wrapping_add(done + read).cast();
                let (fd, rest) = (self.reader.as_raw_fd(), written - read);
                // SAFETY: the caller grants this part of `dst`; a bad address is reported.
                read += counted(|| unsafe { libc::read(fd, to, rest) })
                    .map_err(|_| Fault { side: Side::Destination })?;
            }
            done += written;
        }
        Ok(())
    }
}

/// Runs a system call that returns a count, and repeats it if a signal interrupted it.
fn counted(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        let n = call();
        if n > 0 {
            return Ok(n.cast_unsigned());
        }
        let error = io::Error::last_os_error();
        if n == 0 || error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
