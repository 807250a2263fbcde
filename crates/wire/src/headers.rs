//! The transport headers: a struct of fixed size for each, to read and to write. Fields that the
//! specification reserves are written as zero and ignored when read (IBA vol. 1, 9.2 and 9.3).

use crate::aeth::Syndrome;
use crate::bytes::{be16, be24, be32, be64};
use crate::error::ParseError;
use crate::ids::{Msn, PKey, Psn, QKey, Qpn, RKey};
use crate::opcode::Opcode;

/// The base transport header (IBA vol. 1, 9.2). Switches may change the low 6 bits of byte 4, so
/// the invariant CRC does not cover them: RoCEv2 uses two for congestion marks (annex A17).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bth {
    /// The operation of the packet, which determines the extended headers.
    pub opcode: Opcode,
    /// The responder should raise an event for the receive that this packet completes.
    pub solicited_event: bool,
    /// Path migration state: set in "migrated", where adapters without migration stay.
    pub mig_req: bool,
    /// Pad bytes after the payload, 0 ..= 3.
    pub pad_count: u8,
    /// The partition.
    pub pkey: PKey,
    /// Forward congestion mark.
    pub fecn: bool,
    /// Backward congestion mark.
    pub becn: bool,
    /// The QP that should receive the packet.
    pub dest_qp: Qpn,
    /// The requester wants an acknowledgement.
    pub ack_req: bool,
    /// The packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Bytes on the wire.
    pub const BYTES: usize = 12;

    /// A header with the given identity and every flag clear, in the default partition.
    pub const fn new(opcode: Opcode, dest_qp: Qpn, psn: Psn) -> Self {
        Self {
            opcode,
            solicited_event: false,
            mig_req: false,
            pad_count: 0,
            pkey: PKey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qp,
            ack_req: false,
            psn,
        }
    }

    /// Reads the header; refuses reserved opcodes and other transport versions.
    #[inline]
    pub const fn from_bytes(b: &[u8; Self::BYTES]) -> Result<Self, ParseError> {
        let Some(opcode) = Opcode::from_byte(b[0]) else {
            return Err(ParseError::ReservedOpcode(b[0]));
        };
        if b[1] & 0x0f != 0 {
            return Err(ParseError::TransportVersion(b[1] & 0x0f));
        }
        Ok(Self {
            opcode,
            solicited_event: b[1] & 0x80 != 0,
            mig_req: b[1] & 0x40 != 0,
            pad_count: b[1] >> 4 & 3,
            pkey: PKey(be16(b, 2)),
            fecn: b[4] & 0x80 != 0,
            becn: b[4] & 0x40 != 0,
            dest_qp: Qpn::new(be24(b, 5)),
            ack_req: b[8] & 0x80 != 0,
            psn: Psn::new(be24(b, 9)),
        })
    }

    /// Writes the header; only the low 2 bits of `pad_count` are used.
    #[inline]
    pub const fn to_bytes(self) -> [u8; Self::BYTES] {
        // In whole words: a header is often read again at once, and store-to-load forwarding fails
        // if a load needs the data of several smaller stores.
        let flags = (self.solicited_event as u32) << 7
            | (self.mig_req as u32) << 6
            | (self.pad_count as u32 & 3) << 4;
        let marks = (self.fecn as u32) << 7 | (self.becn as u32) << 6;
        let words = [
            (self.opcode.byte() as u32) << 24 | flags << 16 | self.pkey.0 as u32,
            marks << 24 | self.dest_qp.get() & 0xff_ffff,
            (self.ack_req as u32) << 31 | self.psn.get() & 0xff_ffff,
        ];
        let [a, b, c] = [words[0].to_be_bytes(), words[1].to_be_bytes(), words[2].to_be_bytes()];
        let mut out = [0; Self::BYTES];
        out.split_at_mut(4).0.copy_from_slice(&a);
        out.split_at_mut(4).1.split_at_mut(4).0.copy_from_slice(&b);
        out.split_at_mut(8).1.copy_from_slice(&c);
        out
    }
}

