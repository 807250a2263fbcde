//! Addresses that connection managers use.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// An IP address with a port of the connection manager, which is not a TCP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CmAddress(SocketAddr);

impl CmAddress {
    /// 127.0.0.1, any port.
    #[must_use]
    pub const fn loopback() -> Self {
        Self(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0))
    }

    /// The address that a GID encodes, any port; `None` if it encodes none, or one that needs an
    /// interface (link-local).
    #[must_use]
    pub fn of_gid(gid: Ipv6Addr) -> Option<Self> {
        let ip = match gid.to_ipv4_mapped() {
            Some(v4) if !v4.is_unspecified() => IpAddr::V4(v4),
            Some(_) => return None,
            None if gid.is_unspecified() || gid.is_unicast_link_local() => return None,
            None => IpAddr::V6(gid),
        };
        Some(Self(SocketAddr::new(ip, 0)))
    }

    /// The addresses of this host's interfaces, any port, without loopback and link-local ones.
    #[must_use]
    pub fn of_this_host() -> Vec<Self> {
        let all = if_addrs::get_if_addrs().unwrap_or_default();
        let useful = all.iter().filter(|one| !one.is_loopback() && !one.is_link_local());
        useful.map(|one| Self(SocketAddr::new(one.ip(), 0))).collect()
    }

    /// Whether it is of IPv4.
    #[must_use]
    pub const fn is_ipv4(&self) -> bool {
        self.0.is_ipv4()
    }

    /// This address with another port.
    #[must_use]
    pub const fn with_port(self, port: u16) -> Self {
        Self(SocketAddr::new(self.0.ip(), port))
    }

    /// The address as a C structure.
    pub(crate) fn to_raw(self) -> libc::sockaddr_storage {
        // SAFETY: all-zero is a valid value of these plain structures.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        match self.0 {
            SocketAddr::V4(v4) => {
                // SAFETY: as above.
                let mut c: libc::sockaddr_in = unsafe { std::mem::zeroed() };
                c.sin_family = libc::AF_INET as _;
                c.sin_port = v4.port().to_be();
                c.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
                // SAFETY: the storage is larger than, and aligned for, every address.
                unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(c) };
            }
            SocketAddr::V6(v6) => {
                // SAFETY: as above.
                let mut c: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
                c.sin6_family = libc::AF_INET6 as _;
                c.sin6_port = v6.port().to_be();
                c.sin6_addr.s6_addr = v6.ip().octets();
                c.sin6_scope_id = v6.scope_id();
                // SAFETY: as above.
                unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(c) };
            }
        }
        storage
    }
}

impl fmt::Display for CmAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for CmAddress {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::CmAddress;

    #[test]
    fn a_gid_may_stand_for_an_address() {
        let of = |gid: &str| CmAddress::of_gid(gid.parse().unwrap()).map(|a| a.to_string());
        assert_eq!(of("::ffff:192.0.2.7").as_deref(), Some("192.0.2.7:0"));
        assert_eq!(of("2001:db8::1").as_deref(), Some("[2001:db8::1]:0"));
        for none in ["fe80::1", "::", "::ffff:0.0.0.0"] {
            assert_eq!(of(none), None, "{none}");
        }
        let address: CmAddress = "192.0.2.7:9".parse().unwrap();
        assert_eq!(address.with_port(7).to_string(), "192.0.2.7:7");
        assert_eq!(CmAddress::loopback().to_string(), "127.0.0.1:0");
    }

    #[test]
    fn addresses_are_ordered_by_their_numbers() {
        let of = |text: &str| text.parse::<CmAddress>().unwrap();
        assert!(of("10.0.0.9:7") < of("10.0.0.10:7") && of("10.0.0.9:9") < of("10.0.0.9:10"));
        assert!(of("10.0.0.9:7") < of("[::1]:7"));
    }

    #[test]
    fn c_sees_family_port_and_address() {
        let raw = "192.0.2.7:258".parse::<CmAddress>().unwrap().to_raw();
        // SAFETY: an IPv4 address, as the text says.
        let v4 = unsafe { (&raw const raw).cast::<libc::sockaddr_in>().read() };
        assert_eq!((i32::from(v4.sin_family), v4.sin_port.to_ne_bytes()), (libc::AF_INET, [1, 2]));
        assert_eq!(v4.sin_addr.s_addr.to_ne_bytes(), [192, 0, 2, 7]);
        let raw = "[2001:db8::1]:258".parse::<CmAddress>().unwrap().to_raw();
        // SAFETY: an IPv6 address, as the text says.
        let v6 = unsafe { (&raw const raw).cast::<libc::sockaddr_in6>().read() };
        assert_eq!(i32::from(v6.sin6_family), libc::AF_INET6);
        assert_eq!((v6.sin6_addr.s6_addr[0], v6.sin6_addr.s6_addr[15]), (0x20, 1));
    }
}
