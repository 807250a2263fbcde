//! Operations that the initiator executes itself in the target's memory, without a train.

use crate::qp::{Env, Qp};
use crate::vocab::*;

impl Qp {
    /// The position of the WQE at the head of the queue, if the initiator could execute it itself:
    /// it is one-sided, not begun, and nothing before it is in flight. UC has no acknowledgements,
    /// so there the driver itself must know that the peer has taken all earlier trains.
    #[inline]
    pub fn lane_candidate(&self) -> Option<u32> {
        let position = self.req.cursor;
        let quiet = position == self.sq.oldest
            && position != self.sq.fetched
            && position == self.sq.begun
            && self.req.sent_packets == 0
            && self.state == QpState::Rts
            && self.qp_type != QpType::Ud
            && !self.req.paused
            && !self.req.failed;
        if !quiet {
            return None;
        }
        let wqe = self.sq.wqe(position);
        let one_sided = wqe.opcode == WrOpcode::Write
            || wqe.opcode.is_read_or_atomic() && self.attr.max_rd_atomic > 0;
        let one_sided = one_sided && !wqe.is_atomic_of_wrong_length();
        one_sided.then_some(position)
    }

    /// Retires the WQE at `position`, which the lane executed completely.
    #[inline]
    pub fn retire_lane<E: Env>(&mut self, position: u32, env: &mut E) {
        debug_assert!(
            position == self.sq.oldest && position == self.sq.begun && position == self.req.cursor,
            "the lane executed request {position} while others are in flight"
        );
        debug_assert!(self.req.rd_atomic_in_flight == 0, "the lane overtook a READ or an atomic");
        let mtu = self.mtu;
        let wqe = self.sq.wqe_mut(position);
        let packets = match wqe.opcode {
            WrOpcode::CmpSwap | WrOpcode::FetchAdd => 1,
            _ => mtu.packets(wqe.length),
        };
        wqe.outcome = Some(WcStatus::Success);
        wqe.packets = packets;
        wqe.first_psn = self.req.next_psn;
        self.req.fold.packets = (self.req.fold.packets + packets) & 0xff_ffff;
        self.req.fold.messages = (self.req.fold.messages + 1) & 0xff_ffff;
        self.req.next_psn = self.req.next_psn.add(packets);
        self.req.psn_limit = self.req.next_psn;
        self.req.acked_psn = self.req.next_psn;
        self.sq.begun = position.wrapping_add(1);
        self.req.cursor = self.sq.begun;
        self.complete_ready(env);
    }
}
