//! The invariant CRC: CRC-32 over all fields that no switch or router may change, with all other
//! fields read as ones (IBA vol. 1, 7.8.1; RoCEv2 annex A17.3.3); and the recovery of an IPv4
//! identification from it.

use crate::grh::Grh;
use crate::headers::Bth;
use crate::ip::{Ipv4, Udp};
use crate::lrh::Lrh;
use crate::packet::ICRC_BYTES;

/// A running invariant CRC: start it with the headers below the transport, add the transport
/// headers, then payload and pad in any number of pieces, and finish it.
#[derive(Clone, Debug)]
pub struct Icrc {
    hasher: crc32fast::Hasher,
}

/// Bytes of the longest headers below the transport, and of a BTH.
const HEAD_BYTES: usize = Lrh::BYTES + Grh::BYTES + Udp::BYTES + Bth::BYTES;

/// The LRH of a packet that crosses routers or has no LRH: all of it is masked.
const MASKED_LRH: [u8; Lrh::BYTES] = [0xff; Lrh::BYTES];

impl Icrc {
    fn start(pieces: &[&[u8]]) -> Self {
        let mut hasher = crc32fast::Hasher::new();
        for piece in pieces {
            hasher.update(piece);
        }
        Self { hasher }
    }

    /// Starts a RoCEv2 packet over IPv4: type of service, time to live and both checksums are
    /// masked.
    #[inline]
    pub fn ipv4(ip: &Ipv4, udp: &Udp) -> Self {
        Self::start(&[&masked_ipv4(ip, udp)])
    }

    /// The CRC that a RoCEv2 packet over IPv4 (BTH to ICRC) should end with.
    #[inline]
    pub fn of_packet_over_ipv4(ip: &Ipv4, udp: &Udp, packet: &[u8]) -> u32 {
        Self::of_all(&masked_ipv4(ip, udp), packet)
    }

    /// The CRC that a RoCEv2 packet over IPv6 (BTH to ICRC) should end with.
    #[inline]
    pub fn of_packet_over_ipv6(ip: &Grh, udp: &Udp, packet: &[u8]) -> u32 {
        let mut below = [0xff; Lrh::BYTES + Grh::BYTES + Udp::BYTES];
        let (ip_at, udp_at) = (Lrh::BYTES, Lrh::BYTES + Grh::BYTES);
        below[ip_at..udp_at].copy_from_slice(&masked_grh(ip));
        below[udp_at..].copy_from_slice(&Udp { checksum: 0xffff, ..*udp }.to_bytes());
        Self::of_all(&below, packet)
    }

    /// Hashes all headers in one piece: each further piece costs about as much as a short packet.
    #[inline]
    fn of_all(below: &[u8], packet: &[u8]) -> u32 {
        let covered = &packet[..packet.len().saturating_sub(ICRC_BYTES)];
        let mut icrc = Self { hasher: crc32fast::Hasher::new() };
        let Some((bth, rest)) = covered.split_first_chunk::<{ Bth::BYTES }>() else {
            icrc.hasher.update(below);
            icrc.hasher.update(covered);
            return icrc.finish();
        };
        let mut head = [0; HEAD_BYTES];
        let end = below.len() + Bth::BYTES;
        head[..below.len()].copy_from_slice(below);
        head[below.len()..end].copy_from_slice(bth);
        head[below.len() + 4] = 0xff;
        icrc.hasher.update(&head[..end]);
        icrc.hasher.update(rest);
        icrc.finish()
    }

    /// Starts a RoCEv2 packet over IPv6, whose header is `ip`: traffic class, flow label, hop limit
    /// and UDP checksum are masked.
    #[inline]
    pub fn ipv6(ip: &Grh, udp: &Udp) -> Self {
        let udp = Udp { checksum: 0xffff, ..*udp }.to_bytes();
        Self::start(&[&MASKED_LRH, &masked_grh(ip), &udp])
    }

    /// Starts a packet of an InfiniBand link. Within a subnet (no GRH) only the virtual lane is
    /// masked; with a GRH, all of the LRH and the GRH's variant fields.
    pub fn infiniband(lrh: &Lrh, grh: Option<&Grh>) -> Self {
        match grh {
            Some(grh) => Self::start(&[&MASKED_LRH, &masked_grh(grh)]),
            None => Self::start(&[&Lrh { virtual_lane: 15, ..*lrh }.to_bytes()]),
        }
    }

