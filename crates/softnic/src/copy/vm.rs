//! Copies to and from the memory of another process, by `process_vm_writev` and
//! `process_vm_readv`.
//!
//! The last 8 bytes are a remote segment of their own. The kernel walks remote segments in order
//! and copies each with instructions of its own, so that they become visible after all others.
//!
//! A process number may be reused: who calls must know that the peer lives, before and after.

use std::fmt;
use std::io;

use super::{Side, TAIL_BYTES, fallback};

/// The most bytes that one call is asked for; the kernel cuts at 2 GiB less a page.
const CHUNK_BYTES: usize = 1 << 30;

/// Why a copy between processes failed. Of [`VmError::Fault`] a prefix may be done; the last byte
/// is never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VmError {
    /// Memory of one side is not accessible. The range at fault is the source's or the
    /// destination's: for [`vm_write`] the source is local, for [`vm_read`] it is remote.
    Fault {
        /// Which range.
        side: Side,
        /// Bytes copied before it, in order.
        done: usize,
    },
    /// No right to touch that process: another user, Yama, seccomp (`EPERM`, `EACCES`).
    Denied,
    /// No such process (`ESRCH`): dead, or of another PID namespace.
    Gone,
    /// The kernel or a sandbox has no such call (`ENOSYS`).
    Unsupported,
    /// Any other error number, such as `ENOMEM`.
    Other(i32),
}

impl VmError {
    fn from_errno(errno: i32, done: usize) -> Self {
        match errno {
            libc::EFAULT => Self::Fault { side: Side::Unknown, done },
            libc::EPERM | libc::EACCES => Self::Denied,
            libc::ESRCH => Self::Gone,
            libc::ENOSYS => Self::Unsupported,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for VmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault { side, done } => {
                let side = match side {
                    Side::Source => "source",
                    Side::Destination => "destination",
                    Side::Unknown => "source or destination",
                };
                write!(f, "the {side} of a copy between processes faulted after {done} B")
            }
            Self::Denied => f.write_str("no right to access the other process's memory"),
            Self::Gone => f.write_str("the other process is gone"),
            Self::Unsupported => f.write_str("no copies between processes on this system"),
            Self::Other(errno) => {
                write!(f, "copy between processes: {}", io::Error::from_raw_os_error(*errno))
            }
        }
    }
}

impl std::error::Error for VmError {}

/// Copies `len` bytes, gathered from `local`, to `remote` in process `pid`. The segments of
/// `local` must hold `len` bytes or more.
///
/// # Errors
/// See [`VmError`].
///
/// # Safety
/// The holder of `remote` granted it for writing; if `pid` is this process, no Rust reference may
/// cover it. `local` need not be mapped.
pub(crate) unsafe fn vm_write(
    pid: i32,
    local: &[libc::iovec],
    remote: u64,
    len: usize,
) -> Result<(), VmError> {
    // SAFETY: as the caller grants.
    unsafe { write_undiagnosed(pid, local, remote, len) }.map_err(|error| match error {
        VmError::Fault { done, .. } => {
            let local_is_fine = byte_at(local, done).is_none_or(fallback::is_readable);
            let side = if local_is_fine { Side::Destination } else { Side::Source };
            VmError::Fault { side, done }
        }
        other => other,
    })
}

/// Copies `len` bytes from `remote` in process `pid`, scattered to `local`, whose segments must
/// hold `len` bytes or more.
///
/// # Errors
/// See [`VmError`].
///
/// # Safety
/// No Rust reference may cover `local`, whose holder granted it for writing. It need not be mapped.
pub(crate) unsafe fn vm_read(
    pid: i32,
    local: &[libc::iovec],
    remote: u64,
    len: usize,
) -> Result<(), VmError> {
    // SAFETY: as the caller grants.
    unsafe { transfer(libc::process_vm_readv, pid, local, remote, len) }.map_err(|error| {
        match error {
            VmError::Fault { done, .. } => {
                let mut byte = 0_u8;
                let own = [libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 }];
                let at = remote.wrapping_add(done as u64);
                // SAFETY: reads into `byte`.
                let remote_is_fine =
                    unsafe { transfer(libc::process_vm_readv, pid, &own, at, 1) }.is_ok();
                let side = if remote_is_fine { Side::Destination } else { Side::Source };
                VmError::Fault { side, done }
            }
            other => other,
        }
    })
}

