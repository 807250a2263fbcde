//! The UDP socket of a host, and how batches of datagrams pass through it.
//!
//! One dual-stack socket, bound and never connected: only then does the kernel send IPv4 with
//! DF set and an identification of 0 (or 0, 1, 2 ... for the segments of one send), which the
//! invariant CRC covers and which a user cannot choose. UDP's checksum is left to the kernel: it
//! costs nothing where the interface computes it, and segmentation needs it.
//!
//! The system calls bypass glibc, whose functions are cancellation points (see [`crate::cancel`]).
//! They never wait, so a thread need not be cancelled in them.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use rdmalab_link::address::FourTuple;

use super::interface::Interface;

/// The buffer size to request for each direction; the kernel may grant less.
const BUFFER_BYTES: libc::c_int = 8 << 20;
/// 64-bit words of control data of a datagram: addresses, class, hops, segment size.
pub(super) const CONTROL_WORDS: usize = 24;
/// `SO_NO_CHECK6_RX` of UDP: take IPv6 datagrams without a checksum, as the kernel's driver sends.
pub(super) const UDP_NO_CHECK6_RX: libc::c_int = 102;
/// Segments of one send; the kernel's limit since 4.18.
pub(crate) const SEGMENTS_MAX: u32 = 64;

pub(super) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Sets an integer option.
pub(crate) fn set(fd: RawFd, level: i32, option: i32, value: libc::c_int) -> io::Result<()> {
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the kernel reads an integer of the length given.
    check(unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), length) })?;
    Ok(())
}

/// Reads an integer option.
fn get(fd: RawFd, level: i32, option: i32) -> Option<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut length = size_of_val(&value) as libc::socklen_t;
    let (at, length) = ((&raw mut value).cast(), &raw mut length);
    // SAFETY: the kernel writes an integer of the length given.
    let got = unsafe { libc::getsockopt(fd, level, option, at, length) };
    (got == 0).then_some(value)
}

/// Opens and binds the socket.
///
/// # Errors
/// `AddrInUse` if the port is taken, else the kernel's error.
pub(crate) fn open(interface: &Interface) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes integers.
    let raw = check(unsafe { libc::socket(libc::AF_INET6, kind, 0) })?;
    // SAFETY: a fresh descriptor that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    set(raw, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)?;
    set(raw, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
    keep_path_mtu(raw)?;
    // The flow label is the address handle's; the kernel must not choose one.
    let _ = set(raw, libc::IPPROTO_IPV6, libc::IPV6_AUTOFLOWLABEL, 0);
    set(raw, libc::SOL_UDP, UDP_NO_CHECK6_RX, 1)?;
    // Other sockets hold the memberships. Without this option a dual-stack socket receives only the
    // IPv4 groups that it joined itself.
    set(raw, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 1)?;
    // Local receivers get their copies through the rings.
    set(raw, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP, 0)?;
    set(raw, libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP, 0)?;
    // Without GRO every segment of a send arrives as one message, which is only slower.
    let _ = set(raw, libc::SOL_UDP, libc::UDP_GRO, 1);
    give_room(raw);
    bind(raw, interface)?;
    Ok(socket)
}

/// Makes packets as long as the queue pair's path MTU says, without fragmentation, whatever the
/// kernel was told about the path (ip(7), `IP_PMTUDISC_PROBE`). Anybody can send an ICMP
/// "fragmentation needed", and it must not stop a connection. Only a packet longer than the
/// interface's own MTU is refused.
pub(super) fn keep_path_mtu(fd: RawFd) -> io::Result<()> {
    set(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
    set(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)
}

/// Makes the kernel report the IP header fields that UD queue pairs deliver. Connections need none.
pub(crate) fn ask_for_headers(fd: RawFd) -> io::Result<()> {
    for option in [libc::IPV6_RECVTCLASS, libc::IPV6_RECVHOPLIMIT, libc::IPV6_FLOWINFO] {
        set(fd, libc::IPPROTO_IPV6, option, 1)?;
    }
    for option in [libc::IP_RECVTOS, libc::IP_RECVTTL] {
        set(fd, libc::IPPROTO_IP, option, 1)?;
    }
    Ok(())
}

/// Requests large socket buffers; the kernel grants what it allows.
pub(super) fn give_room(raw: RawFd) {
    for (forced, plain) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        if set(raw, libc::SOL_SOCKET, forced, BUFFER_BYTES).is_err() {
            let _ = set(raw, libc::SOL_SOCKET, plain, BUFFER_BYTES);
        }
    }
}