    /// Feeds the first piece of the transport: at least the BTH, whose byte 4 is masked.
    #[inline]
    pub fn transport(&mut self, headers: &[u8]) {
        match headers.split_first_chunk::<12>() {
            Some((bth, rest)) => {
                let mut bth = *bth;
                bth[4] = 0xff;
                self.hasher.update(&bth);
                self.hasher.update(rest);
            }
            None => self.hasher.update(headers),
        }
    }

    /// Feeds further bytes: extended headers, payload, pad.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// The CRC, to be stored little-endian.
    #[inline]
    pub fn finish(self) -> u32 {
        self.hasher.finalize()
    }

    /// The CRC that the packet `bytes` (BTH to ICRC) should end with.
    #[inline]
    pub fn of_packet(mut self, bytes: &[u8]) -> u32 {
        self.transport(&bytes[..bytes.len().saturating_sub(ICRC_BYTES)]);
        self.finish()
    }

    /// The same, but masked within `bytes`, which are afterwards what they were: then everything is
    /// hashed in one piece.
    #[inline]
    pub fn of_packet_in_place(mut self, bytes: &mut [u8]) -> u32 {
        let covered = bytes.len().saturating_sub(ICRC_BYTES);
        match bytes[..covered].first_chunk_mut::<{ Bth::BYTES }>() {
            Some(bth) => {
                let marks = core::mem::replace(&mut bth[4], 0xff);
                self.update(&bytes[..covered]);
                bytes[4] = marks;
            }
            None => self.update(&bytes[..covered]),
        }
        self.finish()
    }
}

fn masked_ipv4(ip: &Ipv4, udp: &Udp) -> [u8; Lrh::BYTES + Ipv4::BYTES + Udp::BYTES] {
    let mut b = [0xff; Lrh::BYTES + Ipv4::BYTES + Udp::BYTES];
    b[8..28].copy_from_slice(&ip.to_bytes_with_checksum(0xffff));
    b[9] = 0xff;
    b[16] = 0xff;
    b[28..].copy_from_slice(&Udp { checksum: 0xffff, ..*udp }.to_bytes());
    b
}

fn masked_grh(grh: &Grh) -> [u8; Grh::BYTES] {
    let masked = Grh { traffic_class: 0xff, flow_label: 0xf_ffff, hop_limit: 0xff, ..*grh };
    masked.to_bytes()
}

/// The invariant CRC of a RoCEv2 packet over IPv4. `transport` is at least the BTH; the rest up to
/// and with the pad may follow in `pieces`.
#[inline]
pub fn icrc_ipv4(ip: &Ipv4, udp: &Udp, transport: &[u8], pieces: &[&[u8]]) -> u32 {
    gather(Icrc::ipv4(ip, udp), transport, pieces)
}

/// The invariant CRC of a RoCEv2 packet over IPv6; arguments as for [`icrc_ipv4`].
#[inline]
pub fn icrc_ipv6(ip: &Grh, udp: &Udp, transport: &[u8], pieces: &[&[u8]]) -> u32 {
    gather(Icrc::ipv6(ip, udp), transport, pieces)
}

#[inline]
fn gather(mut icrc: Icrc, transport: &[u8], pieces: &[&[u8]]) -> u32 {
    icrc.transport(transport);
    for piece in pieces {
        icrc.update(piece);
    }
    icrc.finish()
}

/// Recovers the IPv4 identification of a received packet: the CRC covers it, but a UDP socket does
/// not return it. `packet` is the whole UDP payload, BTH to ICRC; the identification in `ip` is
/// ignored. `None` when no identification gives that CRC: the packet is corrupt.
///
/// Of the 32 bits of the CRC, 16 determine the identification and 16 remain as a check: a random
/// corruption passes with probability 2^-16.
#[inline]
pub fn solve_ipv4_id(ip: &Ipv4, udp: &Udp, packet: &[u8]) -> Option<u16> {
    IdSolver::for_packet_bytes(packet.len()).solve(ip, udp, packet)
}

