//! How the kernel is told of a peer's own socket.
//!
//! It is bound to the address that the peer sends to, and connected to the peer: the kernel prefers
//! it to the socket for all. It shares that one's port, which both have to allow while it is bound.
//! Meanwhile the port is open to this user's programs (`SO_REUSEPORT`), and to nobody else's.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use rdmalab_link::path::Path;

use super::interface::Interface;
use super::socket::{
    DISCARD_PORT, UDP_NO_CHECK6_RX, bind_to_device, check, give_room, set, socket_address,
};

/// Opens a socket for what comes on `path`, beside the socket for all, `main`.
///
/// # Errors
/// What the kernel says.
pub(super) fn open(main: RawFd, interface: &Interface, path: &Path) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes integers.
    let raw = check(unsafe { libc::socket(libc::AF_INET6, kind, 0) })?;
    // SAFETY: a fresh descriptor that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    set(raw, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)?;
    set(raw, libc::SOL_UDP, UDP_NO_CHECK6_RX, 1)?;
    give_room(raw);
    bind_to_device(raw, interface)?;
    // Until it is connected it is everybody's: who sent what has to be told.
    set(raw, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
    set(raw, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    set(main, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    let bound = bind(raw, interface, path);
    set(main, libc::SOL_SOCKET, libc::SO_REUSEPORT, 0)?;
    bound?;
    connect(raw, interface, path, path.source_port)?;
    set(raw, libc::SOL_SOCKET, libc::SO_REUSEPORT, 0)?;
    Ok(socket)
}

/// It was empty since it is connected: all that comes is its peer's.
///
/// # Errors
/// What the kernel says.
pub(super) fn stop_reporting_source(raw: RawFd) -> io::Result<()> {
    set(raw, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 0)
}

fn bind(raw: RawFd, interface: &Interface, path: &Path) -> io::Result<()> {
    let at = socket_address(path.destination, path.destination_port, interface.index);
    let length = size_of_val(&at) as libc::socklen_t;
    // SAFETY: the kernel reads a live structure of the length given.
    check(unsafe { libc::bind(raw, (&raw const at).cast(), length) }).map(drop)
}

fn connect(raw: RawFd, interface: &Interface, path: &Path, port: u16) -> io::Result<()> {
    let to = socket_address(path.source, port, interface.index);
    let length = size_of_val(&to) as libc::socklen_t;
    // SAFETY: the kernel reads a live structure of the length given.
    check(unsafe { libc::connect(raw, (&raw const to).cast(), length) }).map(drop)
}

/// Makes the kernel give the peer's packets to the socket for all again; what lies in this one
/// stays. It listens to a port that sends nothing.
///
/// # Errors
/// What the kernel says.
pub(super) fn disconnect(raw: RawFd, interface: &Interface, path: &Path) -> io::Result<()> {
    connect(raw, interface, path, DISCARD_PORT)
}
