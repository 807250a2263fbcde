//! QP 1 of this host, for our own connection manager, which lives in another shared object and
//! finds these functions by name. They have no version: nobody else is to use them.

use core::ffi::c_int;

use rdmalab_softnic::management::{MAD_BYTES, ManagementPort};

use crate::guard::{PANICKED, guard};

/// A datagram as it is handed over: `door::Arrived` in `rdmalab-librdmacm`.
#[repr(C)]
pub struct Arrived {
    /// Who sent it.
    from: [u8; 16],
    /// Which of our GIDs it was sent to.
    to: [u8; 16],
    /// The datagram.
    mad: [u8; MAD_BYTES],
}

/// Opens the port: a descriptor that is readable while datagrams wait, which stays ours; or a
/// negative error number.
#[unsafe(no_mangle)]
extern "C" fn __rdmalab_mad_open() -> c_int {
    guard(-PANICKED, || match ManagementPort::open() {
        Ok(port) => port.raw_fd(),
        Err(error) => -error.errno,
    })
}

/// Sends a datagram from one of our GIDs to QP 1 at another: 0, or an error number.
///
/// # Safety
/// All three are valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn __rdmalab_mad_send(
    from: *const [u8; 16],
    to: *const [u8; 16],
    mad: *const [u8; MAD_BYTES],
) -> c_int {
    guard(PANICKED, || {
        // SAFETY: the caller's contract.
        let (from, to, mad) = unsafe { (*from, *to, &*mad) };
        let sent = ManagementPort::open().and_then(|port| {
            let index = port.gids().iter().position(|gid| gid.0 == from).unwrap_or(usize::MAX);
            port.send(u8::try_from(index).unwrap_or(u8::MAX), gid(to), mad)
        });
        sent.map_or_else(|error| error.errno, |()| 0)
    })
}

fn gid(bytes: [u8; 16]) -> rdmalab_softnic::management::Gid {
    rdmalab_softnic::management::Gid(bytes)
}

/// Takes the next datagram: 1, or 0 when there is none.
///
/// # Safety
/// The place is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn __rdmalab_mad_receive(datagram: *mut Arrived) -> c_int {
    guard(0, || match ManagementPort::open().ok().and_then(|port| port.receive()) {
        None => 0,
        Some(found) => {
            let arrived = Arrived { from: found.from.0, to: found.to.0, mad: found.mad };
            // SAFETY: the caller's contract.
            unsafe { datagram.write(arrived) };
            1
        }
    })
}
