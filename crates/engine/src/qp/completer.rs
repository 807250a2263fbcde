//! The completer: what acknowledgements and responses do to the send queue.

use super::requester_state::{Timer, TimerKind};
use super::{Accept, CopyError, DropReason, Env, Qp};
use crate::train::{Train, TrainFlags, TrainKind};
use crate::vocab::*;
use rdmalab_wire::aeth::{NakCode, Syndrome};
use rdmalab_wire::ids::Psn;

/// The destination of a response's payload.
#[derive(Clone, Copy, Debug)]
pub struct ResponsePlacement {
    pub(super) generation: u32,
    /// The READ or atomic request that it answers.
    pub position: u32,
    /// Byte of the request's scatter list at which the payload begins.
    pub offset: u32,
    /// Bytes of the train's payload to skip, which arrived before.
    pub skip_bytes: u32,
    /// Payload bytes to place; for an atomic 8, the original value in host order.
    pub bytes: u32,
    /// The original value of an atomic.
    pub original: u64,
    /// Whether this is the value of an atomic.
    pub is_atomic: bool,
    packets: u32,
    /// The packets of the train after these found a page missing.
    faults: bool,
}

impl Qp {
    /// Handles an ACK, NAK or response (IBA vol. 1, 9.7.7).
    #[inline]
    pub(super) fn accept_response<E: Env>(&mut self, train: &Train, env: &mut E) -> Accept {
        if self.qp_type != QpType::Rc {
            return Accept::Drop(DropReason::NotForUs);
        }
        if !matches!(self.state, QpState::Rts | QpState::Sqd) {
            return Accept::Drop(DropReason::State);
        }
        // One branch for both, on the way of each acknowledgement.
        if self.req.placing | self.req.ignores_responses {
            return match self.req.placing {
                true => Accept::Stall,
                false => Accept::Drop(DropReason::Paused),
            };
        }
        match train.kind {
            TrainKind::Ack => self.accept_ack(train, env),
            _ => self.accept_data(train, env),
        }
    }

    /// The short way of an acknowledgement that is no NAK: does what [`Qp::accept`] does with it.
    /// Returns false and changes nothing if that is needed.
    #[inline(always)]
    pub fn accept_plain_ack<E: Env>(&mut self, psn: Psn, env: &mut E) -> bool {
        let is_plain = self.takes_plain_ack(psn);
        if is_plain {
            self.complete_through(psn, env);
        }
        is_plain
    }

    /// Whether [`Qp::accept_plain_ack`] takes an acknowledgement.
    #[inline(always)]
    pub fn takes_plain_ack(&self, psn: Psn) -> bool {
        self.qp_type == QpType::Rc
            && matches!(self.state, QpState::Rts | QpState::Sqd)
            && !(self.req.placing | self.req.ignores_responses)
            && self.is_outstanding(psn)
    }

    /// Whether `psn` was sent and is not acknowledged yet.
    #[inline]
    fn is_outstanding(&self, psn: Psn) -> bool {
        psn.is_before(self.req.psn_limit) && psn.is_at_or_after(self.req.acked_psn)
    }

    #[inline]
    fn accept_ack<E: Env>(&mut self, train: &Train, env: &mut E) -> Accept {
        let psn = train.first_psn;
        if !self.is_outstanding(psn) {
            return Accept::Drop(DropReason::OutOfOrder);
        }
        match train.syndrome {
            Syndrome::Ack { .. } => {
                self.complete_through(psn, env);
            }
            Syndrome::RnrNak(timer) => {
                self.counted.tally.rnr_naks += 1;
                if self.complete_before(psn, env) {
                    self.on_rnr_nak(psn, timer.nanoseconds(), env);
                }
            }
            Syndrome::Nak(NakCode::PsnSequenceError) => {
                self.counted.tally.sequence_naks += 1;
                // The kernel's rxe sends one for the packet behind an RNR NAK. The pause repeats
                // that packet, too.
                if self.complete_before(psn, env) && !self.req.is_paused() && self.spend_retry(env)
                {
                    self.go_back(psn);
                }
            }
            Syndrome::Nak(code) => {
                if self.complete_before(psn, env) {
                    self.on_fatal_nak(code, env);
                }
            }
        }
        Accept::Done
    }

