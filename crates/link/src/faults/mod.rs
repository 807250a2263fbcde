//! Faults on purpose: rules that say what becomes of packets.
//!
//! [`Rules::parse`] reads them from a line, [`Rules::judge`] applies them. The verdict on a packet
//! is a function of the seed, the rule, the flow, the packet's number in it and how often it was
//! sent before; for `nth` and `every` of the packets of the flow that came before it; for a window
//! or a rate of the time that is passed in. There is no clock here and no generator of random
//! numbers that calls could take turns at, so the order in which threads get to send changes
//! nothing.

mod parse;
mod state;

pub use parse::SpecError;
pub use state::{Decision, Sending, State};

use std::net::IpAddr;

use rdmalab_wire::aeth::Syndrome;
use rdmalab_wire::ids::{Psn, Qpn};
use rdmalab_wire::opcode::{Opcode, Operation};

/// What carries a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Medium {
    /// Shared memory of a host.
    Memory,
    /// A network.
    Network,
}

/// Kinds of packets that rules tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Class {
    /// SEND, of any variant.
    Send,
    /// RDMA WRITE, of any variant.
    Write,
    /// RDMA READ request.
    Read,
    /// Atomic request.
    Atomic,
    /// RDMA READ response.
    ReadResponse,
    /// Atomic response.
    AtomicResponse,
    /// Acknowledgement.
    Ack,
    /// Negative acknowledgement, RNR too.
    Nak,
    /// Anything else.
    Other,
}

impl Class {
    /// The class of a packet with this opcode and, where it has one, this syndrome.
    pub const fn of(opcode: Opcode, syndrome: Option<Syndrome>) -> Class {
        match opcode.operation() {
            Operation::Send => Class::Send,
            Operation::Write => Class::Write,
            Operation::ReadRequest => Class::Read,
            Operation::CompareSwap | Operation::FetchAdd => Class::Atomic,
            Operation::ReadResponse => Class::ReadResponse,
            Operation::AtomicAcknowledge => Class::AtomicResponse,
            Operation::Acknowledge => match syndrome {
                Some(Syndrome::Ack { .. }) | None => Class::Ack,
                _ => Class::Nak,
            },
            Operation::CongestionNotification => Class::Other,
        }
    }

    const fn bit(self) -> u16 {
        1 << self as u8
    }
}

/// The packets of one queue pair to another, those of requests and of responses by themselves:
/// their numbers run independently.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Flow {
    /// Who sends.
    pub source: IpAddr,
    /// Who receives.
    pub destination: IpAddr,
    /// The receiving queue pair.
    pub destination_qp: Qpn,
    /// The sending queue pair of a datagram; 0 for connections, where the other determines it.
    pub source_qp: Qpn,
    /// Whether these are responses.
    pub is_response: bool,
}

/// What a packet carries, and where its sender took it from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Payload {
    /// How much.
    pub bytes: u32,
    /// It lay in the work request (`IBV_SEND_INLINE`). Otherwise the device read it in the
    /// program's memory as it sent the packet.
    pub is_inline: bool,
}

/// A packet that is judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subject {
    /// Its flow.
    pub flow: Flow,
    /// What carries it.
    pub medium: Medium,
    /// What it is.
    pub class: Class,
    /// Its number in the flow.
    pub psn: Psn,
    /// How often a packet of this number was sent before.
    pub transmission: u32,
    /// Bytes on the wire, for a rate.
    pub bytes: u32,
    /// Its payload.
    pub payload: Payload,
    /// Since the rules were armed, ns.
    pub since_ns: u64,
}

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

/// Rules with the seed of their chances.
#[derive(Clone, PartialEq, Debug)]
pub struct Rules {
    seed: u64,
    rules: Vec<Rule>,
    /// The part of a queue pair's number that chances are drawn from.
    qp_mask: u32,
}

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fate {
    /// The rules that met it, a bit each.
    pub rules: u64,
    /// It is lost.
    pub lost: bool,
    /// A bit is changed; which one follows from this number.
    pub corrupt: Option<u64>,
    /// It comes so many times more.
    pub copies: u32,
    /// It comes so much later, ns.
    pub delay_ns: u64,
    /// It comes behind so many later packets.
    pub behind: u32,
}

