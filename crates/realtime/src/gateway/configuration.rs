//! The gateway of each rank, as a user would configure it.

use std::fmt::Write as _;
use std::net::IpAddr;

use rdmalab_config::{ConfigError, parse};
use rdmalab_experiments::{Common, Signal, Transport};
use rdmalab_gateway::Plan;

use super::options::{Gateway, Node};

/// Where both ranks meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address on which the receiver listens.
    pub address: IpAddr,
    /// The port there; also what names in shared memory end with.
    pub port: u16,
}

/// What a rank does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The source of the samples, and its path to the node.
    Source,
    /// The path from the node.
    Target,
    /// Both, in one gateway.
    Both,
    /// Nothing.
    Idle,
}

impl Part {
    /// What that rank does.
    pub fn of(rank: usize, own: &Gateway) -> Self {
        match (own.is_alone(), rank) {
            (true, 0) => Self::Both,
            (true, _) => Self::Idle,
            (false, 0) => Self::Source,
            (false, _) => Self::Target,
        }
    }

    /// The number of the path that reads the node, if there is one.
    pub fn reader(self) -> Option<usize> {
        match self {
            Self::Target => Some(0),
            Self::Both => Some(1),
            Self::Source | Self::Idle => None,
        }
    }
}

/// The checked configuration; `None` for a rank that is idle.
///
/// # Errors
/// What the gateway finds wrong, in one line.
pub fn plan(
    own: &Gateway,
    common: &Common,
    part: Part,
    place: Place,
) -> Result<Option<Plan>, String> {
    if part == Part::Idle {
        return Ok(None);
    }
    let text = text(own, common, part, place);
    let plan = parse("gateway", &text).and_then(|tree| Plan::check(&tree));
    let one_line = |errors: Vec<ConfigError>| {
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    plan.map(Some).map_err(one_line)
}

fn text(own: &Gateway, common: &Common, part: Part, place: Place) -> String {
    let (mut nodes, mut paths) = (String::new(), Vec::new());
    if matches!(part, Part::Source | Part::Both) {
        let limit = common.total();
        // Writing into a string cannot fail.
        let _ = write!(
            nodes,
            "source = {{ type = \"signal\", signal = \"mixed\", frequency = 3.0, values = {}, \
             rate = {}.0, limit = {limit}L, timer = \"{}\" }}, ",
            own.values, common.rate_per_s, own.timer
        );
        paths.push("{ in = \"source\", out = \"node\", connect_wait = 10.0 }".to_owned());
    }
    let node = |part| node(own, common, part, place);
    // The queue of loopback is one node. Of other types each end is one.
    let has_two = part == Part::Both && own.node != Node::Loopback;
    let reads = if has_two { "back" } else { "node" };
    if matches!(part, Part::Target | Part::Both) {
        paths.push(format!("{{ in = \"{reads}\" }}"));
    }
    if has_two {
        let _ = write!(nodes, "back = {{ {} }}, ", node(Part::Target));
    }
    let node = node(if has_two { Part::Source } else { part });
    format!("nodes = {{ {nodes}node = {{ {node} }} }}, paths = ( {} )", paths.join(", "))
}

/// The keys of the node under test.
fn node(own: &Gateway, common: &Common, part: Part, place: Place) -> String {
    let signals = format!("signals = {{ count = {}, type = \"float\" }}", own.values);
    let Place { address, port } = place;
    let buffers = own.buffers;
    match (own.node, part) {
        (Node::Loopback, _) => {
            // A wake-up per sample would be measured in place of the timer.
            format!(
                "type = \"loopback\", mode = \"polling\", queuelen = {buffers}, \
                 in = {{ {signals} }}"
            )
        }
        (Node::Shmem, _) => {
            let names = match part {
                Part::Target => ["there", "back"],
                _ => ["back", "there"],
            };
            let [reads, writes] = names.map(|name| format!("/rdmalab-{port}-{name}"));
            format!(
                "type = \"shmem\", mode = \"polling\", queuelen = {buffers}, \
                 in = {{ name = \"{reads}\", {signals} }}, out = {{ name = \"{writes}\" }}"
            )
        }
        (Node::Socket, Part::Target) => format!(
            "type = \"socket\", layer = \"udp\", in = {{ address = \"{address}:{port}\", \
             {signals} }}"
        ),
        (Node::Socket, _) => {
            let there = format!("out = {{ address = \"{address}:{port}\" }}");
            format!("type = \"socket\", layer = \"udp\", {there}")
        }
        (Node::Zeromq | Node::Nanomsg, part) => {
            let [reads, writes] = match own.node {
                Node::Zeromq => ["subscribe", "publish"],
                _ => ["endpoints", "endpoints"],
            };
            // The format with all of a value's bits, as the other node-types send it.
            let kind = format!("type = \"{}\", format = \"rdmalab.binary\"", own.node);
            let at = format!("\"tcp://{address}:{port}\"");
            match part {
                Part::Target => format!("{kind}, in = {{ {reads} = {at}, {signals} }}"),
                _ => format!("{kind}, out = {{ {writes} = {at}, queuelen = {buffers} }}"),
            }
        }
        (Node::Infiniband, Part::Target) => format!(
            "{}, in = {{ address = \"{address}:{port}\", max_wrs = {}, buffer_subtraction = 0, \
             prepost = {}, {signals} }}",
            infiniband(common),
            common.rx_depth,
            own.prepost
        ),
        (Node::Infiniband, _) => {
            let is_inline = own.is_inline(common);
            let every = match common.signal_every {
                Signal::Every(every) => every,
                Signal::Max => (common.tx_depth / 2).max(1),
            };
            format!(
                "{}, out = {{ address = \"{address}:{port}\", max_wrs = {}, \
                 send_inline = {is_inline}, periodic_signaling = {every} }}",
                infiniband(common),
                common.tx_depth
            )
        }
    }
}

fn infiniband(common: &Common) -> String {
    let transport = match common.transport {
        Transport::Rc => "RC",
        Transport::Uc => "UC",
        Transport::Ud => "UD",
    };
    // The other ones are found by the address.
    let index = common.gid_index.filter(|_| common.transport == Transport::Uc);
    let index = index.map_or_else(String::new, |index| format!(", gid_index = {index}"));
    format!("type = \"infiniband\", rdma_transport_mode = \"{transport}\"{index}")
}

#[cfg(test)]
mod tests {
    use rdmalab_experiments::Workload;

    use super::*;

    const PLACE: Place = Place { address: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), port: 4321 };

    #[test]
    fn every_node_type_has_a_configuration_for_both_ranks() {
        for &node in Node::ALL {
            let with =
                [1, 2].into_iter().flat_map(|ends| Transport::ALL.iter().map(move |t| (ends, *t)));
            for (ends, transport) in with {
                let gid_index = Some(2);
                let own = Gateway { node, ends, ..Gateway::OWN };
                let common = Common { transport, gid_index, ..Gateway::COMMON };
                let parts = [0, 1].map(|rank| Part::of(rank, &own));
                let plans = parts.map(|part| plan(&own, &common, part, PLACE).unwrap());
                let there = plans.map(|plan| plan.map(|plan| plan.describe()));
                let one = Some("1 node, 1 path".to_owned());
                let both = |nodes| [Some(format!("{nodes} nodes, 2 paths")), None];
                match (node, ends) {
                    (Node::Loopback, _) => assert_eq!(there, both(2)),
                    (_, 1) => assert_eq!(there, both(3)),
                    _ => assert_eq!(there, [Some("2 nodes, 1 path".to_owned()), one]),
                }
            }
        }
    }

    #[test]
    fn options_become_keys() {
        let own = Gateway { buffers: 16, prepost: false, ..Gateway::OWN };
        let common = Common { tx_depth: 64, rx_depth: 32, ..Gateway::COMMON };
        let to = text(&own, &common, Part::Target, PLACE);
        assert!(to.contains("max_wrs = 32, buffer_subtraction = 0, prepost = false"), "{to}");
        let from = |common: &Common| text(&own, common, Part::Source, PLACE);
        let keys = "max_wrs = 64, send_inline = true, periodic_signaling = 32 ";
        assert!(from(&common).contains(keys), "{}", from(&common));
        assert!(from(&common).contains("limit = 10100L, timer = \"timerfd\""));
        for &node in Node::ALL {
            let own = Gateway { node, ..own.clone() };
            let queue = text(&own, &common, Part::of(0, &own), PLACE);
            assert_eq!(queue.contains("queuelen = 16"), node.queue().is_some(), "{queue}");
        }
        let signal_every = Signal::Every(8);
        let inline = rdmalab_experiments::Inline::Bytes(87);
        let common = Common { signal_every, inline, ..common };
        assert!(from(&common).contains("send_inline = false, periodic_signaling = 8 "));
    }
}
