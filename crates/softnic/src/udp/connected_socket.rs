//! The system calls for a connected socket.
//!
//! The socket is bound to the address that the peer sends to, and connected to the peer, so that
//! the kernel prefers it to the shared socket. Both use one port, so both have `SO_REUSEPORT` while
//! the new one is bound. Until then other programs of this user can bind the port too.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use rdmalab_link::address::FourTuple;

use super::interface::Interface;
use super::socket::{
    DISCARD_PORT, UDP_NO_CHECK6_RX, bind_to_device, check, give_room, keep_path_mtu, set,
    socket_address,
};
use crate::clock::now_ns;

/// Opens a connected socket for packets with addresses `tuple`, beside the shared socket `main`.
///
/// # Errors
/// The kernel's error.
pub(super) fn open(main: RawFd, interface: &Interface, tuple: &FourTuple) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes integers.
    let raw = check(unsafe { libc::socket(libc::AF_INET6, kind, 0) })?;
    // SAFETY: a fresh descriptor that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    set(raw, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)?;
    keep_path_mtu(raw)?;
    set(raw, libc::SOL_UDP, UDP_NO_CHECK6_RX, 1)?;
    give_room(raw);
    bind_to_device(raw, interface)?;
    // Until the socket is connected, packets of all peers come to it: addresses must be reported.
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

/// Stops the report of addresses. After the socket was connected and found empty, all its packets
/// come from its peer.
///
/// # Errors
/// The kernel's error.
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

/// Makes the kernel deliver the peer's packets to the shared socket again; packets in this one
/// stay. It is connected to the discard port, which sends nothing.
///
/// # Errors
/// The kernel's error.
pub(super) fn disconnect(raw: RawFd, interface: &Interface, tuple: &FourTuple) -> io::Result<()> {
    connect(raw, interface, tuple, DISCARD_PORT)
}

/// How long another process may take from its request for the socket until it is a standby, ns.
pub(super) const JOIN_NS: u64 = 1_000_000_000;

/// The state of the connected socket that threads share without the receiver's lock.
#[derive(Default)]
pub(super) struct ConnectedSocket {
    /// One more than the descriptor; 0: there is no connected socket.
    pub(super) socket: AtomicI32,
    /// The socket shall be closed: the next thread that reads does so.
    pub(super) close_requested: AtomicBool,
    /// No connected socket is opened before this time, ns.
    pub(super) not_before_ns: AtomicU64,
}

impl ConnectedSocket {
    pub(super) fn fd(&self) -> Option<i32> {
        Some(self.socket.load(Ordering::SeqCst) - 1).filter(|fd| *fd >= 0)
    }

    /// Closes the socket. A forked child does so too: its copy would keep packets from the parent.
    pub(super) fn close(&self) {
        let fd = self.socket.swap(0, Ordering::SeqCst) - 1;
        if fd >= 0 {
            // SAFETY: the descriptor was ours, and the swap made us the only one to close it.
            unsafe { libc::close(fd) };
        }
    }

    /// Whether the socket is open. A thread that sleeps without polling it must check again soon.
    pub(super) fn is_open(&self) -> bool {
        self.fd().is_some()
    }

    /// Requests to close the socket, and forbids a new one for [`JOIN_NS`], because another process
    /// is about to share the port.
    pub(super) fn forbid_for_a_while(&self) {
        self.not_before_ns.store(now_ns() + JOIN_NS, Ordering::SeqCst);
        self.request_close();
    }

    /// Requests to close the socket, if it is open, because packets for other processes come.
    pub(super) fn close_if_open(&self) {
        if self.is_open() {
            self.request_close();
        }
    }

    /// Requests to close the socket at the next read.
    pub(super) fn request_close(&self) {
        self.close_requested.store(true, Ordering::SeqCst);
    }
}
