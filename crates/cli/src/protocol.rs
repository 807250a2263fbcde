//! What the command and its two workers say to each other: one JSON value a line, on the worker's
//! standard input and output.

use serde::{Deserialize, Serialize};

/// To a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Open the device; then stay on this core.
    Open {
        /// Its name.
        device: String,
        /// Where to run; `None`: anywhere.
        core: Option<usize>,
        /// Whether both workers share one core, so that spinning has to yield.
        yielding: bool,
    },
    /// Make a queue pair and memory; what was made before goes.
    Make(Make),
    /// Connect to the other end.
    Connect {
        /// Its queue pair, as `QpEndpoint` writes it.
        endpoint: String,
        /// Its memory.
        memory: Memory,
    },
    /// Do your part of a work: answer [`Reply::Armed`] when ready, then go on.
    Answer(Work),
    /// Begin a work; the other end is ready.
    Begin(Work),
}

/// How to make a queue pair and its memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Make {
    /// `RC`, `UC` or `UD`.
    pub transport: Transport,
    /// The longest message, in bytes.
    pub bytes_max: usize,
    /// Where messages lie.
    pub private_memory: bool,
    /// Index of the local GID to address with.
    pub gid_index: Option<u8>,
}

/// A transport service, as it travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
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
    /// Round trips, each stamped at both ends.
    Stamped {
        /// Bytes of a message.
        bytes: usize,
        /// Round trips before those that count.
        warm_up: u64,
        /// Round trips that count.
        trips: u64,
    },
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
}

/// From a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The device is open.
    Opened {
        /// Kind of the device: system, soft, sim.
        kind: String,
        /// Path MTU in bytes.
        mtu: usize,
        /// Entries of the GID table.
        gids: u32,
    },
    /// Queue pair and memory are there.
    Made {
        /// The queue pair.
        endpoint: String,
        /// The memory.
        memory: Memory,
        /// Inline bytes that messages may have.
        inline_bytes: usize,
        /// What kind of memory it is.
        backing: String,
    },
    /// Ready to send.
    Connected,
    /// Ready for the other end to begin.
    Armed,
    /// The work is done.
    Done(Box<Found>),
    /// It cannot be done: what happened, and the likely causes.
    Failed(String),
}

/// What a worker measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// One-way times towards the answering end.
    pub one_way: Option<Summary>,
    /// Round trips.
    pub round_trip: Option<Summary>,
    /// The slowest round trip of the warm-up, in ns.
    pub warm_up_max_ns: Option<u64>,
    /// Half a round trip, in ns: the median over batches.
    pub half_round_trip_ns: Option<f64>,
    /// Messages that arrived.
    pub messages: u64,
    /// From the first arrival to the last, in ns.
    pub span_ns: f64,
    /// Time per message of a flood, in ns: the median over batches.
    pub message_ns: Option<f64>,
    /// Messages that did not arrive.
    pub lost: u64,
    /// Why it is less than was asked for.
    pub cut_short: Option<String>,
}

impl Found {
    /// Messages per second, where a flood was measured.
    pub fn rate_per_s(&self) -> Option<f64> {
        (self.messages > 1 && self.span_ns > 0.0).then(|| self.messages as f64 * 1e9 / self.span_ns)
    }
}

/// A distribution of times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How many.
    pub samples: u64,
    /// The shortest, in ns.
    pub min_ns: u64,
    /// The median, in ns.
    pub median_ns: u64,
    /// Higher quantiles, in ns, as far as the number of samples supports them.
    pub p99_ns: Option<u64>,
    /// 99.9 %.
    pub p99_9_ns: Option<u64>,
    /// 99.99 %.
    pub p99_99_ns: Option<u64>,
    /// The longest, in ns.
    pub max_ns: u64,
    /// Its index.
    pub max_index: u64,
    /// Samples below 0, by the two cores' clocks being apart: counted as 0.
    pub negative: u64,
}
