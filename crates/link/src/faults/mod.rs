//! Fault injection by rules, which say what happens to which packets. One [`Quirk`] has all rules.
//!
//! The decision of a rule about a packet is a function of the seed, the rule, the flow, the PSN,
//! and how often this PSN was sent before. With `nth` and `every` it also depends on the earlier
//! packets of the flow, with a window or a rate on the time. The order in which threads send does
//! not matter.

pub(crate) mod parse;

use std::net::IpAddr;

use rdmalab_wire::ids::{Psn, Qpn};

use crate::bounded::BoundedMap;
use rdmalab_random::scaled;

use crate::draws::mix;
use crate::packet::{Flow, Medium, PacketInfo, Payload};
use crate::quirk::{Answer, Fate, Moment, Quirk, Reception, Reply};

/// What a rule does to the packets that match it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// They are lost.
    Drop,
    /// They are sent twice.
    Duplicate,
    /// They leave after this many later packets of their flow.
    Reorder(u32),
    /// One bit of them is changed, so that the receiver drops them.
    Corrupt,
    /// One bit of their payload is changed before the invariant CRC is computed, so that the
    /// receiver takes them.
    Damage,
    /// They leave later by `ns`, and by up to `jitter_ns` more.
    Delay {
        /// The least delay, ns.
        ns: u64,
        /// The largest random addition, ns.
        jitter_ns: u64,
    },
    /// Together they get this many bits per second.
    Rate(u64),
    /// Requests that arrive in order are answered with an RNR NAK, and not executed.
    RnrNak,
}

/// The packets that a rule applies to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Point {
    /// Packets that are about to leave.
    Leaves,
    /// Packets that have arrived.
    Arrived,
}

impl Action {
    const fn point(self) -> Point {
        match self {
            Action::RnrNak => Point::Arrived,
            _ => Point::Leaves,
        }
    }
}

/// The transmissions of a packet that match: any, the first, or retransmissions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Which {
    Any,
    First,
    Again,
}

/// Which of the packets that match the other conditions of a rule, counted from 1 in each flow.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Count {
    All,
    Nth(Vec<u64>),
    Every(u64),
}

/// An end of a flow in a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FlowEnd {
    Address(IpAddr),
    Qp(Qpn),
}

/// One rule: an action, and the conditions on packets.
#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    /// The text as the user wrote it.
    pub text: String,
    /// What it does.
    pub action: Action,
    /// The probability, as a fraction of 2^64; `None` for 1.
    chance: Option<u64>,
    classes: u16,
    count: Count,
    psns: Option<(Psn, Psn)>,
    to: Option<FlowEnd>,
    from: Option<FlowEnd>,
    which: Which,
    medium: Option<Medium>,
    /// Whether the payload was part of the work request.
    is_inline: Option<bool>,
    /// Bytes of payload, at least and at most.
    payload: Option<(u32, u32)>,
    /// The times from and before which the rule applies, ns.
    window: Option<(u64, u64)>,
}

/// The quirk that applies the rules.
#[derive(Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    counts: BoundedMap<Flow, Counts>,
    /// When the simulated line of each rate rule is free again, ns.
    free_ns: Vec<u64>,
}

impl Rules {
    /// Rules in the order in which they are applied.
    pub fn new(rules: Vec<Rule>) -> Rules {
        let free_ns = vec![0; rules.len()];
        Rules { rules, counts: BoundedMap::default(), free_ns }
    }

    /// The rules that match a packet at a point, in order, each with its index and a random number.
    fn met<'a>(
        &'a mut self,
        point: Point,
        packet: &'a PacketInfo,
        moment: &'a Moment<'_>,
    ) -> impl Iterator<Item = (usize, Action, u64)> + 'a {
        let counts = self.counts.entry(packet.flow);
        self.rules.iter().enumerate().filter_map(move |(index, rule)| {
            if rule.action.point() != point
                || !rule.meets(packet, moment.since_ns)
                || !counts.is_one(index, &rule.count)
            {
                return None;
            }
            let draw = moment.draw(index as u32, packet);
            let is_met = rule.chance.is_none_or(|chance| draw < chance);
            is_met.then_some((index, rule.action, draw))
        })
    }

    /// Adds to the packet's delay the time that it waits for the lines of its rate rules.
    fn wait_in_line(&mut self, fate: &mut Fate, bytes: u32, now_ns: u64) {
        let mut due_ns = now_ns.saturating_add(fate.delay_ns);
        for (index, rule) in self.rules.iter().enumerate() {
            if let Action::Rate(bits) = rule.action
                && fate.met >> index & 1 != 0
            {
                let takes_ns = u128::from(bytes) * 8_000_000_000 / u128::from(bits);
                due_ns = self.free_ns[index].max(due_ns).saturating_add(takes_ns as u64);
                self.free_ns[index] = due_ns;
            }
        }
        fate.delay_ns = due_ns - now_ns;
    }
}

