//! The global route header, which RoCEv2 writes as an IPv6 header: one layout, one struct.

use crate::bytes::{be16, be32};
use crate::error::ParseError;
use crate::ids::Gid;

/// A global route header (IBA vol. 1, 8.3), or the IPv6 header of a RoCEv2 packet (annex A17.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Grh {
    /// Traffic class: 8 bits, the low two of them congestion marks.
    pub traffic_class: u8,
    /// Flow label: 20 bits.
    pub flow_label: u32,
    /// Bytes after this header. GRH: up to and with the ICRC. IPv6: UDP header and its payload.
    pub payload_length: u16,
    /// The next header: [`Grh::NEXT_IBA`] or [`Grh::NEXT_UDP`].
    pub next_header: u8,
    /// Routers that the packet may still cross.
    pub hop_limit: u8,
    /// The sender's GID.
    pub source: Gid,
    /// The receiver's GID.
    pub destination: Gid,
}

impl Grh {
    /// Bytes on the wire.
    pub const BYTES: usize = 40;
    /// Next header: an IBA transport header.
    pub const NEXT_IBA: u8 = 0x1b;
    /// Next header: UDP.
    pub const NEXT_UDP: u8 = 17;

    /// Reads the header; refuses versions other than 6.
    #[inline]
    pub fn from_bytes(b: &[u8; Self::BYTES]) -> Result<Self, ParseError> {
        let word = be32(b, 0);
        if word >> 28 != 6 {
            return Err(ParseError::IpVersion((word >> 28) as u8));
        }
        let (mut source, mut destination) = (Gid::default(), Gid::default());
        source.0.copy_from_slice(&b[8..24]);
        destination.0.copy_from_slice(&b[24..]);
        Ok(Self {
            traffic_class: (word >> 20) as u8,
            flow_label: word & 0xf_ffff,
            payload_length: be16(b, 4),
            next_header: b[6],
            hop_limit: b[7],
            source,
            destination,
        })
    }

    /// Writes the header; only the low 20 bits of `flow_label` are used.
    #[inline]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let word = 6 << 28 | (self.traffic_class as u32) << 20 | self.flow_label & 0xf_ffff;
        let mut b = [0; Self::BYTES];
        b[..4].copy_from_slice(&word.to_be_bytes());
        b[4..6].copy_from_slice(&self.payload_length.to_be_bytes());
        b[6] = self.next_header;
        b[7] = self.hop_limit;
        b[8..24].copy_from_slice(&self.source.0);
        b[24..].copy_from_slice(&self.destination.0);
        b
    }
}
