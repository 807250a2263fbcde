//! The queue pair: requester, completer and responder over shared queues, and its states.
//!
//! A driver owns each [`Qp`] under its own lock and calls, in any order:
//! - [`Qp::post_send`], [`Qp::post_recv`], [`Qp::modify`]: what the program asks for;
//! - [`Qp::fetch_sends`], [`Qp::fetch_receives`]: the adapter has read what was posted; before
//!   that, posted sends are not planned, and a message that needs a posted receive stalls;
//! - [`Qp::plan`] and, after it moved the payload, [`Qp::retire_sent`]: what goes out;
//! - [`Qp::accept`] and, after it moved the payload, one of the `retire_*`: what came in;
//! - [`Qp::next_response`]: acknowledgements and responses to be sent;
//! - [`Qp::timer`] and [`Qp::on_timer`]: time, which only the driver knows;
//! - [`Qp::room_with_pages`] and [`Qp::pages_arrived`], if memory is paged on demand.
//!
//! Between `accept` and its `retire_*`, another train of that direction (requests, or responses)
//! gets [`Accept::Stall`]: one plan is in flight for each. Any number of sends may be planned
//! before they are retired, in the order of the plans. When a QP enters ERR or RESET in between,
//! its plans become void, and retiring them does nothing; after RESET the driver forgets planned
//! sends. After a post to a send queue in SQE or ERR, or to a receive queue in ERR, the driver
//! calls [`Qp::flush_sends`] or [`Qp::flush_receives`].

mod adapter;
pub mod attr;
mod completer;
mod datagram;
mod inbound;
mod modify;
mod paging;
pub mod recv_queue;
mod requester;
mod requester_state;
mod respond;
mod responder;
mod responder_state;
pub mod send_queue;
#[cfg(test)]
mod single_tests;
mod tally;
#[cfg(test)]
mod tally_tests;
#[cfg(test)]
mod window_tests;

pub use adapter::Adapter;
pub use completer::ResponsePlacement;
pub use requester::{MAX_OUTSTANDING_PACKETS, Plan, SingleSend};
pub use requester_state::{Timer, TimerKind};
pub use responder::{
    AtomicJob, AtomicOp, GRH_BYTES, Placement, PlacementTarget, Response, SingleRecv, Standing,
};
pub use tally::Tally;

use crate::backend::{PostError, QpInit, RecvWr, SendWr};
pub use crate::mr::CopyError;
use crate::mr::KeyEntry;
use crate::odp::{Side, Span};
use crate::train::Train;
use crate::vocab::*;
use rdmalab_wire::ids::{PathMtu, Qpn};
use recv_queue::{HeldRecv, RecvQueue, TakeRecv};
use send_queue::SendQueue;

/// Functions of the driver that the engine calls while it decides.
pub trait Env {
    /// The entry of a key of this adapter, a consistent snapshot.
    fn key(&self, key: u32) -> Option<KeyEntry>;
    /// Takes a receive WQE from the QP's shared receive queue.
    fn take_shared(&mut self, held: &mut HeldRecv) -> TakeRecv;
    /// Puts a completion into the send CQ; when it has been polled, send queue slots below
    /// `sq_free_to` are free.
    fn send_completion(&mut self, wc: Wc, sq_free_to: u32);
    /// Puts a completion into the receive CQ.
    fn recv_completion(&mut self, wc: Wc, solicited: bool);
    /// Invalidates the remote key that a SEND with invalidate names; `false` when it is not a type
    /// 2 window of this QP.
    fn invalidate(&mut self, rkey: u32) -> bool;
    /// Raises an asynchronous event of this QP.
    fn event(&mut self, event: AsyncEventType);
    /// Whether this adapter has regions that are paged on demand. If not,
    /// [`Env::access_pages`] is not called.
    #[inline(always)]
    fn has_on_demand(&self) -> bool {
        false
    }
    /// Accesses a part of an on-demand region for this QP: see [`crate::odp::Paging::access`].
    /// Returns how many bytes, from the first on, can be reached.
    fn access_pages(&mut self, _region: &KeyEntry, span: &Span, _side: Side) -> u64 {
        span.bytes
    }
    /// A request is answered with an RNR NAK because of a page fault: `is_read` tells of which kind
    /// it is. `Some`: the NAK, and what follows it, waits for [`Qp::release_fault_nak`] with this
    /// number, which the driver gives to no other NAK.
    fn hold_fault_nak(&mut self, _is_read: bool) -> Option<u64> {
        None
    }
}