/// Whether any process that shares the socket has called [`ask_for_headers`].
pub(crate) fn asks_for_headers(fd: RawFd) -> bool {
    get(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT) != Some(0)
}

/// The path MTU to an address that the kernel knows, in bytes; `None` if it knows none (no route,
/// or a link-local address).
pub(super) fn path_mtu_bytes(to: IpAddr) -> Option<u32> {
    let (any, level, option) = match to {
        IpAddr::V4(_) => ("0.0.0.0", libc::IPPROTO_IP, libc::IP_MTU),
        IpAddr::V6(_) => ("::", libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let socket = std::net::UdpSocket::bind((any, 0)).ok()?;
    // This sends nothing.
    socket.connect((to, rdmalab_wire::ip::ROCE_V2_PORT)).ok()?;
    get(socket.as_raw_fd(), level, option)?.try_into().ok()
}

/// Confines a socket to one interface.
pub(super) fn bind_to_device(raw: RawFd, interface: &Interface) -> io::Result<()> {
    let name = &interface.name;
    let length = name.len() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_BINDTODEVICE);
    // SAFETY: the kernel reads `length` bytes of the name.
    check(unsafe { libc::setsockopt(raw, level, option, name.as_ptr().cast(), length) })?;
    Ok(())
}

/// Binds to the port on one interface: nothing listens on any other.
fn bind(raw: RawFd, interface: &Interface) -> io::Result<()> {
    bind_to_device(raw, interface)?;
    let any = socket_address(IpAddr::V6(Ipv6Addr::UNSPECIFIED), interface.port, 0);
    let length = size_of_val(&any) as libc::socklen_t;
    // SAFETY: the kernel reads a live structure of the length given.
    check(unsafe { libc::bind(raw, (&raw const any).cast(), length) })?;
    Ok(())
}

/// An address as the kernel takes it on a dual-stack socket.
pub(super) fn socket_address(address: IpAddr, port: u16, scope: u32) -> libc::sockaddr_in6 {
    let mapped = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    // SAFETY: all-zero is a valid value of this plain C structure.
    let mut to: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    to.sin6_family = libc::AF_INET6 as libc::sa_family_t;
    to.sin6_port = port.to_be();
    to.sin6_addr.s6_addr = mapped.octets();
    to.sin6_scope_id = scope;
    to
}

pub(super) fn plain_address(octets: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(octets).to_canonical()
}

/// Checks that the kernel has a route for a packet.
pub(crate) fn check_route(route: &Route) -> io::Result<()> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: takes integers.
    let raw = check(unsafe { libc::socket(libc::AF_INET6, kind, 0) })?;
    // SAFETY: a fresh descriptor that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    let to = socket_address(route.tuple.destination, route.tuple.destination_port, route.interface);
    let length = size_of_val(&to) as libc::socklen_t;
    // SAFETY: the kernel reads a live structure of the length given.
    check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const to).cast(), length) })?;
    Ok(())
}

/// The discard port (RFC 863).
pub(super) const DISCARD_PORT: u16 = 9;

/// Makes the kernel resolve the link-layer address of the next hop to `destination`, by sending an
/// empty datagram to the discard port: an unprivileged process has no other means.
pub(crate) fn solicit_neighbour(interface: u32, destination: IpAddr) {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes integers.
    let Ok(raw) = check(unsafe { libc::socket(libc::AF_INET6, kind, 0) }) else { return };
    // SAFETY: a fresh descriptor that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    let to = socket_address(destination, DISCARD_PORT, interface);
    let length = size_of_val(&to) as libc::socklen_t;
    let fd = socket.as_raw_fd();
    // SAFETY: no bytes are read; the kernel reads a live address of the length given.
    unsafe { libc::sendto(fd, std::ptr::null(), 0, 0, (&raw const to).cast(), length) };
}

