//! A whole transport packet: base header, extended headers, payload, pad and invariant CRC: the
//! content of a RoCEv2 UDP datagram, or the part after LRH and GRH on InfiniBand links.

use crate::bytes::{Writer, take};
use crate::error::{EmitError, ParseError};
use crate::headers::{Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Ieth, ImmDt, Reth};
use crate::opcode::{Opcode, Operation};

/// Bytes of the longest headers: a BTH and the extended header of an atomic.
pub const MAX_HEADER_BYTES: usize = Bth::BYTES + AtomicEth::BYTES;

/// Bytes of the invariant CRC at the end of each packet.
pub const ICRC_BYTES: usize = 4;

/// Payload bytes of a congestion notification, all of them reserved (RoCEv2 annex A17.9.3).
pub const CNP_PAYLOAD_BYTES: usize = 16;

/// The pad that fills a payload of `bytes` to a multiple of four, 0 ..= 3.
#[inline]
pub const fn pad_count(bytes: usize) -> u8 {
    (bytes.wrapping_neg() & 3) as u8
}

/// The headers of a packet. An extended header is present exactly when the opcode has it; `emit`
/// refuses anything else.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct Headers {
    pub bth: Bth,
    pub deth: Option<Deth>,
    pub reth: Option<Reth>,
    pub atomic_eth: Option<AtomicEth>,
    pub aeth: Option<Aeth>,
    pub atomic_ack_eth: Option<AtomicAckEth>,
    pub immdt: Option<ImmDt>,
    pub ieth: Option<Ieth>,
}

impl Headers {
    /// A base header with nothing after it yet.
    pub const fn new(bth: Bth) -> Self {
        Self {
            bth,
            deth: None,
            reth: None,
            atomic_eth: None,
            aeth: None,
            atomic_ack_eth: None,
            immdt: None,
            ieth: None,
        }
    }

    /// Reads the headers off `input` and leaves payload and pad there.
    #[inline]
    fn take(input: &mut &[u8]) -> Result<Self, ParseError> {
        let bth = Bth::from_bytes(take(input)?)?;
        let op = bth.opcode;
        let mut headers = Self::new(bth);
        if op.has_deth() {
            headers.deth = Some(Deth::from_bytes(take(input)?));
        }
        if op.has_reth() {
            headers.reth = Some(Reth::from_bytes(take(input)?));
        }
        if op.has_atomic_eth() {
            headers.atomic_eth = Some(AtomicEth::from_bytes(take(input)?));
        }
        if op.has_aeth() {
            headers.aeth = Some(Aeth::from_bytes(take(input)?)?);
        }
        if op.has_atomic_ack_eth() {
            headers.atomic_ack_eth = Some(AtomicAckEth::from_bytes(take(input)?));
        }
        if op.has_immdt() {
            headers.immdt = Some(ImmDt::from_bytes(take(input)?));
        }
        if op.has_ieth() {
            headers.ieth = Some(Ieth::from_bytes(take(input)?));
        }
        Ok(headers)
    }

    /// Whether the extended headers are those of the opcode.
    #[inline]
    pub const fn fit_opcode(&self) -> bool {
        let op = self.bth.opcode;
        self.deth.is_some() == op.has_deth()
            && self.reth.is_some() == op.has_reth()
            && self.atomic_eth.is_some() == op.has_atomic_eth()
            && self.aeth.is_some() == op.has_aeth()
            && self.atomic_ack_eth.is_some() == op.has_atomic_ack_eth()
            && self.immdt.is_some() == op.has_immdt()
            && self.ieth.is_some() == op.has_ieth()
    }

    /// Writes the headers to the start of `out` and returns their length, for senders that gather
    /// the payload from elsewhere. [`MAX_HEADER_BYTES`] always suffice.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        if !self.fit_opcode() {
            return Err(EmitError::HeadersMismatch);
        }
        let needed = self.bth.opcode.header_bytes();
        if out.len() < needed {
            return Err(EmitError::BufferTooSmall { needed, got: out.len() });
        }
        let mut writer = Writer::new(out);
        writer.put(&self.bth.to_bytes());
        if let Some(deth) = &self.deth {
            writer.put(&deth.to_bytes());
        }
        if let Some(reth) = &self.reth {
            writer.put(&reth.to_bytes());
        }
        if let Some(atomic_eth) = &self.atomic_eth {
            writer.put(&atomic_eth.to_bytes());
        }
        if let Some(aeth) = &self.aeth {
            writer.put(&aeth.to_bytes());
        }
        if let Some(atomic_ack_eth) = &self.atomic_ack_eth {
            writer.put(&atomic_ack_eth.to_bytes());
        }
        if let Some(immdt) = &self.immdt {
            writer.put(&immdt.to_bytes());
        }
        if let Some(ieth) = &self.ieth {
            writer.put(&ieth.to_bytes());
        }
        Ok(writer.len())
    }
}