    fn on_rnr_nak<E: Env>(&mut self, psn: Psn, delay_ns: u64, env: &mut E) {
        if self.req.is_paused() {
            return;
        }
        if self.req.rnr_retries_left == 0 {
            return self.fail_transport(WcStatus::RnrRetryExcErr, env);
        }
        if self.req.rnr_retries_left != 7 {
            self.req.rnr_retries_left -= 1;
        }
        self.go_back(psn);
        self.pause(delay_ns);
    }

    #[cold]
    fn on_fatal_nak<E: Env>(&mut self, code: NakCode, env: &mut E) {
        let status = match code {
            NakCode::InvalidRequest | NakCode::InvalidRdRequest => WcStatus::RemInvReqErr,
            NakCode::RemoteAccessError => WcStatus::RemAccessErr,
            _ => WcStatus::RemOpErr,
        };
        self.fail_transport(status, env);
    }

    /// Completes everything before a NAK's PSN, which the NAK acknowledges. Returns false if a
    /// response was lost or the QP is in ERR.
    fn complete_before<E: Env>(&mut self, psn: Psn, env: &mut E) -> bool {
        if psn != self.req.acked_psn {
            return self.complete_through(psn.sub(1), env);
        }
        true
    }

    /// Completes every request whose last packet is at or before `psn`. Returns false if the QP is
    /// in ERR, or if the acknowledgement skips the response of a READ or an atomic: then that
    /// response was lost, and the request is repeated (IBA vol. 1, 9.7.5.1.4).
    #[inline]
    fn complete_through<E: Env>(&mut self, psn: Psn, env: &mut E) -> bool {
        debug_assert!(
            psn.is_before(self.req.psn_limit),
            "{psn:?} is acknowledged, which was never sent"
        );
        let mut progress = false;
        while self.sq.oldest != self.sq.begun {
            let position = self.sq.oldest;
            let wqe = self.sq.wqe(position);
            if wqe.packets == 0 {
                match wqe.outcome {
                    Some(WcStatus::Success) => {
                        self.complete_oldest(WcStatus::Success, env);
                        continue;
                    }
                    _ => break,
                }
            }
            if wqe.first_psn.distance_from(psn) > 0 {
                break;
            }
            if wqe.opcode.is_read_or_atomic() && wqe.outcome.is_none() {
                let missing = wqe.first_psn.add(wqe.answered);
                self.note_progress(progress, missing);
                self.repeat_missing(missing, env);
                return false;
            }
            if psn.is_before(wqe.last_psn()) {
                progress |= self.req.acked_psn.is_before(psn.add(1));
                break;
            }
            self.complete_oldest(WcStatus::Success, env);
            progress = true;
        }
        self.note_progress(progress, psn.add(1));
        if self.sq.oldest != self.sq.begun || self.state == QpState::Sqd {
            self.complete_ready(env);
        }
        self.catch_up();
        self.assert_requester();
        self.state != QpState::Err
    }

    /// Repeats the request whose response was lost. Every later response shows the same loss, so
    /// the request is repeated once; after that only the time-out repeats it.
    #[cold]
    fn repeat_missing<E: Env>(&mut self, psn: Psn, env: &mut E) {
        let limit = self.counted.repeats_to.filter(|limit| self.req.acked_psn.is_before(*limit));
        self.counted.repeats_to = limit;
        let is_free = limit.is_some_and(|limit| psn.is_before(limit));
        if !self.req.gap_seen && (is_free || self.spend_retry(env)) {
            self.req.gap_seen = true;
            self.go_back(psn);
        }
    }

    /// Records that the peer answered everything before `acked`. On progress the retry counters
    /// restart, and the timer waits for the rest.
    #[inline]
    fn note_progress(&mut self, progress: bool, acked: Psn) {
        if self.req.acked_psn.is_before(acked) {
            self.req.acked_psn = acked;
        }
        if !progress {
            return;
        }
        self.req.recovering = false;
        self.req.gap_seen = false;
        self.req.retries_left = self.attr.retry_cnt;
        self.req.rnr_retries_left = self.attr.rnr_retry;
        // Progress ends an RNR pause early.
        let paused = self.req.end_pause();
        if self.req.ack_request_psn.is_before(self.req.acked_psn) {
            self.req.ack_requested = false;
        }
        if self.req.acked_psn == self.req.psn_limit {
            self.req.timer = Timer::Idle;
        } else if paused {
            self.req.timer = Timer::Wanted(TimerKind::Ack);
        } else if let Timer::At(TimerKind::Ack, _) = self.req.timer {
            self.req.timer = Timer::Wanted(TimerKind::Ack);
        }
    }