/// The part of [`solve_ipv4_id`] that depends on the packet's length only; keep it for a stream of
/// packets of one length.
///
/// A CRC is affine: with the identification as the polynomial `id` and everything else fixed,
/// `crc(id) = crc(0) + id * x^m mod P`, `m` counting the bits from its last one to the end of the
/// message and 32 more. `P` is primitive, so that `x^m` has an inverse, and one multiplication by
/// it yields `id`, if it is of degree below 16.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdSolver {
    packet_bytes: usize,
    inverse: u32,
}

impl IdSolver {
    /// A solver for packets of `packet_bytes`, BTH to ICRC.
    pub const fn for_packet_bytes(packet_bytes: usize) -> Self {
        // After the identification follow 14 bytes of IPv4 and 8 of UDP; the ICRC itself is not
        // covered, and its 4 bytes stand for the 32 zero bits that a CRC appends.
        let bytes = packet_bytes + (Ipv4::BYTES - 6) + Udp::BYTES;
        Self { packet_bytes, inverse: x_to_minus_8(bytes) }
    }

    /// The length of packets that this solver is for, BTH to ICRC.
    #[inline]
    pub const fn packet_bytes(&self) -> usize {
        self.packet_bytes
    }

    /// As [`solve_ipv4_id`]; `None` also when `packet` has another length.
    #[inline]
    pub fn solve(&self, ip: &Ipv4, udp: &Udp, packet: &[u8]) -> Option<u16> {
        let (covered, trailer) = packet.split_last_chunk::<ICRC_BYTES>()?;
        let zero_id = Ipv4 { identification: 0, ..*ip };
        let difference = icrc_ipv4(&zero_id, udp, covered, &[]) ^ u32::from_le_bytes(*trailer);
        if packet.len() != self.packet_bytes {
            return None;
        }
        self.solve_difference(difference)
    }

    /// The identification from the exclusive-or of the received CRC and the CRC computed with an
    /// identification of zero.
    #[inline]
    pub const fn solve_difference(&self, difference: u32) -> Option<u16> {
        let [high0, high1, first, second] = multiply(difference, self.inverse).to_le_bytes();
        if high0 | high1 != 0 { None } else { Some(u16::from_be_bytes([first, second])) }
    }
}

/// The generator polynomial without its x^32 term. As in every reflected CRC, bit 31 of a number is
/// the coefficient of x^0 and bit 0 that of x^31.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// The product of two polynomials modulo the generator.
#[inline]
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 0;
    while bit < 32 {
        // Masks, not branches: the bits are random, and a mispredicted branch costs more.
        product ^= b & ((a << bit) as i32 >> 31) as u32;
        b = (b >> 1) ^ (POLYNOMIAL & (b & 1).wrapping_neg());
        bit += 1;
    }
    product
}

/// x^(-8 * 2^k) for each k: the factor that undoes 2^k zero bytes.
const UNSHIFT_BYTES: [u32; usize::BITS as usize] = {
    // 1/x: the generator has the constant term 1, so P + 1 is divisible by x, and x * (P + 1)/x =
    // 1.
    let mut power = POLYNOMIAL << 1 | 1;
    let mut squarings = 0;
    while squarings < 3 {
        power = multiply(power, power);
        squarings += 1;
    }
    let mut table = [0; usize::BITS as usize];
    let mut k = 0;
    while k < table.len() {
        table[k] = power;
        power = multiply(power, power);
        k += 1;
    }
    table
};

/// x^(-8 * bytes).
const fn x_to_minus_8(bytes: usize) -> u32 {
    let mut power = 1 << 31;
    let mut rest = bytes;
    while rest != 0 {
        power = multiply(power, UNSHIFT_BYTES[rest.trailing_zeros() as usize]);
        rest &= rest - 1;
    }
    power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inverse_of_x_is_one() {
        let x = 1 << 30;
        let one = 1 << 31;
        assert_eq!(multiply(x, POLYNOMIAL << 1 | 1), one);
        // A byte of zeros is x^8; 300 bytes take several entries of the table.
        let mut power = x_to_minus_8(300);
        for _ in 0..300 {
            power = multiply(power, 1 << 23);
        }
        assert_eq!(power, one);
    }
}
