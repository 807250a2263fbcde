//! `ManagementPort` as C functions, for our connection manager. It is another shared object, which
//! shares no Rust types with this one.

use core::ffi::c_int;

use rdmalab_ring::mad_socket::NO_INTERFACE;

use rdmalab_link::hook::Direction;

use super::interface;
use super::management::{Gid, MAD_BYTES, ManagementPort};
use crate::hooks::management::show;
use crate::hooks::tap;
use crate::process::Process;

/// A received datagram, as the caller gets it.
#[repr(C)]
struct Arrived {
    /// The GID of the sender.
    from: [u8; 16],
    /// The GID of ours that it was sent to.
    to: [u8; 16],
    /// The datagram.
    mad: [u8; MAD_BYTES],
}

/// Opens QP1. Returns a descriptor that is readable while datagrams wait and that this library
/// keeps, or a negative error number: [`NO_INTERFACE`] if no interface was named.
pub extern "C" fn open() -> c_int {
    match interface::named().and_then(|named| named.map(|_| ManagementPort::open()).transpose()) {
        Ok(None) => NO_INTERFACE,
        Ok(Some(port)) => port.raw_fd(),
        Err(error) => {
            // The caller gets only the number.
            crate::debug(&error.message);
            answer_of(error.errno)
        }
    }
}

/// The return value for an error. It is never [`NO_INTERFACE`].
fn answer_of(errno: c_int) -> c_int {
    match -errno {
        NO_INTERFACE => -libc::ENXIO,
        answer => answer,
    }
}

/// Sends a datagram from one GID of ours to QP1 at another GID; returns 0, or an error number.
///
/// # Safety
/// `from` and `to` point to GIDs, `mad` to 256 bytes.
pub unsafe extern "C" fn send(from: *const u8, to: *const u8, mad: *const u8) -> c_int {
    let (from, to) = (from.cast::<[u8; 16]>(), to.cast::<[u8; 16]>());
    // SAFETY: the caller's contract.
    let (from, to, mad) = unsafe { (from.read(), to.read(), &*mad.cast()) };
    let sent = ManagementPort::open().and_then(|port| {
        let index = port.gids().iter().position(|gid| gid.0 == from).unwrap_or(usize::MAX);
        port.send(u8::try_from(index).unwrap_or(u8::MAX), Gid(to), mad)
    });
    sent.map_or_else(|error| error.errno, |()| 0)
}

/// Takes the next datagram; returns 1, or 0 if there is none.
///
/// # Safety
/// `datagram` has room for the sender's GID, our GID, and a datagram of 256 bytes.
pub unsafe extern "C" fn receive(datagram: *mut u8) -> c_int {
    match ManagementPort::open().ok().and_then(|port| port.receive()) {
        None => 0,
        Some(found) => {
            let arrived = Arrived { from: found.from.0, to: found.to.0, mad: found.mad };
            // SAFETY: the caller's contract; the structure has the alignment of bytes.
            unsafe { datagram.cast::<Arrived>().write(arrived) };
            1
        }
    }
}

/// Adds a datagram between connection managers of this host to this process's capture, as if it had
/// passed a network. Returns 0, or 1 if nothing is captured. A listener has often opened no device
/// when its first request comes: then this call starts the capture, if one was requested.
///
/// # Safety
/// `from` and `to` point to GIDs (zeros if the message has none), `mad` to 256 bytes.
pub unsafe extern "C" fn note(
    from: *const u8,
    to: *const u8,
    mad: *const u8,
    has_come: c_int,
) -> c_int {
    if !tap::is_asked_for() {
        return 1;
    }
    let process = Process::get().ok().filter(|process| !process.is_defunct());
    let Some(tap) = process.and_then(|process| process.hooks).and_then(|hooks| hooks.tap) else {
        return 1;
    };
    let (from, to) = (from.cast::<[u8; 16]>(), to.cast::<[u8; 16]>());
    // SAFETY: the caller's contract.
    let (from, to, mad) = unsafe { (Gid(from.read()), Gid(to.read()), &*mad.cast()) };
    let direction = if has_come == 0 { Direction::Out } else { Direction::In };
    show(tap, direction, from, to, mad);
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_from_no_interface() {
        assert_eq!(answer_of(libc::ENODEV), -libc::ENXIO);
        assert_eq!(answer_of(libc::EADDRINUSE), -libc::EADDRINUSE);
    }
}
