//! Copies by system calls, which report a bad address instead of faulting. They serve programs with
//! their own signal handlers, and processors without machine code in this crate.
//!
//! `process_vm_writev` to this process itself reports a bad address of either side. If a sandbox
//! refuses that call, the bytes go through a pipe, whose `write` and `read` report the same in two
//! steps. `/proc/self/mem` is not usable: it writes through read-only and inaccessible pages of
//! private mappings (`FOLL_FORCE`), where a copy must fail.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use super::fault::{Fault, Side};
use super::pipe::{copy_by_pipe, is_readable};
use super::vm::{self, VmError};

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
