//! Random numbers that follow from a seed and a packet.
//!
//! There is no generator whose state each call changes. So the order in which threads send does not
//! matter: the same packet draws the same number in each run.

use std::net::IpAddr;

use rdmalab_wire::ids::{MASK_24, Qpn};

use crate::packet::PacketInfo;

/// A seed, and which bits of a packet's queue pair numbers count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Draws {
    seed: u64,
    /// The bits of a queue pair's number that count.
    qp_mask: u32,
}

/// Mixes a number into a hash.
pub(crate) const fn mix(hash: u64, value: u64) -> u64 {
    rdmalab_random::nth(hash ^ value, 0)
}

fn mix_address(hash: u64, address: IpAddr) -> u64 {
    let bits = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    mix(mix(hash, bits as u64), (bits >> 64) as u64)
}

impl Draws {
    /// Numbers of this seed.
    pub const fn new(seed: u64) -> Draws {
        Draws { seed, qp_mask: MASK_24 }
    }

    /// Draws other numbers for each stream; stream 0 draws those of the seed itself.
    #[must_use]
    pub const fn with_stream(self, stream: u64) -> Draws {
        let seed = if stream == 0 { self.seed } else { mix(self.seed, stream) };
        Draws { seed, ..self }
    }

    /// Ignores all but the lower `bits` of a queue pair's number, if only those are the same in
    /// each run of a program: then a seed gives the same results again. For a multicast group the
    /// whole number counts, because it tells the members apart.
    #[must_use]
    pub const fn with_qp_bits(self, bits: u32) -> Draws {
        let bits = if bits < 24 { bits } else { 24 };
        Draws { qp_mask: (1u64 << bits) as u32 - 1, ..self }
    }

    /// A number for a label of a chain and a packet, evenly spread over all 64 bits.
    pub(crate) fn draw(&self, label: u32, packet: &PacketInfo) -> u64 {
        let flow = &packet.flow;
        let mut hash = mix(self.seed, u64::from(label));
        hash = mix_address(mix_address(hash, flow.source), flow.destination);
        let mask = match flow.destination_qp {
            Qpn::MULTICAST => u32::MAX,
            _ => self.qp_mask,
        };
        let of = |qp: Qpn| (qp.get() & mask) as u64;
        let ends = of(flow.destination_qp) << 32 | of(flow.source_qp);
        hash = mix(mix(hash, ends), flow.is_response as u64);
        let transmission = packet.transmission.unwrap_or_default();
        mix(hash, (packet.psn.get() as u64) << 32 | transmission as u64)
    }
}
