//! Finds the two directions of each connection.
//!
//! A packet of a connected transport names its receiver's queue pair, but not its sender's.
//! Messages of the connection manager tell which queue pairs are connected. Without them, two
//! directions between two addresses are a pair if the responses of one match the requests of the
//! other by PSN. With random starting PSNs, chance matches are rare. Where connections begin with
//! the same PSN, time decides: a response follows its request, after about the same time.
//!
//! Only directions that share a PSN are compared, because a capture may have any number of
//! directions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use rdmalab_wire::opcode::Transport;

use super::model::{Conversation, Direction, Endpoint, Row};
use super::notes::Cm;
use crate::packet::{Address, Seen};

/// A direction: packets from one address to one queue pair; for datagrams, from one queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Flow {
    from: Address,
    to: Address,
    to_qpn: u32,
    from_qpn: Option<u32>,
    transport: u8,
}

impl Flow {
    pub(crate) fn of(packet: &Seen) -> Self {
        let bth = &packet.headers.bth;
        Self {
            from: packet.from,
            to: packet.to,
            to_qpn: bth.dest_qp.get(),
            from_qpn: packet.headers.deth.map(|deth| deth.source_qp.get()),
            transport: bth.opcode.transport() as u8,
        }
    }

    /// Its transport.
    pub(crate) fn service(&self) -> Transport {
        let all = [Transport::Rc, Transport::Uc, Transport::Ud];
        let mut all = all.into_iter();
        all.find(|service| *service as u8 == self.transport).unwrap_or(Transport::Cnp)
    }

    /// Its sender, whose queue pair the direction that answers it names, and its receiver.
    pub(crate) fn ends(&self, answer: Option<&Flow>) -> (Endpoint, Endpoint) {
        let qpn = self.from_qpn.or(answer.map(|answer| answer.to_qpn));
        let to = Endpoint { address: self.to, qpn: Some(self.to_qpn) };
        (Endpoint { address: self.from, qpn }, to)
    }
}

/// The PSNs of a flow's requests and responses, each with the time when it was last seen, since a
/// repeated request is answered again.
#[derive(Default)]
struct Psns {
    asked: BTreeMap<u32, u64>,
    answered: BTreeMap<u32, u64>,
}

/// How well two flows match; the greater, the better.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Fit {
    /// PSNs of one that the other answers later.
    answered: usize,
    /// Sum of the squares of the response times, in ns^2. The sum of the times is the same for
    /// every pairing of several connections; that of the squares is least if the times are alike.
    waited: Reverse<u128>,
}

impl Fit {
    /// The fit of two flows that packets themselves identify as a pair.
    const CERTAIN: Self = Self { answered: usize::MAX, waited: Reverse(0) };

    fn add(&mut self, asked_ns: u64, answered_ns: u64) {
        if let Some(wait_ns) = answered_ns.checked_sub(asked_ns) {
            let square = u128::from(wait_ns).pow(2);
            self.answered += 1;
            self.waited.0 = self.waited.0.saturating_add(square);
        }
    }

    /// The fit of two pairs together.
    fn and(self, other: Self) -> Self {
        Self {
            answered: self.answered.saturating_add(other.answered),
            waited: Reverse(self.waited.0.saturating_add(other.waited.0)),
        }
    }

    fn half(self) -> Self {
        Self { answered: self.answered / 2, waited: Reverse(self.waited.0 / 2) }
    }
}

/// Directions between two addresses, each way, that may share a PSN. A PSN of more (all begin with
/// 0, say) is ignored: it identifies nothing, and the work would grow with their number squared.
pub const SHARERS_MAX: usize = 32;

/// The directions that use a PSN, as numbers of [`Pairing::flows`].
type Users = HashMap<(Address, Address, u8, u32), Vec<usize>>;

