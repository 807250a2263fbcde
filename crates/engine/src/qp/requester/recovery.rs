//! Retransmission: time-outs, RNR pauses, retries, and skipping what is acknowledged meanwhile.

use crate::qp::requester_state::{Timer, TimerKind};
use crate::qp::{Env, Qp};
use crate::vocab::*;
use rdmalab_wire::ids::Psn;

impl Qp {
    /// Goes back to the packet `psn` and sends everything from there again.
    pub(in crate::qp) fn go_back(&mut self, psn: Psn) {
        debug_assert!(
            psn.distance_from(self.req.psn_limit) <= 0,
            "{psn:?} is to be repeated, which was never sent"
        );
        let mut in_flight = 0;
        let mut position = self.sq.oldest;
        while position != self.sq.begun {
            let wqe = self.sq.wqe(position);
            if wqe.packets > 0 && psn.distance_from(wqe.last_psn()) <= 0 {
                break;
            }
            if wqe.opcode.is_read_or_atomic() && wqe.outcome.is_none() {
                in_flight += 1;
            }
            position = position.wrapping_add(1);
        }
        if position == self.sq.begun {
            return;
        }
        let wqe = self.sq.wqe(position);
        let is_read = wqe.opcode.is_read_or_atomic();
        let sent = if is_read { 0 } else { psn.distance_from(wqe.first_psn).max(0) as u32 };
        self.req.cursor = position;
        self.req.sent_packets = sent;
        self.req.next_psn = wqe.first_psn.add(if is_read { wqe.answered } else { sent });
        self.req.rd_atomic_in_flight = in_flight;
        self.req.since_ack_req = 0;
        self.req.failed = false;
        self.req.recovering = true;
        debug_assert!(
            is_read || self.sq.wqe(position).packets > sent,
            "a message is to be repeated from behind its end"
        );
        self.assert_requester();
    }

    /// Continues after the last acknowledged packet, if the peer has acknowledged packets that were
    /// to be sent again.
    #[inline]
    pub(in crate::qp) fn catch_up(&mut self) {
        if self.req.next_psn.is_before(self.req.acked_psn)
            || self.sq.oldest.wrapping_sub(self.req.cursor) as i32 > 0
        {
            self.skip_acknowledged();
        }
    }

    #[cold]
    fn skip_acknowledged(&mut self) {
        let oldest = self.sq.oldest;
        if self.req.cursor != oldest {
            self.req.cursor = oldest;
            self.req.sent_packets = 0;
        }
        if oldest == self.sq.begun {
            self.req.next_psn = self.req.psn_limit;
            return;
        }
        let wqe = self.sq.wqe(oldest);
        let start = wqe.first_psn.add(wqe.answered);
        let acked = self.req.acked_psn;
        self.req.next_psn = if start.is_before(acked) { acked } else { start };
        if !wqe.opcode.is_read_or_atomic() && wqe.packets > 0 {
            self.req.sent_packets = self.req.next_psn.distance_from(wqe.first_psn).max(0) as u32;
            debug_assert!(
                self.req.sent_packets < wqe.packets,
                "a message is acknowledged to its end and not complete"
            );
        }
    }

    /// Pauses for an RNR NAK.
    pub(in crate::qp) fn pause(&mut self, delay_ns: u64) {
        debug_assert!(self.qp_type == QpType::Rc, "only a reliable connection is told to pause");
        debug_assert!(self.sq.oldest != self.sq.begun, "a pause, and nothing to repeat after it");
        self.req.paused = true;
        self.req.ignores_responses = self.adapter.discards_while_paused;
        self.req.timer = Timer::Wanted(TimerKind::Rnr(delay_ns));
    }

    /// Pauses after a response found a page missing, then repeats its request. That spends no
    /// retry. Until then responses are dropped, since each later one shows the same loss. A pause
    /// for an RNR NAK goes on.
    #[cold]
    pub(in crate::qp) fn pause_for_page(&mut self) {
        self.go_back(self.first_unacknowledged());
        self.counted.repeats_to = Some(self.req.psn_limit);
        self.req.gap_seen = false;
        self.req.ignores_responses = true;
        if !self.req.paused {
            self.req.paused = true;
            self.req.timer = Timer::Wanted(TimerKind::PageFault);
        }
    }

    /// The QP's timer.
    #[inline]
    pub fn timer(&self) -> Timer {
        self.req.timer
    }

    /// T_tr, the shortest time that a request has for its answer (IBA vol. 1, 9.7.6.1.3). Without a
    /// time-out it has no meaning.
    pub fn ack_period_ns(&self) -> u64 {
        4096u64 << self.attr.timeout.max(self.adapter.ack_timeout_min_code).min(31)
    }