/// Why a train was dropped; each reason is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DropReason {
    /// The QP's state takes no packets.
    State,
    /// The transport or the sender does not fit this QP.
    NotForUs,
    /// A gap that was already NAKed, or a late duplicate.
    OutOfOrder,
    /// UC or UD without a receive WQE.
    NoReceive,
    /// UC or UD: the message is longer than the receive WQE.
    TooLong,
    /// UC: a message that broke off, or one that was refused.
    Broken,
    /// The queue key of a datagram did not match.
    QKey,
    /// More responses are pending than `max_dest_rd_atomic` allows.
    TooManyResponses,
    /// A page that it needs is not present.
    PageFault,
    /// The requester waits and will repeat what this answers.
    Paused,
}

/// What the driver has to do about a train that arrived.
#[derive(Debug)]
pub enum Accept {
    /// Everything was done; [`Qp::next_response`] may have something to send.
    Done,
    /// Dropped.
    Drop(DropReason),
    /// The adapter has not read the receive WQE yet, or the train before this one is not retired:
    /// offer the train again.
    Stall,
    /// Move the payload, then call [`Qp::retire_request`].
    Place(Placement),
    /// Execute it on memory, then call [`Qp::retire_atomic`].
    Atomic(AtomicJob),
    /// Move the payload of a response, then call [`Qp::retire_response`].
    PlaceResponse(ResponsePlacement),
}

/// A queue pair. See the module's text for how it is driven.
#[derive(Clone, Debug)]
pub struct Qp {
    /// Its number.
    pub qpn: Qpn,
    /// Its transport service.
    pub qp_type: QpType,
    /// Its protection domain.
    pub pd: PdId,
    /// Its state.
    pub state: QpState,
    /// Its attributes as set so far.
    pub attr: QpAttr,
    /// Path MTU of the connection; the port's for datagrams.
    pub mtu: PathMtu,
    /// The other end of the connection.
    pub remote_qpn: Qpn,
    /// Packets that may be outstanding: [`MAX_OUTSTANDING_PACKETS`], or fewer if the driver's link
    /// loses packets that are sent too fast.
    pub window_packets: u32,
    /// An acknowledgement is requested at the latest after so many packets, or after a quarter of
    /// the window, also in the middle of a message.
    pub ack_packets: u32,
    /// Whether each send produces a completion.
    pub signal_all: bool,
    /// The behaviour of the adapter where IBA leaves it open. Boxed, as what is counted, to keep
    /// what each message needs together.
    pub adapter: Box<Adapter>,
    /// The send queue.
    pub sq: SendQueue,
    /// The receive queue; `None` when it uses a shared one.
    pub rq: Option<RecvQueue>,
    req: requester_state::Requester,
    resp: responder_state::Responder,
    /// Changes whenever plans in flight become void (RESET, ERR).
    generation: u32,
    established: bool,
    drain_reported: bool,
    counted: Box<tally::Counted>,
}

