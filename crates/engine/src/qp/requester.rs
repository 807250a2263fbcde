//! The requester: turns send WQEs into request trains, in order, within the connection's windows,
//! and sends again what was lost.

mod lane;
mod recovery;
mod single;

pub use single::SingleSend;

use super::requester_state::{Timer, TimerKind};
use super::{CopyError, Env, Qp};
use crate::train::{Train, TrainFlags, TrainKind};
use crate::vocab::*;
use rdmalab_wire::ids::{Psn, RKey};

/// Packets that may be outstanding: half of the range in which 24-bit PSNs can be compared, so that
/// the oldest unacknowledged packet and the newest are never confused (IBA vol. 1, 9.7.3.1). Only a
/// READ of more packets exceeds it, when nothing else is in flight.
pub const MAX_OUTSTANDING_PACKETS: u32 = 1 << 22;

/// Packets after which the end of a message asks for an acknowledgement though no completion
/// depends on it, so that the queue keeps moving.
const SENDS_PER_ACK: u32 = 64;

/// What the driver has to do for the requester.
#[derive(Clone, Copy, Debug)]
pub enum Plan {
    /// Nothing can be sent now.
    Idle,
    /// Send this train; its payload begins at byte `offset` of the WQE at `position`.
    Send {
        /// The train.
        train: Train,
        /// Position of the WQE.
        position: u32,
        /// Offset of its payload.
        offset: u32,
    },
    /// An atomic whose scatter list is not 8 bytes long, or a datagram longer than the path MTU:
    /// call [`Qp::retire_sent`] with [`CopyError::Length`].
    WrongLength {
        /// Which WQE.
        position: u32,
    },
    /// Execute a bind or a local invalidate, then call [`Qp::retire_local`].
    Local {
        /// Position of the WQE.
        position: u32,
    },
}

impl Qp {
    /// PSN that the next new packet will carry.
    pub fn next_new_psn(&self) -> Psn {
        self.req.psn_limit
    }

    /// What to send next, with at most `max_payload` bytes (at least one MTU) in one train. The
    /// state advances now; the driver reports an unreadable payload with [`Qp::retire_sent`].
    #[inline(always)]
    pub fn plan(&mut self, max_payload: u32) -> Plan {
        if self.req.cursor != self.sq.begun {
            self.skip_executed();
        }
        self.assert_requester();
        if self.req.cursor == self.sq.fetched
            || self.req.paused
            || self.req.failed
            || !matches!(self.state, QpState::Rts | QpState::Sqd)
        {
            return Plan::Idle;
        }
        let position = self.req.cursor;
        if self.req.sent_packets == 0 && !self.begin(position) {
            return Plan::Idle;
        }
        let wqe = self.sq.wqe(position);
        if wqe.opcode.is_local() {
            return Plan::Local { position };
        }
        // Wraps to a huge number while a READ of half the PSN space is in flight: also full.
        let in_flight = self.req.next_psn.distance_from(self.req.acked_psn) as u32;
        if in_flight >= self.window_packets {
            return Plan::Idle;
        }
        if self.qp_type == QpType::Ud && wqe.length > self.mtu.bytes() {
            return Plan::WrongLength { position };
        }
        if !wqe.opcode.is_read_or_atomic() {
            return self.plan_message(position, max_payload, self.window_packets - in_flight);
        }
        // A READ takes all its PSNs at once; a READ larger than the window is sent alone. But if
        // nobody asked for an acknowledgement of what is in flight, only the READ's answer is one.
        let with_it = in_flight.saturating_add(wqe.packets);
        let must_wait = self.req.ack_requested || with_it > MAX_OUTSTANDING_PACKETS;
        if in_flight > 0 && with_it > self.window_packets && must_wait {
            return Plan::Idle;
        }
        if wqe.is_atomic_of_wrong_length() {
            return Plan::WrongLength { position };
        }
        self.plan_read_or_atomic(position)
    }

    /// Asserts the order of the requester's cursors and PSNs.
    #[inline(always)]
    pub(super) fn assert_requester(&self) {
        let (req, sq) = (&self.req, &self.sq);
        sq.assert_cursors();
        let to_send = req.cursor.wrapping_sub(sq.oldest);
        debug_assert!(
            to_send <= sq.begun.wrapping_sub(sq.oldest),
            "the request to send next is complete, or one before it was never begun"
        );
        debug_assert!(
            req.rd_atomic_in_flight <= to_send,
            "more READs and atomics are in flight than requests were sent"
        );
        debug_assert!(
            req.acked_psn.distance_from(req.psn_limit) <= 0,
            "a packet is acknowledged that was never sent"
        );
        debug_assert!(
            req.next_psn.distance_from(req.psn_limit) <= 0,
            "a PSN is skipped: the next packet comes after the first that was never sent"
        );
    }

