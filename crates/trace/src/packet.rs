//! A frame as a packet of the IBA transport.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use rdmalab_wire::error::ParseError;
use rdmalab_wire::frame::{Datagram, InfinibandFrame, Network};
use rdmalab_wire::ids::Gid;
use rdmalab_wire::ip::ipv4_of_gid;
use rdmalab_wire::packet::{Headers, Packet};

use crate::file::{Frame, Link};

/// The sender or receiver of a packet, from the network headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// An IP address, or a GID.
    Ip(Ipv6Addr),
    /// A local identifier, where a packet has no GRH.
    Lid(u16),
}

impl Address {
    fn of_v4(address: Ipv4Addr) -> Self {
        Self::Ip(address.to_ipv6_mapped())
    }

    fn of_gid(gid: Gid) -> Self {
        match ipv4_of_gid(gid) {
            Some(address) => Self::of_v4(address),
            None => Self::Ip(Ipv6Addr::from(gid.0)),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => match address.to_ipv4_mapped() {
                Some(v4) => f.pad(&v4.to_string()),
                None => f.pad(&address.to_string()),
            },
            Self::Lid(lid) => f.pad(&format!("LID {lid}")),
        }
    }
}

/// The result of checking the invariant CRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icrc {
    /// It is correct.
    Good,
    /// It is wrong; a receiver drops the packet.
    Bad,
    /// The capture did not keep all of the packet.
    Unknown,
}

/// A packet of the IBA transport, without its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The number of its frame in the file, as [`Frame::number`].
    pub frame: u64,
    /// The interface that captured it, as [`Frame::interface`].
    pub interface: u32,
    /// Since 1970, UTC, in nanoseconds.
    pub at_ns: u64,
    /// Its sender.
    pub from: Address,
    /// Its receiver.
    pub to: Address,
    /// The transport headers.
    pub headers: Headers,
    /// Bytes of payload, without pad.
    pub payload_bytes: usize,
    /// The first bytes of a management datagram's payload; empty for other packets.
    pub start: Vec<u8>,
    /// The result of checking the CRC.
    pub icrc: Icrc,
    /// The CRC itself, which tells most packets apart; 0 if the capture did not keep it.
    pub crc: u32,
    /// The capture's comment; this project's captures mark packets that never were on a wire.
    pub comment: String,
}

/// The queue pair of general services (IBA vol. 1, 3.9.4).
const GSI: u32 = 1;

/// Bytes of payload that [`Seen::start`] keeps: a management datagram (IBA vol. 1, 13.4.2).
pub const START_BYTES: usize = 256;

/// Why a frame is not an RDMA packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It carries another protocol: ARP, TCP, a datagram to another port.
    Foreign,
    /// It should be RDMA, and is not well formed.
    Malformed(ParseError),
}

impl Seen {
    /// Reads a frame.
    ///
    /// # Errors
    /// When it is of another protocol, or damaged.
    pub fn of(frame: &Frame) -> Result<Self, Unread> {
        let padded = padded(frame);
        let bytes = padded.as_deref().unwrap_or(&frame.bytes);
        let skip = |n: usize| bytes.get(n..).ok_or(Unread::Foreign);
        match frame.link {
            Link::Ethernet => Self::of_datagram(frame, behind_ethernet(bytes)?),
            Link::RawIp => Self::of_datagram(frame, bytes),
            Link::LinuxSll => Self::of_datagram(frame, behind_type(bytes, 14, 16)?),
            Link::LinuxSll2 => Self::of_datagram(frame, behind_type(bytes, 0, 20)?),
            Link::Null => Self::of_datagram(frame, skip(4)?),
            Link::Infiniband => Self::of_infiniband(frame, bytes),
            Link::Erf => Self::of_infiniband(frame, behind_erf(bytes)?),
            Link::Other(_) => Err(Unread::Foreign),
        }
    }

    fn of_datagram(frame: &Frame, bytes: &[u8]) -> Result<Self, Unread> {
        let datagram = Datagram::parse(bytes).map_err(unread)?;
        let (from, to) = match &datagram.network {
            Network::V4(ip) => (Address::of_v4(ip.source), Address::of_v4(ip.destination)),
            Network::V6(ip) => (Address::of_gid(ip.source), Address::of_gid(ip.destination)),
        };
        Self::of_packet(frame, from, to, datagram.packet, || datagram.icrc())
    }

