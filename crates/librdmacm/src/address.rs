//! Converts socket addresses from and to C, and knows the addresses of this host.

use core::ffi::c_int;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

/// Reads a C socket address; `None` for null and for families other than IPv4 and IPv6.
///
/// # Safety
/// `address` is null, or points to as many bytes as its family needs.
pub unsafe fn read(address: *const sockaddr) -> Option<SocketAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: the caller's contract: the structure of the family is whole.
    unsafe {
        match c_int::from((*address).sa_family) {
            libc::AF_INET => {
                let v4 = address.cast::<sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                let v6 = address.cast::<sockaddr_in6>().read_unaligned();
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

/// Converts an address to C; returns it with its length.
pub fn to_c(address: SocketAddr) -> (sockaddr_storage, socklen_t) {
    // SAFETY: all-zero is a valid value of these plain C structures.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    let length = match address {
        SocketAddr::V4(v4) => {
            // SAFETY: as above.
            let mut c: sockaddr_in = unsafe { std::mem::zeroed() };
            c.sin_family = libc::AF_INET as _;
            c.sin_port = v4.port().to_be();
            c.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
            // SAFETY: the storage is larger than, and aligned for, every address.
            unsafe { (&raw mut storage).cast::<sockaddr_in>().write(c) };
            size_of::<sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            // SAFETY: as above.
            let mut c: sockaddr_in6 = unsafe { std::mem::zeroed() };
            c.sin6_family = libc::AF_INET6 as _;
            c.sin6_port = v6.port().to_be();
            c.sin6_flowinfo = v6.flowinfo();
            c.sin6_addr.s6_addr = v6.ip().octets();
            c.sin6_scope_id = v6.scope_id();
            // SAFETY: as above.
            unsafe { (&raw mut storage).cast::<sockaddr_in6>().write(c) };
            size_of::<sockaddr_in6>()
        }
    };
    (storage, length as socklen_t)
}

/// The IPv4 address of an IPv4-mapped IPv6 address; other addresses unchanged.
pub fn plain(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// Whether an address is one of this host's: loopback, unspecified, or an interface's.
pub fn is_local(ip: IpAddr) -> bool {
    let ip = plain(ip);
    ip.is_loopback() || ip.is_unspecified() || interfaces().contains(&ip)
}

/// The addresses of this host's interfaces.
pub fn interfaces() -> Vec<IpAddr> {
    let mut list = std::ptr::null_mut();
    // SAFETY: the out-parameter is valid.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Vec::new();
    }
    let (mut found, mut at) = (Vec::new(), list);
    while !at.is_null() {
        // SAFETY: `at` is an element of the list; its address is null or complete.
        let (address, next) = unsafe { (read((*at).ifa_addr), (*at).ifa_next) };
        found.extend(address.map(|address| plain(address.ip())));
        at = next;
    }
    // SAFETY: the list that we got, once.
    unsafe { libc::freeifaddrs(list) };
    found
}

/// The source address of packets to another host: `wanted`, or the routing table's choice. Sends
/// nothing: connecting a datagram socket only asks the routing table.
///
/// # Errors
/// The kernel's error, usually that there is no route.
pub fn source_for(ip: IpAddr, wanted: Option<IpAddr>) -> io::Result<IpAddr> {
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let wanted = wanted.filter(|wanted| wanted.is_ipv4() == ip.is_ipv4()).unwrap_or(any);
    // A tentative address cannot be bound yet: then the routing table chooses.
    let socket = UdpSocket::bind((wanted, 0)).or_else(|_| UdpSocket::bind((any, 0)))?;
    // Port 9 is the discard port; any port would do.
    socket.connect((ip, 9))?;
    socket.local_addr().map(|address| address.ip())
}

/// Whether an error says that there is no route, or that the route is prohibited.
pub fn is_no_route(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES))
}

/// Whether one of our addresses is tentative: it cannot be bound until duplicate address detection
/// has finished.
pub fn is_tentative(ours: IpAddr) -> bool {
    let bound = UdpSocket::bind((ours, 0));
    bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
}

/// The loopback address of a family.
pub fn loopback(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_go_to_c_and_come_back() {
        for text in ["127.0.0.1:7174", "0.0.0.0:0", "[::1]:1", "[fe80::1%3]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            let (storage, _) = to_c(address);
            // SAFETY: a whole address.
            assert_eq!(unsafe { read((&raw const storage).cast()) }, Some(address), "{text}");
        }
        // SAFETY: null is allowed.
        assert_eq!(unsafe { read(std::ptr::null()) }, None);
    }

    #[test]
    fn loopback_is_here_and_documentation_is_not() {
        assert!(is_local("127.0.0.9".parse().unwrap()));
        assert!(is_local("::1".parse().unwrap()));
        assert!(is_local("::ffff:127.0.0.1".parse().unwrap()));
        assert!(!is_local("192.0.2.1".parse().unwrap()));
    }
    #[test]
    fn an_address_of_no_interface_counts_as_tentative() {
        assert!(!is_tentative("127.0.0.1".parse().unwrap()));
        assert!(is_tentative("192.0.2.1".parse().unwrap()));
    }

    #[test]
    fn the_source_is_the_one_that_is_wanted() {
        let [here, other] = ["127.0.0.1", "127.0.0.9"].map(|ip| ip.parse::<IpAddr>().unwrap());
        assert_eq!(source_for(here, None).ok(), Some(here));
        assert_eq!(source_for(here, Some(other)).ok(), Some(other));
        assert_eq!(source_for(here, Some("192.0.2.1".parse().unwrap())).ok(), Some(here));
    }
}
