//! What the two ends of a row do, and what they find.

use serde::{Deserialize, Serialize};

/// What both ends are told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Make a queue pair and memory, and connect; what was made before goes.
    Make(Make),
    /// Work together: the first rank begins, the second one answers.
    Work {
        /// What is done.
        work: Work,
        /// Whether both share one core, so that spinning has to yield.
        yielding: bool,
    },
}

/// How to make a queue pair and its memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Make {
    /// The longest message, in bytes.
    pub bytes_max: usize,
    /// Where messages lie.
    pub private_memory: bool,
    /// By which of the port's GIDs, where it goes by GIDs.
    pub gid_index: u8,
}

/// Memory of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Where.
    pub addr: u64,
    /// How long.
    pub bytes: u64,
    /// Its key.
    pub rkey: u32,
}

/// How messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// SEND, received from the completion queue.
    Send,
    /// WRITE, noticed in memory where somebody waits for it.
    Write,
}

/// What two workers do together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// Round trips without stamps in them: batches, of which the median counts.
    Batches {
        /// How messages travel.
        op: Op,
        /// Bytes of a message.
        bytes: usize,
        /// Batches.
        batches: u64,
        /// Round trips of a batch.
        trips: u64,
    },
    /// Messages one way, as fast as they go.
    Flood {
        /// How messages travel.
        op: Op,
        /// Bytes of a message.
        bytes: usize,
        /// How many.
        messages: u64,
        /// Requests in each post call.
        list: u64,
    },
    /// WRITEs one way, as fast as they go, to an end that polls its completion queue meanwhile: a
    /// device whose bytes are moved by processors may use that one too.
    Watched {
        /// Bytes of a message.
        bytes: usize,
        /// How many.
        messages: u64,
    },
    /// Round trips of bare datagrams; as [`Work::Batches`].
    BareTrips {
        /// By which of the port's GIDs.
        gid_index: u8,
        /// Bytes of a datagram.
        bytes: usize,
        /// Batches.
        batches: u64,
        /// Round trips of a batch.
        trips: u64,
    },
    /// Bare datagrams one way, many in a call.
    BareFlood {
        /// By which of the port's GIDs.
        gid_index: u8,
        /// Bytes of a message that is thought of: what is found is its time.
        bytes: usize,
        /// How many.
        messages: u64,
    },
}

/// What a worker measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Half a round trip, in ns: the median over batches.
    pub half_round_trip_ns: Option<f64>,
    /// Time per message of a flood, in ns: the median over batches.
    pub message_ns: Option<f64>,
}