    /// Skips local operations during a retransmission: they were executed already, and a second
    /// invalidate of the same key would fail.
    fn skip_executed(&mut self) {
        while self.req.cursor != self.sq.begun {
            let wqe = self.sq.wqe(self.req.cursor);
            if !wqe.opcode.is_local() || wqe.outcome != Some(WcStatus::Success) {
                break;
            }
            self.req.cursor = self.req.cursor.wrapping_add(1);
        }
    }

    /// Whether the WQE at `position` may start; assigns its PSNs when it starts for the first time.
    #[inline(always)]
    fn begin(&mut self, position: u32) -> bool {
        let first_time = position == self.sq.begun;
        if first_time && self.state == QpState::Sqd {
            return false;
        }
        let (psn, mtu, qp_type) = (self.req.next_psn, self.mtu, self.qp_type);
        let in_flight = self.req.rd_atomic_in_flight;
        let max_rd_atomic = self.attr.max_rd_atomic as u32;
        let wqe = self.sq.wqe_mut(position);
        if wqe.flags.contains(SendFlags::FENCE) && in_flight > 0 {
            return false;
        }
        if wqe.opcode.is_read_or_atomic() && in_flight >= max_rd_atomic {
            return false;
        }
        if first_time {
            debug_assert!(wqe.outcome.is_none(), "a request ended before it was begun");
            wqe.first_psn = psn;
            wqe.packets = match wqe.opcode {
                opcode if opcode.is_local() => 0,
                WrOpcode::CmpSwap | WrOpcode::FetchAdd => 1,
                _ if qp_type == QpType::Ud => 1,
                _ => mtu.packets(wqe.length),
            };
            if wqe.packets > 0 {
                wqe.fold = core::mem::take(&mut self.req.fold);
            }
            self.sq.begun = position.wrapping_add(1);
        }
        true
    }

    #[inline(always)]
    fn plan_message(&mut self, position: u32, max_payload: u32, window: u32) -> Plan {
        let wqe = self.sq.wqe(position);
        debug_assert!(self.req.sent_packets < wqe.packets, "no packet of this message is left");
        let offset = self.req.sent_packets * self.mtu.bytes();
        let mut packets = wqe.packets - self.req.sent_packets;
        let mut payload = wqe.length - offset;
        if payload > max_payload || packets > window {
            let limit = (max_payload >> self.mtu.shift()).clamp(1, window);
            packets = packets.min(limit);
        }
        if self.req.sent_packets + packets < wqe.packets {
            payload = packets << self.mtu.shift();
        }
        let last = self.req.sent_packets + packets == wqe.packets;
        let kind = match wqe.opcode {
            WrOpcode::Write | WrOpcode::WriteImm => TrainKind::Write,
            _ => TrainKind::Send,
        };
        let mut train = Train::new(kind, self.remote_qpn, self.qpn, self.req.next_psn);
        train.packets = packets;
        train.payload_bytes = payload;
        let mut flags = 0;
        if self.req.sent_packets == 0 {
            flags |= TrainFlags::FIRST;
            train.remote_addr = wqe.remote_addr;
            train.rkey = RKey(wqe.rkey);
            train.dma_bytes = wqe.length;
            train.fold = wqe.fold;
        }
        if last {
            flags |= TrainFlags::LAST | last_flags(wqe.opcode, wqe.flags);
            train.imm_or_rkey = wqe.imm_or_rkey;
        }
        if self.qp_type == QpType::Ud {
            self.address_datagram(position, &mut train);
        }
        if self.qp_type == QpType::Rc && self.wants_ack(position, last, packets) {
            flags |= TrainFlags::ACK_REQ;
        }
        train.flags = TrainFlags(flags);
        debug_assert!((1..=window).contains(&packets), "{packets} packets overrun the window");
        debug_assert!(
            self.shape_is_sound(&train),
            "the packets of a train do not fit its payload: {train:?}"
        );
        self.req.packets += u64::from(packets);
        self.advance(position, packets, last);
        Plan::Send { train, position, offset }
    }

    fn address_datagram(&self, position: u32, train: &mut Train) {
        let ud = self.sq.ud(position);
        train.dst_qpn = ud.remote_qpn;
        // A controlled key in the request means: use the QP's own (IBA vol. 1, 10.2.5).
        train.qkey =
            if ud.remote_qkey & 0x8000_0000 != 0 { self.attr.qkey } else { ud.remote_qkey };
    }

