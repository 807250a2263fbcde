//! Which two directions belong together.
//!
//! A packet of a connected transport names its receiver's queue pair and not its sender's. What the
//! connection manager agreed on is believed first. Without it, the directions between two addresses
//! whose answers fit each other's requests by PSN are a pair; starting PSNs are drawn at random, so
//! chance matches are rare.
//!
//! Only directions that share a PSN are held against each other: a capture has as many directions
//! as its writer likes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

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
}

/// What a flow asks and answers, by PSN.
#[derive(Default)]
struct Psns {
    asked: BTreeSet<u32>,
    answered: BTreeSet<u32>,
}

/// Directions between two addresses, each way, that may share a PSN: one that more of them use, as
/// where all begin with 0, tells nothing, and would be the square of their number in work.
pub const SHARERS_MAX: usize = 32;

/// The directions that use a PSN, as numbers of [`Pairing::flows`].
type Users = HashMap<(Address, Address, u8, u32), Vec<usize>>;

/// Sorts packets, which come in order of time. Also how many PSNs more than [`SHARERS_MAX`]
/// directions used.
pub fn sort(packets: Vec<Seen>) -> (Vec<Conversation>, usize) {
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
    let pairing = Pairing::of(&flows);
    let pairs = pairing.pairs(&agreed);
    (collect(packets, &pairs), pairing.crowded())
}

/// Two directions that may belong together, and how surely.
struct Candidate {
    score: usize,
    one: usize,
    other: usize,
}

/// All directions, and which of them use a PSN.
struct Pairing<'a> {
    /// In their order.
    flows: Vec<(&'a Flow, &'a Psns)>,
    asked: Users,
    answered: Users,
}

impl<'a> Pairing<'a> {
    fn of(flows: &'a BTreeMap<Flow, Psns>) -> Self {
        let flows: Vec<(&Flow, &Psns)> = flows.iter().collect();
        let (mut asked, mut answered) = (Users::new(), Users::new());
        for (number, (flow, psns)) in flows.iter().enumerate() {
            // Datagrams name both ends.
            if flow.from_qpn.is_some() {
                continue;
            }
            for (set, users) in [(&psns.asked, &mut asked), (&psns.answered, &mut answered)] {
                for psn in set {
                    let key = (flow.from, flow.to, flow.transport, *psn);
                    let users = users.entry(key).or_default();
                    if users.len() <= SHARERS_MAX {
                        users.push(number);
                    }
                }
            }
        }
        Self { flows, asked, answered }
    }

    /// PSNs that too many directions use.
    fn crowded(&self) -> usize {
        let all = self.asked.values().chain(self.answered.values());
        all.filter(|users| users.len() > SHARERS_MAX).count()
    }

    fn number(&self, flow: &Flow) -> Option<usize> {
        self.flows.binary_search_by(|(known, _)| (*known).cmp(flow)).ok()
    }

    /// The flow that answers each flow, where there is one.
    fn pairs(&self, agreed: &BTreeSet<(Address, u32, Address, u32)>) -> BTreeMap<Flow, Flow> {
        let mut candidates = self.certain(agreed);
        for number in 0..self.flows.len() {
            candidates.extend(self.likely(number));
        }
        // The best first; of equal ones the first by address, so that a run repeats itself.
        candidates.sort_by_key(|c| (Reverse(c.score), c.one, c.other));
        let mut pairs = BTreeMap::new();
        for Candidate { one, other, .. } in candidates {
            let (one, other) = (*self.flows[one].0, *self.flows[other].0);
            if !pairs.contains_key(&one) && !pairs.contains_key(&other) {
                pairs.insert(one, other);
                pairs.insert(other, one);
            }
        }
        pairs
    }

    /// What packets say themselves: datagrams each, the connection manager's for connections.
    fn certain(&self, agreed: &BTreeSet<(Address, u32, Address, u32)>) -> Vec<Candidate> {
        let mut found = Vec::new();
        let mut push = |one: &Flow, other: &Flow| {
            if let (Some(one), Some(other)) = (self.number(one), self.number(other)) {
                let (one, other) = (one.min(other), one.max(other));
                found.push(Candidate { score: usize::MAX, one, other });
            }
        };
        for (flow, _) in &self.flows {
            if let Some(from_qpn) = flow.from_qpn {
                let (from, to) = (flow.to, flow.from);
                let (to_qpn, from_qpn) = (from_qpn, Some(flow.to_qpn));
                push(flow, &Flow { from, to, to_qpn, from_qpn, transport: flow.transport });
            }
        }
        for (a, a_qpn, b, b_qpn) in agreed {
            for transport in [Transport::Rc, Transport::Uc, Transport::Cnp] {
                let way = |from: &Address, to: &Address, to_qpn: &u32| Flow {
                    from: *from,
                    to: *to,
                    to_qpn: *to_qpn,
                    from_qpn: None,
                    transport: transport as u8,
                };
                push(&way(a, b, b_qpn), &way(b, a, a_qpn));
            }
        }
        found
    }

