//! Sockets for management datagrams (MADs) of the connection manager, between processes of one
//! host. There is no file and no daemon.
//!
//! Each process that uses the connection manager listens on an abstract socket for its *slot*, and
//! on one for each *service* that it is bound to. Abstract names belong to a network namespace and
//! have one holder at a time, so a bound service is exclusive on the host. The kernel frees a name
//! when its holder ends. A connection to a slot closes then, which is how peers notice.
//!
//! The upper bits of a communication identifier are the slot of its process ([`slot_of`]), so a
//! process can tell which process a datagram from another host is for.
//!
//! As with the [control_socket](crate::control_socket), any user in the namespace may bind and
//! connect, so both ends check the user of the other.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Slots are 1 ..= this.
pub const SLOT_MAX: u16 = 4095;
/// Bits of a communication identifier below the slot.
pub const ID_BITS: u32 = 20;
/// Bytes of a management datagram.
pub const MAD_BYTES: usize = 256;
/// The result of opening the GSI port if no interface was named: `-ENODEV`. No other failure has
/// this value. Two libraries exchange it, which may be of different builds, so it must not change.
pub const NO_INTERFACE: i32 = -libc::ENODEV;

/// Bytes before the datagram: magic, the sender's slot, two zeros, the time.
const HEADER_BYTES: usize = 4 + 2 + 2 + 8;
/// Bytes of a frame.
const FRAME_BYTES: usize = HEADER_BYTES + MAD_BYTES;
/// The first bytes of a frame, which are different in another version.
const MAGIC: [u8; 4] = *b"rCM2";

/// The slot of the process that chose a communication identifier.
pub const fn slot_of(comm_id: u32) -> u16 {
    (comm_id >> ID_BITS) as u16
}

/// A management datagram on its way between processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MadFrame {
    /// The sender's slot.
    pub slot: u16,
    /// When it was first sent, ns of the monotonic clock. The frames of a sender have different
    /// times, which increase. A receiver with several sockets orders frames by them.
    pub sent_ns: u64,
    /// The datagram.
    pub mad: [u8; MAD_BYTES],
}

impl MadFrame {
    fn to_bytes(&self) -> [u8; FRAME_BYTES] {
        let mut bytes = [0; FRAME_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&self.slot.to_le_bytes());
        bytes[8..HEADER_BYTES].copy_from_slice(&self.sent_ns.to_le_bytes());
        bytes[HEADER_BYTES..].copy_from_slice(&self.mad);
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; FRAME_BYTES] = bytes.try_into().ok()?;
        if bytes[..4] != MAGIC {
            return None;
        }
        let slot = u16::from_le_bytes([bytes[4], bytes[5]]);
        let (mut time, mut mad) = ([0; 8], [0; MAD_BYTES]);
        time.copy_from_slice(&bytes[8..HEADER_BYTES]);
        mad.copy_from_slice(&bytes[HEADER_BYTES..]);
        let sent_ns = u64::from_le_bytes(time);
        (1..=SLOT_MAX).contains(&slot).then_some(Self { slot, sent_ns, mad })
    }
}

pub(crate) fn own_uid() -> u32 {
    // SAFETY: always succeeds and touches no memory.
    unsafe { libc::getuid() }
}

fn slot_name(slot: u16) -> String {
    format!("rdmalab-cm/1/{}/p/{slot}", own_uid())
}

fn service_name(service_id: u64) -> String {
    format!("rdmalab-cm/1/{}/s/{service_id:x}", own_uid())
}

fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes integers only.
    let raw = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Holds a name; `AddrInUse` when it is taken.
