//! Copies to and from the memory of another process, by `process_vm_writev` and
//! `process_vm_readv`.
//!
//! The last 8 bytes are a separate *local* segment. The kernel pins the remote pages and then
//! copies the segments one after the other, each with separate instructions (often a `rep movsb`,
//! whose stores are ordered only against stores before and after it). So the last 8 bytes become
//! visible after all others. A separate *remote* segment would do the same, but the kernel pins
//! pages for each remote segment: 1.28 us instead of 0.94 us for 32 B here.
//!
//! The order among the last 8 bytes is that of the kernel's copy of 8 bytes. If they are aligned,
//! no test has ever read a mixture of old and new bytes.
//!
//! A process ID may be reused: the caller must know that the peer lives, before and after the call.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;

use super::fault::{Side, TAIL_BYTES};
use super::pipe;

/// Bytes of one call, at most. The kernel's own limit is 2 GiB less a page.
const CHUNK_BYTES: usize = 1 << 30;

/// Why a copy between processes failed. After [`VmError::Fault`] a prefix may have been copied; the
/// last byte is never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VmError {
    /// Memory of one side is not accessible. The range at fault is the source's or the
    /// destination's: for [`vm_write`] the source is local, for [`vm_read`] it is remote.
    Fault {
        /// The range at fault.
        side: Side,
        /// Bytes copied before the fault, in order.
        done: usize,
    },
    /// No permission to access that process: another user, Yama, or seccomp (`EPERM`, `EACCES`).
    Denied,
    /// No such process (`ESRCH`): it is dead, or in another PID namespace.
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
            let local_is_fine = byte_at(local, done).is_none_or(pipe::is_readable);
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
                let remote = unsafe { transfer(libc::process_vm_readv, pid, &own, at, 1) };
                let side = if remote.is_ok() { Side::Destination } else { Side::Source };
                VmError::Fault { side, done }
            }
            other => other,
        }
    })
}

/// Checks whether this process may copy to and from `pid`. Accesses no memory there: the address is
/// in the first page, which Linux maps in no process.
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

/// [`vm_write`] that does not find out the side of a fault.
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

/// Copies in the direction of `call`, until all is copied or the kernel reports an error.
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
    while done < len {
        let bytes = (len - done).min(CHUNK_BYTES);
        let mut parts = Parts::new();
        // The end of each chunk is ordered as well, which does no harm.
        let body = bytes.saturating_sub(TAIL_BYTES);
        parts.add(local, done, body);
        parts.add(local, done + body, bytes - body);
        let here = parts.as_slice();
        let there = libc::iovec {
            iov_base: std::ptr::without_provenance_mut(remote.wrapping_add(done as u64) as usize),
            iov_len: bytes,
        };
        // SAFETY: both arrays live through the call; the caller grants what they name.
        let n = unsafe { call(pid, here.as_ptr(), here.len() as _, &there, 1, 0) };
        if n <= 0 {
            let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
            match (n, errno) {
                // 0 would be returned again: the local segments are too short.
                (0, _) => return Err(VmError::Other(libc::EINVAL)),
                (_, libc::EINTR) => continue,
                _ => return Err(VmError::from_errno(errno, done)),
            }
        }
        done += n.cast_unsigned();
    }
    Ok(())
}

/// Local segments of one call. They are on the stack if they are no more than a work request has.
struct Parts {
    few: [MaybeUninit<libc::iovec>; FEW],
    count: usize,
    many: Vec<libc::iovec>,
}

/// 32 scatter/gather elements, of which two may be split.
const FEW: usize = 34;

impl Parts {
    #[inline]
    fn new() -> Self {
        Self { few: [const { MaybeUninit::uninit() }; FEW], count: 0, many: Vec::new() }
    }

    /// Adds the segments of `bytes` bytes of `local`, from byte `start` on.
    #[inline]
    fn add(&mut self, local: &[libc::iovec], start: usize, bytes: usize) {
        let (mut skip, mut left) = (start, bytes);
        for v in local {
            let cut = skip.min(v.iov_len);
            skip -= cut;
            let iov_len = left.min(v.iov_len - cut);
            left -= iov_len;
            if iov_len > 0 {
                self.push(libc::iovec { iov_base: v.iov_base.wrapping_byte_add(cut), iov_len });
            }
            if left == 0 {
                break;
            }
        }
    }

    #[inline]
    fn push(&mut self, part: libc::iovec) {
        if let Some(slot) = self.few.get_mut(self.count) {
            slot.write(part);
            self.count += 1;
            return;
        }
        if self.many.is_empty() {
            self.many = self.as_slice().to_vec();
        }
        self.many.push(part);
    }

    #[inline]
    fn as_slice(&self) -> &[libc::iovec] {
        if !self.many.is_empty() {
            return &self.many;
        }
        // SAFETY: `push` filled the first `count`, and `MaybeUninit` has its content's layout.
        unsafe { std::slice::from_raw_parts(self.few.as_ptr().cast(), self.count) }
    }
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