/// The RDMA extended header of WRITEs and READ requests (IBA vol. 1, 9.3.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reth {
    /// First byte to access, in the address space of the remote key.
    pub virtual_address: u64,
    /// The region or window to access.
    pub rkey: RKey,
    /// Bytes of the whole message, at most 2^31.
    pub dma_length: u32,
}

impl Reth {
    /// Bytes on the wire.
    pub const BYTES: usize = 16;

    /// Reads the header.
    #[inline]
    pub const fn from_bytes(b: &[u8; Self::BYTES]) -> Self {
        Self { virtual_address: be64(b, 0), rkey: RKey(be32(b, 8)), dma_length: be32(b, 12) }
    }

    /// Writes the header.
    #[inline]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut b = [0; Self::BYTES];
        b[..8].copy_from_slice(&self.virtual_address.to_be_bytes());
        b[8..12].copy_from_slice(&self.rkey.0.to_be_bytes());
        b[12..].copy_from_slice(&self.dma_length.to_be_bytes());
        b
    }
}

/// The ACK extended header (IBA vol. 1, 9.3.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aeth {
    /// ACK, RNR NAK or NAK, with its value.
    pub syndrome: Syndrome,
    /// Request messages that the responder has completed.
    pub msn: Msn,
}

impl Aeth {
    /// Bytes on the wire.
    pub const BYTES: usize = 4;

    /// Reads the header; refuses reserved syndromes.
    #[inline]
    pub const fn from_bytes(b: &[u8; Self::BYTES]) -> Result<Self, ParseError> {
        match Syndrome::from_byte(b[0]) {
            Some(syndrome) => Ok(Self { syndrome, msn: Msn::new(be24(b, 1)) }),
            None => Err(ParseError::ReservedSyndrome(b[0])),
        }
    }

    /// Writes the header.
    #[inline]
    pub const fn to_bytes(self) -> [u8; Self::BYTES] {
        ((self.syndrome.byte() as u32) << 24 | self.msn.get()).to_be_bytes()
    }
}

/// The atomic extended header (IBA vol. 1, 9.3.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AtomicEth {
    /// The 8 bytes to change, aligned to 8.
    pub virtual_address: u64,
    /// The region or window to access.
    pub rkey: RKey,
    /// The value to store (compare-and-swap) or to add (fetch-and-add).
    pub swap_or_add: u64,
    /// The value to compare with; unused by fetch-and-add.
    pub compare: u64,
}

impl AtomicEth {
    /// Bytes on the wire.
    pub const BYTES: usize = 28;

    /// Reads the header.
    #[inline]
    pub const fn from_bytes(b: &[u8; Self::BYTES]) -> Self {
        Self {
            virtual_address: be64(b, 0),
            rkey: RKey(be32(b, 8)),
            swap_or_add: be64(b, 12),
            compare: be64(b, 20),
        }
    }

    /// Writes the header.
    #[inline]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut b = [0; Self::BYTES];
        b[..8].copy_from_slice(&self.virtual_address.to_be_bytes());
        b[8..12].copy_from_slice(&self.rkey.0.to_be_bytes());
        b[12..20].copy_from_slice(&self.swap_or_add.to_be_bytes());
        b[20..].copy_from_slice(&self.compare.to_be_bytes());
        b
    }
}

/// The atomic acknowledge extended header (IBA vol. 1, 9.5.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AtomicAckEth {
    /// The value of the 8 bytes before the atomic.
    pub original: u64,
}

impl AtomicAckEth {
    /// Bytes on the wire.
    pub const BYTES: usize = 8;

    /// Reads the header.
    #[inline]
    pub const fn from_bytes(b: &[u8; Self::BYTES]) -> Self {
        Self { original: u64::from_be_bytes(*b) }
    }

    /// Writes the header.
    #[inline]
    pub const fn to_bytes(self) -> [u8; Self::BYTES] {
        self.original.to_be_bytes()
    }
}