    /// Whether a packet asks for an acknowledgement: if a completion depends on it, often enough
    /// that the queue and the PSN window keep moving, and always while recovering.
    #[inline]
    fn wants_ack(&mut self, position: u32, last: bool, packets: u32) -> bool {
        let wqe = self.sq.wqe(position);
        self.req.since_ack_req += packets;
        let wanted = last
            && (wqe.signaled() || self.req.since_ack_req >= SENDS_PER_ACK || self.req.recovering)
            || self.req.since_ack_req >= self.ack_packets.min(self.window_packets / 4);
        if wanted {
            self.req.ask_for_ack(self.req.next_psn.add(packets - 1));
        }
        wanted
    }

    fn plan_read_or_atomic(&mut self, position: u32) -> Plan {
        let wqe = *self.sq.wqe(position);
        debug_assert!(wqe.answered < wqe.packets, "a request is repeated that was answered");
        debug_assert!(
            self.req.rd_atomic_in_flight < self.attr.max_rd_atomic as u32,
            "more READs and atomics are sent than max_rd_atomic"
        );
        let kind = match wqe.opcode {
            WrOpcode::Read => TrainKind::ReadRequest,
            WrOpcode::CmpSwap => TrainKind::CmpSwap,
            _ => TrainKind::FetchAdd,
        };
        // A repeated READ asks only for what is still missing (IBA vol. 1, 9.7.5.1.3).
        let skipped = wqe.answered * self.mtu.bytes();
        let packets = wqe.packets - wqe.answered;
        let psn = wqe.first_psn.add(wqe.answered);
        let mut train = Train::new(kind, self.remote_qpn, self.qpn, psn);
        train.packets = packets;
        train.remote_addr = wqe.remote_addr.wrapping_add(skipped as u64);
        train.rkey = RKey(wqe.rkey);
        train.dma_bytes = wqe.length - skipped.min(wqe.length);
        if kind != TrainKind::ReadRequest {
            train.dma_bytes = 8;
            train.compare = wqe.compare_add;
            train.swap_add = if kind == TrainKind::CmpSwap { wqe.swap } else { wqe.compare_add };
        }
        train.flags = TrainFlags(TrainFlags::FIRST | TrainFlags::LAST | TrainFlags::ACK_REQ);
        if wqe.answered == 0 {
            train.fold = wqe.fold;
        }
        self.req.next_psn = psn;
        self.req.rd_atomic_in_flight += 1;
        self.req.ask_for_ack(psn.add(packets - 1));
        self.req.packets += 1;
        self.advance(position, packets, true);
        Plan::Send { train, position, offset: 0 }
    }

    #[inline]
    fn advance(&mut self, position: u32, packets: u32, last: bool) {
        if self.req.next_psn != self.req.psn_limit {
            self.count_repeated(position, packets);
        }
        self.req.next_psn = self.req.next_psn.add(packets);
        if self.req.psn_limit.is_before(self.req.next_psn) {
            self.req.psn_limit = self.req.next_psn;
        }
        if last {
            self.req.cursor = position.wrapping_add(1);
            self.req.sent_packets = 0;
        } else {
            self.req.sent_packets += packets;
        }
        if self.qp_type != QpType::Rc {
            // There are no acknowledgements: what was sent is no longer outstanding.
            self.req.acked_psn = self.req.next_psn;
        } else if self.req.timer == Timer::Idle {
            self.req.timer = Timer::Wanted(TimerKind::Ack);
        }
    }

    /// Counts those of the next `packets` that were sent before.
    #[cold]
    fn count_repeated(&mut self, position: u32, packets: u32) {
        let sent_before = self.req.psn_limit.distance_from(self.req.next_psn).max(0) as u32;
        // The PSNs of a READ are those of its responses; it is asked for by one packet.
        let is_one_packet = self.sq.wqe(position).opcode.is_read_or_atomic();
        let repeated = if is_one_packet { 1 } else { sent_before.min(packets) };
        self.counted.tally.repeated_packets += u64::from(repeated);
    }

    /// The payload of a planned train was handed to the link, or could not be read.
    #[inline]
    pub fn retire_sent<E: Env>(
        &mut self,
        position: u32,
        last: bool,
        result: Result<(), CopyError>,
        env: &mut E,
    ) {
        if !self.sq.is_in_flight(position) {
            // The request was completed or flushed since it was planned.
            return;
        }
        match result {
            Ok(()) => {}
            Err(CopyError::Length) => {
                return self.fail_locally(position, WcStatus::LocLenErr, env);
            }
            Err(_) => return self.fail_locally(position, WcStatus::LocProtErr, env),
        }
        if self.qp_type != QpType::Rc && last {
            self.sq.wqe_mut(position).outcome = Some(WcStatus::Success);
            self.complete_ready(env);
        }
    }

