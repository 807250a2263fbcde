//! The tasks of the two ends of a row, and the times that they measure.

use serde::{Deserialize, Serialize};

/// A task for both ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Task {
    /// Create a queue pair and memory, and connect; the previous ones are destroyed.
    Connect(Setup),
    /// Exchange messages: the first rank starts, the second one answers.
    Work {
        /// The messages.
        work: Work,
        /// Whether both ends share a core, so that spinning has to yield.
        yielding: bool,
    },
}

/// A queue pair and its memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The longest message, in bytes.
    pub bytes_max: usize,
    /// Whether messages are in the process's own memory instead of the device's.
    pub private_memory: bool,
    /// Index of the GID, for ports that are addressed by GIDs.
    pub gid_index: u8,
}

/// How messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// SEND, received from the completion queue.
    Send,
    /// WRITE, seen in memory where the other end waits for it.
    Write,
}

/// Messages between two workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// Round trips in batches that are timed as a whole; the result is their median.
    RoundTrips {
        /// How messages travel.
        op: Op,
        /// Bytes of a message.
        bytes: usize,
        /// Number of batches.
        batches: u64,
        /// Round trips per batch.
        trips: u64,
    },
    /// Messages in one direction, as fast as possible.
    Flood {
        /// How messages travel.
        op: Op,
        /// Bytes of a message.
        bytes: usize,
        /// Number of messages.
        messages: u64,
        /// Number of requests per post.
        list: u64,
    },
    /// WRITEs in one direction, as fast as possible, to an end that meanwhile polls its completion
    /// queue: a soft device may use the processor of that end too.
    FloodToPoller {
        /// Bytes of a message.
        bytes: usize,
        /// Number of messages.
        messages: u64,
    },
    /// Round trips of UDP datagrams, as [`Work::RoundTrips`].
    DatagramTrips {
        /// Index of the GID whose address is used.
        gid_index: u8,
        /// Bytes of a datagram.
        bytes: usize,
        /// Number of batches.
        batches: u64,
        /// Round trips per batch.
        trips: u64,
    },
    /// UDP datagrams in one direction, many per call.
    DatagramFlood {
        /// Index of the GID whose address is used.
        gid_index: u8,
        /// Bytes of a message; the result is the time for this many bytes.
        bytes: usize,
        /// Number of messages.
        messages: u64,
    },
}

/// The times that a worker measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    /// Half a round trip, in ns: the median of the batches.
    pub half_round_trip_ns: Option<f64>,
    /// Time per message of a flood, in ns: the median of the batches.
    pub message_ns: Option<f64>,
}