/// The datagram extended header (IBA vol. 1, 9.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Deth {
    /// Must equal the queue key of the receiving QP.
    pub qkey: QKey,
    /// The QP that sent the datagram.
    pub source_qp: Qpn,
}

impl Deth {
    /// Bytes on the wire.
    pub const BYTES: usize = 8;

    /// Reads the header.
    #[inline]
    pub const fn from_bytes(b: &[u8; Self::BYTES]) -> Self {
        Self { qkey: QKey(be32(b, 0)), source_qp: Qpn::new(be24(b, 5)) }
    }

    /// Writes the header.
    #[inline]
    pub const fn to_bytes(self) -> [u8; Self::BYTES] {
        let [k0, k1, k2, k3] = self.qkey.0.to_be_bytes();
        let [_, q0, q1, q2] = self.source_qp.get().to_be_bytes();
        [k0, k1, k2, k3, 0, q0, q1, q2]
    }
}

/// Immediate data (IBA vol. 1, 9.3.6) as a number, most significant byte first on the wire. The
/// `imm_data` of a work request is the wire's bytes in memory order:
/// `ImmDt(u32::from_be(imm_data))`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ImmDt(pub u32);

impl ImmDt {
    /// Bytes on the wire.
    pub const BYTES: usize = 4;

    /// Reads the header.
    #[inline]
    pub const fn from_bytes(b: &[u8; Self::BYTES]) -> Self {
        Self(u32::from_be_bytes(*b))
    }

    /// Writes the header.
    #[inline]
    pub const fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0.to_be_bytes()
    }
}

/// The invalidate extended header (IBA vol. 1, 9.3.7): the remote key that a SEND with invalidate
/// invalidates.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ieth(pub RKey);

impl Ieth {
    /// Bytes on the wire.
    pub const BYTES: usize = 4;

    /// Reads the header.
    #[inline]
    pub const fn from_bytes(b: &[u8; Self::BYTES]) -> Self {
        Self(RKey(u32::from_be_bytes(*b)))
    }

    /// Writes the header.
    #[inline]
    pub const fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0.0.to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bth_fields_lie_where_the_specification_puts_them() {
        let bytes = [0x0a, 0xf0, 0x80, 0x01, 0xc0, 0x12, 0x34, 0x56, 0x80, 0xab, 0xcd, 0xef];
        let bth = Bth::from_bytes(&bytes).unwrap();
        let expected = Bth {
            opcode: Opcode::RcWriteOnly,
            solicited_event: true,
            mig_req: true,
            pad_count: 3,
            pkey: PKey(0x8001),
            fecn: true,
            becn: true,
            dest_qp: Qpn::new(0x12_3456),
            ack_req: true,
            psn: Psn::new(0xab_cdef),
        };
        assert_eq!(bth, expected);
        assert_eq!(bth.to_bytes(), bytes);
    }

    #[test]
    fn reserved_bits_are_ignored_and_not_repeated() {
        let plain = Bth::new(Opcode::RcSendOnly, Qpn::new(17), Psn::new(5)).to_bytes();
        let mut noisy = plain;
        noisy[4] |= 0x3f;
        noisy[8] |= 0x7f;
        assert_eq!(Bth::from_bytes(&noisy).unwrap().to_bytes(), plain);
        let deth = [0, 0, 0, 1, 0xff, 0, 0, 2];
        assert_eq!(Deth::from_bytes(&deth).to_bytes(), [0, 0, 0, 1, 0, 0, 0, 2]);
    }

    #[test]
    fn bad_base_headers_say_why() {
        let mut bytes = Bth::new(Opcode::RcSendOnly, Qpn::new(17), Psn::new(5)).to_bytes();
        bytes[1] |= 2;
        assert_eq!(Bth::from_bytes(&bytes), Err(ParseError::TransportVersion(2)));
        bytes[0] = 0xa4;
        assert_eq!(Bth::from_bytes(&bytes), Err(ParseError::ReservedOpcode(0xa4)));
        assert_eq!(Aeth::from_bytes(&[0x7f, 0, 0, 0]), Err(ParseError::ReservedSyndrome(0x7f)));
    }
}