    /// Completes the oldest request.
    #[inline]
    pub(super) fn complete_oldest<E: Env>(&mut self, status: WcStatus, env: &mut E) {
        let position = self.sq.oldest;
        debug_assert!(position != self.sq.posted, "more requests complete than were posted");
        debug_assert!(
            status != WcStatus::Success || position != self.sq.begun,
            "a request succeeds that was never begun"
        );
        self.sq.oldest = position.wrapping_add(1);
        let wqe = self.sq.wqe(position);
        if wqe.outcome.is_some_and(|outcome| outcome != WcStatus::Success) {
            // Its payload could not be read again, but the peer already has the request.
            self.req.failed = false;
        }
        let wqe = self.sq.wqe(position);
        if wqe.signaled() || status != WcStatus::Success {
            let byte_len = match wqe.opcode {
                WrOpcode::Read => wqe.length,
                WrOpcode::CmpSwap | WrOpcode::FetchAdd => 8,
                _ => 0,
            };
            let wc = Wc {
                wr_id: wqe.wr_id,
                status,
                opcode: wqe.opcode.completion(),
                vendor_err: 0,
                byte_len,
                imm_or_rkey: 0,
                qp_num: self.qpn.get(),
                src_qp: self.remote_qpn.get(),
                wc_flags: WcFlags::NONE,
                pkey_index: 0,
                slid: 0,
                sl: 0,
                dlid_path_bits: 0,
            };
            env.send_completion(wc, position.wrapping_add(1));
            if status != WcStatus::Success {
                self.count_failure(status);
            }
        }
    }

    #[cold]
    fn count_failure(&mut self, status: WcStatus) {
        self.counted.others += 1;
        // Those that were flushed behind it do not count.
        self.counted.tally.failed_requests += u64::from(status != WcStatus::WrFlushErr);
    }

    /// Completes the requests at the head of the queue whose outcome is known. The first that
    /// failed takes the QP to ERR (RC) or SQE (UC, UD) (IBA vol. 1, 10.3.1.6).
    #[inline]
    pub(super) fn complete_ready<E: Env>(&mut self, env: &mut E) {
        while self.sq.oldest != self.sq.begun {
            let wqe = self.sq.wqe(self.sq.oldest);
            match wqe.outcome {
                None => break,
                Some(WcStatus::Success) => {
                    debug_assert!(
                        wqe.packets == 0 || wqe.last_psn().is_before(self.req.acked_psn),
                        "a request succeeds that the peer did not acknowledge"
                    );
                    self.complete_oldest(WcStatus::Success, env);
                }
                Some(status) => {
                    self.complete_oldest(status, env);
                    return self.enter_send_error(env);
                }
            }
        }
        if self.state == QpState::Sqd {
            self.report_drained(env);
        }
    }

    #[cold]
    fn enter_send_error<E: Env>(&mut self, env: &mut E) {
        if self.qp_type == QpType::Rc {
            return self.enter_error(env);
        }
        self.flush_sends(env);
        if matches!(self.state, QpState::Rts | QpState::Sqd) {
            self.state = QpState::Sqe;
            self.attr.qp_state = QpState::Sqe;
        }
    }

    /// In SQD, when every begun request has completed, raises the drained event once, if the
    /// program asked for it.
    pub(super) fn report_drained<E: Env>(&mut self, env: &mut E) {
        debug_assert!(self.state == QpState::Sqd, "drained in {:?}", self.state);
        if self.sq.oldest == self.sq.begun && !self.drain_reported {
            self.drain_reported = true;
            if self.attr.en_sqd_async_notify {
                env.event(AsyncEventType::SqDrained);
            }
        }
    }