/// Sorts packets, which are in order of time. Also returns how many PSNs more than [`SHARERS_MAX`]
/// directions used.
pub fn sort(packets: Vec<Seen>) -> (Vec<Conversation>, usize) {
    let mut flows = Flows::limited(usize::MAX, usize::MAX, usize::MAX);
    for packet in &packets {
        flows.take(packet);
    }
    let (pairs, crowded) = flows.pairs();
    (collect(packets, &pairs), crowded)
}

/// What a pass over all packets tells about their directions.
pub(crate) struct Flows {
    /// Each with the number of directions before it.
    flows: BTreeMap<Flow, (usize, Psns)>,
    /// Connections of which the connection manager's messages tell.
    agreed: BTreeSet<(Address, u32, Address, u32)>,
    /// By identifier: who asked for a connection, with its queue pair.
    asked: BTreeMap<u32, (Address, u32)>,
    /// Most directions, PSNs of all, and PSNs of each.
    limits: [usize; 3],
    psns: usize,
    is_full: bool,
}

impl Flows {
    /// At most so many directions, PSNs of all and PSNs of each; what is more is left out.
    pub(crate) fn limited(flows: usize, psns: usize, psns_each: usize) -> Self {
        Self {
            flows: BTreeMap::new(),
            agreed: BTreeSet::new(),
            asked: BTreeMap::new(),
            limits: [flows, psns, psns_each],
            psns: 0,
            is_full: false,
        }
    }

    /// Adds a packet; whether there was room for its direction.
    pub(crate) fn take(&mut self, packet: &Seen) -> bool {
        let (flow, number) = (Flow::of(packet), self.flows.len());
        if number >= self.limits[0] && !self.flows.contains_key(&flow) {
            self.is_full = true;
            return false;
        }
        let (_, psns) = self.flows.entry(flow).or_insert_with(|| (number, Psns::default()));
        let (opcode, psn) = (packet.headers.bth.opcode, packet.headers.bth.psn.get());
        let set = if opcode.is_response() { &mut psns.answered } else { &mut psns.asked };
        let has_room = self.psns < self.limits[1] && set.len() < self.limits[2];
        if let Some(at_ns) = set.get_mut(&psn) {
            *at_ns = packet.at_ns;
        } else if has_room {
            set.insert(psn, packet.at_ns);
            self.psns += 1;
        }
        if self.asked.len() < self.limits[0] {
            self.connect(packet);
        }
        true
    }

    fn connect(&mut self, packet: &Seen) {
        match Cm::of(packet) {
            Some(Cm { name: "REQ", local, qpn: Some(qpn), .. }) => {
                self.asked.insert(local, (packet.from, qpn));
            }
            Some(Cm { name: "REP", remote, qpn: Some(qpn), .. }) => {
                if let Some((address, theirs)) = self.asked.get(&remote) {
                    self.agreed.insert((*address, *theirs, packet.from, qpn));
                }
            }
            _ => {}
        }
    }

    /// Whether a direction was left out.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// The directions, in the order of their first packets.
    pub(crate) fn in_order(&self) -> Vec<&Flow> {
        let mut flows: Vec<_> =
            self.flows.iter().map(|(flow, (number, _))| (number, flow)).collect();
        flows.sort_unstable();
        flows.into_iter().map(|(_, flow)| flow).collect()
    }

    /// The flow that answers each flow, where there is one, and how many PSNs more than
    /// [`SHARERS_MAX`] directions used.
    pub(crate) fn pairs(&self) -> (BTreeMap<Flow, Flow>, usize) {
        let pairing = Pairing::of(&self.flows);
        (pairing.pairs(&self.agreed), pairing.crowded())
    }
}

/// Two directions that may belong together, and how well they match.
struct Candidate {
    fit: Fit,
    one: usize,
    other: usize,
}

/// All directions, and which of them use a PSN.
struct Pairing<'a> {
    /// Sorted, so that [`Pairing::number`] can search them.
    flows: Vec<(&'a Flow, &'a Psns)>,
    asked: Users,
    answered: Users,
}