impl Qp {
    /// A QP in RESET with the capacities of `init` as granted.
    pub fn new<Cq, Srq>(qpn: Qpn, pd: PdId, init: &QpInit<'_, Cq, Srq>, port_mtu: PathMtu) -> Self {
        let cap = init.cap;
        let rq = match init.srq {
            Some(_) => None,
            None => Some(RecvQueue::new(pd, cap.max_recv_wr, cap.max_recv_sge)),
        };
        Qp {
            qpn,
            qp_type: init.qp_type,
            pd,
            state: QpState::Reset,
            attr: QpAttr { cap, ..QpAttr::default() },
            mtu: port_mtu,
            remote_qpn: Qpn::new(0),
            window_packets: MAX_OUTSTANDING_PACKETS,
            ack_packets: MAX_OUTSTANDING_PACKETS / 4,
            signal_all: init.sq_sig_all,
            adapter: Box::default(),
            sq: SendQueue::new(&cap, init.qp_type == QpType::Ud),
            rq,
            counted: Box::default(),
            req: requester_state::Requester::default(),
            resp: responder_state::Responder::default(),
            generation: 0,
            established: false,
            drain_reported: false,
        }
    }

    /// Queues a send; `freed` is the position up to which send queue slots are free. Returns the
    /// send's position; the caller copies an inline payload to [`SendQueue::inline_mut`] at once.
    /// The send is not planned before [`Qp::fetch_sends`].
    #[inline(always)]
    pub fn post_send(&mut self, wr: &SendWr<'_>, freed: u32) -> Result<u32, PostError> {
        if !matches!(self.state, QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err) {
            return Err(PostError::BadState);
        }
        if !self.opcode_exists(wr.opcode) {
            return Err(PostError::BadOpcode);
        }
        self.check_shape(wr)?;
        self.sq.push(wr, self.signal_all, freed)
    }

    #[inline(always)]
    fn check_shape(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        let is_inline = wr.flags.contains(SendFlags::INLINE);
        match wr.opcode {
            // It could never be sent, and would block all later requests (IBA vol. 1, 9.7.7.1.3).
            _ if wr.opcode.is_read_or_atomic() && self.attr.max_rd_atomic == 0 => {
                return Err(PostError::NoRdAtomic);
            }
            _ if wr.opcode.is_read_or_atomic() && is_inline => {
                return Err(PostError::InlineAnswer);
            }
            _ if self.qp_type == QpType::Ud && wr.ud.is_none() => {
                return Err(PostError::BadAddress);
            }
            _ => {}
        }
        Ok(())
    }

    /// Which opcodes each transport has (IBA vol. 1, table 36).
    #[inline]
    fn opcode_exists(&self, opcode: WrOpcode) -> bool {
        match self.qp_type {
            QpType::Rc => true,
            QpType::Uc => !opcode.is_read_or_atomic() && opcode != WrOpcode::SendInv,
            QpType::Ud => matches!(opcode, WrOpcode::Send | WrOpcode::SendImm),
        }
    }

    /// The adapter has read every send that was posted.
    #[inline(always)]
    pub fn fetch_sends(&mut self) {
        self.sq.fetch_all();
    }

    /// The adapter has read every receive that was posted to the QP's own queue.
    #[inline(always)]
    pub fn fetch_receives(&mut self) {
        if let Some(rq) = &mut self.rq {
            rq.fetch_all();
        }
    }

    /// Queues a receive. No message takes it before [`Qp::fetch_receives`].
    #[inline]
    pub fn post_recv(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        if self.state == QpState::Reset {
            return Err(PostError::BadState);
        }
        match &mut self.rq {
            Some(rq) => rq.push(wr),
            None => Err(PostError::BadState),
        }
    }

    /// Checks a train that arrived, and says what the driver has to do about it.
    #[inline(always)]
    pub fn accept<E: Env>(&mut self, train: &Train, env: &mut E) -> Accept {
        if !train.is_plausible(self.mtu) {
            return Accept::Drop(DropReason::NotForUs);
        }
        if train.kind.is_response() {
            return self.accept_response(train, env);
        }
        if !self.state.can_receive() {
            return Accept::Drop(DropReason::State);
        }
        if self.resp.in_flight {
            return Accept::Stall;
        }
        if !self.established {
            self.establish(env);
        }
        match self.qp_type {
            QpType::Rc => self.accept_rc(train, env),
            QpType::Uc => self.accept_uc(train, env),
            QpType::Ud => self.accept_ud(train, env),
        }
    }