    /// Retires a bind or local invalidate that was executed; it completes in order.
    pub fn retire_local<E: Env>(&mut self, position: u32, ok: bool, env: &mut E) {
        if !self.sq.is_in_flight(position) {
            return;
        }
        debug_assert!(
            self.sq.wqe(position).opcode.is_local(),
            "a request for the peer was executed here"
        );
        if !ok {
            return self.fail_locally(position, WcStatus::MwBindErr, env);
        }
        self.counted.others += 1;
        self.sq.wqe_mut(position).outcome = Some(WcStatus::Success);
        if self.req.cursor == position {
            self.req.cursor = position.wrapping_add(1);
        }
        self.complete_ready(env);
    }

    /// Fails a WQE that cannot be executed: earlier WQEs still complete in order, later ones are
    /// flushed.
    #[cold]
    fn fail_locally<E: Env>(&mut self, position: u32, status: WcStatus, env: &mut E) {
        self.sq.wqe_mut(position).outcome = Some(status);
        self.req.failed = true;
        self.complete_ready(env);
    }

    /// Whether [`Qp::plan`] has something to look at; one comparison for the idle case.
    #[inline]
    pub fn may_send(&self) -> bool {
        self.req.cursor != self.sq.fetched
    }

    /// How many requests that the adapter has read were not sent yet.
    pub fn waiting_requests(&self) -> u32 {
        self.sq.fetched.wrapping_sub(self.req.cursor)
    }

    /// The request whose payload [`Qp::plan`] would send next, and the first byte of it; `None` if
    /// what comes next carries no payload from memory.
    pub(super) fn payload_to_send(&mut self) -> Option<(u32, u32)> {
        self.skip_executed();
        let position = self.req.cursor;
        if !self.may_send() || self.req.paused {
            return None;
        }
        let wqe = self.sq.wqe(position);
        let has_payload = !wqe.opcode.is_local() && !wqe.opcode.is_read_or_atomic();
        (has_payload && !wqe.is_inline() && wqe.length > 0)
            .then(|| (position, self.req.sent_packets * self.mtu.bytes()))
    }

    /// Packets in flight, if an acknowledgement is due; otherwise 0.
    pub fn packets_to_be_acknowledged(&self) -> u32 {
        match self.req.ack_requested {
            true => self.req.next_psn.distance_from(self.req.acked_psn).max(0) as u32,
            false => 0,
        }
    }

    /// The first PSN that is not acknowledged.
    pub fn acknowledged_psn(&self) -> Psn {
        self.req.acked_psn
    }

    /// How often packets were repeated because some were lost, or seemed to be: after a NAK for a
    /// sequence error, a gap in responses, or a time-out. Not after an RNR NAK.
    pub fn losses(&self) -> u32 {
        self.req.losses
    }

    /// Position of the next request that will be sent.
    pub fn next_request(&self) -> u32 {
        self.req.cursor
    }

    /// Whether this is a reliable connection without READs and atomics in flight, and the requests
    /// that wait from `from` on (or all that wait) are SENDs and WRITEs of one packet. Some must
    /// wait, and no message may be partly sent.
    pub fn has_only_small_requests(&self, from: Option<u32>) -> bool {
        let is_small = |position: u32| {
            let wqe = self.sq.wqe(position);
            !wqe.opcode.is_local()
                && !wqe.opcode.is_read_or_atomic()
                && wqe.length <= self.mtu.bytes()
        };
        let from = from.unwrap_or(self.req.cursor);
        let waiting = self.sq.fetched.wrapping_sub(from);
        self.qp_type == QpType::Rc
            && self.may_send()
            && self.req.sent_packets == 0
            && self.req.rd_atomic_in_flight == 0
            && (0..waiting).all(|index| is_small(from.wrapping_add(index)))
    }

    /// Payload bytes of the request that was fetched last.
    pub fn last_request_bytes(&self) -> u32 {
        self.sq.wqe(self.sq.fetched.wrapping_sub(1)).length
    }

    /// Counts a READ or atomic whose response is complete.
    pub(super) fn rd_atomic_answered(&mut self) {
        self.req.rd_atomic_in_flight = self.req.rd_atomic_in_flight.saturating_sub(1);
    }
}

#[inline]
fn last_flags(opcode: WrOpcode, flags: SendFlags) -> u8 {
    let mut out = match opcode {
        WrOpcode::SendImm | WrOpcode::WriteImm => TrainFlags::IMM,
        WrOpcode::SendInv => TrainFlags::INV,
        _ => 0,
    };
    if flags.contains(SendFlags::SOLICITED) {
        out |= TrainFlags::SOLICITED;
    }
    out
}
