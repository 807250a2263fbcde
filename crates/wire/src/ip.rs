//! Ethernet II, IPv4 and UDP, as far as RoCEv2 uses them: no IP options, no fragments. The IPv6
//! header is [`crate::grh::Grh`].

use crate::bytes::{be16, be32};
use crate::error::ParseError;
use crate::ids::Gid;
use core::net::Ipv4Addr;

/// The UDP destination port of RoCEv2 (annex A17.3.2).
pub const ROCE_V2_PORT: u16 = 4791;

/// An Ethernet II header, without a VLAN tag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ethernet {
    /// Address of the receiver.
    pub destination: [u8; 6],
    /// Address of the sender.
    pub source: [u8; 6],
    /// EtherType of the payload: one of the constants below.
    pub ethertype: u16,
}

impl Ethernet {
    /// Bytes on the wire.
    pub const BYTES: usize = 14;
    /// EtherType of IPv4.
    pub const IPV4: u16 = 0x0800;
    /// EtherType of IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// EtherType of a VLAN tag (IEEE 802.1Q).
    pub const VLAN: u16 = 0x8100;

    /// Reads the header.
    pub fn from_bytes(b: &[u8; Self::BYTES]) -> Self {
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..] = *b;
        Self {
            destination: [d0, d1, d2, d3, d4, d5],
            source: [s0, s1, s2, s3, s4, s5],
            ethertype: be16(b, 12),
        }
    }

    /// Writes the header.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut b = [0; Self::BYTES];
        b[..6].copy_from_slice(&self.destination);
        b[6..12].copy_from_slice(&self.source);
        b[12..].copy_from_slice(&self.ethertype.to_be_bytes());
        b
    }
}

/// An IPv4 header without options, of a datagram that is not a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv4 {
    /// Type of service: 8 bits, the low two of them congestion marks.
    pub type_of_service: u8,
    /// Bytes of the datagram with this header.
    pub total_length: u16,
    /// The identification, which the invariant CRC covers although nothing is ever fragmented.
    pub identification: u16,
    /// Routers must not fragment the datagram.
    pub dont_fragment: bool,
    /// Routers that the datagram may still cross.
    pub time_to_live: u8,
    /// Protocol of the payload: [`Ipv4::UDP`].
    pub protocol: u8,
    /// Address of the sender.
    pub source: Ipv4Addr,
    /// Address of the receiver.
    pub destination: Ipv4Addr,
}

impl Ipv4 {
    /// Bytes on the wire.
    pub const BYTES: usize = 20;
    /// Protocol number of UDP.
    pub const UDP: u8 = 17;

    /// Reads the header; refuses other versions, options, fragments and the reserved flag. The
    /// header checksum is not checked: a capture taken before the adapter filled it in has none,
    /// and the invariant CRC covers the fields that matter.
    #[inline]
    pub const fn from_bytes(b: &[u8; Self::BYTES]) -> Result<Self, ParseError> {
        if b[0] >> 4 != 4 {
            return Err(ParseError::IpVersion(b[0] >> 4));
        }
        if b[0] & 0x0f != 5 {
            return Err(ParseError::IpHeaderLength(b[0] & 0x0f));
        }
        let fragment = be16(b, 6);
        if fragment & 0x8000 != 0 {
            return Err(ParseError::IpReservedFlag);
        }
        if fragment & 0x3fff != 0 {
            return Err(ParseError::Fragment);
        }
        Ok(Self {
            type_of_service: b[1],
            total_length: be16(b, 2),
            identification: be16(b, 4),
            dont_fragment: fragment & 0x4000 != 0,
            time_to_live: b[8],
            protocol: b[9],
            source: Ipv4Addr::from_bits(be32(b, 12)),
            destination: Ipv4Addr::from_bits(be32(b, 16)),
        })
    }

    /// Writes the header with its checksum.
    #[inline]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut b = self.to_bytes_with_checksum(0);
        let sum: u32 = (0..10).map(|word| be16(&b, 2 * word) as u32).sum();
        // The sum of ten words is below 2^20: the first fold may carry once more, the second never
        // does.
        let folded = (sum & 0xffff) + (sum >> 16);
        let checksum = !(folded + (folded >> 16)) as u16;
        b[10..12].copy_from_slice(&checksum.to_be_bytes());
        b
    }

    /// Writes the header with the given bits in the place of the checksum.
    #[inline]
    pub(crate) fn to_bytes_with_checksum(self, checksum: u16) -> [u8; Self::BYTES] {
        let mut b = [0; Self::BYTES];
        b[0] = 0x45;
        b[1] = self.type_of_service;
        b[2..4].copy_from_slice(&self.total_length.to_be_bytes());
        b[4..6].copy_from_slice(&self.identification.to_be_bytes());
        b[6] = (self.dont_fragment as u8) << 6;
        b[8] = self.time_to_live;
        b[9] = self.protocol;
        b[10..12].copy_from_slice(&checksum.to_be_bytes());
        b[12..16].copy_from_slice(&self.source.octets());
        b[16..].copy_from_slice(&self.destination.octets());
        b
    }

    /// The 40 bytes that a UD receiver finds before the payload of a datagram over IPv4: 20 zeros,
    /// then this header (annex A17.4.1).
    pub fn to_grh_area(self) -> [u8; 40] {
        let mut b = [0; 40];
        b[20..].copy_from_slice(&self.to_bytes());
        b
    }
}

