//! The responder: checks requests in order, says where their payload goes, and answers them.
//!
//! Responses are sent in one FIFO, so that an acknowledgement never overtakes the data of an
//! earlier READ. Plain acknowledgements are coalesced: only the newest is kept, behind that FIFO.

mod fetch;
mod message;
mod single;

pub use single::SingleRecv;

use super::inbound::{FaultedRead, Inbound};
use super::recv_queue::{HeldRecv, TakeRecv};
use super::responder_state::{NotReady, Pending, ServedRead};
use super::{Accept, CopyError, DropReason, Env, Qp};
use crate::mr::{self, KeyEntry, Refusal};
use crate::train::{Train, TrainFlags, TrainKind};
use crate::vocab::*;
use rdmalab_wire::aeth::{NakCode, RnrTimer, Syndrome};
use rdmalab_wire::ids::Psn;

/// Answers that may wait to be sent: `max_dest_rd_atomic` of READs and atomics, as many repeated
/// ones, and a NAK.
pub const MAX_PENDING_RESPONSES: usize = 64;

/// Bytes that precede a datagram in its receive buffer, for the routing header (IBA 11.4.2.1).
pub const GRH_BYTES: u32 = 40;

/// Something to be sent to the requester.
#[derive(Clone, Copy, Debug)]
pub struct Response {
    /// The train.
    pub train: Train,
    /// Part of the data of a READ: its address in the owner's memory (checked just now), and the
    /// region, as it was found. When it cannot be read, call [`Qp::fail_read`]. `None`: the train
    /// has no payload.
    pub data: Option<(u64, KeyEntry)>,
}

/// The destination of a request's payload.
#[derive(Clone, Copy, Debug)]
pub enum PlacementTarget {
    /// There is no payload.
    Nothing,
    /// The held receive WQE's scatter list ([`Qp::held_recv`]), from byte `offset` on.
    Receive {
        /// Offset in the scatter list.
        offset: u64,
    },
    /// The owner's memory at this virtual address, which was checked just now.
    Memory {
        /// First byte.
        host_addr: u64,
        /// The region, as it was found.
        entry: KeyEntry,
    },
}

/// The first half of a request that carries data.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    pub(super) generation: u32,
    /// Where the payload goes.
    pub target: PlacementTarget,
    /// Bytes of the train's payload to skip, because they arrived before.
    pub skip_bytes: u32,
    /// Bytes to place.
    pub bytes: u32,
    last_psn: Psn,
    ends: bool,
    message_bytes: u32,
    /// A NAK that follows, because the train's last packet cannot be taken yet.
    refused: Option<(Psn, NotReady)>,
}

/// An atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicOp {
    /// Store `swap` if the value equals `compare`.
    CmpSwap {
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Add, modulo 2^64.
    FetchAdd {
        /// The addend.
        add: u64,
    },
}

/// The first half of an atomic request.
#[derive(Clone, Copy, Debug)]
pub struct AtomicJob {
    pub(super) generation: u32,
    /// The operation.
    pub op: AtomicOp,
    /// Virtual address, a multiple of 8.
    pub host_addr: u64,
    /// The region.
    pub entry: KeyEntry,
    psn: Psn,
}

/// Where a request stands for its responder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The responder executed it, or will execute it when its pages come.
    Taken,
    /// It is the next one.
    Expected,
    /// A request before it is missing.
    Ahead,
}

fn nak_of(_refusal: Refusal) -> NakCode {
    NakCode::RemoteAccessError
}

impl Qp {
    /// The receive WQE that the message in progress goes into.
    #[inline]
    pub fn held_recv(&self) -> &HeldRecv {
        &self.resp.held
    }

    /// PSN that the responder expects next.
    pub fn expected_psn(&self) -> Psn {
        self.resp.epsn
    }

    /// Where a request with this PSN stands for the responder of a reliable connection.
    pub fn standing(&self, psn: Psn) -> Standing {
        let is_held = |read: &FaultedRead| read.train.first_psn == psn;
        if self.resp.epsn.is_before(psn) {
            Standing::Ahead
        } else if psn != self.resp.epsn || self.resp.faulted_read.as_deref().is_some_and(is_held) {
            Standing::Taken
        } else {
            Standing::Expected
        }
    }

    /// Starts the responder at the attribute `rq_psn` (RTR).
    pub(super) fn start_responder(&mut self) {
        self.resp.start(Psn::new(self.attr.rq_psn));
    }

