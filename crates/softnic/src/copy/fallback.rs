//! Copies by system calls, which report a bad address instead of faulting. They serve programs with
//! their own signal handlers, and processors without machine code in this crate.
//!
//! `process_vm_writev` to this process itself reports a bad address of either side. If a sandbox
//! refuses that call, the bytes go through a pipe, whose `write` and `read` report the same in two
//! steps. `/proc/self/mem` is not usable: it writes through read-only and inaccessible pages of
//! private mappings (`FOLL_FORCE`), where a copy must fail.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::vm::{self, VmError};
use super::{Fault, Side, TAIL_BYTES};

/// Whether `process_vm_writev` was refused once. Then it is not tried again.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// As [`super::copy`], by system calls.
///
/// # Safety
/// As for [`super::copy`].
#[cold]
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) -> Result<(), Fault> {
    if len == 0 {
        return Ok(());
    }
    if !REFUSED.load(Ordering::Relaxed) {
        let local = [libc::iovec { iov_base: src.cast_mut().cast(), iov_len: len }];
        // Not cached: after a fork a cached number would be the parent's.
        let pid = std::process::id().cast_signed();
        // SAFETY: the caller grants `dst`; the kernel only reads `local`'s range.
        match unsafe { vm::write_undiagnosed(pid, &local, dst.addr() as u64, len) } {
            Ok(()) => return Ok(()),
            Err(VmError::Fault { done, .. }) => {
                // SAFETY: `done < len`, so the pointer stays within the source range.
                let at = unsafe { src.add(done) };
                let side = if is_readable(at) { Side::Destination } else { Side::Source };
                return Err(Fault { side });
            }
            Err(VmError::Denied | VmError::Unsupported) => REFUSED.store(true, Ordering::Relaxed),
            // For example short of memory. The pipe may still work.
            Err(_) => {}
        }
    }
    // SAFETY: as the caller grants.
    unsafe { copy_by_pipe(dst, src, len) }
}

/// Asks the kernel whether the byte at `at` can be read now.
pub(super) fn is_readable(at: *const u8) -> bool {
    let Ok(pipe) = Pipe::new() else {
        return true;
    };
    pipe.write(at, 1).is_ok()
}

/// [`copy`] through a pipe. Visible to the tests, which cannot make the kernel refuse the first
/// way.
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

/// Checks whether an atomic on `addr` would succeed now. The kernel has no 64-bit atomic on user
/// memory that reports a bad address. Its 32-bit one (`FUTEX_WAKE_OP`, here `|= 0`) changes nothing
/// and reports whether the page is writable. If the page is unmapped later, the atomic faults.
pub(super) fn probe_atomic(addr: *mut u64) -> Result<(), Fault> {
    /// `FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_LT, -2048)`, which hardly ever wakes a waiter.
    const OR_ZERO: u32 = (2 << 28) | (2 << 24) | 0x800;
    let op = libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG;
    let word = 0_u32;
    let nobody = &raw const word;
    // SAFETY: nothing waits on `nobody`, so nothing is woken; a bad `addr` is reported.
    let done = unsafe { libc::syscall(libc::SYS_futex, nobody, op, 0, 0_usize, addr, OR_ZERO) };
    // Any other error (for example a sandbox without futex) says nothing about the page.
    if done < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT) {
        return Err(Fault { side: Side::Destination });
    }
    Ok(())
}

/// As [`super::cmp_swap`], for processors without a guarded routine.
///
/// # Safety
/// As for [`super::cmp_swap`].
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn cmp_swap(addr: *mut u64, compare: u64, swap: u64) -> Result<u64, Fault> {
    probe_atomic(addr)?;
    // SAFETY: aligned by the contract, and writable a moment ago.
    let cell = unsafe { std::sync::atomic::AtomicU64::from_ptr(addr) };
    let (Ok(old) | Err(old)) =
        cell.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst);
    Ok(old)
}

/// As [`super::fetch_add`], for processors without a guarded routine.
///
/// # Safety
/// As for [`super::cmp_swap`].
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn fetch_add(addr: *mut u64, add: u64) -> Result<u64, Fault> {
    probe_atomic(addr)?;
    // SAFETY: aligned by the contract, and writable a moment ago.
    let cell = unsafe { std::sync::atomic::AtomicU64::from_ptr(addr) };
    Ok(cell.fetch_add(add, Ordering::SeqCst))
}