/// The addresses of a packet, and its IP header fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    pub(crate) tuple: FourTuple,
    /// The source address must be given: the kernel might choose another one.
    pub(crate) say_source: bool,
    /// The hop limit must be given: the kernel would choose another one.
    pub(crate) say_hops: bool,
    /// Index of the interface.
    pub(crate) interface: u32,
    pub(crate) traffic_class: u8,
    /// Time to live or hop limit; 0: the kernel's default.
    pub(crate) hop_limit: u8,
    /// IPv6's flow label.
    pub(crate) flow_label: u32,
}

/// Control data while it is built.
struct Control {
    words: [u64; CONTROL_WORDS],
    used: usize,
}

impl Control {
    /// Adds a control message; there is room for all that [`Control::for_route`] adds.
    fn push<T: Copy>(&mut self, level: i32, kind: i32, value: T) {
        // SAFETY: arithmetic on integers.
        let (length, space) = unsafe {
            (libc::CMSG_LEN(size_of::<T>() as u32), libc::CMSG_SPACE(size_of::<T>() as u32))
        };
        if self.used + space as usize > size_of_val(&self.words) {
            return;
        }
        // SAFETY: `space` bytes from `used` on lie within the words, aligned to 8, and hold one
        // header and the value.
        unsafe {
            let at: *mut libc::cmsghdr = self.words.as_mut_ptr().byte_add(self.used).cast();
            (*at).cmsg_level = level;
            (*at).cmsg_type = kind;
            (*at).cmsg_len = length as _;
            libc::CMSG_DATA(at).cast::<T>().write_unaligned(value);
        }
        self.used += space as usize;
    }

    fn for_route(route: &Route, segment_bytes: u16) -> Control {
        let mut control = Control { words: [0; CONTROL_WORDS], used: 0 };
        if route.say_source {
            let source = socket_address(route.tuple.source, 0, 0);
            let index = route.interface as _;
            let info = libc::in6_pktinfo { ipi6_addr: source.sin6_addr, ipi6_ifindex: index };
            control.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
        }
        let is_v4 = route.tuple.destination.is_ipv4();
        let (level, class, hops) = match is_v4 {
            true => (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL),
            false => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT),
        };
        if route.traffic_class != 0 {
            control.push(level, class, libc::c_int::from(route.traffic_class));
        }
        if route.flow_label != 0 && !is_v4 {
            control.push(level, libc::IPV6_FLOWINFO, route.flow_label.to_be());
        }
        if route.say_hops {
            control.push(level, hops, libc::c_int::from(route.hop_limit));
        }
        if segment_bytes != 0 {
            control.push(libc::SOL_UDP, libc::UDP_SEGMENT, segment_bytes);
        }
        control
    }
}

/// Sends `bytes` to a route, as one datagram or, with `segment_bytes`, as several of that length.
pub(crate) fn send(fd: RawFd, route: &Route, bytes: &[u8], segment_bytes: u16) -> io::Result<()> {
    let mut to =
        socket_address(route.tuple.destination, route.tuple.destination_port, route.interface);
    let mut control = Control::for_route(route, segment_bytes);
    let length = size_of_val(&to) as libc::socklen_t;
    if control.used == 0 {
        // The kernel has less to read: measured, this call takes 0.1 us less.
        // SAFETY: live buffers of the lengths given.
        let sent = unsafe {
            let (data, to) = (bytes.as_ptr(), &raw mut to);
            libc::syscall(libc::SYS_sendto, fd, data, bytes.len(), libc::MSG_NOSIGNAL, to, length)
        };
        return if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    }
    let mut content =
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all-zero is a valid value of this plain C structure.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = (&raw mut to).cast();
    message.msg_namelen = length;
    message.msg_iov = &raw mut content;
    message.msg_iovlen = 1;
    message.msg_control = control.words.as_mut_ptr().cast();
    message.msg_controllen = control.used as _;
    let flags = libc::MSG_NOSIGNAL;
    // SAFETY: all pointers in the message are to live buffers of the lengths given.
    let sent = unsafe { libc::syscall(libc::SYS_sendmsg, fd, &raw const message, flags) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
