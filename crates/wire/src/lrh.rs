//! The link layer of InfiniBand: local route header and variant CRC, for captures of that link
//! type.

use crate::bytes::be16;
use crate::error::ParseError;
use crate::ids::Lid;

/// The header after a local route header (IBA vol. 1, 7.7.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum LinkNext {
    /// A raw packet that begins with an EtherType.
    Raw = 0,
    /// A raw IPv6 packet.
    RawIpv6 = 1,
    /// A base transport header: the packet stays in its subnet.
    Local = 2,
    /// A global route header.
    Global = 3,
}

/// A local route header (IBA vol. 1, 7.7).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lrh {
    /// Virtual lane, 0 ..= 15; switches may change it.
    pub virtual_lane: u8,
    /// Service level, 0 ..= 15.
    pub service_level: u8,
    /// The next header.
    pub next: LinkNext,
    /// LID of the receiver.
    pub destination: Lid,
    /// Length from this header up to and with the ICRC, in 4-byte words: 11 bits.
    pub packet_words: u16,
    /// LID of the sender.
    pub source: Lid,
}

impl Lrh {
    /// Bytes on the wire.
    pub const BYTES: usize = 8;

    /// Reads the header; refuses link versions other than 0.
    pub const fn from_bytes(b: &[u8; Self::BYTES]) -> Result<Self, ParseError> {
        if b[0] & 0x0f != 0 {
            return Err(ParseError::IpVersion(b[0] & 0x0f));
        }
        let next = match b[1] & 3 {
            0 => LinkNext::Raw,
            1 => LinkNext::RawIpv6,
            2 => LinkNext::Local,
            _ => LinkNext::Global,
        };
        Ok(Self {
            virtual_lane: b[0] >> 4,
            service_level: b[1] >> 4,
            next,
            destination: Lid(be16(b, 2)),
            packet_words: be16(b, 4) & 0x7ff,
            source: Lid(be16(b, 6)),
        })
    }

    /// Writes the header; bits beyond the width of a field are ignored.
    pub const fn to_bytes(self) -> [u8; Self::BYTES] {
        let [d0, d1] = self.destination.0.to_be_bytes();
        let [w0, w1] = (self.packet_words & 0x7ff).to_be_bytes();
        let [s0, s1] = self.source.0.to_be_bytes();
        let service = self.service_level << 4 | self.next as u8;
        [self.virtual_lane << 4, service, d0, d1, w0, w1, s0, s1]
    }
}

/// Bytes of the variant CRC at the end of each packet.
pub const VCRC_BYTES: usize = 2;

/// The generator x^16 + x^12 + x^3 + x + 1 of the variant CRC, reflected (IBA vol. 1, 7.8.2).
const VCRC_POLYNOMIAL: u16 = 0xd008;

const VCRC_TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u16;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (VCRC_POLYNOMIAL & (crc & 1).wrapping_neg());
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// The variant CRC of a packet's bytes, from the LRH up to and with the ICRC; to be stored
/// little-endian after them.
pub fn vcrc(bytes: &[u8]) -> u16 {
    !bytes
        .iter()
        .fold(0xffff, |crc: u16, &byte| (crc >> 8) ^ VCRC_TABLE[(crc as u8 ^ byte) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_the_specification_puts_them() {
        let bytes = [0x70, 0x12, 0x12, 0x34, 0x07, 0xff, 0x56, 0x78];
        let lrh = Lrh::from_bytes(&bytes).unwrap();
        let expected = Lrh {
            virtual_lane: 7,
            service_level: 1,
            next: LinkNext::Local,
            destination: Lid(0x1234),
            packet_words: 0x7ff,
            source: Lid(0x5678),
        };
        assert_eq!(lrh, expected);
        assert_eq!(lrh.to_bytes(), bytes);
        assert_eq!(Lrh::from_bytes(&[1, 2, 0, 0, 0, 0, 0, 0]), Err(ParseError::IpVersion(1)));
    }

    /// Division bit by bit in the order of the specification: bytes least significant bit first,
    /// the register's x^15 first. Shares nothing with the table.
    fn vcrc_by_division(bytes: &[u8]) -> [u8; 2] {
        let mut register = 0xffffu16;
        for byte in bytes {
            for bit in 0..8 {
                let out = register >> 15 ^ (byte >> bit & 1) as u16;
                register = (register << 1) ^ (0x100b * out);
            }
        }
        // The complement is sent with x^15 first, into the least significant bit of the first byte.
        (!register).reverse_bits().to_le_bytes()
    }

    #[test]
    fn vcrc_is_the_division_of_the_specification() {
        let mut bytes = [0u8; 64];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = (i * 37 + 11) as u8;
        }
        for length in 0..bytes.len() {
            let bytes = &bytes[..length];
            assert_eq!(vcrc(bytes).to_le_bytes(), vcrc_by_division(bytes));
        }
    }
}
