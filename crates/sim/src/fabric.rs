//! The fabric: a link from each adapter to one switch, which cuts through; two adapters may be
//! connected back to back.

use crate::packets::Packets;
use crate::parameters::Parameters;
use crate::time::{Ps, Rate};

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