    #[inline]
    pub(super) fn accept_rc<E: Env>(&mut self, train: &Train, env: &mut E) -> Accept {
        let fold = train.fold;
        if fold.packets | fold.messages != 0
            && self.resp.epsn == train.first_psn.sub(fold.packets)
            && matches!(self.resp.inbound, Inbound::None)
        {
            self.resp.epsn = train.first_psn;
            self.resp.msn = self.resp.msn.add(fold.messages);
        }
        let distance = train.first_psn.distance_from(self.resp.epsn);
        if distance > 0 {
            return self.nak_gap();
        }
        let mut skip = 0;
        if distance < 0 {
            let packets = if train.kind == TrainKind::ReadRequest { 1 } else { train.packets };
            if train.first_psn.add(packets).distance_from(self.resp.epsn) <= 0 {
                return self.accept_duplicate(train, env);
            }
            skip = distance.unsigned_abs();
        }
        let before = self.resp.epsn.sub(1);
        let accepted = match train.kind {
            TrainKind::Send => self.accept_send(train, skip, env),
            TrainKind::Write => self.accept_write(train, skip, env),
            TrainKind::ReadRequest => self.accept_read(train, env),
            _ => self.accept_atomic(train, env),
        };
        if skip > 0 && matches!(accepted, Accept::Place(_)) {
            // Each of those duplicates would be acknowledged if it came alone. Not while the train
            // stalls, because it is offered repeatedly.
            self.resp.ack = Some(before);
        }
        accepted
    }

    /// A later PSN than the expected one: NAK once per gap (IBA vol. 1, 9.7.5.2.8).
    #[cold]
    fn nak_gap(&mut self) -> Accept {
        if self.resp.nak_sent {
            return Accept::Drop(DropReason::OutOfOrder);
        }
        self.resp.nak_sent = true;
        let epsn = self.resp.epsn;
        self.push_nak(epsn, Syndrome::Nak(NakCode::PsnSequenceError));
        Accept::Done
    }

    pub(super) fn response(&self, kind: TrainKind, psn: Psn, syndrome: Syndrome) -> Train {
        let mut train = Train::new(kind, self.remote_qpn, self.qpn, psn);
        train.flags = TrainFlags(TrainFlags::FIRST | TrainFlags::LAST);
        train.syndrome = syndrome;
        train.msn = self.resp.msn;
        train
    }

    /// Queues a NAK.
    pub(super) fn push_nak(&mut self, psn: Psn, syndrome: Syndrome) {
        let nak = self.response(TrainKind::Ack, psn, syndrome);
        self.push_pending_nak(Pending::Nak(nak));
    }

    /// A NAK implies the pending acknowledgement, which is dropped.
    fn push_pending_nak(&mut self, nak: Pending) {
        self.resp.ack = None;
        if self.resp.pending.len() < MAX_PENDING_RESPONSES {
            self.resp.pending.push_back(nak);
        }
        debug_assert!(
            self.resp.pending.len() <= MAX_PENDING_RESPONSES,
            "more responses wait than there is room for"
        );
    }

    /// Queues an RNR NAK, unless one for the same PSN is held back: a request that is repeated
    /// meanwhile gets no other.
    pub(super) fn push_rnr_nak<E: Env>(&mut self, psn: Psn, reason: NotReady, env: &mut E) {
        let answers =
            |one: &Pending| matches!(one, Pending::HeldNak(nak, _) if nak.first_psn == psn);
        if self.resp.pending.iter().any(answers) {
            self.resp.ack = None;
            return;
        }
        let nak = self.response(TrainKind::Ack, psn, self.rnr_syndrome());
        let number = match reason {
            NotReady::NoPage { is_read } => env.hold_fault_nak(is_read),
            NotReady::NoReceive => None,
        };
        self.push_pending_nak(match number {
            Some(number) => Pending::HeldNak(nak, number),
            None => Pending::Nak(nak),
        });
    }

    /// Answers the request at `psn` with an RNR NAK in place of [`Qp::accept`], for a device that
    /// cannot serve it now. `psn` is not after [`Qp::expected_psn`]: a NAK acknowledges everything
    /// that was sent before it.
    #[cold]
    pub fn answer_rnr_nak(&mut self, psn: Psn) {
        debug_assert!(!self.resp.epsn.is_before(psn), "{psn:?} is after {:?}", self.resp.epsn);
        let syndrome = self.rnr_syndrome();
        self.push_nak(psn, syndrome);
        self.resp.nak_sent |= psn == self.resp.epsn;
    }

    /// Answers the request at `psn` with a NAK in place of [`Qp::accept`]: see
    /// [`Qp::answer_rnr_nak`]. All codes but a PSN sequence error end the connection.
    #[cold]
    pub fn answer_nak<E: Env>(&mut self, psn: Psn, code: NakCode, env: &mut E) {
        debug_assert!(!self.resp.epsn.is_before(psn), "{psn:?} is after {:?}", self.resp.epsn);
        if code == NakCode::PsnSequenceError {
            self.push_nak(psn, Syndrome::Nak(code));
            self.resp.nak_sent |= psn == self.resp.epsn;
        } else {
            self.refuse(psn, code, env);
        }
    }