/// The GID of an IPv4 address: ::ffff:a.b.c.d (annex A17.2).
pub const fn gid_of_ipv4(address: Ipv4Addr) -> Gid {
    Gid(address.to_ipv6_mapped().octets())
}

/// The IPv4 address of a GID of the form ::ffff:a.b.c.d.
pub fn ipv4_of_gid(gid: Gid) -> Option<Ipv4Addr> {
    core::net::Ipv6Addr::from(gid.0).to_ipv4_mapped()
}

/// A UDP header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Udp {
    /// Source port: RoCEv2 senders vary it per QP, so that switches spread the load.
    pub source_port: u16,
    /// Destination port: [`ROCE_V2_PORT`].
    pub destination_port: u16,
    /// Bytes of the datagram with this header.
    pub length: u16,
    /// Checksum, or 0 for none.
    pub checksum: u16,
}

impl Udp {
    /// Bytes on the wire.
    pub const BYTES: usize = 8;

    /// A RoCEv2 header, without a checksum, for a packet of `packet_bytes` (BTH to ICRC).
    #[inline]
    pub const fn roce(source_port: u16, packet_bytes: u16) -> Self {
        let length = packet_bytes.saturating_add(Self::BYTES as u16);
        Self { source_port, destination_port: ROCE_V2_PORT, length, checksum: 0 }
    }

    /// Reads the header.
    #[inline]
    pub const fn from_bytes(b: &[u8; Self::BYTES]) -> Self {
        Self {
            source_port: be16(b, 0),
            destination_port: be16(b, 2),
            length: be16(b, 4),
            checksum: be16(b, 6),
        }
    }

    /// Writes the header.
    #[inline]
    pub const fn to_bytes(self) -> [u8; Self::BYTES] {
        let [s0, s1] = self.source_port.to_be_bytes();
        let [d0, d1] = self.destination_port.to_be_bytes();
        let [l0, l1] = self.length.to_be_bytes();
        let [c0, c1] = self.checksum.to_be_bytes();
        [s0, s1, d0, d1, l0, l1, c0, c1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_checksum_folds_twice() {
        // All words near 0xffff: the first fold carries.
        let header = Ipv4 {
            type_of_service: 0xff,
            total_length: 0xffff,
            identification: 0xffff,
            dont_fragment: true,
            time_to_live: 0xff,
            protocol: 0xff,
            source: Ipv4Addr::BROADCAST,
            destination: Ipv4Addr::BROADCAST,
        };
        let b = header.to_bytes();
        let sum: u32 = (0..10).map(|word| be16(&b, 2 * word) as u32).sum();
        assert_eq!(sum % 0xffff, 0, "a header with its checksum sums to a multiple of 0xffff");
        assert_eq!(Ipv4::from_bytes(&b), Ok(header));
    }

    #[test]
    fn what_rocev2_does_not_allow_is_refused() {
        let good = Ipv4 {
            type_of_service: 0,
            total_length: 60,
            identification: 0,
            dont_fragment: true,
            time_to_live: 64,
            protocol: Ipv4::UDP,
            source: Ipv4Addr::LOCALHOST,
            destination: Ipv4Addr::LOCALHOST,
        }
        .to_bytes();
        let with = |at: usize, value: u8| {
            let mut b = good;
            b[at] = value;
            Ipv4::from_bytes(&b)
        };
        assert_eq!(with(0, 0x46), Err(ParseError::IpHeaderLength(6)));
        assert_eq!(with(0, 0x65), Err(ParseError::IpVersion(6)));
        assert_eq!(with(6, 0x20), Err(ParseError::Fragment));
        assert_eq!(with(7, 1), Err(ParseError::Fragment));
        assert_eq!(with(6, 0x80), Err(ParseError::IpReservedFlag));
    }

    #[test]
    fn gids_of_ipv4_addresses() {
        let address = Ipv4Addr::new(10, 77, 0, 3);
        let gid = gid_of_ipv4(address);
        assert_eq!(gid.0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 3]);
        assert_eq!(ipv4_of_gid(gid), Some(address));
        assert_eq!(ipv4_of_gid(Gid::default()), None);
    }
}