/// Whether this process may copy to and from `pid`. Touches nothing there: the address asked for
/// is in the page that Linux maps for nobody.
///
/// # Errors
/// [`VmError::Denied`], [`VmError::Gone`], [`VmError::Unsupported`] or [`VmError::Other`].
pub(crate) fn probe(pid: i32) -> Result<(), VmError> {
    let mut byte = 0_u8;
    let own = [libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 }];
    // SAFETY: reads into `byte`, if anything.
    match unsafe { transfer(libc::process_vm_readv, pid, &own, 8, 1) } {
        Ok(()) | Err(VmError::Fault { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// [`vm_write`] that leaves the side of a fault unknown.
///
/// # Safety
/// As for [`vm_write`].
pub(super) unsafe fn write_undiagnosed(
    pid: i32,
    local: &[libc::iovec],
    remote: u64,
    len: usize,
) -> Result<(), VmError> {
    // SAFETY: as the caller grants.
    unsafe { transfer(libc::process_vm_writev, pid, local, remote, len) }
}

type Call = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> isize;

/// One direction or the other, resumed until all is done or the kernel names the reason.
///
/// # Safety
/// As for [`vm_write`] and [`vm_read`].
unsafe fn transfer(
    call: Call,
    pid: i32,
    local: &[libc::iovec],
    remote: u64,
    len: usize,
) -> Result<(), VmError> {
    debug_assert!(local.iter().map(|v| v.iov_len).sum::<usize>() >= len);
    let mut done = 0;
    let mut rest;
    let mut local = local;
    while done < len {
        let (segments, count) = remote_segments(remote.wrapping_add(done as u64), len - done);
        let (here, there) = (local.as_ptr(), segments.as_ptr());
        // SAFETY: both arrays live through the call; the caller grants what they name.
        let n = unsafe { call(pid, here, local.len() as _, there, count, 0) };
        if n < 0 {
            let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
            if errno == libc::EINTR {
                continue;
            }
            return Err(VmError::from_errno(errno, done));
        }
        // A count of 0 cannot help a second time: the local segments are too short.
        if n == 0 {
            return Err(VmError::Other(libc::EINVAL));
        }
        done += n.cast_unsigned();
        if done < len {
            rest = skip(local, n.cast_unsigned());
            local = &rest;
        }
    }
    Ok(())
}

/// The remote segments of one call, and how many: a body, and a tail if `len` is within one call.
fn remote_segments(remote: u64, len: usize) -> ([libc::iovec; 2], libc::c_ulong) {
    let segment = |at: usize, len: usize| libc::iovec {
        iov_base: std::ptr::without_provenance_mut(remote.wrapping_add(at as u64) as usize),
        iov_len: len,
    };
    if len > CHUNK_BYTES {
        return ([segment(0, CHUNK_BYTES - TAIL_BYTES), segment(0, 0)], 1);
    }
    if len <= TAIL_BYTES {
        return ([segment(0, len), segment(0, 0)], 1);
    }
    let body = len - TAIL_BYTES;
    ([segment(0, body), segment(body, TAIL_BYTES)], 2)
}

/// `local` without its first `bytes` bytes.
fn skip(local: &[libc::iovec], bytes: usize) -> Vec<libc::iovec> {
    let mut left = bytes;
    let after = |v: &libc::iovec| {
        let cut = left.min(v.iov_len);
        left -= cut;
        libc::iovec { iov_base: v.iov_base.wrapping_byte_add(cut), iov_len: v.iov_len - cut }
    };
    local.iter().map(after).filter(|v| v.iov_len > 0).collect()
}

/// The address of byte number `at` of `local`.
fn byte_at(local: &[libc::iovec], at: usize) -> Option<*const u8> {
    let mut left = at;
    for v in local {
        if left < v.iov_len {
            return Some(v.iov_base.cast_const().cast::<u8>().wrapping_add(left));
        }
        left -= v.iov_len;
    }
    None
}
