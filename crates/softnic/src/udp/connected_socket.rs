//! The system calls for a connected socket.
//!
//! It is bound to the address that the peer sends to, and connected to the peer, so that the kernel
//! prefers it to the shared socket. Both use one port, which both have to allow while it is bound.
//! Meanwhile the port is open to this user's programs (`SO_REUSEPORT`), and to nobody else's.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use rdmalab_link::address::FourTuple;

use super::interface::Interface;
use super::socket::{
    DISCARD_PORT, UDP_NO_CHECK6_RX, bind_to_device, check, give_room, set, socket_address,
};
use crate::clock::now_ns;

/// Opens a socket for what comes on `tuple`, beside the socket for all, `main`.
///
/// # Errors
/// What the kernel says.
pub(super) fn open(main: RawFd, interface: &Interface, tuple: &FourTuple) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes integers.
    let raw = check(unsafe { libc::socket(libc::AF_INET6, kind, 0) })?;
    // SAFETY: a fresh descriptor that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    set(raw, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)?;
    set(raw, libc::SOL_UDP, UDP_NO_CHECK6_RX, 1)?;
    give_room(raw);
    bind_to_device(raw, interface)?;
    // Until it is connected, packets of all peers arrive there: the source has to be reported.
    set(raw, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
    set(raw, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    set(main, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    let bound = bind(raw, interface, tuple);
    set(main, libc::SOL_SOCKET, libc::SO_REUSEPORT, 0)?;
    bound?;
    connect(raw, interface, tuple, tuple.source_port)?;
    set(raw, libc::SOL_SOCKET, libc::SO_REUSEPORT, 0)?;
    Ok(socket)
}

/// Once it is connected and was empty, all packets are its peer's: their source need not be
/// reported any more.
///
/// # Errors
/// What the kernel says.
pub(super) fn stop_reporting_source(raw: RawFd) -> io::Result<()> {
    set(raw, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 0)
}

fn bind(raw: RawFd, interface: &Interface, tuple: &FourTuple) -> io::Result<()> {
    let at = socket_address(tuple.destination, tuple.destination_port, interface.index);
    let length = size_of_val(&at) as libc::socklen_t;
    // SAFETY: the kernel reads a live structure of the length given.
    check(unsafe { libc::bind(raw, (&raw const at).cast(), length) }).map(drop)
}

fn connect(raw: RawFd, interface: &Interface, tuple: &FourTuple, port: u16) -> io::Result<()> {
    let to = socket_address(tuple.source, port, interface.index);
    let length = size_of_val(&to) as libc::socklen_t;
    // SAFETY: the kernel reads a live structure of the length given.
    check(unsafe { libc::connect(raw, (&raw const to).cast(), length) }).map(drop)
}

/// Makes the kernel give the peer's packets to the socket for all again; what lies in this one
/// stays. It listens to a port that sends nothing.
///
/// # Errors
/// What the kernel says.
pub(super) fn disconnect(raw: RawFd, interface: &Interface, tuple: &FourTuple) -> io::Result<()> {
    connect(raw, interface, tuple, DISCARD_PORT)
}

/// How long another process may take from asking for the socket to saying that it uses it, ns.
pub(super) const JOIN_NS: u64 = 1_000_000_000;

/// The part of its state that threads share without the receiver's lock.
#[derive(Default)]
pub(super) struct ConnectedSocket {
    /// One more than the descriptor; 0 when there is none.
    pub(super) socket: AtomicI32,
    /// A request to close it: the next thread that reads does so.
    pub(super) close_requested: AtomicBool,
    /// None is opened before this time, ns.
    pub(super) not_before_ns: AtomicU64,
}

impl ConnectedSocket {
    pub(super) fn fd(&self) -> Option<i32> {
        Some(self.socket.load(Ordering::SeqCst) - 1).filter(|fd| *fd >= 0)
    }

    /// Closes it, here and in the child of a fork, where it would keep packets from the parent.
    pub(super) fn close(&self) {
        let fd = self.socket.swap(0, Ordering::SeqCst) - 1;
        if fd >= 0 {
            // SAFETY: the descriptor was ours, and the swap made us the only one to close it.
            unsafe { libc::close(fd) };
        }
    }

    /// Whether it is open: a thread that sleeps without it checks again soon.
    pub(super) fn is_open(&self) -> bool {
        self.fd().is_some()
    }

    /// Requests to close it, and forbids another for a while: a further process is about to share
    /// the port.
    pub(super) fn forbid_for_a_while(&self) {
        self.not_before_ns.store(now_ns() + JOIN_NS, Ordering::SeqCst);
        self.request_close();
    }

    /// Requests to close it, if it is open: other processes need its packets.
    pub(super) fn close_if_open(&self) {
        if self.is_open() {
            self.request_close();
        }
    }

    /// Requests to close it at the next read.
    pub(super) fn request_close(&self) {
        self.close_requested.store(true, Ordering::SeqCst);
    }
}
