//! Quirks: effects of a device or a network on packets that the protocol does not describe.
//!
//! A [`Quirk`] is called at defined points of a packet's life, and decides what happens to the
//! packet. The fault rules ([`crate::faults`]) are one quirk. Others remember earlier packets: a
//! response is lost because of the request that it answers ([`drop_response`]), or a request
//! because the responder serves another one ([`damming`]). Each quirk is a file here, with its
//! test.
//!
//! The points, in the order in which a message passes them:
//!
//! | point | device |
//! |---|---|
//! | [`Quirk::request_leaves`], by packet, first transmission or repetition | requester |
//! | [`Quirk::packet_arrived`], or [`Quirk::rnr_nak_is_given`] | responder |
//! | [`Quirk::response_leaves`]: READ and atomic responses, ACK, NAK | responder |
//! | [`Quirk::packet_arrived`] | requester |
//! | [`Quirk::timer_fired`]: a retry begins | requester |
//! | [`Quirk::message_completed`] | both |
//! | [`Quirk::queue_pair_reset`] | both |
//!
//! A quirk has no clock and no random generator: both come with the [`Moment`]. Its state is
//! bounded: the state of queue pairs and flows is kept in a [`crate::bounded::BoundedMap`], of 4096
//! entries. A [`Chain`] calls several quirks one after the other.

pub mod chain;
pub mod damming;
pub mod drop_response;

pub use chain::Chain;

use rdmalab_engine::qp::TimerKind;
use rdmalab_engine::vocab::WcStatus;
use rdmalab_wire::aeth::NakCode;
use rdmalab_wire::ids::Qpn;

use crate::draws::Draws;
use crate::packet::PacketInfo;

/// The decision about a packet that is about to leave. Decisions of several quirks add up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fate {
    /// The labels of the quirk that apply to the packet, one bit each.
    pub met: u64,
    /// It is dropped.
    pub lost: bool,
    /// One bit is changed on the way, so that its invariant CRC is wrong. This number determines
    /// which one.
    pub corrupt: Option<u64>,
    /// One bit of its payload is changed before its invariant CRC is computed. This number
    /// determines which one.
    pub damage: Option<u64>,
    /// This many copies are sent besides the packet.
    pub copies: u32,
    /// It leaves later by this time, ns.
    pub delay_ns: u64,
    /// It is reordered: it leaves after this many later packets of its flow.
    pub behind: u32,
}

impl Fate {
    /// It leaves as it is.
    pub const PASS: Fate = Fate {
        met: 0,
        lost: false,
        corrupt: None,
        damage: None,
        copies: 0,
        delay_ns: 0,
        behind: 0,
    };

    /// It is dropped, by a quirk with only one label.
    pub const DROP: Fate = Fate { met: 1, lost: true, ..Fate::PASS };

    /// Changes one bit of the packet's payload, if it is to be damaged and has one. Returns whether
    /// it did.
    pub fn damage(&self, payload: &mut [u8]) -> bool {
        let bits = payload.len() as u64 * 8;
        let Some(bit) = self.damage.and_then(|number| number.checked_rem(bits)) else {
            return false;
        };
        payload[(bit / 8) as usize] ^= 1 << (bit % 8);
        true
    }

    /// It leaves later by `delay_ns`, because of a quirk with only one label.
    pub const fn delay(delay_ns: u64) -> Fate {
        Fate { met: 1, delay_ns, ..Fate::PASS }
    }
}

/// The decision about a packet that has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reply {
    /// The queue pair takes it.
    #[default]
    Accept,
    /// It is dropped as if it had never arrived.
    Drop,
    /// The device answers the request without executing it.
    Answer(Answer),
}

/// The answer of a device that does not execute the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// RNR NAK, with the queue pair's `min_rnr_timer`.
    RnrNak,
    /// NAK. Every code except PSN sequence error ends the connection.
    Nak(NakCode),
}

/// A [`Reply`], and the labels of the quirk that gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reception {
    /// The labels of the quirk that apply to the packet, one bit each.
    pub met: u64,
    /// The decision.
    pub reply: Reply,
}

impl Reception {
    /// The queue pair takes it.
    pub const ACCEPT: Reception = Reception { met: 0, reply: Reply::Accept };
    /// It is dropped, by a quirk with only one label.
    pub const DROP: Reception = Reception { met: 1, reply: Reply::Drop };
}

/// A work request that completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Its queue pair.
    pub qp: Qpn,
    /// The caller's `wr_id`.
    pub wr_id: u64,
    /// The status of the completion.
    pub status: WcStatus,
    /// Whether it was a receive.
    pub is_receive: bool,
}

