//! Which two directions belong together.
//!
//! A packet of a connected transport names its receiver's queue pair and not its sender's. What the
//! connection manager agreed on is believed first. Without it, the directions between two addresses
//! whose answers fit each other's requests by PSN are a pair; starting PSNs are drawn at random, so
//! chance matches are rare.

use std::collections::{BTreeMap, BTreeSet};

use rdmalab_wire::opcode::{Operation, Transport};

use super::notes::Cm;
use super::{Conversation, Direction, End, Row};
use crate::packet::{Address, Seen};

/// Packets of one sender's address to one queue pair; of datagrams, from one queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flow {
    from: Address,
    to: Address,
    to_qpn: u32,
    from_qpn: Option<u32>,
    transport: u8,
}

impl Flow {
    fn of(packet: &Seen) -> Self {
        let bth = &packet.headers.bth;
        Self {
            from: packet.from,
            to: packet.to,
            to_qpn: bth.dest_qp.get(),
            from_qpn: packet.headers.deth.map(|deth| deth.source_qp.get()),
            transport: bth.opcode.transport() as u8,
        }
    }

    /// Whether the other flow could go the other way.
    fn could_answer(&self, other: &Self) -> bool {
        let numbers = match (self.from_qpn, other.from_qpn) {
            (Some(ours), Some(theirs)) => ours == other.to_qpn && theirs == self.to_qpn,
            (None, None) => true,
            _ => false,
        };
        numbers
            && self.from == other.to
            && self.to == other.from
            && self.transport == other.transport
    }
}

/// What a flow asks and answers, by PSN.
#[derive(Default)]
struct Psns {
    asked: BTreeSet<u32>,
    answered: BTreeSet<u32>,
}

impl Psns {
    /// How many of our answers fit the other's requests.
    fn fit(&self, other: &Self) -> usize {
        self.answered.intersection(&other.asked).count()
    }
}

/// Sorts packets, which come in order of time.
pub fn sort(packets: Vec<Seen>) -> Vec<Conversation> {
    let mut flows: BTreeMap<Flow, Psns> = BTreeMap::new();
    let mut agreed: BTreeSet<(Address, u32, Address, u32)> = BTreeSet::new();
    let mut asked: BTreeMap<u32, (Address, u32)> = BTreeMap::new();
    for packet in &packets {
        let psns = flows.entry(Flow::of(packet)).or_default();
        let (opcode, psn) = (packet.headers.bth.opcode, packet.headers.bth.psn.get());
        let set = if opcode.is_response() { &mut psns.answered } else { &mut psns.asked };
        set.insert(psn);
        match Cm::of(packet) {
            Some(Cm { name: "REQ", local, qpn: Some(qpn), .. }) => {
                asked.insert(local, (packet.from, qpn));
            }
            Some(Cm { name: "REP", remote, qpn: Some(qpn), .. }) => {
                if let Some((address, theirs)) = asked.get(&remote) {
                    agreed.insert((*address, *theirs, packet.from, qpn));
                }
            }
            _ => {}
        }
    }
    let pairs = pair(&flows, &agreed);
    collect(packets, &pairs)
}

/// The flow that answers each flow, where there is one.
fn pair(
    flows: &BTreeMap<Flow, Psns>,
    agreed: &BTreeSet<(Address, u32, Address, u32)>,
) -> BTreeMap<Flow, Flow> {
    let mut candidates: Vec<(usize, Flow, Flow)> = Vec::new();
    let keys: Vec<&Flow> = flows.keys().collect();
    for (i, one) in keys.iter().enumerate() {
        for other in keys[i..].iter().filter(|other| one.could_answer(other)) {
            let is_agreed = agreed.contains(&(one.from, other.to_qpn, one.to, one.to_qpn))
                || agreed.contains(&(other.from, one.to_qpn, other.to, other.to_qpn));
            let score = match one.from_qpn {
                _ if is_agreed => usize::MAX,
                Some(_) => usize::MAX,
                None => flows[*one].fit(&flows[*other]) + flows[*other].fit(&flows[*one]),
            };
            if score > 0 {
                candidates.push((score, **one, **other));
            }
        }
    }
    // The best first; of equal ones the first by address, so that a run repeats itself.
    candidates.sort_by(|x, y| y.0.cmp(&x.0).then(x.1.cmp(&y.1)).then(x.2.cmp(&y.2)));
    let mut pairs = BTreeMap::new();
    for (_, one, other) in candidates {
        if !pairs.contains_key(&one) && !pairs.contains_key(&other) {
            pairs.insert(one, other);
            pairs.insert(other, one);
        }
    }
    pairs
}

fn collect(packets: Vec<Seen>, pairs: &BTreeMap<Flow, Flow>) -> Vec<Conversation> {
    let mut places: BTreeMap<Flow, (usize, Direction)> = BTreeMap::new();
    let mut conversations: Vec<Conversation> = Vec::new();
    for packet in packets {
        let flow = Flow::of(&packet);
        let (at, direction) = *places.entry(flow).or_insert_with(|| {
            conversations.push(start(&flow, pairs.get(&flow), &packet));
            (conversations.len() - 1, Direction::Forward)
        });
        if let Some(answer) = pairs.get(&flow).filter(|answer| **answer != flow) {
            places.entry(*answer).or_insert((at, Direction::Back));
        }
        conversations[at].rows.push(Row { direction, packet, notes: Vec::new() });
    }
    conversations
}

fn start(flow: &Flow, answer: Option<&Flow>, packet: &Seen) -> Conversation {
    let a_qpn = flow.from_qpn.or(answer.map(|answer| answer.to_qpn));
    let opcode = packet.headers.bth.opcode;
    let transport = match opcode.operation() {
        Operation::CongestionNotification => Transport::Cnp,
        _ => opcode.transport(),
    };
    Conversation {
        transport,
        a: End { address: flow.from, qpn: a_qpn },
        b: End { address: flow.to, qpn: Some(flow.to_qpn) },
        rows: Vec::new(),
        mtu_bytes: None,
    }
}
