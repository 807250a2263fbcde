//! Whole frames of captures: a RoCEv2 packet in Ethernet and IP, or a packet of an InfiniBand link.

use crate::bytes::{Writer, take};
use crate::error::{EmitError, ParseError};
use crate::grh::Grh;
use crate::icrc::Icrc;
use crate::ip::{Ethernet, Ipv4, ROCE_V2_PORT, Udp};
use crate::lrh::{LinkNext, Lrh, VCRC_BYTES, vcrc};

/// The network header below a RoCEv2 packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Network {
    V4(Ipv4),
    V6(Grh),
}

/// An IP datagram that carries a RoCEv2 packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// The IP header.
    pub network: Network,
    /// The UDP header.
    pub udp: Udp,
    /// BTH to ICRC, for [`crate::packet::Packet::parse`].
    pub packet: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Reads an IPv4 or IPv6 datagram (told apart by the version) that is UDP to the RoCEv2 port.
    /// Bytes after the datagram, such as Ethernet's padding, are ignored.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let mut rest = bytes;
        let (network, protocol, length) = match bytes.first().map(|byte| byte >> 4) {
            Some(4) => {
                let ip = Ipv4::from_bytes(take(&mut rest)?)?;
                let length = (ip.total_length as usize)
                    .checked_sub(Ipv4::BYTES)
                    .ok_or(ParseError::LengthField(ip.total_length as usize))?;
                (Network::V4(ip), ip.protocol, length)
            }
            Some(6) => {
                let ip = Grh::from_bytes(take(&mut rest)?)?;
                (Network::V6(ip), ip.next_header, ip.payload_length as usize)
            }
            Some(version) => return Err(ParseError::IpVersion(version)),
            None => {
                return Err(ParseError::Truncated { needed: Ipv4::BYTES, got: 0 });
            }
        };
        if protocol != Ipv4::UDP {
            return Err(ParseError::NextHeader(protocol as u16));
        }
        let mut rest = cut(rest, length)?;
        let udp = Udp::from_bytes(take(&mut rest)?);
        if udp.destination_port != ROCE_V2_PORT {
            return Err(ParseError::UdpPort(udp.destination_port));
        }
        if udp.length as usize != length {
            return Err(ParseError::LengthField(udp.length as usize));
        }
        Ok(Self { network, udp, packet: rest })
    }

    /// The invariant CRC that the packet should end with.
    pub fn icrc(&self) -> u32 {
        let start = match &self.network {
            Network::V4(ip) => Icrc::ipv4(ip, &self.udp),
            Network::V6(ip) => Icrc::ipv6(ip, &self.udp),
        };
        start.of_packet(self.packet)
    }

    /// Bytes on the wire, with the IP header.
    pub const fn wire_bytes(&self) -> usize {
        let network = match self.network {
            Network::V4(_) => Ipv4::BYTES,
            Network::V6(_) => Grh::BYTES,
        };
        network + Udp::BYTES + self.packet.len()
    }

    /// Writes the datagram to the start of `out` and returns its length. The length fields of the
    /// headers are written as they are.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let mut writer = writer_for(out, self.wire_bytes())?;
        match &self.network {
            Network::V4(ip) => writer.put(&ip.to_bytes()),
            Network::V6(ip) => writer.put(&ip.to_bytes()),
        }
        writer.put(&self.udp.to_bytes());
        writer.put(self.packet);
        Ok(writer.len())
    }
}

/// An Ethernet frame that carries a RoCEv2 packet, with at most one VLAN tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EthernetFrame<'a> {
    /// The Ethernet header; its EtherType is that of the IP header, not of the tag.
    pub ethernet: Ethernet,
    /// The VLAN tag: priority in bits 15:13, identifier in bits 11:0.
    pub vlan: Option<u16>,
    /// The IP datagram.
    pub datagram: Datagram<'a>,
}