impl<'a> Pairing<'a> {
    fn of(flows: &'a BTreeMap<Flow, (usize, Psns)>) -> Self {
        let flows: Vec<(&Flow, &Psns)> =
            flows.iter().map(|(flow, (_, psns))| (flow, psns)).collect();
        let (mut asked, mut answered) = (Users::new(), Users::new());
        for (number, (flow, psns)) in flows.iter().enumerate() {
            // Datagrams name both ends.
            if flow.from_qpn.is_some() {
                continue;
            }
            for (set, users) in [(&psns.asked, &mut asked), (&psns.answered, &mut answered)] {
                for psn in set.keys() {
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

    /// The number of PSNs that too many directions use.
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
        // The best first; equal ones by address, so that results are reproducible.
        candidates.sort_by_key(|c| (Reverse(c.fit), c.one, c.other));
        let mut partners: BTreeMap<usize, usize> = BTreeMap::new();
        for Candidate { one, other, .. } in &candidates {
            if !partners.contains_key(one) && !partners.contains_key(other) {
                partners.insert(*one, *other);
                partners.insert(*other, *one);
            }
        }
        exchange(&candidates, &mut partners);
        let flow = |number: &usize| *self.flows[*number].0;
        partners.iter().map(|(one, other)| (flow(one), flow(other))).collect()
    }

    /// Pairs that packets themselves identify: datagrams name both ends, and the connection
    /// manager's messages name those of a connection.
    fn certain(&self, agreed: &BTreeSet<(Address, u32, Address, u32)>) -> Vec<Candidate> {
        let mut found = Vec::new();
        let mut push = |one: &Flow, other: &Flow| {
            if let (Some(one), Some(other)) = (self.number(one), self.number(other)) {
                let (one, other) = (one.min(other), one.max(other));
                found.push(Candidate { fit: Fit::CERTAIN, one, other });
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

    /// The directions from `number` on whose responses match its requests, or the reverse.
    fn likely(&self, number: usize) -> Vec<Candidate> {
        let (flow, psns) = self.flows[number];
        let mut fits: BTreeMap<usize, Fit> = BTreeMap::new();
        for (set, users, asks) in
            [(&psns.answered, &self.asked, false), (&psns.asked, &self.answered, true)]
        {
            for (psn, at_ns) in set.iter().filter(|_| flow.from_qpn.is_none()) {
                let users = users.get(&(flow.to, flow.from, flow.transport, *psn));
                let users = users.filter(|users| users.len() <= SHARERS_MAX);
                for other in users.into_iter().flatten().filter(|other| **other >= number) {
                    let theirs = self.flows[*other].1;
                    let fit = fits.entry(*other).or_default();
                    match asks {
                        true => fit.add(*at_ns, theirs.answered[psn]),
                        false => fit.add(theirs.asked[psn], *at_ns),
                    }
                }
            }
        }
        // On one host a direction may answer itself: that of a queue pair that is its own peer. Two
        // directions with the same PSNs in requests and responses, as in a ping-pong from one PSN,
        // seem to do so too. Matches of a direction with itself were counted twice.
        if let Some(own) = fits.get_mut(&number) {
            *own = own.half();
        }
        // Also directions whose responses all precede the requests, with the worst fit: a message
        // was sent again and then the capture ended, or two captures with different clocks were
        // joined.
        let each = fits.into_iter();
        each.map(|(other, fit)| Candidate { fit, one: number, other }).collect()
    }
}

/// How often [`exchange`] goes over all candidates; real captures need a few times.
const EXCHANGES_MAX: usize = 64;

/// Exchanges the partners of two pairs where that fits better, until no exchange helps. Taking the
/// best candidate first is not enough: of three connections in step, the first response is closest
/// to the last request.
fn exchange(candidates: &[Candidate], partners: &mut BTreeMap<usize, usize>) {
    let certain = candidates.iter().filter(|c| c.fit == Fit::CERTAIN);
    let settled: BTreeSet<usize> = certain.flat_map(|c| [c.one, c.other]).collect();
    let is_open = |number: &usize| !settled.contains(number);
    let likely = candidates.iter().filter(|c| is_open(&c.one) && is_open(&c.other));
    let likely = likely.filter(|c| c.one != c.other);
    let fits: HashMap<(usize, usize), Fit> = likely.map(|c| ((c.one, c.other), c.fit)).collect();
    let fit = |a: usize, b: usize| fits.get(&(a.min(b), a.max(b))).copied();
    for _ in 0..EXCHANGES_MAX {
        let mut changed = false;
        for Candidate { one, other, .. } in candidates {
            let (Some(&a), Some(&b)) = (partners.get(one), partners.get(other)) else { continue };
            // Certain pairs have no fit here, and no direction has one with itself.
            let (Some(first), Some(second)) = (fit(*one, a), fit(*other, b)) else { continue };
            let (Some(third), Some(fourth)) = (fit(*one, *other), fit(a, b)) else { continue };
            if third.and(fourth) > first.and(second) {
                partners.extend([(*one, *other), (*other, *one), (a, b), (b, a)]);
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
}

fn collect(packets: Vec<Seen>, pairs: &BTreeMap<Flow, Flow>) -> Vec<Conversation> {
    let mut places: BTreeMap<Flow, (usize, Direction)> = BTreeMap::new();
    let mut conversations: Vec<Conversation> = Vec::new();
    for packet in packets {
        let flow = Flow::of(&packet);
        let (at, direction) = *places.entry(flow).or_insert_with(|| {
            conversations.push(start(&flow, pairs.get(&flow)));
            (conversations.len() - 1, Direction::Forward)
        });
        if let Some(answer) = pairs.get(&flow).filter(|answer| **answer != flow) {
            places.entry(*answer).or_insert((at, Direction::Back));
        }
        conversations[at].rows.push(Row { direction, packet, notes: Vec::new() });
    }
    conversations
}

fn start(flow: &Flow, answer: Option<&Flow>) -> Conversation {
    let (a, b) = flow.ends(answer);
    Conversation { transport: flow.service(), a, b, rows: Vec::new(), mtu_bytes: None }
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
            frame: 0,
            interface: 0,
            crc: 0,
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

    /// `count` connections, each with a request and its response. Queue pair numbers count up on
    /// one side and down on the other.
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

    /// Comparing all pairs of directions would take 10^10 comparisons.
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

    /// Two queue pairs of one host use the same PSNs: neither is its own peer.
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
        // A queue pair that is its own peer is both ends.
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
        // One unique PSN for each connection suffices.
        let mut more = connections(SHARERS_MAX as u32 + 1, |_| 7);
        more.extend(connections(SHARERS_MAX as u32 + 1, |i| 1000 + i));
        let (found, crowded) = sort(more);
        assert_eq!((found.len(), crowded), (SHARERS_MAX + 1, 2));
    }

    /// A PSN, and the times of its request and response, in ns.
    type Trip = (u32, u64, u64);

    /// Connections that all begin with PSN 0, whose queue pair numbers count up at one end and down
    /// at the other. Each has a start in ns, and its trips relative to that.
    fn from_zero(connections: &[(u64, Vec<Trip>)]) -> Vec<Seen> {
        let mut packets = Vec::new();
        for (i, (start_ns, trips)) in connections.iter().enumerate() {
            let i = i as u32;
            for (psn, asked_ns, answered_ns) in trips {
                let request = packet(Opcode::RcSendOnly, ASKS, 16 + i, *psn);
                let answer = packet(Opcode::RcAcknowledge, ANSWERS, (1 << 23) - i, *psn);
                packets.push(Seen { at_ns: start_ns + asked_ns, ..request });
                packets.push(Seen { at_ns: start_ns + answered_ns, ..answer });
            }
        }
        packets.sort_by_key(|packet| packet.at_ns);
        packets
    }

    fn are_told_apart(connections: &[(u64, Vec<Trip>)]) {
        let (mut found, crowded) = sort(from_zero(connections));
        assert_eq!((found.len(), crowded), (connections.len(), 0));
        found.sort_by_key(|conversation| conversation.b.qpn);
        for (i, conversation) in found.iter().enumerate() {
            let i = i as u32;
            assert_eq!(ends(conversation), (Some((1 << 23) - i), Some(16 + i)));
        }
    }

    /// A request each 11 us, and its response 10 us later.
    fn ping_pong() -> Vec<Trip> {
        (0..20).map(|i| (i, u64::from(i) * 11_000, u64::from(i) * 11_000 + 10_000)).collect()
    }

    #[test]
    fn connections_from_zero_one_after_the_other_are_told_apart_by_time() {
        are_told_apart(&[(0, ping_pong()), (10_000_000, ping_pong()), (20_000_000, ping_pong())]);
    }

    /// In step, each a little later than the one before: of the responses to PSN 7, say, the first
    /// is closest to the last connection's request.
    #[test]
    fn connections_from_zero_at_the_same_time_are_told_apart_by_time() {
        are_told_apart(&[(0, ping_pong()), (1000, ping_pong()), (2000, ping_pong())]);
        are_told_apart(&[(0, ping_pong()), (5000, ping_pong())]);
    }

    #[test]
    fn one_message_that_was_asked_again_has_its_answer() {
        let again = Seen { at_ns: 20_000, ..packet(Opcode::RcSendOnly, ASKS, 16, 7) };
        let mut packets = connections(1, |_| 7);
        packets.push(again);
        let (found, _) = sort(packets);
        assert_eq!((found.len(), ends(&found[0])), (1, (Some(1 << 23), Some(16))));
    }

    /// A message of the connection manager: in a REQ the queue pair stands at 32, in a REP at 12.
    fn message(from: Address, attribute: u8, conversation: u8, qpn: u32, at: usize) -> Seen {
        let mut start = vec![0; 256];
        start[..2].copy_from_slice(&[1, 7]);
        start[17] = attribute;
        start[24..32].fill(conversation);
        start[24 + at..24 + at + 4].copy_from_slice(&(qpn << 8).to_be_bytes());
        Seen { start, ..packet(Opcode::UdSendOnly, from, 1, 0) }
    }

    /// Even if the times match others better, since that may be chance.
    #[test]
    fn what_was_agreed_on_is_not_exchanged() {
        let mut packets = from_zero(&[(0, ping_pong()), (1000, ping_pong())]);
        let agreed = [(1, 1 << 23, 17), (2, (1 << 23) - 1, 16)];
        for (conversation, ours, theirs) in agreed {
            packets.insert(0, message(ANSWERS, 0x13, conversation, theirs, 12));
            packets.insert(0, message(ASKS, 0x10, conversation, ours, 32));
        }
        let (found, _) = sort(packets);
        let mut rc: Vec<_> = found.iter().filter(|c| c.transport == Transport::Rc).collect();
        rc.sort_by_key(|conversation| conversation.b.qpn);
        let rc: Vec<_> = rc.into_iter().map(ends).collect();
        assert_eq!(rc, [(Some((1 << 23) - 1), Some(16)), (Some(1 << 23), Some(17))]);
    }

    /// Eight connections that send four packets for each response, of different lengths, each with
    /// other pauses, and one of them with a packet that was sent twice.
    #[test]
    fn streams_from_zero_are_told_apart_by_time() {
        let mut random = rdmalab_random::Random::new(1);
        let mut connections = Vec::new();
        for i in 0..8u32 {
            let mut at_ns = 0;
            let mut trips = Vec::new();
            for burst in 0..50 + 5 * (i % 3) {
                at_ns += 2000 + random.below(3000);
                trips.push((4 * burst + 3, at_ns, at_ns + 8000 + random.below(6000)));
            }
            connections.push((u64::from(i) * 300, trips));
        }
        // Sent first when the responses of all others had not come, and again 60 ms later.
        let last = connections[2].1.len() - 1;
        let (psn, asked_ns, answered_ns) = connections[2].1[last];
        connections[2].1.push((psn, asked_ns + 60_000_000, answered_ns + 60_000_000));
        are_told_apart(&connections);
    }
}