impl Quirk for Rules {
    fn labels(&self) -> Vec<String> {
        self.rules.iter().map(|rule| rule.text.clone()).collect()
    }

    fn watches_arrivals(&self) -> bool {
        self.rules.iter().any(|rule| rule.action.point() == Point::Arrived)
    }

    fn packet_leaves(&mut self, packet: &PacketInfo, moment: &Moment<'_>) -> Fate {
        let mut fate = Fate::PASS;
        for (index, action, draw) in self.met(Point::Leaves, packet, moment) {
            fate.met |= 1 << index;
            match action {
                Action::Drop => {
                    fate.lost = true;
                    return fate;
                }
                Action::Duplicate => fate.copies += 1,
                Action::Reorder(by) => fate.behind = fate.behind.max(by),
                Action::Corrupt => fate.corrupt = Some(mix(draw, 2)),
                Action::Damage => fate.damage = Some(mix(draw, 3)),
                Action::Delay { ns, jitter_ns } => {
                    let more_ns = scaled(mix(draw, 1), jitter_ns);
                    fate.delay_ns = fate.delay_ns.saturating_add(ns).saturating_add(more_ns);
                }
                // The rates are applied after all delays.
                Action::Rate(_) => {}
                Action::RnrNak => {}
            }
        }
        self.wait_in_line(&mut fate, packet.bytes, moment.now_ns);
        fate
    }

    fn packet_arrived(&mut self, packet: &PacketInfo, moment: &Moment<'_>) -> Reception {
        // Only a request that arrives in order can be answered with a NAK.
        if !packet.is_in_order() {
            return Reception::ACCEPT;
        }
        match self.met(Point::Arrived, packet, moment).next() {
            Some((index, ..)) => {
                Reception { met: 1 << index, reply: Reply::Answer(Answer::RnrNak) }
            }
            None => Reception::ACCEPT,
        }
    }
}

/// How many packets of a flow matched each rule, for `nth` and `every`.
#[derive(Clone, Debug, Default)]
struct Counts {
    met: Vec<u64>,
}

impl Counts {
    fn is_one(&mut self, rule: usize, count: &Count) -> bool {
        if *count == Count::All {
            return true;
        }
        if self.met.len() <= rule {
            self.met.resize(rule + 1, 0);
        }
        self.met[rule] += 1;
        let number = self.met[rule];
        match count {
            Count::All => true,
            Count::Nth(numbers) => numbers.contains(&number),
            Count::Every(every) => number.is_multiple_of(*every),
        }
    }
}

impl Rule {
    /// Whether the rule's conditions on the payload match. No payload is neither inline nor
    /// gathered.
    fn takes(&self, payload: Payload) -> bool {
        let Payload { bytes, is_inline } = payload;
        self.is_inline.is_none_or(|asked| bytes > 0 && asked == is_inline)
            && self.payload.is_none_or(|(least, most)| (least..=most).contains(&bytes))
    }

    /// Whether a packet matches all conditions of the rule but count and probability.
    fn meets(&self, packet: &PacketInfo, since_ns: u64) -> bool {
        let flow = &packet.flow;
        let is = |end: &Option<FlowEnd>, address: IpAddr, qp: Qpn| match end {
            None => true,
            Some(FlowEnd::Address(asked)) => *asked == address,
            Some(FlowEnd::Qp(asked)) => *asked == qp,
        };
        self.classes & packet.class.bit() != 0
            && self.medium.is_none_or(|medium| medium == packet.medium)
            && self.takes(packet.payload)
            && match self.which {
                Which::Any => true,
                Which::First => !packet.is_repeated(),
                Which::Again => packet.is_repeated(),
            }
            && self.psns.is_none_or(|(first, last)| {
                let length = last.get().wrapping_sub(first.get()) & 0xff_ffff;
                packet.psn.get().wrapping_sub(first.get()) & 0xff_ffff <= length
            })
            && is(&self.to, flow.destination, flow.destination_qp)
            && is(&self.from, flow.source, flow.source_qp)
            && self
                .window
                .is_none_or(|(from_ns, before_ns)| (from_ns..before_ns).contains(&since_ns))
    }
}

#[cfg(test)]
mod tests;