    /// Handles a request that was executed before (IBA vol. 1, 9.7.5.1.3): acknowledges it again,
    /// reads again, or sends an atomic's saved value.
    fn accept_duplicate<E: Env>(&mut self, train: &Train, env: &mut E) -> Accept {
        match train.kind {
            TrainKind::Send | TrainKind::Write => {
                self.resp.ack = Some(self.resp.epsn.sub(1));
                Accept::Done
            }
            TrainKind::ReadRequest => {
                // Anybody can send a packet with an old PSN. To validate it as a new request would
                // let him end the connection with a wrong key. So only a READ that was served is
                // served again, and asks for no more than it did (IBA vol. 1, 9.7.5.1.3).
                let is_known = |read: &ServedRead| read.is_repeated_by(train, self.mtu);
                if !self.resp.reads.iter().any(is_known) {
                    return Accept::Drop(DropReason::OutOfOrder);
                }
                self.queue_read(train, true, env)
            }
            _ => {
                let saved = self.resp.atomics.iter().find(|saved| saved.psn == train.first_psn);
                let Some(saved) = saved.copied() else {
                    return Accept::Drop(DropReason::OutOfOrder);
                };
                let mut reply = self.response(TrainKind::AtomicResponse, saved.psn, Syndrome::ACK);
                reply.swap_add = saved.original;
                reply.msn = saved.msn;
                self.push_pending(Pending::Atomic { train: reply, repeated: true })
            }
        }
    }

    fn push_pending(&mut self, pending: Pending) -> Accept {
        if self.resp.pending.len() >= MAX_PENDING_RESPONSES {
            return Accept::Drop(DropReason::TooManyResponses);
        }
        self.resp.pending.push_back(pending);
        Accept::Done
    }

    /// NAKs a request that can never be taken and ends the QP (IBA vol. 1, table 57, class C).
    #[cold]
    fn refuse<E: Env>(&mut self, psn: Psn, code: NakCode, env: &mut E) -> Accept {
        let event = match code {
            NakCode::RemoteAccessError => AsyncEventType::QpAccessErr,
            _ => AsyncEventType::QpReqErr,
        };
        self.end_with_nak(psn, code, env);
        env.event(event);
        Accept::Done
    }

    /// Enters ERR, leaving only the NAK to be sent.
    #[cold]
    pub(super) fn end_with_nak<E: Env>(&mut self, psn: Psn, code: NakCode, env: &mut E) {
        let waiting = core::mem::take(&mut self.resp.pending);
        self.enter_error(env);
        debug_assert!(self.state == QpState::Err, "a NAK in {:?} ends nothing", self.state);
        self.resp.pending = waiting;
        self.push_nak(psn, Syndrome::Nak(code));
    }

    /// Takes a receive WQE for a message that begins, unless one is held from a broken one.
    #[inline]
    pub(super) fn take_receive<E: Env>(&mut self, env: &mut E) -> TakeRecv {
        if self.resp.holds {
            return TakeRecv::Taken;
        }
        let taken = match &mut self.rq {
            Some(rq) => rq.take(&mut self.resp.held),
            None => env.take_shared(&mut self.resp.held),
        };
        self.resp.holds = taken == TakeRecv::Taken;
        taken
    }

    pub(super) fn rnr_syndrome(&self) -> Syndrome {
        Syndrome::RnrNak(RnrTimer::new(self.attr.min_rnr_timer & 31).unwrap_or_default())
    }

    #[inline]
    pub(super) fn check_key<E: Env>(
        &self,
        rkey: u32,
        need: Access,
        addr: u64,
        bytes: u64,
        env: &E,
    ) -> Result<(u64, KeyEntry), NakCode> {
        if !self.attr.qp_access_flags.contains(need) {
            return Err(NakCode::RemoteAccessError);
        }
        let entry = env.key(rkey);
        let host = mr::check_remote(entry.as_ref(), rkey, self.pd, self.qpn, need, addr, bytes)
            .map_err(nak_of)?;
        entry.map(|entry| (host, entry)).ok_or(NakCode::RemoteAccessError)
    }

    /// Completes the held receive WQE with an error.
    pub(super) fn end_receive<E: Env>(&mut self, status: WcStatus, env: &mut E) {
        if self.resp.release_held() {
            env.recv_completion(self.recv_wc(self.resp.held.wr_id, status), false);
        }
        self.resp.inbound = Inbound::None;
    }

