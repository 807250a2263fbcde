//! Copies and atomics on user memory that survive a page fault.
//!
//! User memory belongs to the program. The program may unmap, protect or truncate it at any time,
//! also during a copy, and other threads may write to it. So only this module's machine code
//! touches it, through raw pointers, and a fault is a result ([`Fault`]), not a crash.
//!
//! - [`copy`] and the atomics work within this process, [`vm`] between processes.
//! - [`guard`] decides how faults are caught, and lists the cases that it does not cover.
//! - `x86_64` holds the machine code. On other processors `fallback` makes every copy by system
//!   calls that report bad addresses, which is slower (about a microsecond each).
//!
//! # Order
//! A program may poll on the last byte of a message. So each copy makes the last 8 bytes (all, if
//! there are fewer) visible after all others, and the last byte not before any other. If the end is
//! 8-byte aligned, the last 8 bytes become visible at once.

mod fallback;
mod fault;
pub(crate) mod guard;
mod pipe;
pub(crate) mod vm;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(all(test, target_arch = "x86_64"))]
mod guard_tests;
#[cfg(all(test, target_arch = "x86_64"))]
mod order_tests;
#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
#[cfg(all(test, target_arch = "x86_64"))]
mod vm_tests;

pub(crate) use fault::{Fault, Side};

/// Copies `len` bytes from `src` to `dst` in the order that the module describes. If the ranges
/// overlap, the bytes in the overlap are unspecified.
///
/// # Errors
/// [`Fault`] if a range is not accessible, under the conditions that [`guard`] lists.
///
/// # Safety
/// No Rust reference may cover a byte of `dst`, no unique one a byte of `src`, and the holder of
/// `dst` must have granted it for writing. Neither range needs to be mapped.
#[inline]
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) -> Result<(), Fault> {
    #[cfg(target_arch = "x86_64")]
    if guard::is_direct() {
        // SAFETY: by the contract above; the guard says that a fault is harmless.
        let done = unsafe { x86_64::copy(dst, src, len) };
        if done.status == x86_64::FAULTED {
            return Err(Fault { side: side_of(done.value, dst, src, len) });
        }
        return Ok(());
    }
    // SAFETY: by the contract above.
    unsafe { fallback::copy(dst, src, len) }
}

/// Atomically stores `swap` at `addr` if `addr` holds `compare`. Returns the former value.
///
/// # Errors
/// As for [`copy`].
///
/// # Safety
/// `addr` must be 8-byte aligned, in memory that its holder granted for remote atomics.
#[inline]
pub(crate) unsafe fn cmp_swap(addr: *mut u64, compare: u64, swap: u64) -> Result<u64, Fault> {
    debug_assert!(addr.is_aligned());
    #[cfg(target_arch = "x86_64")]
    {
        if !guard::is_direct() {
            fallback::probe_atomic(addr)?;
        }
        // SAFETY: by the contract above; the guard's handler or the probe covers a fault.
        former(unsafe { x86_64::compare_swap(addr, compare, swap) })
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: by the contract above.
    unsafe {
        fallback::cmp_swap(addr, compare, swap)
    }
}

/// Atomically adds `add` to the value at `addr`, modulo 2^64. Returns the former value.
///
/// # Errors
/// As for [`copy`].
///
/// # Safety
/// As for [`cmp_swap`].
#[inline]
pub(crate) unsafe fn fetch_add(addr: *mut u64, add: u64) -> Result<u64, Fault> {
    debug_assert!(addr.is_aligned());
    #[cfg(target_arch = "x86_64")]
    {
        if !guard::is_direct() {
            fallback::probe_atomic(addr)?;
        }
        // SAFETY: by the contract above; the guard's handler or the probe covers a fault.
        former(unsafe { x86_64::fetch_add(addr, add) })
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: by the contract above.
    unsafe {
        fallback::fetch_add(addr, add)
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn former(done: x86_64::Outcome) -> Result<u64, Fault> {
    if done.status == x86_64::FAULTED {
        return Err(Fault { side: Side::Destination });
    }
    Ok(done.value)
}

/// The range that a faulting address lies in.
#[cfg(target_arch = "x86_64")]
#[cold]
fn side_of(at: u64, dst: *mut u8, src: *const u8, len: usize) -> Side {
    let inside = |start: usize| (at as usize).wrapping_sub(start) < len;
    // For a store that crosses into the next page the address is in that page, still in the range.
    match (inside(dst.addr()), inside(src.addr())) {
        (true, false) => Side::Destination,
        (false, true) => Side::Source,
        _ => Side::Unknown,
    }
}
