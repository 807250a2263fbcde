//! The datagrams of the communication manager (IBA vol. 1, 12.6), which rdma_cm uses as well.
//!
//! Each is a management datagram of 256 bytes, sent to QP 1: a common header, the message, and
//! private data that fills the rest. Reserved fields, and the alternate path of a REQ, are ignored
//! when read and written as zero.

mod connect;
mod ip;
mod teardown;

pub use connect::{Path, Rep, Req, Rtu};
pub use ip::{IpHeader, port_space, service_id};
pub use teardown::{Drep, Dreq, Mra, Rej, SidrRep, SidrReq, reason};

use crate::bytes::{be16, be64};
use crate::error::ParseError;

/// Bytes of every management datagram.
pub const MAD_BYTES: usize = 256;
/// The Q_Key of QP 1 (IBA vol. 1, 3.5.3).
pub const GSI_QKEY: u32 = 0x8001_0000;

/// Bytes of the common header.
const HEADER_BYTES: usize = 24;
/// Bytes of a message with its private data.
pub(crate) const BODY_BYTES: usize = MAD_BYTES - HEADER_BYTES;

/// Base version 1, class 7 (communication management), class version 2, method Send.
const COMMON: [u8; 4] = [1, 7, 2, 3];

/// A message of the communication manager with its transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mad {
    /// The transaction identifier, the same in a request and in its answers.
    pub transaction: u64,
    /// The message.
    pub message: Message,
}

/// The messages between the ends of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Asks for a connection.
    Req(Req),
    /// Asks the peer to wait longer for an answer.
    Mra(Mra),
    /// Refuses.
    Rej(Rej),
    /// Accepts.
    Rep(Rep),
    /// Confirms: data may flow.
    Rtu(Rtu),
    /// Asks to end the connection.
    Dreq(Dreq),
    /// Confirms its end.
    Drep(Drep),
    /// Asks where datagrams for a service go.
    SidrReq(SidrReq),
    /// Answers a SIDR_REQ.
    SidrRep(SidrRep),
}

impl Message {
    /// The attribute identifier (IBA vol. 1, table 107).
    pub const fn attribute(&self) -> u16 {
        match self {
            Self::Req(_) => 0x10,
            Self::Mra(_) => 0x11,
            Self::Rej(_) => 0x12,
            Self::Rep(_) => 0x13,
            Self::Rtu(_) => 0x14,
            Self::Dreq(_) => 0x15,
            Self::Drep(_) => 0x16,
            Self::SidrReq(_) => 0x17,
            Self::SidrRep(_) => 0x18,
        }
    }

    /// The name in the specification.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Req(_) => "REQ",
            Self::Mra(_) => "MRA",
            Self::Rej(_) => "REJ",
            Self::Rep(_) => "REP",
            Self::Rtu(_) => "RTU",
            Self::Dreq(_) => "DREQ",
            Self::Drep(_) => "DREP",
            Self::SidrReq(_) => "SIDR_REQ",
            Self::SidrRep(_) => "SIDR_REP",
        }
    }
}

/// The addressee of a datagram: the process to which a receiver for the whole host passes it on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Addressee {
    /// The process that listens for a service.
    Service(u64),
    /// The process that chose this communication or request identifier.
    Communication(u32),
}