    /// Retires a request after its payload was placed, or could not be. Completions are produced
    /// here, so that neither program nor peer learns of data before it is in memory.
    #[inline]
    pub fn retire_request<E: Env>(
        &mut self,
        train: &Train,
        placement: &Placement,
        result: Result<(), CopyError>,
        env: &mut E,
    ) {
        if placement.generation != self.generation {
            return;
        }
        debug_assert!(self.resp.in_flight, "a request is retired twice");
        self.resp.in_flight = false;
        if let Err(error) = result {
            // Earlier packets stay acknowledged: the NAK names the first packet after them.
            let skipped = placement.skip_bytes >> self.mtu.shift();
            return self.placing_failed(train, train.first_psn.add(skipped), error, env);
        }
        if placement.ends {
            self.resp.msn = self.resp.msn.next();
            if train.flags.has(TrainFlags::INV) && !env.invalidate(train.imm_or_rkey) {
                return self.invalidate_failed(env);
            }
            if train.kind == TrainKind::Send || train.flags.has(TrainFlags::IMM) {
                self.complete_receive(train, placement.message_bytes, env);
            }
        }
        if self.qp_type == QpType::Rc {
            if train.flags.has(TrainFlags::ACK_REQ) && placement.refused.is_none() {
                self.resp.ack = Some(placement.last_psn);
            }
            if let Some((psn, reason)) = placement.refused {
                self.push_rnr_nak(psn, reason, env);
                self.resp.nak_sent = true;
            }
        }
    }

    /// The key of a SEND with Invalidate cannot be invalidated: the receive and the QP end with an
    /// error, and the requester gets no NAK (IBA vol. 1, 9.9.6.3, class J). What was executed
    /// before is still acknowledged.
    #[cold]
    fn invalidate_failed<E: Env>(&mut self, env: &mut E) {
        self.end_receive(WcStatus::LocProtErr, env);
        let (waiting, ack) = (core::mem::take(&mut self.resp.pending), self.resp.ack.take());
        self.enter_error(env);
        (self.resp.pending, self.resp.ack) = (waiting, ack);
    }

    #[inline]
    fn complete_receive<E: Env>(&mut self, train: &Train, bytes: u32, env: &mut E) {
        debug_assert!(self.resp.holds, "a message completes a receive that it never took");
        debug_assert!(
            train.kind == TrainKind::Write || bytes as u64 <= self.resp.held.capacity,
            "a message is longer than the receive that it completes"
        );
        self.resp.holds = false;
        let mut wc = self.recv_wc(self.resp.held.wr_id, WcStatus::Success);
        wc.byte_len = bytes;
        if self.qp_type == QpType::Ud {
            wc.src_qp = train.src_qpn.get();
            wc.slid = train.slid;
            wc.sl = train.sl;
        }
        let grh = match train.flags.has(TrainFlags::GRH) {
            true => WcFlags::GRH,
            false => WcFlags::NONE,
        };
        wc.wc_flags = grh;
        if train.kind == TrainKind::Write {
            wc.opcode = WcOpcode::RecvRdmaWithImm;
        }
        if train.flags.has(TrainFlags::IMM) {
            wc.wc_flags = grh | WcFlags::WITH_IMM;
            wc.imm_or_rkey = train.imm_or_rkey;
        } else if train.flags.has(TrainFlags::INV) {
            wc.wc_flags = grh | WcFlags::WITH_INV;
            wc.imm_or_rkey = train.imm_or_rkey;
        }
        env.recv_completion(wc, train.flags.has(TrainFlags::SOLICITED));
    }

    /// Local memory failed while a request was placed: the receiver's completion has the cause, and
    /// the requester gets a remote operational error (IBA vol. 1, table 57, class B).
    #[cold]
    fn placing_failed<E: Env>(&mut self, train: &Train, psn: Psn, error: CopyError, env: &mut E) {
        if self.qp_type != QpType::Rc && train.kind == TrainKind::Write {
            self.resp.inbound = Inbound::Skip;
            return;
        }
        let status = match (train.kind, error) {
            (TrainKind::Write, _) => WcStatus::LocAccessErr,
            _ => WcStatus::LocProtErr,
        };
        let told = self.resp.holds;
        self.end_receive(status, env);
        if self.qp_type == QpType::Rc {
            self.end_with_nak(psn, NakCode::RemoteOperationalError, env);
            if !told {
                // No completion says why the QP is in ERR (IBA vol. 1, 11.6.3.2).
                env.event(AsyncEventType::QpFatal);
            }
        } else {
            self.enter_error(env);
        }
    }
}
