//! The first of two passes over a capture: which directions belong together, in bounded memory. The
//! second pass then knows the place of each packet when it comes.

use std::collections::{BTreeMap, HashMap};

use rdmalab_wire::opcode::Transport;

use crate::conversation::pairing::{Flow, Flows};
use crate::conversation::{Direction, Endpoint, inner_bytes};
use crate::packet::Seen;

/// Directions that are told apart; packets of further ones have no place.
pub const FLOWS_MAX: usize = 1 << 17;
/// PSNs that are kept of all directions together, and of each one, to find which belong together.
pub const PSNS_MAX: usize = 1 << 21;
/// PSNs that are kept of each direction.
pub const PSNS_EACH_MAX: usize = 1 << 12;

/// Two ends that exchange packets.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The transport of its packets.
    pub transport: Transport,
    /// The end that sent the first packet.
    pub a: Endpoint,
    /// The other one.
    pub b: Endpoint,
    /// Whether the direction from b to a was seen too.
    pub has_both: bool,
    /// The largest payload of a packet of the other direction or this one that was not the last of
    /// its message: the path MTU. `None` if no message has several packets.
    pub mtu_bytes: Option<u32>,
}

/// Collects what a pass over all packets tells.
pub struct Survey {
    flows: Flows,
    /// By flow: the largest inner packet.
    mtus: HashMap<Flow, u32>,
}

impl Default for Survey {
    fn default() -> Self {
        let flows = Flows::limited(FLOWS_MAX, PSNS_MAX, PSNS_EACH_MAX);
        Self { flows, mtus: HashMap::new() }
    }
}

/// The place of each direction.
#[derive(Debug, Default)]
pub struct Directory {
    /// The pairs, in the order of their first packets.
    pub pairs: Vec<Pair>,
    /// PSNs that more than [`SHARERS_MAX`](crate::conversation::SHARERS_MAX) directions between two
    /// addresses used: they are not used to find which directions belong together.
    pub crowded_psns: usize,
    /// Whether there were more than [`FLOWS_MAX`] directions.
    pub is_full: bool,
    places: HashMap<Flow, (usize, Direction)>,
}

impl Survey {
    /// Adds a packet. Packets come in order of time.
    pub fn take(&mut self, packet: &Seen) {
        if let (true, Some(bytes)) = (self.flows.take(packet), inner_bytes(packet)) {
            let mtu = self.mtus.entry(Flow::of(packet)).or_default();
            *mtu = bytes.max(*mtu);
        }
    }

    /// Finds which directions belong together.
    #[must_use]
    pub fn finish(self) -> Directory {
        let is_full = self.flows.is_full();
        let (partners, crowded_psns) = self.flows.pairs();
        let mut found = Directory { crowded_psns, is_full, ..Directory::default() };
        for flow in self.flows.in_order() {
            if found.places.contains_key(flow) {
                continue;
            }
            let answer = partners.get(flow);
            let other = answer.filter(|answer| *answer != flow);
            let number = found.pairs.len();
            found.places.insert(*flow, (number, Direction::Forward));
            found.places.extend(other.map(|other| (*other, (number, Direction::Back))));
            let (a, b) = flow.ends(answer);
            let mtus = [Some(flow), other].into_iter().flatten();
            let mtu_bytes = mtus.filter_map(|flow| self.mtus.get(flow)).max().copied();
            let (transport, has_both) = (flow.service(), answer.is_some());
            found.pairs.push(Pair { transport, a, b, has_both, mtu_bytes });
        }
        found
    }
}

impl Directory {
    /// The number of a packet's pair in [`Directory::pairs`], and its direction. `None` if there
    /// were too many directions.
    #[must_use]
    pub fn place(&self, packet: &Seen) -> Option<(usize, Direction)> {
        self.places.get(&Flow::of(packet)).copied()
    }

    /// Pairs of which only one direction was found, by transport, if they are of RC.
    #[must_use]
    pub fn halves(&self) -> usize {
        let rc = self.pairs.iter().filter(|pair| pair.transport == Transport::Rc);
        rc.filter(|pair| !pair.has_both).count()
    }

    /// The number of pairs of each transport.
    #[must_use]
    pub fn transports(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for pair in &self.pairs {
            *counts.entry(crate::show::transport(pair.transport)).or_default() += 1;
        }
        counts
    }
}
