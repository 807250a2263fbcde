//! The checksums of captured frames: the invariant CRC, and UDP's over IPv6.

use rdmalab_wire::frame::{Datagram, Network};
use rdmalab_wire::grh::Grh;
use rdmalab_wire::icrc::Icrc;
use rdmalab_wire::ip::{Ethernet, Ipv4, Udp};
use rdmalab_wire::packet::ICRC_BYTES;

use super::{DATA_AT, ENHANCED_PACKET, SPOILT, UNFINISHED, word};
use crate::address::FRAME_HEADER_BYTES;

/// Flows whose headers are known at a time.
const FLOWS: usize = 16;
/// Bytes below the BTH of a frame over IPv4.
pub(super) const V4_BYTES: usize = Ethernet::BYTES + Ipv4::BYTES + Udp::BYTES;
/// Bytes below the BTH of a frame over IPv6.
pub(super) const V6_BYTES: usize = FRAME_HEADER_BYTES;
/// Offset of UDP's checksum in a frame over IPv6.
pub(super) const CHECKSUM_AT: usize = V6_BYTES - 2;

/// Computes the checksums of captured packets. Most frames have the same bytes below the BTH as an
/// earlier one, so it keeps what the checksums are after these.
#[derive(Debug, Default)]
pub struct Checksums {
    known: [Option<Known>; FLOWS],
}

/// What the checksums are after the bytes below the BTH.
#[derive(Clone, Debug)]
struct Known {
    below: [u8; V6_BYTES],
    below_bytes: usize,
    frame_bytes: usize,
    icrc: Icrc,
    /// The sum of the pseudo header and of UDP's header, over IPv6.
    sum: u64,
}

impl Checksums {
    /// Computes the checksums of the packets among `blocks`, which [`super::packet()`] and the like
    /// wrote.
    pub fn finish(&mut self, blocks: &mut [u8]) {
        let mut rest = blocks;
        while let (Some(kind), Some(length)) = (word(rest, 0), word(rest, 4)) {
            let Some((this, after)) =
                std::mem::take(&mut rest).split_at_mut_checked(length as usize)
            else {
                return;
            };
            if kind == ENHANCED_PACKET {
                self.finish_one(this);
            }
            rest = after;
            if length == 0 {
                return;
            }
        }
    }

    fn finish_one(&mut self, block: &mut [u8]) -> Option<()> {
        let interface = word(block, 8)?;
        let (kept, length) = (word(block, 20)? as usize, word(block, 24)? as usize);
        if interface & UNFINISHED == 0 {
            return Some(());
        }
        mark_finished(block);
        if kept < length {
            return Some(());
        }
        let frame = block.get_mut(DATA_AT..DATA_AT + kept)?;
        let known = self.known(frame)?;
        let (below, packet) = frame.split_at_mut_checked(known.below_bytes)?;
        // A complete packet has a CRC already, right or wrong. Zero marks one to be computed.
        if packet.last_chunk::<ICRC_BYTES>() == Some(&[0; ICRC_BYTES]) {
            let damage = if interface & SPOILT != 0 { u32::MAX } else { 0 };
            let icrc = known.icrc.clone().of_packet_in_place(packet) ^ damage;
            *packet.last_chunk_mut()? = icrc.to_le_bytes();
        }
        if let Some(below) = below.first_chunk_mut::<V6_BYTES>() {
            let checksum = folded(known.sum + sum(packet));
            below[CHECKSUM_AT..].copy_from_slice(&checksum);
        }
        Some(())
    }

    /// What is known about the bytes below the BTH of `frame`.
    #[inline]
    fn known(&mut self, frame: &[u8]) -> Option<&Known> {
        let is_v6 = frame.get(..Ethernet::BYTES)?.ends_with(&Ethernet::IPV6.to_be_bytes());
        let below = frame.get(..if is_v6 { V6_BYTES } else { V4_BYTES })?;
        // Flows differ in the source port, and frames of one flow in the length.
        let [.., port, _, _, _, length, _, _] = below else { return None };
        let known = &mut self.known[usize::from(port ^ length >> 2) % FLOWS];
        let is_hit = known.as_ref().is_some_and(|known| known.is_of(below, frame.len()));
        if !is_hit {
            *known = Known::of(frame);
        }
        known.as_ref()
    }
}

