//! The state of one connection.

use rdmalab_wire::cm::Mad;
use rdmalab_wire::ids::Qpn;

/// The state of a connection (IBA vol. 1, 12.9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionState {
    /// The connection failed or has ended.
    Idle,
    /// We sent a REQ.
    ReqSent,
    /// We sent a REQ, and the peer asked for time (MRA).
    MraReqReceived,
    /// The peer sent a REQ.
    ReqReceived,
    /// The peer sent a REQ, and we asked for time (MRA).
    MraReqSent,
    /// We sent a REP.
    RepSent,
    /// We sent a REP, and the peer asked for time (MRA).
    MraRepReceived,
    /// The peer sent a REP.
    RepReceived,
    /// The peer sent a REP, and we asked for time (MRA).
    MraRepSent,
    /// Data may flow.
    Established,
    /// We sent a DREQ.
    DreqSent,
    /// The peer sent a DREQ.
    DreqReceived,
    /// The connection has ended, but its packets may still be in the network.
    Timewait,
    /// We sent a SIDR_REQ.
    SidrReqSent,
    /// The peer sent a SIDR_REQ.
    SidrReqReceived,
}

impl ConnectionState {
    /// The state to return to when the time that the peer asked for (MRA) is over.
    pub(super) fn after_patience(self) -> Self {
        match self {
            Self::MraReqReceived => Self::ReqSent,
            Self::MraRepReceived => Self::RepSent,
            other => other,
        }
    }

    /// Whether a connection in this state may go to `next` (IBA vol. 1, 12.9.7). It may stay.
    fn may_become(self, next: Self) -> bool {
        use ConnectionState::*;
        let from: &[ConnectionState] = match next {
            Idle => return !matches!(self, Established | DreqSent | DreqReceived),
            ReqSent => &[MraReqReceived],
            MraReqReceived => &[ReqSent],
            MraReqSent => &[ReqReceived],
            RepSent => &[ReqReceived, MraReqSent, MraRepReceived],
            MraRepReceived => &[RepSent],
            RepReceived => &[ReqSent, MraReqReceived],
            MraRepSent => &[RepReceived],
            Established => &[RepReceived, MraRepSent, RepSent, MraRepReceived],
            DreqSent => &[Established],
            DreqReceived => &[RepReceived, RepSent, MraRepReceived, Established],
            Timewait => &[Established, DreqSent, DreqReceived],
            ReqReceived | SidrReqSent | SidrReqReceived => &[],
        };
        self == next || from.contains(&self)
    }

    /// Whether the connection waits for a message of the peer, and repeats its own until it comes.
    pub(super) fn awaits_answer(self) -> bool {
        matches!(self, Self::ReqSent | Self::RepSent | Self::DreqSent | Self::SidrReqSent)
    }

    /// Whether data may have flowed: such a connection ends in TIMEWAIT.
    pub(super) fn was_established(self) -> bool {
        matches!(self, Self::Established | Self::DreqSent | Self::DreqReceived | Self::Timewait)
    }
}

/// A connection, or a request for a datagram service (SIDR).
#[derive(Clone, Debug)]
pub(super) struct Connection<P> {
    pub state: ConnectionState,
    pub peer: P,
    pub service_id: u64,
    /// The peer's identifier; 0 until known.
    pub remote_id: u32,
    pub remote_guid: u64,
    pub remote_qpn: Qpn,
    /// Transaction identifier of the request that began the connection.
    pub transaction: u64,
    /// The message to send again when the timer expires or the peer repeats its message.
    pub resend: Option<Mad>,
    pub retries_left: u8,
    /// Initial value of `retries_left`.
    pub max_retries: u8,
    /// How long we wait for an answer.
    pub response_ns: u64,
    pub timewait_ns: u64,
    pub deadline_ns: Option<u64>,
    /// The connection has an owner, which gets its events.
    pub is_owned: bool,
    /// The request counts in its listener's backlog.
    pub is_waiting: bool,
    /// We sent the REQ.
    pub is_active: bool,
}

impl<P> Connection<P> {
    /// Moves to another state.
    pub(super) fn enter(&mut self, next: ConnectionState) {
        debug_assert!(self.state.may_become(next), "{next:?} after {:?}", self.state);
        self.state = next;
    }
}
