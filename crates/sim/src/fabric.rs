//! The fabric: a link from each adapter to a switch, which cuts through. There is one switch, or a
//! fat tree of two levels; two adapters may be connected back to back.

use crate::booking::Work;
use crate::ids::Switch;
use crate::packets::Packets;
use crate::parameters::Parameters;
use crate::shared::Shared;
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

/// Where a link of a switch leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextHop {
    /// To an adapter.
    Node(usize),
    /// To another switch.
    Switch(Switch),
}

/// The links and the switches.
#[derive(Debug)]
pub(crate) struct Fabric {
    rate: Rate,
    overhead: u64,
    pub(crate) propagation: Ps,
    pub(crate) switch: Ps,
    pub(crate) has_switch: bool,
    nodes: usize,
    /// Adapters at each leaf switch.
    leaf_ports: usize,
    leaves: usize,
    spines: usize,
    /// Each adapter's link to the fabric.
    pub(crate) up: Vec<Shared>,
    /// The links of switches: those to adapters, from leaves up, and from spines down.
    pub(crate) down: Vec<Shared>,
}

impl Fabric {
    pub(crate) fn new(parameters: &Parameters, nodes: usize) -> Fabric {
        let leaf_ports = match parameters.leaf_ports as usize {
            0 => nodes.max(1),
            ports => ports,
        };
        let leaves = nodes.div_ceil(leaf_ports);
        let spines = match parameters.leaf_uplinks as usize {
            _ if leaves < 2 => 0,
            0 => leaf_ports,
            uplinks => uplinks,
        };
        Fabric {
            rate: parameters.link_mb_per_s,
            overhead: parameters.packet_overhead_bytes.into(),
            propagation: parameters.propagation_ns,
            switch: parameters.switch_ns,
            has_switch: nodes > 2 || leaves > 1 || parameters.switch_between_two == 1,
            nodes,
            leaf_ports,
            leaves,
            spines,
            up: links(nodes),
            down: links(nodes + 2 * leaves * spines),
        }
    }

    /// The leaf switch of an adapter.
    pub(crate) fn leaf_of(&self, node: usize) -> Switch {
        Switch(node / self.leaf_ports)
    }

    /// Whether adapters are connected to this switch.
    fn is_leaf(&self, switch: Switch) -> bool {
        switch.0 < self.leaves
    }

    /// Where packets to an adapter leave a switch that they have reached. Those with the same
    /// `route` take the same spine switch.
    pub(crate) fn next(&self, at: Switch, to: usize, route: usize) -> NextHop {
        let leaf = self.leaf_of(to);
        match at {
            _ if at == leaf => NextHop::Node(to),
            _ if self.is_leaf(at) => NextHop::Switch(Switch(self.leaves + route % self.spines)),
            _ => NextHop::Switch(leaf),
        }
    }

    /// Where packets from one adapter to several leave a switch that they have reached: up once
    /// from the leaf of their sender, and down once to each other leaf.
    pub(crate) fn spread(
        &self,
        at: Switch,
        from: usize,
        to: &[usize],
        route: usize,
    ) -> Vec<NextHop> {
        let first = self.leaf_of(from);
        let mut ends: Vec<NextHop> = Vec::new();
        for node in to {
            let end = self.next(at, *node, route);
            let is_served = match end {
                NextHop::Node(_) => false,
                _ if self.is_leaf(at) => at != first,
                NextHop::Switch(leaf) => leaf == first,
            };
            if !is_served && (matches!(end, NextHop::Node(_)) || !ends.contains(&end)) {
                ends.push(end);
            }
        }
        ends
    }

    /// The index of a link of a switch among these.
    pub(crate) fn link_of(&self, at: Switch, end: NextHop) -> usize {
        let (leaves, spines) = (self.leaves, self.spines);
        match end {
            NextHop::Node(node) => node,
            NextHop::Switch(Switch(spine)) if at.0 < leaves => {
                self.nodes + at.0 * spines + (spine - leaves)
            }
            NextHop::Switch(Switch(leaf)) => {
                self.nodes + leaves * spines + (at.0 - leaves) * leaves + leaf
            }
        }
    }

    /// The time of so many bytes on a link.
    pub(crate) fn time(&self, bytes: u64) -> Ps {
        self.rate.time(bytes)
    }

    /// The time of packets on a link.
    pub(crate) fn work(&self, packets: &Packets) -> Work {
        let (count, payload) = (packets.count(), u64::from(packets.train.payload_bytes));
        let first = payload.min(packets.mtu.bytes().into()) + self.overhead;
        let all = payload + count * self.overhead;
        Work { first: self.rate.time(first), all: self.rate.time(all), packets: count }
    }
}

fn links(count: usize) -> Vec<Shared> {
    std::iter::repeat_with(Shared::default).take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::booking::Flow;
    use crate::span::Span;

    fn tree(leaf_ports: f64, leaf_uplinks: f64, nodes: usize) -> Fabric {
        let mut parameters = Parameters::least();
        parameters.set("leaf_ports", leaf_ports).unwrap();
        parameters.set("leaf_uplinks", leaf_uplinks).unwrap();
        Fabric::new(&parameters, nodes)
    }

    #[test]
    fn packets_take_the_way_over_their_spine() {
        let fabric = tree(4.0, 2.0, 10);
        let (leaf, spine) = (Switch, |index: usize| Switch(3 + index));
        assert_eq!(fabric.spread(leaf(0), 0, &[3], 3), [NextHop::Node(3)]);
        assert_eq!(fabric.spread(leaf(0), 0, &[9], 9), [NextHop::Switch(spine(1))]);
        assert_eq!(fabric.spread(spine(1), 0, &[9], 9), [NextHop::Switch(leaf(2))]);
        assert_eq!(fabric.spread(leaf(2), 0, &[9], 9), [NextHop::Node(9)]);
        // A group goes up once, and down once to each leaf.
        let group = [1, 3, 5, 6, 8];
        let up = [NextHop::Node(1), NextHop::Node(3), NextHop::Switch(spine(0))];
        assert_eq!(fabric.spread(leaf(0), 0, &group, 4), up);
        let down = [NextHop::Switch(leaf(1)), NextHop::Switch(leaf(2))];
        assert_eq!(fabric.spread(spine(0), 0, &group, 4), down);
        assert_eq!(fabric.spread(leaf(1), 0, &group, 4), [NextHop::Node(5), NextHop::Node(6)]);
    }

    fn use_link(fabric: &mut Fabric, at: Switch, end: NextHop) {
        let work = Work { first: Ps(1), all: Ps(1), packets: 1 };
        let index = fabric.link_of(at, end);
        fabric.down[index].pass(Span::default(), work, Flow::Node(0));
    }

    #[test]
    fn each_link_is_one_of_its_own() {
        let mut fabric = tree(2.0, 3.0, 6);
        let mut count = 0;
        for node in 0..6 {
            use_link(&mut fabric, Switch(node / 2), NextHop::Node(node));
            count += 1;
        }
        for (leaf, spine) in (0..3).flat_map(|leaf| (3..6).map(move |spine| (leaf, spine))) {
            use_link(&mut fabric, Switch(leaf), NextHop::Switch(Switch(spine)));
            use_link(&mut fabric, Switch(spine), NextHop::Switch(Switch(leaf)));
            count += 2;
        }
        assert_eq!((fabric.down.len(), count), (24, 24));
        assert!(fabric.down.iter().all(|link| link.free() == Ps(1)));
        // One switch for all has no other links.
        assert_eq!(tree(0.0, 0.0, 6).down.len(), 6);
        assert_eq!(tree(2.0, 0.0, 6).spines, 2);
    }
}