impl Known {
    #[inline]
    fn is_of(&self, below: &[u8], frame_bytes: usize) -> bool {
        // Comparisons of constant length are cheap.
        let is_same = match (below.first_chunk::<V6_BYTES>(), below.first_chunk::<V4_BYTES>()) {
            (Some(below), _) => *below == self.below,
            (None, Some(below)) => self.below.first_chunk() == Some(below),
            (None, None) => false,
        };
        is_same && self.below_bytes == below.len() && self.frame_bytes == frame_bytes
    }

    #[cold]
    fn of(frame: &[u8]) -> Option<Known> {
        let Below { icrc, sum, is_v6 } = Below::of(frame)?;
        let below_bytes = if is_v6 { V6_BYTES } else { V4_BYTES };
        let mut below = [0; V6_BYTES];
        below[..below_bytes].copy_from_slice(frame.get(..below_bytes)?);
        Some(Known { below, below_bytes, frame_bytes: frame.len(), icrc, sum })
    }
}

/// The checksums of a frame after the bytes below the BTH.
pub(super) struct Below {
    pub(super) icrc: Icrc,
    /// As in [`Known`].
    pub(super) sum: u64,
    pub(super) is_v6: bool,
}

impl Below {
    /// `None` if the frame is damaged.
    pub(super) fn of(frame: &[u8]) -> Option<Below> {
        let datagram = Datagram::parse(frame.get(Ethernet::BYTES..)?).ok()?;
        let (below_bytes, below) = match &datagram.network {
            Network::V4(ip) => {
                let icrc = Icrc::ipv4(ip, &datagram.udp);
                (V4_BYTES, Below { icrc, sum: 0, is_v6: false })
            }
            Network::V6(ip) => {
                let addresses = sum(&ip.source.0) + sum(&ip.destination.0);
                let (next, length) = (u16::from(Grh::NEXT_UDP), datagram.udp.length);
                let udp = sum(&Udp { checksum: 0, ..datagram.udp }.to_bytes());
                let pseudo = addresses + u64::from(next.to_be()) + u64::from(length.to_be());
                let icrc = Icrc::ipv6(ip, &datagram.udp);
                (V6_BYTES, Below { icrc, sum: pseudo + udp, is_v6: true })
            }
        };
        (below_bytes + datagram.packet.len() == frame.len()).then_some(below)
    }
}

/// Removes the marks of a block whose checksums are not computed yet.
pub(super) fn mark_finished(block: &mut [u8]) {
    if let Some(interface) = word(block, 8) {
        block[8..12].copy_from_slice(&(interface & !(UNFINISHED | SPOILT)).to_ne_bytes());
    }
}

/// The sum of RFC 1071 before it is folded: of words of eight bytes in the byte order of the
/// machine, which gives the same as words of two bytes in that of the network.
#[inline(always)]
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let mut whole: u128 = words.iter().map(|word| u128::from(u64::from_ne_bytes(*word))).sum();
    // Nearly all packets are a multiple of 4.
    let (words, rest) = rest.as_chunks();
    if let [word] = words {
        whole += u128::from(u32::from_ne_bytes(*word));
    }
    if !rest.is_empty() {
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        whole += u128::from(u32::from_ne_bytes(last));
    }
    // 2^32 and 2^64 are 1 modulo 0xffff, as the sum counts.
    let (low, high) = (whole as u64, (whole >> 64) as u64);
    (low & 0xffff_ffff) + (low >> 32) + high
}

/// UDP's checksum over IPv6 (RFC 8200, 8.1) of a [`sum`], as bytes of the packet.
pub(super) fn folded(sum: u64) -> [u8; 2] {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let mut sum = (sum & 0xffff) + (sum >> 16);
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    match !(sum as u16) {
        0 => [0xff; 2],
        checksum => checksum.to_ne_bytes(),
    }
}