    /// Time-outs in a row that were counted as retries, since the peer's last answer.
    pub fn retries_spent(&self) -> u8 {
        self.attr.retry_cnt.saturating_sub(self.req.retries_left)
    }

    /// How long the adapter waits at least; `None` for an infinite ACK time-out.
    pub fn wait_ns(&self, kind: TimerKind) -> Option<u64> {
        match kind {
            TimerKind::Rnr(least_ns) => {
                Some(least_ns * u64::from(self.adapter.rnr_wait_percent) / 100)
            }
            TimerKind::PageFault => Some(self.adapter.page_fault_pause_ns),
            TimerKind::Ack if self.attr.timeout == 0 => None,
            TimerKind::Ack => Some(self.ack_period_ns()),
        }
    }

    /// Sets the deadline of a wanted timer. It may be later than [`Qp::wait_ns`] from now: IBA lets
    /// T_o be up to four times T_tr, and an RNR wait be longer than the NAK asks for.
    pub fn arm_timer(&mut self, deadline_ns: u64) {
        if let Timer::Wanted(kind) = self.req.timer {
            self.req.timer = Timer::At(kind, deadline_ns);
        }
    }

    /// Restarts an ACK timer that is due, because the driver knows that the request has not reached
    /// the peer, or that it is not lost.
    pub fn postpone_timer(&mut self) {
        if let Timer::At(TimerKind::Ack, _) = self.req.timer {
            self.req.timer = Timer::Wanted(TimerKind::Ack);
        }
    }

    /// Handles a timer that is due at `now_ns`; returns whether there may be something to send.
    pub fn on_timer<E: Env>(&mut self, now_ns: u64, env: &mut E) -> bool {
        let Timer::At(kind, at) = self.req.timer else {
            return false;
        };
        if now_ns < at {
            return false;
        }
        self.req.timer = Timer::Idle;
        match kind {
            TimerKind::Rnr(_) | TimerKind::PageFault => {
                debug_assert!(self.req.paused, "the end of a pause that there was not");
                self.req.end_pause();
                true
            }
            TimerKind::Ack => self.on_ack_timeout(env),
        }
    }

    /// While draining, asks for an acknowledgement of everything, unless one was requested.
    /// Draining would else wait for the time-out, which may be infinite.
    pub(in crate::qp) fn ask_while_draining(&mut self) {
        if self.qp_type != QpType::Rc || self.sq.oldest == self.sq.begun || self.req.ack_requested {
            return;
        }
        self.req.recovering = true;
        if self.req.cursor == self.sq.begun {
            self.go_back(self.first_unacknowledged());
        }
    }

    fn on_ack_timeout<E: Env>(&mut self, env: &mut E) -> bool {
        if self.sq.oldest == self.sq.begun || !matches!(self.state, QpState::Rts | QpState::Sqd) {
            return false;
        }
        self.counted.tally.time_outs += 1;
        // If no acknowledgement was requested, sending again only requests one: that is no retry.
        if self.req.ack_requested && !self.spend_retry(env) {
            return false;
        }
        let from = self.first_unacknowledged();
        self.req.gap_seen = false;
        self.go_back(from);
        true
    }

    /// PSN of the oldest packet without an answer.
    pub(in crate::qp) fn first_unacknowledged(&self) -> Psn {
        let mut position = self.sq.oldest;
        while position != self.sq.begun {
            let wqe = self.sq.wqe(position);
            if wqe.packets > 0 && wqe.outcome.is_none() {
                let after_ack = self.req.acked_psn;
                let start = wqe.first_psn.add(wqe.answered);
                return if start.is_before(after_ack) { after_ack } else { start };
            }
            position = position.wrapping_add(1);
        }
        self.req.psn_limit
    }

    /// Takes one of `retry_cnt`; when none is left, fails the oldest request.
    pub(in crate::qp) fn spend_retry<E: Env>(&mut self, env: &mut E) -> bool {
        if self.req.retries_left == 0 {
            self.fail_transport(WcStatus::RetryExcErr, env);
            return false;
        }
        self.req.retries_left -= 1;
        self.req.losses = self.req.losses.wrapping_add(1);
        debug_assert!(self.sq.oldest != self.sq.begun, "a retry, and nothing to repeat");
        true
    }

    /// Fails the oldest request with `status`, and takes the QP to ERR.
    #[cold]
    pub fn fail_transport<E: Env>(&mut self, status: WcStatus, env: &mut E) {
        self.complete_ready(env);
        if self.sq.oldest != self.sq.posted && self.state != QpState::Err {
            self.complete_oldest(status, env);
        }
        self.enter_error(env);
        debug_assert!(self.send_idle(), "a request outlives the end of its queue pair");
    }
}
