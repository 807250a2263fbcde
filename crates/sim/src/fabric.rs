//! The fabric: a link from each adapter to one switch, which cuts through; two adapters may be
//! connected back to back.

use crate::packets::Packets;
use crate::parameters::Parameters;
use crate::time::{Ps, Rate};

/// A kind of link, and the values of parameters that make it: each beats the profile's.
pub type LinkValues = [(&'static str, f64); 2];

/// Bytes of an InfiniBand packet besides payload: LRH 8, BTH 12, ICRC 4, VCRC 2 (IBA vol. 1, 5.2).
const INFINIBAND: f64 = 26.0;
/// Bytes of a packet of RoCE as adapters of 2010 had it, on Ethernet: preamble 8, header 14, GRH
/// 40, BTH 12, ICRC 4, FCS 4, gap 12 (IBA annex A16).
const ROCE: f64 = 94.0;

/// The links that there are, of four lanes: their data rates after coding, in 10^6 bytes a second.
const LINKS: [(&str, f64, f64); 7] = [
    ("sdr", 1_000.0, INFINIBAND),
    ("ddr", 2_000.0, INFINIBAND),
    ("qdr", 4_000.0, INFINIBAND),
    // 14.0625 Gb/s a lane, 64b/66b.
    ("fdr", 6_818.0, INFINIBAND),
    // 25.78125 Gb/s a lane, 64b/66b.
    ("edr", 12_500.0, INFINIBAND),
    ("hdr", 25_000.0, INFINIBAND),
    ("roce10", 1_250.0, ROCE),
];

/// The values of a link by its name; `None` if there is none of this name.
#[must_use]
pub fn link_values(name: &str) -> Option<LinkValues> {
    let (_, rate, overhead) = LINKS.iter().find(|(link, ..)| *link == name)?;
    Some([("link_mb_per_s", *rate), ("packet_overhead_bytes", *overhead)])
}

/// The links and the switch.
#[derive(Debug)]
pub(crate) struct Fabric {
    rate: Rate,
    overhead: u64,
    mtu: u64,
    pub(crate) propagation: Ps,
    pub(crate) switch: Ps,
    pub(crate) has_switch: bool,
    /// When each adapter's link to the fabric is free.
    pub(crate) up_free: Vec<Ps>,
    /// When the link from the switch to each adapter is free.
    pub(crate) down_free: Vec<Ps>,
}

impl Fabric {
    pub(crate) fn new(parameters: &Parameters, nodes: usize) -> Fabric {
        Fabric {
            rate: parameters.link_mb_per_s,
            overhead: parameters.packet_overhead_bytes.into(),
            mtu: parameters.mtu_bytes.into(),
            propagation: parameters.propagation_ns,
            switch: parameters.switch_ns,
            has_switch: nodes > 2 || parameters.switch_between_two == 1,
            up_free: vec![Ps::ZERO; nodes],
            down_free: vec![Ps::ZERO; nodes],
        }
    }

    /// When no more than `bytes` wait for the link of a node.
    pub(crate) fn backlog_end(&self, node: usize, bytes: u64) -> Ps {
        self.up_free[node] - self.rate.time(bytes)
    }

    /// The time of the first packet on a link, and of all of them.
    pub(crate) fn times(&self, packets: &Packets) -> (Ps, Ps) {
        let (count, payload) = (packets.count(), packets.payload.len() as u64);
        let first = payload.min(self.mtu) + self.overhead;
        (self.rate.time(first), self.rate.time(payload + count * self.overhead))
    }
}