/// A packet whose form is valid: known opcode, its extended headers, a payload that the opcode may
/// have. Not checked are fields whose meaning depends on state (QP, PSN, length against the MTU),
/// and the CRC, which covers the headers below too: see [`crate::icrc::Icrc`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// The transport headers.
    pub headers: Headers,
    /// The payload, without pad.
    pub payload: &'a [u8],
    /// The invariant CRC as found or to be written; little-endian on the wire.
    pub icrc: u32,
}

impl<'a> Packet<'a> {
    /// Reads a packet that spans all of `bytes`, from BTH to ICRC: the payload of a UDP datagram.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let Some((mut rest, trailer)) = bytes.split_last_chunk::<ICRC_BYTES>() else {
            let needed = Bth::BYTES + ICRC_BYTES;
            return Err(ParseError::Truncated { needed, got: bytes.len() });
        };
        let headers = Headers::take(&mut rest).map_err(|error| match error {
            // Report the bounds of the whole packet, not those of the missing piece.
            ParseError::Truncated { needed, got } => {
                ParseError::Truncated { needed: bytes.len() + (needed - got), got: bytes.len() }
            }
            other => other,
        })?;
        let payload = Self::payload_of(&headers.bth, rest)?;
        Ok(Self { headers, payload, icrc: u32::from_le_bytes(*trailer) })
    }

    /// Cuts the pad off `padded` and checks that the opcode may carry what is left.
    #[inline]
    fn payload_of(bth: &Bth, padded: &'a [u8]) -> Result<&'a [u8], ParseError> {
        if !padded.len().is_multiple_of(4) {
            return Err(ParseError::Unaligned(padded.len()));
        }
        let Some(length) = padded.len().checked_sub(bth.pad_count as usize) else {
            return Err(ParseError::PadCount { pad: bth.pad_count, available: padded.len() });
        };
        if !payload_length_fits(bth.opcode, length) {
            return Err(ParseError::PayloadLength(length));
        }
        Ok(&padded[..length])
    }

    /// Where the payload lies in the bytes that [`Packet::parse`] read.
    #[inline]
    pub const fn payload_range(&self) -> core::ops::Range<usize> {
        let start = self.headers.bth.opcode.header_bytes();
        start..start + self.payload.len()
    }

    /// Bytes on the wire, from BTH to ICRC.
    #[inline]
    pub const fn wire_bytes(&self) -> usize {
        let payload = self.payload.len();
        self.headers.bth.opcode.header_bytes() + payload + pad_count(payload) as usize + ICRC_BYTES
    }

    /// Writes the packet to the start of `out`, with pad bytes of zero, and returns its length.
    /// `headers.bth.pad_count` must already be [`pad_count`] of the payload's length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let pad = pad_count(self.payload.len());
        if self.headers.bth.pad_count != pad {
            return Err(EmitError::PadCount(pad));
        }
        if !payload_length_fits(self.headers.bth.opcode, self.payload.len()) {
            return Err(EmitError::PayloadLength(self.payload.len()));
        }
        let (needed, got) = (self.wire_bytes(), out.len());
        let Some(out) = out.get_mut(..needed) else {
            return Err(EmitError::BufferTooSmall { needed, got });
        };
        let headers = self.headers.emit(out)?;
        let mut writer = Writer::new(&mut out[headers..]);
        writer.put(self.payload);
        writer.put(&[0; 3][..pad as usize]);
        writer.put(&self.icrc.to_le_bytes());
        Ok(needed)
    }
}

/// Whether a packet of `opcode` may have `bytes` of payload, at any path MTU.
const fn payload_length_fits(opcode: Opcode, bytes: usize) -> bool {
    match opcode.operation() {
        Operation::CongestionNotification => bytes == CNP_PAYLOAD_BYTES,
        _ => bytes == 0 || opcode.has_payload(),
    }
}