    /// The directions not before this one that answer what it asks, or ask what it answers.
    fn likely(&self, number: usize) -> Vec<Candidate> {
        let (flow, psns) = self.flows[number];
        let mut scores: BTreeMap<usize, usize> = BTreeMap::new();
        for (set, users) in [(&psns.answered, &self.asked), (&psns.asked, &self.answered)] {
            for psn in set.iter().filter(|_| flow.from_qpn.is_none()) {
                let users = users.get(&(flow.to, flow.from, flow.transport, *psn));
                let users = users.filter(|users| users.len() <= SHARERS_MAX);
                for other in users.into_iter().flatten().filter(|other| **other >= number) {
                    *scores.entry(*other).or_default() += 1;
                }
            }
        }
        // On one host a direction may answer itself: that of a queue pair that is its own peer. Of
        // two that ask and answer alike, as in a ping-pong that begins with one PSN at both ends,
        // each seems to do so as well. What it shares with itself was counted twice.
        if let Some(own) = scores.get_mut(&number) {
            *own /= 2;
        }
        let each = scores.into_iter();
        each.map(|(other, score)| Candidate { score, one: number, other }).collect()
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use rdmalab_wire::aeth::Syndrome;
    use rdmalab_wire::headers::{Aeth, Bth};
    use rdmalab_wire::ids::{Msn, Psn, Qpn};
    use rdmalab_wire::opcode::Opcode;
    use rdmalab_wire::packet::Headers;

    use crate::packet::Icrc;

    const ASKS: Address = Address::Lid(1);
    const ANSWERS: Address = Address::Lid(2);

    fn packet(opcode: Opcode, from: Address, qpn: u32, psn: u32) -> Seen {
        let bth = Bth::new(opcode, Qpn::new(qpn), Psn::new(psn));
        let mut headers = Headers::new(bth);
        if opcode.is_response() {
            let syndrome = Syndrome::Ack { credits: Syndrome::UNLIMITED_CREDITS };
            headers.aeth = Some(Aeth { syndrome, msn: Msn::new(0) });
        }
        Seen {
            at_ns: 0,
            from,
            to: if from == ASKS { ANSWERS } else { ASKS },
            headers,
            payload_bytes: 0,
            start: Vec::new(),
            icrc: Icrc::Good,
            comment: String::new(),
        }
    }

    /// So many connections, each with a request and its answer. Queue pairs of one side count up,
    /// of the other side down.
    fn connections(count: u32, psn: impl Fn(u32) -> u32) -> Vec<Seen> {
        let each = (0..count).flat_map(|i| {
            [
                packet(Opcode::RcSendOnly, ASKS, 16 + i, psn(i)),
                packet(Opcode::RcAcknowledge, ANSWERS, (1 << 23) - i, psn(i)),
            ]
        });
        each.collect()
    }

    fn ends(found: &Conversation) -> (Option<u32>, Option<u32>) {
        (found.a.qpn, found.b.qpn)
    }

    /// By pairs of directions this would be 10^10 comparisons.
    #[test]
    fn many_connections_find_their_other_halves() {
        let count = 100_000;
        let (found, crowded) = sort(connections(count, |i| i * 160));
        assert_eq!((found.len(), crowded), (count as usize, 0));
        for (i, conversation) in found.iter().enumerate() {
            let i = i as u32;
            assert_eq!(ends(conversation), (Some((1 << 23) - i), Some(16 + i)));
            assert_eq!(conversation.rows.len(), 2);
        }
    }

    /// Both queue pairs of one host ask and answer with the same PSNs: neither is its own peer.
    #[test]
    fn a_ping_pong_on_one_host_has_two_ends() {
        let here = |opcode, qpn, psn| {
            let packet = packet(opcode, ASKS, qpn, psn);
            Seen { to: packet.from, ..packet }
        };
        let trip = |psn| {
            [
                here(Opcode::RcSendOnly, 16, psn),
                here(Opcode::RcAcknowledge, 17, psn),
                here(Opcode::RcSendOnly, 17, psn),
                here(Opcode::RcAcknowledge, 16, psn),
            ]
        };
        let (found, _) = sort((0..5).flat_map(trip).collect());
        assert_eq!(found.len(), 1);
        assert_eq!((ends(&found[0]), found[0].rows.len()), ((Some(17), Some(16)), 20));
        // One that talks to itself has one end twice.
        let alone = [here(Opcode::RcSendOnly, 16, 1), here(Opcode::RcAcknowledge, 16, 1)];
        let (found, _) = sort(alone.to_vec());
        assert_eq!(ends(&found[0]), (Some(16), Some(16)));
    }

    #[test]
    fn a_psn_of_too_many_directions_pairs_nothing_and_is_counted() {
        let (found, crowded) = sort(connections(SHARERS_MAX as u32, |_| 7));
        assert_eq!((found.len(), crowded), (SHARERS_MAX, 0));
        let (found, crowded) = sort(connections(SHARERS_MAX as u32 + 1, |_| 7));
        assert_eq!((found.len(), crowded), (2 * (SHARERS_MAX + 1), 2));
        // A PSN of its own tells them apart all the same.
        let mut more = connections(SHARERS_MAX as u32 + 1, |_| 7);
        more.extend(connections(SHARERS_MAX as u32 + 1, |i| 1000 + i));
        let (found, crowded) = sort(more);
        assert_eq!((found.len(), crowded), (SHARERS_MAX + 1, 2));
    }
}
