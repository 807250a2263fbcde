//! The message that a responder is receiving, and the READ that waits for its pages.

use crate::train::Train;

/// The message in progress.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Inbound {
    #[default]
    None,
    /// A SEND into the held receive WQE.
    Send { received: u64 },
    /// A WRITE.
    Write { next_addr: u64, rkey: u32, received: u64, total: u64 },
    /// UC: the rest of a message that broke off.
    Skip,
}

impl Inbound {
    /// The message after `bytes` more bytes, when it does not end there.
    pub(super) fn after(self, bytes: u32) -> Inbound {
        let more = u64::from(bytes);
        match self {
            Inbound::Send { received } => Inbound::Send { received: received + more },
            Inbound::Write { next_addr, rkey, received, total } => Inbound::Write {
                next_addr: next_addr.wrapping_add(more),
                rkey,
                received: received + more,
                total,
            },
            other => other,
        }
    }
}

/// A READ that was answered with an RNR NAK, and is served when its pages have come.
#[derive(Clone, Debug)]
pub(super) struct FaultedRead {
    pub(super) train: Train,
    /// How many of its bytes were present.
    pub(super) present: u64,
}
