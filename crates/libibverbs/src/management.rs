//! QP 1 of this host, for our own connection manager. It is another shared object and finds these
//! functions by name. They have no symbol version, because no other program shall use them.

use core::ffi::c_int;

use rdmalab_softnic::management_c;

use crate::guard::{PANICKED, guard};

/// Opens QP 1, as [`management_c::open`].
#[unsafe(no_mangle)]
extern "C" fn __rdmalab_mad_open() -> c_int {
    guard(-PANICKED, || management_c::open())
}

/// Sends a datagram, as [`management_c::send`].
///
/// # Safety
/// As [`management_c::send`].
#[unsafe(no_mangle)]
unsafe extern "C" fn __rdmalab_mad_send(from: *const u8, to: *const u8, mad: *const u8) -> c_int {
    // SAFETY: the caller's contract.
    guard(PANICKED, || unsafe { management_c::send(from, to, mad) })
}

/// Takes the next datagram, as [`management_c::receive`].
///
/// # Safety
/// As [`management_c::receive`].
#[unsafe(no_mangle)]
unsafe extern "C" fn __rdmalab_mad_receive(datagram: *mut u8) -> c_int {
    // SAFETY: the caller's contract.
    guard(0, || unsafe { management_c::receive(datagram) })
}

/// Adds a datagram to the captures, as [`management_c::note`].
///
/// # Safety
/// As [`management_c::note`].
#[unsafe(no_mangle)]
unsafe extern "C" fn __rdmalab_mad_note(
    from: *const u8,
    to: *const u8,
    mad: *const u8,
    has_come: c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    guard(PANICKED, || unsafe { management_c::note(from, to, mad, has_come) })
}
