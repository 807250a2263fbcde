//! What happens between a requester and its responder, as the rules see it.

use rdmalab_trace::Seen;
use rdmalab_trace::show::opcode;
use rdmalab_wire::aeth::NakCode;
use rdmalab_wire::ids::Psn;
use rdmalab_wire::opcode::{Opcode, Operation, Suffix, Transport};
use serde::Serialize;

/// One of the two requesters of a pair of queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SideId {
    /// The number of the pair.
    pub pair: usize,
    /// Whether the requester is the pair's first end.
    pub is_first: bool,
}

/// A frame, and when it was captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stamp {
    /// The number of the file, from 1.
    pub file: usize,
    /// The number of the frame in that file, from 1, as Wireshark counts.
    pub frame: u64,
    /// Since 1970, UTC, in nanoseconds.
    pub at_ns: u64,
}

impl Stamp {
    /// The time since an earlier frame.
    #[must_use]
    pub fn since(self, earlier: Stamp) -> u64 {
        self.at_ns.saturating_sub(earlier.at_ns)
    }
}

/// A request packet, with what became of it.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// Its PSN.
    pub psn: Psn,
    /// PSNs that it takes: a READ takes one for each packet of its response.
    pub count: u32,
    /// Its opcode.
    pub opcode: Opcode,
    /// Its payload.
    pub payload_bytes: u32,
    /// The remote address and length that it names, if it does.
    pub target: Option<(u64, u32)>,
    /// When it was first sent.
    pub first: Stamp,
    /// When it was last sent.
    pub last: Stamp,
    /// When it was sent before that.
    pub previous: Option<Stamp>,
    /// How often it was sent.
    pub sends: u32,
    /// Its last answer that is no NAK.
    pub answer: Option<Stamp>,
    /// PSNs of its response that came one after the other.
    pub data: u32,
    /// Whether the last packet of its response came, although one before it is missing.
    pub has_ended: bool,
    /// Whether it was refused for good.
    pub is_refused: bool,
}

impl Ask {
    /// Whether a PSN is one of its own.
    #[must_use]
    pub fn has(&self, psn: Psn) -> bool {
        (0..self.count as i32).contains(&psn.distance_from(self.psn))
    }

    /// Its last PSN.
    #[must_use]
    pub fn last_psn(&self) -> Psn {
        self.psn.add(self.count.max(1) - 1)
    }

    /// A packet of its response came. Says whether none before it is missing.
    pub fn gets_data(&mut self, psn: Psn) -> bool {
        let place = psn.distance_from(self.psn).unsigned_abs();
        if place == self.data {
            self.data += 1;
        }
        place < self.data
    }

    /// Whether it is a READ or an atomic, which carries its answer.
    #[must_use]
    pub fn returns_data(&self) -> bool {
        use Operation::{CompareSwap, FetchAdd, ReadRequest};
        matches!(self.opcode.operation(), ReadRequest | CompareSwap | FetchAdd)
    }

    /// Whether the responder needs a receive for it: an RNR NAK is then no page fault for certain.
    #[must_use]
    pub fn needs_receive(&self) -> bool {
        self.opcode.operation() == Operation::Send || self.opcode.suffix() == Suffix::Immediate
    }

    /// Its name with its PSN.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} (PSN {})", opcode(self.opcode), self.psn.get())
    }
}

/// Why a request was repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// An RNR NAK asked for it.
    Rnr(Stamp),
    /// A NAK for a PSN sequence error asked for it.
    Nak(Stamp),
    /// A response was missing: a later one came.
    MissingResponse(Stamp),
    /// It had been answered: its requester did not get or not use the answer.
    Answered(Stamp),
    /// It came twice within less than the shortest time-out.
    Copy,
    /// Nothing in the capture asked for it.
    Silence,
}

/// A run of RNR NAKs to one request.
#[derive(Clone, Copy, Debug)]
pub struct Refusals {
    /// The first NAK.
    pub first: Stamp,
    /// The last one.
    pub last: Stamp,
    /// How many.
    pub naks: u32,
    /// The wait that the last one asked for.
    pub wait_ns: u64,
}

/// What a packet, or the end of the capture, means for one requester.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A packet, before anything else is said about it.
    Packet(&'a Seen),
    /// A request was sent for the first time.
    Sent(&'a Ask),
    /// PSNs before a request are missing.
    Gap,
    /// A request came that had been missing since a later one came.
    Filled {
        /// The frame that showed the gap.
        gap: Stamp,
        /// The NAK that asked for it.
        nak: Option<Stamp>,
    },
    /// A request was sent again.
    Again {
        /// The request, before this repetition.
        ask: &'a Ask,
        /// Why.
        why: Why,
        /// Whether it is the first of a run of repetitions with one cause.
        is_start: bool,
        /// Requests after it that were waiting for an answer.
        behind: usize,
    },
    /// A request that was answered long ago, or sent before the capture, was sent again.
    AgainUnseen,
    /// The responder asked to wait.
    Rnr(&'a Ask, u64),
    /// An RNR NAK was overcome; at the end of the capture, it was not.
    RnrOver {
        /// The request.
        ask: &'a Ask,
        /// Its NAKs.
        naks: Refusals,
        /// Whether it was answered.
        is_answered: bool,
    },
    /// The responder refused, or asked for a PSN.
    Nak {
        /// Why.
        code: NakCode,
        /// The PSN that it names.
        psn: Psn,
        /// The request that has it.
        ask: Option<&'a Ask>,
        /// Whether the PSN lies in a gap, or before what the capture has.
        is_gap: bool,
        /// Whether the capture has no request before it.
        is_first: bool,
    },
    /// A request was answered; the first time.
    Answered(&'a Ask),
    /// A request was answered again.
    AnsweredAgain(Psn),
    /// The capture ends, and this request, the first of its requester, was not answered.
    Unanswered(&'a Ask),
}

/// An event at one requester.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Which requester.
    pub side: SideId,
    /// The transport.
    pub transport: Transport,
    /// Whether the capture has both directions.
    pub has_both: bool,
    /// When: the packet's frame; at the end of the capture its last frame.
    pub now: Stamp,
    /// What happens.
    pub event: Event<'a>,
    /// Whether an earlier rule has explained the event.
    pub is_explained: bool,
}
