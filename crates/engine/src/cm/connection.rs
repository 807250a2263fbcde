//! What is known of one connection.

use rdmalab_wire::cm::Mad;
use rdmalab_wire::ids::Qpn;

/// Where a connection stands (IBA vol. 1, 12.9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It failed, or it is over: nothing will happen any more.
    Idle,
    /// We asked.
    ReqSent,
    /// We asked, and the peer needs time.
    MraReqReceived,
    /// The peer asked.
    ReqReceived,
    /// The peer asked, and we asked for time.
    MraReqSent,
    /// We accepted.
    RepSent,
    /// We accepted, and the peer needs time.
    MraRepReceived,
    /// The peer accepted.
    RepReceived,
    /// The peer accepted, and we asked for time.
    MraRepSent,
    /// Data may flow.
    Established,
    /// We asked for the end.
    DreqSent,
    /// The peer asked for the end.
    DreqReceived,
    /// It is over, and packets of it may still be on their way.
    Timewait,
    /// We asked for a datagram service.
    SidrReqSent,
    /// The peer asked for one.
    SidrReqReceived,
}

impl State {
    /// The state in which a message is sent again, when the time that the peer asked for is over.
    pub(super) fn after_patience(self) -> Self {
        match self {
            Self::MraReqReceived => Self::ReqSent,
            Self::MraRepReceived => Self::RepSent,
            other => other,
        }
    }

    /// Whether data may have flowed: such a connection ends in TIMEWAIT.
    pub(super) fn was_established(self) -> bool {
        matches!(self, Self::Established | Self::DreqSent | Self::DreqReceived | Self::Timewait)
    }
}

/// A connection, or a question for a datagram service.
#[derive(Clone, Debug)]
pub(super) struct Connection<P> {
    pub state: State,
    pub peer: P,
    pub service_id: u64,
    /// The peer's identifier; 0 until known.
    pub remote_id: u32,
    pub remote_guid: u64,
    pub remote_qpn: Qpn,
    /// Of the request that began it.
    pub transaction: u64,
    /// What is sent again when the timer runs out, or when the peer repeats itself.
    pub resend: Option<Mad>,
    pub retries_left: u8,
    /// What `retries_left` starts from.
    pub max_retries: u8,
    /// How long we wait for an answer.
    pub response_ns: u64,
    pub timewait_ns: u64,
    pub deadline_ns: Option<u64>,
    /// Somebody wants its events.
    pub is_owned: bool,
    /// It counts in its listener's backlog.
    pub is_waiting: bool,
    /// We asked for the connection.
    pub is_active: bool,
}
