//! Faults on purpose: rules that say what becomes of packets. One [`Quirk`] has all of them.
//!
//! What a rule decides about a packet is a function of the seed, the rule, the flow, the packet's
//! number in it and how often it was sent before; for `nth` and `every` of the packets of the flow
//! that came before it; for a window or a rate of the time. The order in which threads get to send
//! changes nothing.

pub(crate) mod parse;

use std::net::IpAddr;

use rdmalab_wire::ids::{Psn, Qpn};

use crate::bounded::BoundedMap;
use rdmalab_random::scaled;

use crate::draws::mix;
use crate::packet::{Flow, Medium, PacketInfo, Payload};
use crate::quirk::{Answer, Fate, Moment, Quirk, Reception, Reply};

/// What a rule does to the packets that it meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// They are lost.
    Drop,
    /// They come twice.
    Duplicate,
    /// They come after so many later ones of their flow.
    Reorder(u32),
    /// A bit of them is changed: the receiver drops them.
    Corrupt,
    /// They come so much later, ns, and up to `jitter_ns` more.
    Delay {
        /// At least.
        ns: u64,
        /// What is added at random, at most.
        jitter_ns: u64,
    },
    /// They share so many bits in a second.
    Rate(u64),
    /// Requests that arrive in order are answered with an RNR NAK, and not executed.
    RnrNak,
}

/// What a rule speaks of.
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

/// Which transmissions of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Which {
    Any,
    First,
    Again,
}

/// Which of the packets that meet the rest of a rule, counted from 1 in each flow.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Count {
    All,
    Nth(Vec<u64>),
    Every(u64),
}

/// An end of a flow in a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Address(IpAddr),
    Qp(Qpn),
}

/// One rule: what is done to which packets.
#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    /// As it was written.
    pub text: String,
    /// What it does.
    pub action: Action,
    /// Of 2^64; all when there is none.
    chance: Option<u64>,
    classes: u16,
    count: Count,
    psns: Option<(Psn, Psn)>,
    to: Option<End>,
    from: Option<End>,
    which: Which,
    medium: Option<Medium>,
    /// Whether the payload lay in the work request.
    is_inline: Option<bool>,
    /// Bytes of payload, at least and at most.
    payload: Option<(u32, u32)>,
    /// From, and before, ns.
    window: Option<(u64, u64)>,
}

/// See the module's text.
#[derive(Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    counts: BoundedMap<Flow, Counts>,
    /// When the line of each rule's rate is free again, ns.
    free_ns: Vec<u64>,
}

impl Rules {
    /// Rules in the order in which they are applied.
    pub fn new(rules: Vec<Rule>) -> Rules {
        let free_ns = vec![0; rules.len()];
        Rules { rules, counts: BoundedMap::default(), free_ns }
    }

    /// The rules that meet a packet at a point, in order, each with its number and a draw.
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

    /// Waits for its turn in the lines of the rates that meet it.
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
                Action::Delay { ns, jitter_ns } => {
                    let more_ns = scaled(mix(draw, 1), jitter_ns);
                    fate.delay_ns = fate.delay_ns.saturating_add(ns).saturating_add(more_ns);
                }
                // Behind all delays.
                Action::Rate(_) => {}
                Action::RnrNak => {}
            }
        }
        self.wait_in_line(&mut fate, packet.bytes, moment.now_ns);
        fate
    }

    fn packet_arrived(&mut self, packet: &PacketInfo, moment: &Moment<'_>) -> Reception {
        // No other can be answered with a NAK.
        if packet.flow.is_response || !packet.in_order {
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

/// How many packets of a flow met each rule, for `nth` and `every`.
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
    /// Whether a packet with this payload is one that the rule speaks of. What has no payload took
    /// it from nowhere.
    fn takes(&self, payload: Payload) -> bool {
        let Payload { bytes, is_inline } = payload;
        self.is_inline.is_none_or(|asked| bytes > 0 && asked == is_inline)
            && self.payload.is_none_or(|(least, most)| (least..=most).contains(&bytes))
    }

    /// Whether a packet is one that the rule speaks of, count and chance aside.
    fn meets(&self, packet: &PacketInfo, since_ns: u64) -> bool {
        let flow = &packet.flow;
        let is = |end: &Option<End>, address: IpAddr, qp: Qpn| match end {
            None => true,
            Some(End::Address(asked)) => *asked == address,
            Some(End::Qp(asked)) => *asked == qp,
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