/// Rules in one specification, at most.
pub const MAX_RULES: usize = 64;

/// Mixes a number into a hash (the finalizer of SplitMix64).
const fn mix(hash: u64, value: u64) -> u64 {
    let mut z = (hash ^ value).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn mix_address(hash: u64, address: IpAddr) -> u64 {
    let bits = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    mix(mix(hash, bits as u64), (bits >> 64) as u64)
}

impl Rules {
    /// The same rules where only the lower `bits` of a queue pair's number are the same each time
    /// that a program runs: chances are drawn from those, so that a seed repeats. Groups keep the
    /// whole number, for what tells their members apart is in it.
    #[must_use]
    pub fn with_qp_bits(self, bits: u32) -> Rules {
        Rules { qp_mask: (1u64 << bits.min(24)) as u32 - 1, ..self }
    }

    /// The rules, in the order in which they are applied.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Applies all rules to a packet. `counts` is that of its flow, which saw the packets before
    /// it.
    pub fn judge(&self, subject: &Subject, counts: &mut Counts) -> Fate {
        let mut fate = Fate::default();
        for (index, rule) in self.rules.iter().enumerate() {
            let draw = self.draw(index, subject);
            if !rule.meets(subject) || !counts.is_one(index, &rule.count) {
                continue;
            }
            if rule.chance.is_some_and(|chance| draw >= chance) {
                continue;
            }
            fate.rules |= 1 << index;
            match rule.action {
                Action::Drop => {
                    fate.lost = true;
                    return fate;
                }
                Action::Duplicate => fate.copies += 1,
                Action::Reorder(by) => fate.behind = fate.behind.max(by),
                Action::Corrupt => fate.corrupt = Some(mix(draw, 2)),
                Action::Delay { ns, jitter_ns } => {
                    let more = (mix(draw, 1) as u128 * jitter_ns as u128) >> 64;
                    fate.delay_ns = fate.delay_ns.saturating_add(ns).saturating_add(more as u64);
                }
                // The state knows how much went before.
                Action::Rate(_) => {}
            }
        }
        fate
    }

    /// A number for a rule and a packet, evenly spread.
    fn draw(&self, rule: usize, subject: &Subject) -> u64 {
        let flow = &subject.flow;
        let mut hash = mix(self.seed, rule as u64);
        hash = mix_address(mix_address(hash, flow.source), flow.destination);
        let mask = match flow.destination_qp {
            Qpn::MULTICAST => u32::MAX,
            _ => self.qp_mask,
        };
        let of = |qp: Qpn| (qp.get() & mask) as u64;
        let ends = of(flow.destination_qp) << 32 | of(flow.source_qp);
        hash = mix(mix(hash, ends), flow.is_response as u64);
        mix(hash, (subject.psn.get() as u64) << 32 | subject.transmission as u64)
    }
}

/// How many packets of a flow met each rule, for `nth` and `every`.
#[derive(Clone, Debug, Default)]
pub struct Counts {
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
    fn meets(&self, subject: &Subject) -> bool {
        let flow = &subject.flow;
        let is = |end: &Option<End>, address: IpAddr, qp: Qpn| match end {
            None => true,
            Some(End::Address(asked)) => *asked == address,
            Some(End::Qp(asked)) => *asked == qp,
        };
        self.classes & subject.class.bit() != 0
            && self.medium.is_none_or(|medium| medium == subject.medium)
            && self.takes(subject.payload)
            && match self.which {
                Which::Any => true,
                Which::First => subject.transmission == 0,
                Which::Again => subject.transmission > 0,
            }
            && self.psns.is_none_or(|(first, last)| {
                let length = last.get().wrapping_sub(first.get()) & 0xff_ffff;
                subject.psn.get().wrapping_sub(first.get()) & 0xff_ffff <= length
            })
            && is(&self.to, flow.destination, flow.destination_qp)
            && is(&self.from, flow.source, flow.source_qp)
            && self
                .window
                .is_none_or(|(from_ns, before_ns)| (from_ns..before_ns).contains(&subject.since_ns))
    }
}

#[cfg(test)]
mod tests;
