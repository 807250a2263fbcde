//! The fast path for the most frequent request: a SEND of one packet on a reliable connection, in
//! order, into a receive with one scatter/gather element. It decides and changes exactly what
//! [`Qp::accept`] and [`Qp::retire_request`] would; all other requests take those.

use crate::qp::inbound::Inbound;
use crate::qp::recv_queue::{HeldRecv, TakeRecv};
use crate::qp::{Env, Qp};
use crate::train::{Train, TrainFlags};
use crate::vocab::*;
use rdmalab_wire::ids::Psn;

/// A whole SEND in one packet with the expected PSN. Nothing has changed yet, except that a
/// receive may have been taken from the shared queue; [`Qp::accept`] then uses it. After placing
/// the payload at [`SingleRecv::target`], call [`SingleRecv::retire`]; if that is not possible,
/// drop it and call [`Qp::accept`].
#[derive(Debug)]
pub struct SingleRecv<'a> {
    qp: &'a mut Qp,
    /// Where the payload goes: the payload's length, with the receive's local key.
    pub target: Sge,
    /// The domain of that key: that of the receive's queue.
    pub pd: PdId,
    wr_id: u64,
    psn: Psn,
    flags: TrainFlags,
    imm: u32,
}

impl Qp {
    /// Says where the payload of `bytes` bytes goes, for a SEND of one packet without a fold from
    /// the connected peer, into the QP's own receive queue. `None` if anything about it needs the
    /// general path.
    #[inline(always)]
    pub fn accept_single(
        &mut self,
        psn: Psn,
        flags: TrainFlags,
        bytes: u32,
        imm: u32,
    ) -> Option<SingleRecv<'_>> {
        if !self.expects_single(psn, flags, bytes) {
            return None;
        }
        let (wr_id, piece) = self.rq.as_ref()?.next_of_one_piece()?;
        if bytes > piece.length {
            return None;
        }
        let (target, pd) = (Sge { length: bytes, ..*piece }, self.pd);
        Some(SingleRecv { qp: self, target, pd, wr_id, psn, flags, imm })
    }

    /// The same for any receive queue. A receive that it takes from the shared queue is this
    /// message's from then on, also if the message needs the general path.
    #[inline]
    pub fn accept_single_shared<E: Env>(
        &mut self,
        psn: Psn,
        flags: TrainFlags,
        bytes: u32,
        imm: u32,
        env: &mut E,
    ) -> Option<SingleRecv<'_>> {
        if self.rq.is_some() {
            return self.accept_single(psn, flags, bytes, imm);
        }
        let is_taken =
            self.expects_single(psn, flags, bytes) && self.take_receive(env) == TakeRecv::Taken;
        if !is_taken {
            return None;
        }
        let HeldRecv { wr_id, pd, .. } = self.resp.held;
        let [piece] = self.resp.held.sges() else { return None };
        if bytes > piece.length {
            return None;
        }
        let target = Sge { length: bytes, ..*piece };
        Some(SingleRecv { qp: self, target, pd, wr_id, psn, flags, imm })
    }

    /// [`Qp::accept_single_shared`] for drivers that already have a train.
    pub fn accept_single_train<E: Env>(
        &mut self,
        train: &Train,
        env: &mut E,
    ) -> Option<SingleRecv<'_>> {
        let whole = train.packets == 1 && train.fold == Default::default();
        let plain = whole && train.kind == crate::train::TrainKind::Send;
        if !plain {
            return None;
        }
        let (flags, bytes, imm) = (train.flags, train.payload_bytes, train.imm_or_rkey);
        self.accept_single_shared(train.first_psn, flags, bytes, imm, env)
    }

    #[inline(always)]
    fn expects_single(&self, psn: Psn, flags: TrainFlags, bytes: u32) -> bool {
        const MAY_HAVE: u8 = TrainFlags::ACK_REQ | TrainFlags::SOLICITED | TrainFlags::IMM;
        let resp = &self.resp;
        flags.0 & !MAY_HAVE == TrainFlags::FIRST | TrainFlags::LAST
            && psn == resp.epsn
            && self.qp_type == QpType::Rc
            && self.state.can_receive()
            && self.established
            && !(resp.in_flight | resp.holds)
            && matches!(resp.inbound, Inbound::None)
            && bytes.wrapping_sub(1) < self.mtu.bytes()
    }
}

impl SingleRecv<'_> {
    /// Retires the SEND after its payload was placed: the receive completes, and an acknowledgement
    /// is queued if the peer asked for one.
    #[inline(always)]
    pub fn retire<E: Env>(self, env: &mut E) {
        let SingleRecv { qp, target, wr_id, psn, flags, imm, .. } = self;
        match &mut qp.rq {
            Some(rq) => rq.skip_one(),
            None => qp.resp.holds = false,
        }
        debug_assert!(psn == qp.resp.epsn, "a single SEND is taken out of order");
        debug_assert!(!qp.resp.holds, "a single SEND takes a second receive");
        qp.resp.epsn = psn.add(1);
        qp.resp.msn = qp.resp.msn.next();
        qp.resp.nak_sent = false;
        if flags.has(TrainFlags::ACK_REQ) {
            qp.resp.ack = Some(psn);
        }
        let mut wc = qp.recv_wc(wr_id, WcStatus::Success);
        wc.byte_len = target.length;
        if flags.has(TrainFlags::IMM) {
            wc.wc_flags = WcFlags::WITH_IMM;
            wc.imm_or_rkey = imm;
        }
        env.recv_completion(wc, flags.has(TrainFlags::SOLICITED));
    }
}
