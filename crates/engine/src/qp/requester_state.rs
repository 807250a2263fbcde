//! The state of the sending half of a queue pair.

use crate::train::Fold;
use rdmalab_wire::ids::Psn;

/// When the adapter wants to be called again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Timer {
    /// Nothing is awaited.
    #[default]
    Idle,
    /// The driver computes the deadline when it next reads the clock. Hot paths only set this
    /// state, so that a message that is answered before the next tick costs no clock read.
    Wanted(TimerKind),
    /// Due at this time, ns.
    At(TimerKind, u64),
}

/// The event that a timer waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimerKind {
    /// An acknowledgement (local ACK time-out).
    Ack,
    /// The end of the pause that an RNR NAK asked for, which lasts this many ns.
    Rnr(u64),
    /// The end of the pause after a response found a page missing. The device chooses its length.
    PageFault,
}

/// State of the sending half of a QP.
#[derive(Clone, Debug, Default)]
pub(super) struct Requester {
    /// PSN of the next packet.
    pub(super) next_psn: Psn,
    /// WQE to send next; older than `sq.begun` during a retransmission.
    pub(super) cursor: u32,
    /// Packets of that WQE that were already sent.
    pub(super) sent_packets: u32,
    /// Highest PSN ever sent, plus one.
    pub(super) psn_limit: Psn,
    /// PSN up to which everything is acknowledged.
    pub(super) acked_psn: Psn,
    /// READs and atomics sent and not answered.
    pub(super) rd_atomic_in_flight: u32,
    /// A response was accepted and is not retired yet.
    pub(super) placing: bool,
    pub(super) retries_left: u8,
    pub(super) rnr_retries_left: u8,
    /// Packets sent since the last that asked for an acknowledgement.
    pub(super) since_ack_req: u32,
    /// How often packets were repeated because some were lost.
    pub(super) losses: u32,
    /// Whether an acknowledgement was requested and has not arrived.
    pub(super) ack_requested: bool,
    /// PSN of the last packet that asked for an acknowledgement.
    pub(super) ack_request_psn: Psn,
    pub(super) timer: Timer,
    pub(super) paused: bool,
    /// Responses are dropped until the pause is over.
    pub(super) ignores_responses: bool,
    /// A lost response was noticed, and its request repeated, since the last acknowledgement.
    pub(super) gap_seen: bool,
    /// Packets were sent again since the last acknowledgement.
    pub(super) recovering: bool,
    /// A WQE failed locally: nothing after it is sent.
    pub(super) failed: bool,
    /// The operations that the local lane executed since the last train.
    pub(super) fold: Fold,
    /// Packets that were sent since the QP was made.
    pub(super) packets: u64,
}

impl Requester {
    pub(super) fn start(&mut self, psn: Psn, retry_cnt: u8, rnr_retry: u8) {
        *self = Requester {
            next_psn: psn,
            psn_limit: psn,
            acked_psn: psn,
            retries_left: retry_cnt,
            rnr_retries_left: rnr_retry,
            cursor: self.cursor,
            packets: self.packets,
            ..Requester::default()
        };
    }

    /// Whether the requester pauses because of an RNR NAK or a page fault.
    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Ends the pause; says whether there was one.
    #[inline]
    pub(super) fn end_pause(&mut self) -> bool {
        self.ignores_responses = false;
        core::mem::take(&mut self.paused)
    }

    #[inline]
    pub(super) fn ask_for_ack(&mut self, psn: Psn) {
        self.since_ack_req = 0;
        self.ack_requested = true;
        self.ack_request_psn = psn;
    }

    /// Forgets everything in flight; if the QP leaves SQE, sending continues at `position`.
    pub(super) fn stop(&mut self, position: u32) {
        self.timer = Timer::Idle;
        self.placing = false;
        self.end_pause();
        self.rd_atomic_in_flight = 0;
        self.sent_packets = 0;
        self.cursor = position;
        self.failed = false;
    }
}