    /// Whether the second half of a step is void: the QP entered ERR or RESET since its first half.
    pub fn is_void(&self, accepted: &Accept) -> bool {
        let generation = match accepted {
            Accept::Place(placement) => placement.generation,
            Accept::Atomic(job) => job.generation,
            Accept::PlaceResponse(placement) => placement.generation,
            Accept::Done | Accept::Drop(_) | Accept::Stall => return false,
        };
        generation != self.generation
    }

    #[cold]
    fn establish<E: Env>(&mut self, env: &mut E) {
        self.established = true;
        if self.state == QpState::Rtr && self.qp_type != QpType::Ud {
            env.event(AsyncEventType::CommEst);
        }
    }

    /// Moves to ERR and flushes both queues (IBA vol. 1, 10.3.1.7). Does nothing in RESET.
    #[cold]
    pub fn enter_error<E: Env>(&mut self, env: &mut E) {
        if self.state == QpState::Reset {
            return;
        }
        let first_time = self.state != QpState::Err;
        self.state = QpState::Err;
        self.attr.qp_state = QpState::Err;
        self.generation = self.generation.wrapping_add(1);
        self.flush_sends(env);
        self.flush_receives(env);
        if first_time && self.rq.is_none() {
            env.event(AsyncEventType::QpLastWqeReached);
        }
        debug_assert!(self.send_idle(), "ERR, and a send was not flushed");
        debug_assert!(!self.resp.holds_receive(), "ERR, and a receive was not flushed");
    }

    /// Completes every waiting send with `IBV_WC_WR_FLUSH_ERR`, signalled or not.
    pub fn flush_sends<E: Env>(&mut self, env: &mut E) {
        // The adapter reads all posted requests, to complete them.
        self.sq.fetch_all();
        self.sq.begun = self.sq.posted;
        while self.sq.oldest != self.sq.posted {
            self.complete_oldest(WcStatus::WrFlushErr, env);
        }
        self.req.stop(self.sq.oldest);
    }

    /// Completes with `IBV_WC_WR_FLUSH_ERR` every receive that waits on the QP's own queue, and the
    /// one that a message in progress holds.
    pub fn flush_receives<E: Env>(&mut self, env: &mut E) {
        debug_assert!(self.state == QpState::Err, "receives are flushed in {:?}", self.state);
        if self.resp.release_held() {
            let wr_id = self.resp.held.wr_id;
            env.recv_completion(self.recv_wc(wr_id, WcStatus::WrFlushErr), false);
        }
        self.resp.abandon();
        self.fetch_receives();
        while let Some(rq) = &mut self.rq {
            let mut held = HeldRecv::EMPTY;
            if rq.take(&mut held) != TakeRecv::Taken {
                break;
            }
            env.recv_completion(self.recv_wc(held.wr_id, WcStatus::WrFlushErr), false);
        }
    }

    /// A receive completion of this QP without anything else in it.
    #[inline]
    fn recv_wc(&self, wr_id: u64, status: WcStatus) -> Wc {
        Wc {
            wr_id,
            status,
            opcode: WcOpcode::Recv,
            vendor_err: 0,
            byte_len: 0,
            imm_or_rkey: 0,
            qp_num: self.qpn.get(),
            src_qp: self.remote_qpn.get(),
            wc_flags: WcFlags::NONE,
            pkey_index: 0,
            slid: 0,
            sl: 0,
            dlid_path_bits: 0,
        }
    }

    /// What it counted since it was made.
    pub fn tally(&self) -> Tally {
        Tally {
            request_packets: self.req.packets,
            acks_sent: self.resp.acks,
            ..self.counted.with(self.sq.oldest)
        }
    }

    /// Whether every posted send is complete.
    pub fn send_idle(&self) -> bool {
        self.sq.outstanding() == 0
    }
}
