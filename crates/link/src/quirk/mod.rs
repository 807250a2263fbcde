//! Quirks: what a device or a network does to packets beyond the protocol.
//!
//! A [`Quirk`] is asked at defined points of a packet's life, and says what becomes of the packet.
//! Fault rules ([`crate::faults`]) are one. Others remember what passed before: a response is lost
//! because of the request that it answers ([`drop_response`]), a request because of what the
//! responder is busy with ([`damming`]). Each quirk is one file of this folder, with its test.
//!
//! The points, in the order in which a message meets them:
//!
//! | point | device |
//! |---|---|
//! | [`Quirk::request_leaves`], by packet, first transmission or repetition | requester |
//! | [`Quirk::packet_arrived`] | responder |
//! | [`Quirk::page_not_present`], for On-Demand Paging | either |
//! | [`Quirk::response_leaves`]: READ and atomic responses, ACK, NAK | responder |
//! | [`Quirk::packet_arrived`] | requester |
//! | [`Quirk::timer_fired`]: a retry begins | requester |
//! | [`Quirk::message_completed`] | both |
//! | [`Quirk::queue_pair_reset`] | both |
//!
//! A quirk has no clock and no generator of random numbers: both come with the [`Moment`]. Its
//! state is bounded: what it keeps for queue pairs or flows lies in a
//! [`crate::bounded::BoundedMap`], of 4096 entries. A [`Chain`] asks several quirks one after the
//! other.

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

/// What becomes of a packet that is about to leave. Several of these add up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fate {
    /// The labels of the quirk that met the packet, a bit each.
    pub met: u64,
    /// It is dropped.
    pub lost: bool,
    /// It is damaged: one bit is changed; which one follows from this number.
    pub corrupt: Option<u64>,
    /// It comes so many times more.
    pub copies: u32,
    /// It leaves so much later, ns.
    pub delay_ns: u64,
    /// It is reordered: it leaves behind so many later packets of its flow.
    pub behind: u32,
}

impl Fate {
    /// It leaves as it is.
    pub const PASS: Fate =
        Fate { met: 0, lost: false, corrupt: None, copies: 0, delay_ns: 0, behind: 0 };

    /// The only label of a quirk drops it.
    pub const DROP: Fate = Fate { met: 1, lost: true, ..Fate::PASS };

    /// The only label of a quirk makes it leave so much later.
    pub const fn delay(delay_ns: u64) -> Fate {
        Fate { met: 1, delay_ns, ..Fate::PASS }
    }
}

/// What becomes of a packet that has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reply {
    /// The queue pair takes it.
    #[default]
    Accept,
    /// It is dropped as if it had never arrived.
    Drop,
    /// A request is answered by the device, and not executed.
    Answer(Answer),
}

/// What a device answers without executing the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// RNR NAK, with the queue pair's `min_rnr_timer`.
    RnrNak,
    /// NAK. All but a PSN sequence error end the connection.
    Nak(NakCode),
}

/// A [`Reply`], and which labels of the quirk gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reception {
    /// The labels of the quirk that met the packet, a bit each.
    pub met: u64,
    /// What becomes of it.
    pub reply: Reply,
}

impl Reception {
    /// The queue pair takes it.
    pub const ACCEPT: Reception = Reception { met: 0, reply: Reply::Accept };
    /// The only label of a quirk drops it.
    pub const DROP: Reception = Reception { met: 1, reply: Reply::Drop };
}

/// A work request that completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Its queue pair.
    pub qp: Qpn,
    /// The caller's number of it.
    pub wr_id: u64,
    /// How it ended.
    pub status: WcStatus,
    /// Whether it was a receive.
    pub is_receive: bool,
}

/// When a point is passed, and random numbers for it.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The time, ns.
    pub now_ns: u64,
    /// How long ago the chain was armed, ns.
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

/// See the module's text. What a quirk does not look at, it leaves as it is.
pub trait Quirk: Send {
    /// What captures and reports call what it does; at least one. Bit n of [`Fate::met`] and
    /// [`Reception::met`] speaks of label n.
    fn labels(&self) -> Vec<String>;

    /// Whether it has to be told of packets that arrive. Asked once.
    fn watches_arrivals(&self) -> bool {
        false
    }

    /// Whether it has to be told of completions. Asked once.
    fn watches_completions(&self) -> bool {
        false
    }

    /// A packet is about to leave: of a request, or of a response.
    fn packet_leaves(&mut self, packet: &PacketInfo, moment: &Moment<'_>) -> Fate {
        match packet.flow.is_response {
            false => self.request_leaves(packet, moment),
            true => self.response_leaves(packet, moment),
        }
    }

    /// A packet of a request is about to leave. [`PacketInfo::is_repeated`] tells a repetition.
    fn request_leaves(&mut self, _packet: &PacketInfo, _moment: &Moment<'_>) -> Fate {
        Fate::PASS
    }

    /// A packet of a response is about to leave.
    fn response_leaves(&mut self, _packet: &PacketInfo, _moment: &Moment<'_>) -> Fate {
        Fate::PASS
    }

    /// A packet has arrived that is intact, for one queue pair (not a group) that can receive. Here
    /// [`PacketInfo::is_repeated`] means that a packet of this number arrived before, whatever
    /// became of it.
    fn packet_arrived(&mut self, _packet: &PacketInfo, _moment: &Moment<'_>) -> Reception {
        Reception::ACCEPT
    }

    /// A page is not present that the device needs for a packet: for a request the memory that it
    /// reads or writes, for a READ response the memory that it is placed in. [`Reply::Accept`]
    /// places it once the page is there.
    ///
    /// No driver calls this yet: On-Demand Paging will.
    fn page_not_present(&mut self, _packet: &PacketInfo, _moment: &Moment<'_>) -> Reception {
        Reception::ACCEPT
    }

    /// A timer of a queue pair fired: the ACK time-out, or the end of an RNR wait. A retry begins,
    /// unless there is none left.
    fn timer_fired(&mut self, _qp: Qpn, _kind: TimerKind, _moment: &Moment<'_>) {}

    /// A message of a queue pair completed: its work request has a completion in the CQ.
    fn message_completed(&mut self, _completion: &Completion, _moment: &Moment<'_>) {}

    /// A queue pair was reset or destroyed: its number may soon be another connection's.
    fn queue_pair_reset(&mut self, _qp: Qpn) {}
}

#[cfg(test)]
pub(crate) mod tests {
    use rdmalab_wire::ids::Psn;

    use super::*;
    use crate::packet::{Class, Flow, Medium, Payload};

    /// One quirk in a chain of its own.
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
            in_order: true,
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