    /// A READ or atomic response.
    fn accept_data<E: Env>(&mut self, train: &Train, env: &mut E) -> Accept {
        let last = train.last_psn();
        if !self.is_outstanding(last) {
            return Accept::Drop(DropReason::OutOfOrder);
        }
        // A response acknowledges everything before it.
        if self.req.acked_psn.is_before(train.first_psn)
            && !self.complete_through(train.first_psn.sub(1), env)
        {
            return Accept::Done;
        }
        let position = self.sq.oldest;
        if position == self.sq.begun {
            return Accept::Drop(DropReason::OutOfOrder);
        }
        let wqe = self.sq.wqe(position);
        let expected = wqe.first_psn.add(wqe.answered);
        let fits = match train.kind {
            TrainKind::ReadResponse => wqe.opcode == WrOpcode::Read,
            _ => matches!(wqe.opcode, WrOpcode::CmpSwap | WrOpcode::FetchAdd),
        };
        if !fits || wqe.outcome.is_some() || last.is_before(expected) {
            return Accept::Drop(DropReason::OutOfOrder);
        }
        let skip = expected.distance_from(train.first_psn);
        if skip < 0 {
            self.repeat_missing(expected, env);
            return Accept::Done;
        }
        self.place_response(position, train, skip as u32, env)
    }

    fn place_response<E: Env>(
        &mut self,
        position: u32,
        train: &Train,
        skip: u32,
        env: &mut E,
    ) -> Accept {
        let wqe = self.sq.wqe(position);
        let is_atomic = train.kind == TrainKind::AtomicResponse;
        let offset = wqe.answered * self.mtu.bytes();
        let skip_bytes = (skip as u64) << self.mtu.shift();
        let packets = train.packets - skip;
        let ends = wqe.answered + packets == wqe.packets;
        let want = if ends {
            wqe.length - offset.min(wqe.length)
        } else {
            packets.saturating_mul(self.mtu.bytes())
        };
        let sound = is_atomic
            || wqe.answered + packets <= wqe.packets
                && train.payload_bytes as u64 == skip_bytes + want as u64
                && train.flags.has(TrainFlags::LAST) == ends;
        if !sound {
            // A response of the wrong length (IBA vol. 1, table 59).
            self.fail_transport(WcStatus::BadRespErr, env);
            return Accept::Done;
        }
        debug_assert!(position == self.sq.oldest, "an answer overtakes that of an older request");
        debug_assert!(packets > 0, "an answer is placed twice");
        let bytes = if is_atomic { 8 } else { want };
        let present = self.present_for_response(position, offset, bytes, env);
        let faults = present < bytes;
        let (packets, bytes) = match faults {
            true if is_atomic => (0, 0),
            true => (present >> self.mtu.shift(), present >> self.mtu.shift() << self.mtu.shift()),
            false => (packets, bytes),
        };
        if packets == 0 {
            self.pause_for_page();
            return Accept::Drop(DropReason::PageFault);
        }
        self.req.placing = true;
        Accept::PlaceResponse(ResponsePlacement {
            generation: self.generation,
            position,
            offset,
            skip_bytes: if is_atomic { 0 } else { skip_bytes as u32 },
            bytes,
            original: train.swap_add,
            is_atomic,
            packets,
            faults,
        })
    }

    /// The payload of a response was placed, or could not be.
    pub fn retire_response<E: Env>(
        &mut self,
        placement: &ResponsePlacement,
        result: Result<(), CopyError>,
        env: &mut E,
    ) {
        if placement.generation != self.generation {
            return;
        }
        debug_assert!(self.req.placing, "an answer is retired twice");
        debug_assert!(
            placement.position == self.sq.oldest,
            "the request ended while its answer was placed"
        );
        self.req.placing = false;
        if result.is_err() {
            return self.fail_transport(WcStatus::LocProtErr, env);
        }
        let wqe = self.sq.wqe_mut(placement.position);
        wqe.answered += placement.packets;
        debug_assert!(wqe.answered <= wqe.packets, "an answer is longer than what was asked for");
        let answered_to = wqe.first_psn.add(wqe.answered);
        let complete = wqe.answered == wqe.packets;
        if complete {
            wqe.outcome = Some(WcStatus::Success);
            self.rd_atomic_answered();
            self.complete_oldest(WcStatus::Success, env);
        }
        self.note_progress(true, answered_to);
        self.complete_ready(env);
        self.catch_up();
        if placement.faults {
            self.pause_for_page();
        }
        self.assert_requester();
    }
}