/// The time of a call, and random numbers for it.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The time, ns.
    pub now_ns: u64,
    /// Time since the chain was armed, ns.
    pub since_ns: u64,
    draws: &'a Draws,
    first_label: u32,
}

impl Moment<'_> {
    /// A random number for label `label` of the quirk and a packet: the same in each run.
    pub fn draw(&self, label: u32, packet: &PacketInfo) -> u64 {
        self.draws.draw(self.first_label + label, packet)
    }
}

/// A quirk; the module documentation explains it. The default methods leave packets unchanged.
pub trait Quirk: Send {
    /// The names of the quirk's effects in captures and reports, at least one. Bit n of
    /// [`Fate::met`] and [`Reception::met`] stands for label n.
    fn labels(&self) -> Vec<String>;

    /// Whether the quirk needs [`Quirk::packet_arrived`]. Asked once.
    fn watches_arrivals(&self) -> bool {
        false
    }

    /// Whether the quirk needs [`Quirk::message_completed`]. Asked once.
    fn watches_completions(&self) -> bool {
        false
    }

    /// A packet of a request or of a response is about to leave.
    fn packet_leaves(&mut self, packet: &PacketInfo, moment: &Moment<'_>) -> Fate {
        match packet.flow.is_response {
            false => self.request_leaves(packet, moment),
            true => self.response_leaves(packet, moment),
        }
    }

    /// A packet of a request is about to leave. [`PacketInfo::is_repeated`] tells a retransmission.
    fn request_leaves(&mut self, _packet: &PacketInfo, _moment: &Moment<'_>) -> Fate {
        Fate::PASS
    }

    /// A packet of a response is about to leave.
    fn response_leaves(&mut self, _packet: &PacketInfo, _moment: &Moment<'_>) -> Fate {
        Fate::PASS
    }

    /// An intact packet has arrived for one queue pair (not a group) that can receive. Here
    /// [`PacketInfo::is_repeated`] means that a packet with this PSN arrived before, accepted or
    /// not.
    fn packet_arrived(&mut self, _packet: &PacketInfo, _moment: &Moment<'_>) -> Reception {
        Reception::ACCEPT
    }

    /// A quirk of the chain answers a request that arrived with an RNR NAK, in place of the queue
    /// pair.
    fn rnr_nak_is_given(&mut self, _packet: &PacketInfo) {}

    /// A timer of a queue pair fired: the ACK time-out, or the end of an RNR wait. A retry begins,
    /// unless no retry is left.
    fn timer_fired(&mut self, _qp: Qpn, _kind: TimerKind, _moment: &Moment<'_>) {}

    /// A message of a queue pair completed: its work request has a completion in the CQ.
    fn message_completed(&mut self, _completion: &Completion, _moment: &Moment<'_>) {}

    /// A queue pair was reset or destroyed. A new connection may get its number soon.
    fn queue_pair_reset(&mut self, _qp: Qpn) {}
}

#[cfg(test)]
pub(crate) mod tests {
    use rdmalab_engine::qp::Standing;
    use rdmalab_wire::ids::Psn;

    use super::*;
    use crate::packet::{Class, Flow, Medium, Payload};

    /// A chain of one quirk.
    pub(crate) fn armed(quirk: impl Quirk + 'static) -> Chain {
        Chain::new(Draws::new(1), 0, vec![Box::new(quirk)])
    }

    fn packet(class: Class, psn: u32, local_qp: u32, remote_qp: u32) -> PacketInfo {
        let responses = [Class::ReadResponse, Class::AtomicResponse, Class::Ack, Class::Nak];
        PacketInfo {
            flow: Flow {
                source: "10.0.0.1".parse().unwrap(),
                destination: "10.0.0.2".parse().unwrap(),
                destination_qp: Qpn::new(remote_qp),
                source_qp: Qpn::new(0),
                is_response: responses.contains(&class),
            },
            local_qp: Qpn::new(local_qp),
            medium: Medium::Memory,
            class,
            psn: Psn::new(psn),
            psns: 1,
            transmission: None,
            standing: Some(Standing::Expected),
            bytes: 100,
            payload: Payload::default(),
        }
    }

    /// A packet that leaves queue pair 1 for 2.
    pub(crate) fn leaving(class: Class, psn: u32) -> PacketInfo {
        packet(class, psn, 1, 2)
    }

    /// A packet that arrived at queue pair 1.
    pub(crate) fn arriving(class: Class, psn: u32) -> PacketInfo {
        packet(class, psn, 1, 1)
    }
}