    fn of_infiniband(frame: &Frame, bytes: &[u8]) -> Result<Self, Unread> {
        let packet = InfinibandFrame::parse(bytes).map_err(unread)?;
        let (from, to) = match &packet.grh {
            Some(grh) => (Address::of_gid(grh.source), Address::of_gid(grh.destination)),
            None => (Address::Lid(packet.lrh.source.0), Address::Lid(packet.lrh.destination.0)),
        };
        Self::of_packet(frame, from, to, packet.packet, || packet.icrc())
    }

    fn of_packet(
        frame: &Frame,
        from: Address,
        to: Address,
        bytes: &[u8],
        expected: impl FnOnce() -> u32,
    ) -> Result<Self, Unread> {
        let packet = Packet::parse(bytes).map_err(Unread::Malformed)?;
        let is_whole = frame.bytes.len() >= frame.original_bytes;
        let icrc = match is_whole {
            false => Icrc::Unknown,
            true if packet.icrc == expected() => Icrc::Good,
            true => Icrc::Bad,
        };
        Ok(Self {
            frame: frame.number,
            interface: frame.interface,
            at_ns: frame.at_ns,
            from,
            to,
            headers: packet.headers,
            payload_bytes: packet.payload.len(),
            start: match packet.headers.bth.dest_qp.get() {
                GSI => packet.payload[..packet.payload.len().min(START_BYTES)].to_vec(),
                _ => Vec::new(),
            },
            icrc,
            crc: if is_whole { packet.icrc } else { 0 },
            comment: frame.comment.clone(),
        })
    }
}

/// A copy of a truncated frame that has all its headers, padded with zeros to its original length,
/// so that its length fields agree.
fn padded(frame: &Frame) -> Option<Vec<u8>> {
    let kept = frame.bytes.len();
    let is_cut = kept < frame.original_bytes && frame.original_bytes <= FRAME_BYTES_MAX;
    (is_cut && kept >= HEADER_BYTES_MAX).then(|| {
        let mut bytes = frame.bytes.clone();
        bytes.resize(frame.original_bytes, 0);
        bytes
    })
}

/// The longest frame of a packet, with room for the headers below.
const FRAME_BYTES_MAX: usize = 16_384;
/// Bytes of all headers at most: the longest link header, IPv6, UDP, and an atomic request.
const HEADER_BYTES_MAX: usize = 20 + 40 + 8 + 12 + 28;

/// A frame whose addresses or ports are not those of RDMA is foreign; any other error is damage.
fn unread(error: ParseError) -> Unread {
    match error {
        ParseError::NextHeader(_)
        | ParseError::UdpPort(_)
        | ParseError::IpVersion(_)
        | ParseError::Fragment
        | ParseError::IpHeaderLength(_) => Unread::Foreign,
        other => Unread::Malformed(other),
    }
}

const VLAN: u16 = 0x8100;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// The bytes after the Ethernet header and its tags.
fn behind_ethernet(bytes: &[u8]) -> Result<&[u8], Unread> {
    let mut rest = bytes.get(12..).ok_or(Unread::Foreign)?;
    loop {
        let (kind, after) = rest.split_first_chunk::<2>().ok_or(Unread::Foreign)?;
        match u16::from_be_bytes(*kind) {
            VLAN => rest = after.get(2..).ok_or(Unread::Foreign)?,
            IPV4 | IPV6 => return Ok(after),
            _ => return Err(Unread::Foreign),
        }
    }
}

/// The bytes after a header of `length` bytes that has its protocol at `at`.
fn behind_type(bytes: &[u8], at: usize, length: usize) -> Result<&[u8], Unread> {
    let kind = bytes.get(at..at + 2).ok_or(Unread::Foreign)?;
    match u16::from_be_bytes([kind[0], kind[1]]) {
        IPV4 | IPV6 => bytes.get(length..).ok_or(Unread::Foreign),
        _ => Err(Unread::Foreign),
    }
}

/// The bytes after the header of an ERF record, which are an InfiniBand packet. The header has 16
/// bytes, and 8 more for each extension header (Endace, ERF types reference: type 21 is
/// InfiniBand).
fn behind_erf(bytes: &[u8]) -> Result<&[u8], Unread> {
    const INFINIBAND: u8 = 21;
    const MORE: u8 = 0x80;
    let kind = *bytes.get(8).ok_or(Unread::Foreign)?;
    if kind & !MORE != INFINIBAND {
        return Err(Unread::Foreign);
    }
    let mut at = 16;
    let mut more = kind & MORE != 0;
    while more {
        more = bytes.get(at).ok_or(Unread::Foreign)? & MORE != 0;
        at += 8;
    }
    bytes.get(at..).ok_or(Unread::Foreign)
}
