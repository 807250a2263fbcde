//! The IP addressing annex (IBA vol. 1, A11): service identifiers made from port numbers, and the
//! addresses at the front of the private data.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bytes::be16;
use crate::ids::Gid;

/// Port spaces, as in `enum rdma_port_space`.
pub mod port_space {
    /// IP over InfiniBand.
    pub const IPOIB: u16 = 0x0002;
    /// Connections.
    pub const TCP: u16 = 0x0106;
    /// Datagrams.
    pub const UDP: u16 = 0x0111;
    /// Any InfiniBand service.
    pub const IB: u16 = 0x013f;
}

/// The service identifier of a port.
pub const fn service_id(port_space: u16, port: u16) -> u64 {
    (port_space as u64) << 16 | port as u64
}

/// The first 36 bytes of the private data of REQ and SIDR_REQ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpHeader {
    /// Port of the active side; that of the passive side is in the service identifier.
    pub source_port: u16,
    /// Address of the active side.
    pub source: IpAddr,
    /// Address of the passive side, of the same family.
    pub destination: IpAddr,
}

impl IpHeader {
    /// Bytes on the wire.
    pub const BYTES: usize = 36;

    /// Reads the header; `None` if its version is unknown or there are too few bytes.
    pub fn parse(private_data: &[u8]) -> Option<Self> {
        let b: &[u8; Self::BYTES] = private_data.first_chunk()?;
        // Version 0.0 of the header.
        if b[0] != 0 {
            return None;
        }
        let address = |at: usize| -> Option<IpAddr> {
            let mut whole = [0; 16];
            whole.copy_from_slice(&b[at..at + 16]);
            match b[1] >> 4 {
                4 => Some(IpAddr::V4(Ipv4Addr::new(whole[12], whole[13], whole[14], whole[15]))),
                6 => Some(IpAddr::V6(Ipv6Addr::from(whole))),
                _ => None,
            }
        };
        let (source, destination) = (address(4)?, address(20)?);
        Some(Self { source_port: be16(b, 2), source, destination })
    }

    /// Writes the header. The version is that of the source address.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut b = [0; Self::BYTES];
        b[1] = if self.source.is_ipv4() { 0x40 } else { 0x60 };
        b[2..4].copy_from_slice(&self.source_port.to_be_bytes());
        for (at, address) in [(4, self.source), (20, self.destination)] {
            match address {
                IpAddr::V4(v4) => b[at + 12..at + 16].copy_from_slice(&v4.octets()),
                IpAddr::V6(v6) => b[at..at + 16].copy_from_slice(&v6.octets()),
            }
        }
        b
    }
}

impl Gid {
    /// The GID of an IP address: IPv4 as `::ffff:a.b.c.d` (annex A17.4.2).
    pub const fn of_ip(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Self(v6.octets()),
        }
    }

    /// The IP address that this GID stands for.
    pub fn to_ip(self) -> IpAddr {
        let v6 = Ipv6Addr::from(self.0);
        match v6.to_ipv4_mapped() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::V6(v6),
        }
    }
}
