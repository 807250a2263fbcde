//! Small values that verbs take: rights, transports, states.

use std::ops::{BitOr, BitOrAssign};

use rdmalab_abi as abi;

/// Rights of a region or a queue pair. Local reading is always allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access(u32);

impl Access {
    /// Local reading only.
    pub const LOCAL_READ: Self = Self(0);
    /// The adapter may write here for this process: receives, and results of READ and atomics.
    pub const LOCAL_WRITE: Self = Self(abi::IBV_ACCESS_LOCAL_WRITE);
    /// Peers may WRITE; needs [`Access::LOCAL_WRITE`] on a region.
    pub const REMOTE_WRITE: Self = Self(abi::IBV_ACCESS_REMOTE_WRITE);
    /// Peers may READ.
    pub const REMOTE_READ: Self = Self(abi::IBV_ACCESS_REMOTE_READ);
    /// Peers may do atomics; needs [`Access::LOCAL_WRITE`] on a region.
    pub const REMOTE_ATOMIC: Self = Self(abi::IBV_ACCESS_REMOTE_ATOMIC);
    /// Windows may be bound.
    pub const MW_BIND: Self = Self(abi::IBV_ACCESS_MW_BIND);
    /// Pages are mapped on demand.
    pub const ON_DEMAND: Self = Self(abi::IBV_ACCESS_ON_DEMAND);
    /// Writes may become visible in any order; a device may ignore it.
    pub const RELAXED_ORDERING: Self = Self(abi::IBV_ACCESS_RELAXED_ORDERING);

    /// The bits, as in C.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether all rights of `other` are among these.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Access {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Access {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// Transport service of a queue pair (IBA 9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QpType {
    /// Reliable connection: everything, in order, exactly once.
    Rc,
    /// Unreliable connection: SEND and WRITE, messages may be lost.
    Uc,
    /// Unreliable datagram: SEND of one packet to any queue pair, may be lost.
    Ud,
}

impl QpType {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Rc, Self::Uc, Self::Ud];

    /// The number, as in C.
    #[must_use]
    pub const fn raw(self) -> u32 {
        match self {
            Self::Rc => abi::IBV_QPT_RC,
            Self::Uc => abi::IBV_QPT_UC,
            Self::Ud => abi::IBV_QPT_UD,
        }
    }
}

impl std::fmt::Display for QpType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        })
    }
}

/// State of a queue pair (IBA 10.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpState {
    /// New.
    Reset,
    /// Receives can be posted.
    Init,
    /// Ready to receive.
    ReadyToReceive,
    /// Ready to send.
    ReadyToSend,
    /// The send queue drains, or has drained.
    SendQueueDrained,
    /// A send failed; receives go on.
    SendQueueError,
    /// Everything is flushed.
    Error,
    /// An unknown number.
    Unknown(u32),
}

impl QpState {
    /// From the number, as in C.
    #[must_use]
    pub const fn from_raw(state: u32) -> Self {
        match state {
            abi::IBV_QPS_RESET => Self::Reset,
            abi::IBV_QPS_INIT => Self::Init,
            abi::IBV_QPS_RTR => Self::ReadyToReceive,
            abi::IBV_QPS_RTS => Self::ReadyToSend,
            abi::IBV_QPS_SQD => Self::SendQueueDrained,
            abi::IBV_QPS_SQE => Self::SendQueueError,
            abi::IBV_QPS_ERR => Self::Error,
            other => Self::Unknown(other),
        }
    }

    /// The number, as in C.
    #[must_use]
    pub const fn raw(self) -> u32 {
        match self {
            Self::Reset => abi::IBV_QPS_RESET,
            Self::Init => abi::IBV_QPS_INIT,
            Self::ReadyToReceive => abi::IBV_QPS_RTR,
            Self::ReadyToSend => abi::IBV_QPS_RTS,
            Self::SendQueueDrained => abi::IBV_QPS_SQD,
            Self::SendQueueError => abi::IBV_QPS_SQE,
            Self::Error => abi::IBV_QPS_ERR,
            Self::Unknown(other) => other,
        }
    }
}