impl Mad {
    /// Reads a datagram.
    ///
    /// # Errors
    /// [`ParseError::LengthField`] if it is not 256 bytes long; [`ParseError::NextHeader`] with the
    /// attribute if it is of another class, version or method, or no message that is known.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let (header, body) = split(bytes)?;
        let attribute = be16(header, 16);
        let message = match attribute {
            0x10 => Message::Req(Req::read(body)),
            0x11 => Message::Mra(Mra::read(body)),
            0x12 => Message::Rej(Rej::read(body)),
            0x13 => Message::Rep(Rep::read(body)),
            0x14 => Message::Rtu(Rtu::read(body)),
            0x15 => Message::Dreq(Dreq::read(body)),
            0x16 => Message::Drep(Drep::read(body)),
            0x17 => Message::SidrReq(SidrReq::read(body)),
            0x18 => Message::SidrRep(SidrRep::read(body)),
            other => return Err(ParseError::NextHeader(other)),
        };
        Ok(Self { transaction: be64(header, 8), message })
    }

    /// Writes the datagram.
    pub fn to_bytes(&self) -> [u8; MAD_BYTES] {
        let mut bytes = [0; MAD_BYTES];
        bytes[..4].copy_from_slice(&COMMON);
        bytes[8..16].copy_from_slice(&self.transaction.to_be_bytes());
        bytes[16..18].copy_from_slice(&self.message.attribute().to_be_bytes());
        let mut body = [0; BODY_BYTES];
        match &self.message {
            Message::Req(m) => m.write(&mut body),
            Message::Mra(m) => m.write(&mut body),
            Message::Rej(m) => m.write(&mut body),
            Message::Rep(m) => m.write(&mut body),
            Message::Rtu(m) => m.write(&mut body),
            Message::Dreq(m) => m.write(&mut body),
            Message::Drep(m) => m.write(&mut body),
            Message::SidrReq(m) => m.write(&mut body),
            Message::SidrRep(m) => m.write(&mut body),
        }
        bytes[HEADER_BYTES..].copy_from_slice(&body);
        bytes
    }

    /// The addressee of a datagram.
    ///
    /// # Errors
    /// As [`Mad::parse`].
    pub fn addressee(bytes: &[u8]) -> Result<Addressee, ParseError> {
        Ok(match Mad::parse(bytes)?.message {
            Message::Req(m) => Addressee::Service(m.service_id),
            Message::SidrReq(m) => Addressee::Service(m.service_id),
            Message::Mra(m) => Addressee::Communication(m.remote_id),
            Message::Rej(m) => Addressee::Communication(m.remote_id),
            Message::Rep(m) => Addressee::Communication(m.remote_id),
            Message::Rtu(m) => Addressee::Communication(m.remote_id),
            Message::Dreq(m) => Addressee::Communication(m.remote_id),
            Message::Drep(m) => Addressee::Communication(m.remote_id),
            Message::SidrRep(m) => Addressee::Communication(m.request_id),
        })
    }
}

/// The common header and the message, if the header is that of the communication manager.
fn split(bytes: &[u8]) -> Result<(&[u8; HEADER_BYTES], &[u8; BODY_BYTES]), ParseError> {
    let whole: &[u8; MAD_BYTES] =
        bytes.try_into().map_err(|_| ParseError::LengthField(bytes.len()))?;
    let (Some(header), Some(body)) =
        (whole.first_chunk::<HEADER_BYTES>(), whole.last_chunk::<BODY_BYTES>())
    else {
        return Err(ParseError::LengthField(bytes.len()));
    };
    if header[..4] != COMMON {
        return Err(ParseError::NextHeader(be16(header, 16)));
    }
    Ok((header, body))
}

/// A copy of the bytes from `at` on, as many as the result holds.
pub(crate) fn piece<const N: usize>(body: &[u8; BODY_BYTES], at: usize) -> [u8; N] {
    let mut piece = [0; N];
    piece.copy_from_slice(&body[at..at + N]);
    piece
}

/// Writes a 24-bit number with the byte after it.
pub(crate) fn put24(body: &mut [u8; BODY_BYTES], at: usize, value: u32, after: u8) {
    body[at..at + 3].copy_from_slice(&value.to_be_bytes()[1..]);
    body[at + 3] = after;
}

/// Writes bytes.
pub(crate) fn put(body: &mut [u8; BODY_BYTES], at: usize, bytes: &[u8]) {
    body[at..at + bytes.len()].copy_from_slice(bytes);
}