fn bind(name: &str) -> io::Result<OwnedFd> {
    let fd = socket()?;
    let (address, length) = crate::control_socket::address_of(name);
    // SAFETY: reads `length` bytes of a live structure.
    match unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) } {
        0 => Ok(fd),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Listens on a name; `AddrInUse` when it is taken.
pub(crate) fn listen(name: &str) -> io::Result<OwnedFd> {
    let fd = bind(name)?;
    // SAFETY: takes integers only.
    match unsafe { libc::listen(fd.as_raw_fd(), libc::SOMAXCONN) } {
        0 => Ok(fd),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Connects to a name that a process of our user holds.
pub(crate) fn connect(name: &str) -> io::Result<OwnedFd> {
    let fd = socket()?;
    let (address, length) = crate::control_socket::address_of(name);
    // SAFETY: reads `length` bytes of a live structure.
    let done = unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), length) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    if !is_of_our_user(&fd) {
        // The same error as for a name without a holder.
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(fd)
}

fn is_of_our_user(fd: &OwnedFd) -> bool {
    credentials(fd.as_fd()).is_some_and(|peer| peer.uid == own_uid())
}

/// The process that listens at the other end of a connection; `None` if it is in another PID
/// namespace.
pub fn listener_pid(fd: BorrowedFd<'_>) -> Option<i32> {
    credentials(fd).map(|peer| peer.pid).filter(|pid| *pid != 0)
}

fn credentials(fd: BorrowedFd<'_>) -> Option<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: writes at most `length` bytes to a live structure.
    let got = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    (got == 0).then_some(peer)
}

/// Claims a free slot; the search starts at `start`, which should be random, so that slots are
/// seldom reused soon.
///
/// # Errors
/// `AddrInUse` when all are taken, else the kernel's error.
pub fn claim_slot(start: u16) -> io::Result<(u16, OwnedFd)> {
    for step in 0..SLOT_MAX {
        let slot = (start % SLOT_MAX + step) % SLOT_MAX + 1;
        match listen(&slot_name(slot)) {
            Ok(fd) => return Ok((slot, fd)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    let what = format!(
        "all {SLOT_MAX} places of the connection manager on this host are taken; end some of the \
         programs that use it"
    );
    Err(io::Error::new(io::ErrorKind::AddrInUse, what))
}

/// Whether any process of our user in this network namespace has a slot.
///
/// # Errors
/// When the kernel's list of sockets cannot be read.
pub fn any_slot_claimed() -> io::Result<bool> {
    // `thread-self`, because each thread has its own network namespace.
    let sockets = std::fs::read("/proc/thread-self/net/unix")?;
    let wanted = format!("@rdmalab-cm/1/{}/p/", own_uid());
    Ok(sockets.windows(wanted.len()).any(|window| window == wanted.as_bytes()))
}

/// Claims a service for this process.
///
/// # Errors
/// `AddrInUse` when another process has it, else the kernel's error.
pub fn claim_service(service_id: u64) -> io::Result<OwnedFd> {
    listen(&service_name(service_id))
}

/// Shows that this process holds a service at the wildcard address, until the result is dropped.
///
/// # Errors
/// `AddrInUse` when this is shown already, else the kernel's error.
pub fn claim_wildcard(service_id: u64) -> io::Result<OwnedFd> {
    bind(&format!("rdmalab-cm/1/{}/w/{service_id:x}", own_uid()))
}

/// A connection to the process that holds a slot; it ends when the process does.
///
/// # Errors
/// `ConnectionRefused` when there is none, `WouldBlock` when too many wait there.
pub fn connect_slot(slot: u16) -> io::Result<OwnedFd> {
    connect(&slot_name(slot))
}

/// A connection to the process that holds a service.
///
/// # Errors
/// As [`connect_slot`].
pub fn connect_service(service_id: u64) -> io::Result<OwnedFd> {
    connect(&service_name(service_id))
}

/// Accepts the next connection of a process of our user. Connections of other users are closed.
///
/// # Errors
/// The kernel's error.
pub fn accept(listening: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    loop {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let nothing = std::ptr::null_mut();
        // SAFETY: without a place for an address the kernel writes none.
        let raw = unsafe { libc::accept4(listening.as_raw_fd(), nothing, nothing.cast(), flags) };
        if raw >= 0 {
            // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
            let fd = unsafe { OwnedFd::from_raw_fd(raw) };
            if is_of_our_user(&fd) {
                return Ok(Some(fd));
            }
            continue;
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock => return Ok(None),
            io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
            _ => return Err(error),
        }
    }
}

/// Sends a frame whole or not at all, without blocking.
///
/// # Errors
/// `WouldBlock` when the peer does not read, `BrokenPipe` or `ConnectionReset` when it is gone.
pub fn send(fd: BorrowedFd<'_>, frame: &MadFrame) -> io::Result<()> {
    let bytes = frame.to_bytes();
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: reads a live array of that length.
    let sent = unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The result of [`receive`].
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// A frame.
    Frame(Box<MadFrame>),
    /// Other bytes; skip them.
    Invalid,
    /// No frame now.
    Empty,
    /// The peer has closed the connection.
    Closed,
}

/// Takes the next frame, without blocking.
pub fn receive(fd: BorrowedFd<'_>) -> Received {
    let mut bytes = [0u8; FRAME_BYTES + 1];
    let flags = libc::MSG_DONTWAIT;
    // SAFETY: writes at most the length of a live array.
    let got = unsafe { libc::recv(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), flags) };
    match usize::try_from(got) {
        Ok(0) => Received::Closed,
        Ok(length) => match MadFrame::parse(&bytes[..length]) {
            Some(frame) => Received::Frame(Box::new(frame)),
            None => Received::Invalid,
        },
        Err(_) => match io::Error::last_os_error().kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Received::Empty,
            _ => Received::Closed,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(slot: u16) -> MadFrame {
        MadFrame { slot, sent_ns: 0x0102_0304_0506_0708, mad: [3; MAD_BYTES] }
    }

    /// A service that no other test of this process, and no other process, uses.
    fn own_service(number: u64) -> u64 {
        u64::from(std::process::id()) << 24 | number
    }

    #[test]
    fn a_frame_arrives_although_the_sender_closed_the_connection() {
        let service = own_service(1);
        let here = claim_service(service).unwrap();
        assert_eq!(claim_service(service).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let shown = claim_wildcard(service).unwrap();
        assert_eq!(claim_wildcard(service).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(shown);
        drop(claim_wildcard(service).unwrap());
        let there = connect_service(service).unwrap();
        send(there.as_fd(), &frame(7)).unwrap();
        drop(there);
        let came = accept(here.as_fd()).unwrap().expect("somebody connected");
        assert_eq!(receive(came.as_fd()), Received::Frame(Box::new(frame(7))));
        assert_eq!(receive(came.as_fd()), Received::Closed);
        assert!(accept(here.as_fd()).unwrap().is_none());
        drop(here);
        let gone = connect_service(service).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_slot_that_goes_away_ends_the_connection() {
        let (slot, here) = claim_slot(std::process::id() as u16).unwrap();
        assert!((1..=SLOT_MAX).contains(&slot));
        let there = connect_slot(slot).unwrap();
        assert_eq!(receive(there.as_fd()), Received::Empty);
        drop(here);
        assert_eq!(receive(there.as_fd()), Received::Closed);
        assert!(send(there.as_fd(), &frame(1)).is_err());
    }

    #[test]
    fn sending_to_a_peer_that_does_not_read_would_block() {
        let (slot, _here) = claim_slot(std::process::id() as u16 ^ 0x555).unwrap();
        let there = connect_slot(slot).unwrap();
        let error = loop {
            if let Err(error) = send(there.as_fd(), &frame(1)) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn other_bytes_are_no_frame() {
        let good = frame(9).to_bytes();
        assert_eq!(MadFrame::parse(&good), Some(frame(9)));
        assert_eq!(MadFrame::parse(&good[..FRAME_BYTES - 1]), None);
        let mut bad = good;
        bad[0] ^= 1;
        assert_eq!(MadFrame::parse(&bad), None);
        let mut bad = good;
        bad[5] = 0xff;
        assert_eq!(MadFrame::parse(&bad), None);
        assert_eq!(slot_of(0xabc1_2345), 0xabc);
    }
}
