//! The fast path for the most frequent request: a SEND of one packet on a reliable connection while
//! nothing is sent again. It decides and changes exactly what [`Qp::plan`] would; all other
//! requests take that path.

use crate::qp::Qp;
use crate::qp::requester::{SENDS_PER_ACK, last_flags};
use crate::qp::requester_state::{Timer, TimerKind};
use crate::qp::send_queue::SendWqe;
use crate::train::{Fold, TrainFlags};
use crate::vocab::*;
use rdmalab_wire::ids::{Psn, Qpn};

/// A whole SEND in one packet, next in its queue. Nothing has changed yet: after sending it, call
/// [`SingleSend::retire`]; if it cannot be sent, drop it and call [`Qp::plan`].
#[derive(Debug)]
pub struct SingleSend<'a> {
    qp: &'a mut Qp,
    position: u32,
    /// Its place in the message, and more.
    pub flags: TrainFlags,
    /// PSN of the packet.
    pub psn: Psn,
}

impl Qp {
    /// The next request, if it is a SEND of 1 to `max_bytes` bytes (at most one MTU) in one packet,
    /// without a fold, and nothing is being repeated, paused or drained.
    #[inline(always)]
    pub fn plan_single(&mut self, max_bytes: u32) -> Option<SingleSend<'_>> {
        let (req, position) = (&self.req, self.req.cursor);
        let calm = position == self.sq.begun
            && position != self.sq.fetched
            && req.sent_packets == 0
            && self.state == QpState::Rts
            && self.qp_type == QpType::Rc
            && !(req.paused | req.failed | req.recovering)
            && req.fold == Fold::default();
        if !calm {
            return None;
        }
        let wqe = self.sq.wqe(position);
        let plain = matches!(wqe.opcode, WrOpcode::Send | WrOpcode::SendImm)
            && wqe.length.wrapping_sub(1) < max_bytes
            && !wqe.flags.contains(SendFlags::FENCE);
        let in_flight = req.next_psn.distance_from(req.acked_psn) as u32;
        if !plain || in_flight >= self.window_packets {
            return None;
        }
        let mut flags = TrainFlags::FIRST | TrainFlags::LAST | last_flags(wqe.opcode, wqe.flags);
        if wqe.signaled() || req.since_ack_req + 1 >= SENDS_PER_ACK {
            flags |= TrainFlags::ACK_REQ;
        }
        let psn = req.next_psn;
        Some(SingleSend { qp: self, position, flags: TrainFlags(flags), psn })
    }
}

impl Qp {
    /// Whether the next request is a SEND of more than `bytes` bytes. Call it only if
    /// [`Qp::may_send`].
    #[inline(always)]
    pub fn next_is_longer_send(&self, bytes: u32) -> bool {
        let wqe = self.sq.wqe(self.req.cursor);
        matches!(wqe.opcode, WrOpcode::Send | WrOpcode::SendImm) && wqe.length > bytes
    }
}

impl SingleSend<'_> {
    /// The request.
    #[inline(always)]
    pub fn wqe(&self) -> &SendWqe {
        self.qp.sq.wqe(self.position)
    }

    /// Its payload, when that lies in the queue.
    #[inline(always)]
    pub fn inline(&self) -> &[u8] {
        self.qp.sq.inline(self.position)
    }

    /// Its gather list, when the payload does not lie in the queue.
    #[inline(always)]
    pub fn sges(&self) -> &[Sge] {
        self.qp.sq.sges(self.position)
    }

    /// The sending QP, the receiving one, and the domain of the local keys.
    #[inline(always)]
    pub fn ends(&self) -> (Qpn, Qpn, PdId) {
        (self.qp.qpn, self.qp.remote_qpn, self.qp.pd)
    }

    /// Retires the request after it was handed to the link.
    #[inline(always)]
    pub fn retire(self) {
        let SingleSend { qp, position, flags, psn } = self;
        let wqe = qp.sq.wqe_mut(position);
        wqe.first_psn = psn;
        wqe.packets = 1;
        wqe.fold = Fold::default();
        debug_assert!(psn == qp.req.next_psn, "a single SEND takes the PSN of another packet");
        qp.sq.begun = position.wrapping_add(1);
        let req = &mut qp.req;
        req.packets += 1;
        req.since_ack_req += 1;
        if flags.has(TrainFlags::ACK_REQ) {
            req.ask_for_ack(psn);
        }
        req.next_psn = psn.add(1);
        if req.psn_limit.is_before(req.next_psn) {
            req.psn_limit = req.next_psn;
        }
        req.cursor = position.wrapping_add(1);
        if req.timer == Timer::Idle {
            req.timer = Timer::Wanted(TimerKind::Ack);
        }
        qp.assert_requester();
    }
}
