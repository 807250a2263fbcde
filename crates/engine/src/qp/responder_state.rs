//! The state of the receiving half of a queue pair.

use std::collections::VecDeque;

use super::inbound::{FaultedRead, Inbound};
use super::recv_queue::HeldRecv;
use crate::train::Train;
use rdmalab_wire::ids::{Msn, PathMtu, Psn};

/// The result of an atomic, kept for repeated requests (IBA vol. 1, 9.7.7.1.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct AtomicResult {
    pub(super) psn: Psn,
    pub(super) original: u64,
    pub(super) msn: Msn,
}

/// A READ that was served, kept to recognise repeated requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServedRead {
    pub(super) psn: Psn,
    pub(super) packets: u32,
    pub(super) addr: u64,
    pub(super) rkey: u32,
    pub(super) bytes: u32,
}

impl ServedRead {
    /// Whether a request repeats this READ, or the part of it from some PSN on.
    pub(super) fn is_repeated_by(&self, train: &Train, mtu: PathMtu) -> bool {
        let skipped = train.first_psn.distance_from(self.psn);
        if skipped < 0 || skipped.unsigned_abs() >= self.packets || train.rkey.0 != self.rkey {
            return false;
        }
        let offset = u64::from(skipped.unsigned_abs()) << mtu.shift();
        train.remote_addr == self.addr.wrapping_add(offset)
            && offset + u64::from(train.dma_bytes) <= u64::from(self.bytes)
    }
}

/// Why a responder is not ready for a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum NotReady {
    /// No receive is posted.
    NoReceive,
    /// A page is missing.
    NoPage { is_read: bool },
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Pending {
    Nak(Train),
    /// Waits for [`super::Qp::release_fault_nak`] with this number.
    HeldNak(Train, u64),
    Atomic {
        train: Train,
        repeated: bool,
    },
    Read(PendingRead),
}

/// The part of a READ response that is still to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRead {
    pub(super) addr: u64,
    pub(super) rkey: u32,
    pub(super) left: u32,
    pub(super) psn: Psn,
    pub(super) packets: u32,
    /// No part of the response was sent yet.
    pub(super) first: bool,
    /// The request is a duplicate: it was answered before.
    pub(super) repeated: bool,
    pub(super) msn: Msn,
}

impl Pending {
    /// Whether it occupies one of `max_dest_rd_atomic`; repeated requests share the first one's.
    pub(super) fn takes_resource(&self) -> bool {
        match self {
            Pending::Nak(_) | Pending::HeldNak(..) => false,
            Pending::Atomic { repeated, .. } => !repeated,
            Pending::Read(read) => !read.repeated,
        }
    }
}

/// State of the receiving half of a QP.
#[derive(Clone, Debug)]
pub(super) struct Responder {
    pub(super) epsn: Psn,
    pub(super) msn: Msn,
    pub(super) inbound: Inbound,
    pub(super) held: HeldRecv,
    pub(super) holds: bool,
    /// A request was accepted and is not retired yet.
    pub(super) in_flight: bool,
    /// A NAK or RNR NAK was sent for `epsn`; no other is sent until that packet arrives.
    pub(super) nak_sent: bool,
    pub(super) pending: VecDeque<Pending>,
    pub(super) ack: Option<Psn>,
    pub(super) atomics: VecDeque<AtomicResult>,
    pub(super) reads: VecDeque<ServedRead>,
    /// The next response waits for a page.
    pub(super) waits_for_page: bool,
    /// The READ at `epsn` that was answered with an RNR NAK, if it is served without being
    /// repeated.
    pub(super) faulted_read: Option<Box<FaultedRead>>,
    /// Acknowledgements that were sent since the QP was made.
    pub(super) acks: u64,
}

impl Default for Responder {
    fn default() -> Self {
        Responder {
            epsn: Psn::new(0),
            msn: Msn::new(0),
            inbound: Inbound::None,
            held: HeldRecv::EMPTY,
            holds: false,
            in_flight: false,
            nak_sent: false,
            pending: VecDeque::new(),
            ack: None,
            atomics: VecDeque::new(),
            reads: VecDeque::new(),
            waits_for_page: false,
            faulted_read: None,
            acks: 0,
        }
    }
}

impl Responder {
    pub(super) fn start(&mut self, epsn: Psn) {
        self.abandon();
        self.holds = false;
        self.epsn = epsn;
        self.msn = Msn::new(0);
        self.atomics.clear();
        self.reads.clear();
    }

    /// Discards everything in progress except a held receive WQE, which the caller handles.
    pub(super) fn abandon(&mut self) {
        self.inbound = Inbound::None;
        self.in_flight = false;
        self.nak_sent = false;
        self.pending.clear();
        self.ack = None;
        self.waits_for_page = false;
        self.faulted_read = None;
    }

    /// Whether a message in progress holds a receive WQE.
    pub(super) fn holds_receive(&self) -> bool {
        self.holds
    }

    /// Releases the held receive WQE; says whether there was one.
    pub(super) fn release_held(&mut self) -> bool {
        core::mem::take(&mut self.holds)
    }
}