impl<'a> EthernetFrame<'a> {
    /// Reads a frame, without its frame check sequence.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let mut rest = bytes;
        let mut ethernet = Ethernet::from_bytes(take(&mut rest)?);
        let mut vlan = None;
        if ethernet.ethertype == Ethernet::VLAN {
            let tag: &[u8; 4] = take(&mut rest)?;
            vlan = Some(u16::from_be_bytes([tag[0], tag[1]]));
            ethernet.ethertype = u16::from_be_bytes([tag[2], tag[3]]);
        }
        if !matches!(ethernet.ethertype, Ethernet::IPV4 | Ethernet::IPV6) {
            return Err(ParseError::NextHeader(ethernet.ethertype));
        }
        let datagram = Datagram::parse(rest)?;
        let expected = match datagram.network {
            Network::V4(_) => Ethernet::IPV4,
            Network::V6(_) => Ethernet::IPV6,
        };
        if ethernet.ethertype != expected {
            return Err(ParseError::NextHeader(ethernet.ethertype));
        }
        Ok(Self { ethernet, vlan, datagram })
    }

    /// Bytes on the wire, without the frame check sequence.
    pub const fn wire_bytes(&self) -> usize {
        let tag = if self.vlan.is_some() { 4 } else { 0 };
        Ethernet::BYTES + tag + self.datagram.wire_bytes()
    }

    /// Writes the frame to the start of `out`, without padding and frame check sequence, and
    /// returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let mut writer = writer_for(out, self.wire_bytes())?;
        match self.vlan {
            None => writer.put(&self.ethernet.to_bytes()),
            Some(tag) => {
                let outer = Ethernet { ethertype: Ethernet::VLAN, ..self.ethernet };
                writer.put(&outer.to_bytes());
                writer.put(&tag.to_be_bytes());
                writer.put(&self.ethernet.ethertype.to_be_bytes());
            }
        }
        let start = writer.len();
        Ok(start + self.datagram.emit(&mut out[start..])?)
    }
}

/// A packet of an InfiniBand link that carries the IBA transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InfinibandFrame<'a> {
    /// The local route header.
    pub lrh: Lrh,
    /// The global route header, if the packet may leave the subnet.
    pub grh: Option<Grh>,
    /// BTH to ICRC, for [`crate::packet::Packet::parse`].
    pub packet: &'a [u8],
    /// The variant CRC, if the capture contains it.
    pub vcrc: Option<u16>,
    covered: &'a [u8],
}

impl<'a> InfinibandFrame<'a> {
    /// Reads a packet from LRH to VCRC; the VCRC may be missing. Raw packets are refused.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let mut rest = bytes;
        let lrh = Lrh::from_bytes(take(&mut rest)?)?;
        let length = lrh.packet_words as usize * 4;
        let covered = cut(bytes, length)?;
        let Some(mut rest) = covered.get(Lrh::BYTES..) else {
            return Err(ParseError::LengthField(length));
        };
        let grh = match lrh.next {
            LinkNext::Local => None,
            LinkNext::Global => {
                let grh = Grh::from_bytes(take(&mut rest)?)?;
                if grh.next_header != Grh::NEXT_IBA {
                    return Err(ParseError::NextHeader(grh.next_header as u16));
                }
                if grh.payload_length as usize != rest.len() {
                    return Err(ParseError::LengthField(grh.payload_length as usize));
                }
                Some(grh)
            }
            LinkNext::Raw | LinkNext::RawIpv6 => {
                return Err(ParseError::NextHeader(lrh.next as u16));
            }
        };
        let vcrc =
            bytes[length..].first_chunk::<VCRC_BYTES>().map(|trailer| u16::from_le_bytes(*trailer));
        Ok(Self { lrh, grh, packet: rest, vcrc, covered })
    }

    /// The invariant CRC that the packet should end with.
    pub fn icrc(&self) -> u32 {
        Icrc::infiniband(&self.lrh, self.grh.as_ref()).of_packet(self.packet)
    }

    /// The variant CRC that should follow the packet.
    pub fn expected_vcrc(&self) -> u16 {
        vcrc(self.covered)
    }
}

/// Writes a packet of an InfiniBand link (`packet` is BTH to ICRC) with its variant CRC to the
/// start of `out` and returns its length. The length fields of the headers are written as they are.
pub fn emit_infiniband(
    lrh: &Lrh,
    grh: Option<&Grh>,
    packet: &[u8],
    out: &mut [u8],
) -> Result<usize, EmitError> {
    let covered = Lrh::BYTES + grh.map_or(0, |_| Grh::BYTES) + packet.len();
    let mut writer = writer_for(out, covered + VCRC_BYTES)?;
    writer.put(&lrh.to_bytes());
    if let Some(grh) = grh {
        writer.put(&grh.to_bytes());
    }
    writer.put(packet);
    let check = vcrc(&out[..covered]);
    out[covered..covered + VCRC_BYTES].copy_from_slice(&check.to_le_bytes());
    Ok(covered + VCRC_BYTES)
}

/// A writer over `out`, which must have `needed` bytes.
fn writer_for(out: &mut [u8], needed: usize) -> Result<Writer<'_>, EmitError> {
    if out.len() < needed {
        return Err(EmitError::BufferTooSmall { needed, got: out.len() });
    }
    Ok(Writer::new(out))
}

/// The first `length` bytes, or [`ParseError::Truncated`].
fn cut(bytes: &[u8], length: usize) -> Result<&[u8], ParseError> {
    bytes.get(..length).ok_or(ParseError::Truncated { needed: length, got: bytes.len() })
}
