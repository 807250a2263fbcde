//! Errors of parsing and emitting packets.

use core::fmt;

/// Why a parser refused its bytes. Specification clauses: IBA vol. 1, 9.6 (packet header
/// validation) for the transport, 7.7 for the LRH, 8.3 for the GRH.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ParseError {
    /// The bytes end inside a header, a trailer or the length that a header promised.
    Truncated {
        /// The number of bytes needed.
        needed: usize,
        /// The number of bytes there are.
        got: usize,
    },
    /// The transport header version is not 0; holds the version.
    TransportVersion(u8),
    /// The opcode is reserved or of an unsupported transport (RD, XRC); holds the byte.
    ReservedOpcode(u8),
    /// The AETH syndrome is reserved; holds the byte.
    ReservedSyndrome(u8),
    /// Payload and pad together are not a multiple of four bytes; holds their length.
    Unaligned(usize),
    /// The pad count is larger than the payload with its pad.
    PadCount {
        /// The pad count, 1 ..= 3.
        pad: u8,
        /// Bytes between the headers and the ICRC.
        available: usize,
    },
    /// A payload length that the opcode cannot have: any on an ACK, a READ request or an atomic, or
    /// other than 16 bytes on a congestion notification. Holds the length without pad.
    PayloadLength(usize),
    /// The version field of an IP header, GRH or LRH is not the expected one; holds the field.
    IpVersion(u8),
    /// The IPv4 header has options, or claims to be shorter than 20 bytes; holds the length field
    /// in 4-byte words.
    IpHeaderLength(u8),
    /// A fragment of an IPv4 datagram, which RoCEv2 forbids.
    Fragment,
    /// The reserved IPv4 flag is set.
    IpReservedFlag,
    /// A length field is shorter than its own header, or disagrees with the layer below; holds it.
    LengthField(usize),
    /// The layer above is not the expected one; holds the EtherType, protocol or LRH next header.
    NextHeader(u16),
    /// The UDP destination port is not that of RoCEv2; holds the port.
    UdpPort(u16),
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { needed, got } => write!(f, "truncated: {got} of {needed} bytes"),
            Self::TransportVersion(v) => write!(f, "transport header version {v} is not 0"),
            Self::ReservedOpcode(b) => write!(f, "opcode {b:#04x} is reserved or unsupported"),
            Self::ReservedSyndrome(b) => write!(f, "AETH syndrome {b:#04x} is reserved"),
            Self::Unaligned(n) => write!(f, "payload and pad of {n} bytes, not a multiple of 4"),
            Self::PadCount { pad, available } => {
                write!(f, "pad count {pad} with {available} bytes of payload")
            }
            Self::PayloadLength(n) => write!(f, "the opcode cannot carry {n} payload bytes"),
            Self::IpVersion(v) => write!(f, "unexpected version field {v}"),
            Self::IpHeaderLength(n) => write!(f, "IPv4 header of {n} words, only 5 are supported"),
            Self::Fragment => write!(f, "fragment of an IPv4 datagram"),
            Self::IpReservedFlag => write!(f, "reserved IPv4 flag is set"),
            Self::LengthField(n) => write!(f, "length field {n} is inconsistent"),
            Self::NextHeader(n) => write!(f, "unexpected next header {n:#x}"),
            Self::UdpPort(p) => write!(f, "UDP port {p} is not RoCEv2's"),
        }
    }
}

impl core::error::Error for ParseError {}

/// Why a value cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum EmitError {
    /// The output is too short.
    BufferTooSmall {
        /// Bytes needed.
        needed: usize,
        /// Bytes available.
        got: usize,
    },
    /// An extended header that the opcode requires is missing, or one that it forbids is present.
    HeadersMismatch,
    /// The pad count does not fill the payload to a multiple of four bytes; holds the right count.
    PadCount(u8),
    /// The opcode cannot carry that payload; holds its length.
    PayloadLength(usize),
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BufferTooSmall { needed, got } => {
                write!(f, "buffer of {got} bytes, {needed} are needed")
            }
            Self::HeadersMismatch => write!(f, "extended headers do not fit the opcode"),
            Self::PadCount(right) => write!(f, "the pad count must be {right}"),
            Self::PayloadLength(n) => write!(f, "the opcode cannot carry {n} payload bytes"),
        }
    }
}

impl core::error::Error for EmitError {}
