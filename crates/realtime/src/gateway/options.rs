//! The options that only `gateway` has.

use rdmalab_experiments::{Field, Opt, no_such, number_field, word_field, words};
use rdmalab_gateway::timer::TimerKind;

/// Its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// What the samples go over.
    pub node: Node,
    /// Values of a sample.
    pub values: usize,
    /// How the source waits for its ticks.
    pub timer: Timer,
    /// Samples that the queue of the node holds at most, where it has one of its own.
    pub buffers: u32,
    /// Whether all receives are posted before the first sample.
    pub prepost: bool,
    /// Gateways that samples go through: 1 or 2.
    pub ends: u8,
}

words! {
    /// The node-type under test.
    Node, "node-type" {
        /// Adapters and soft devices.
        Infiniband = "infiniband",
        /// Shared memory.
        Shmem = "shmem",
        /// UDP over the loopback interface.
        Socket = "socket",
        /// A queue between two paths of one process.
        Loopback = "loopback",
        /// PUB and SUB of ZeroMQ, over TCP.
        Zeromq = "zeromq",
        /// PUB and SUB of nanomsg, over TCP.
        Nanomsg = "nanomsg",
    }
}

words! {
    /// How the source waits for its ticks.
    Timer, "kind of timer" {
        /// In the kernel.
        Timerfd = "timerfd",
        /// By reading the processor's counter.
        Tsc = "tsc",
    }
}

impl Node {
    /// Whether its ends connect.
    pub const fn has_peers(self) -> bool {
        matches!(self, Self::Infiniband | Self::Shmem | Self::Zeromq | Self::Nanomsg)
    }

    /// Fewest and most samples of its queue, if that is one of `--buffers`.
    pub const fn queue(self) -> Option<std::ops::RangeInclusive<u32>> {
        match self {
            Self::Shmem => Some(2..=1_048_576),
            Self::Loopback => Some(1..=16_777_216),
            Self::Zeromq | Self::Nanomsg => Some(1..=1_048_576),
            Self::Infiniband | Self::Socket => None,
        }
    }
}

impl Gateway {
    /// Whether one gateway has both paths.
    pub fn is_alone(&self) -> bool {
        self.ends == 1 || self.node == Node::Loopback
    }
}

impl Timer {
    /// The same for the gateway.
    pub const fn kind(self) -> TimerKind {
        match self {
            Self::Timerfd => TimerKind::Timerfd,
            Self::Tsc => TimerKind::Tsc,
        }
    }
}

/// Fewest and most requests of a queue of the node-type `infiniband`.
pub const QUEUE: std::ops::RangeInclusive<u32> = 4..=65_536;

pub const NODE: Field<Gateway> =
    word_field!("node", None, Node, node, "the node-type of the gateway that samples go over");
pub const VALUES: Field<Gateway> = number_field!(
    "values", None, values: usize, 1..=512u64, "N", "",
    "values of a sample, each of 8 bytes; a sample has 24 bytes besides"
);
pub const TIMER: Field<Gateway> = word_field!(
    "timer",
    None,
    Timer,
    timer,
    "how the source waits for its ticks: in the kernel, or by reading the processor's counter, \
     which takes a processor"
);
pub const BUFFERS: Field<Gateway> = number_field!(
    "buffers", None, buffers: u32, 1..=u32::MAX, "N", "",
    "buffers that the messages use in turns: the number of messages in flight"
);
pub const ENDS: Field<Gateway> = number_field!(
    "ends", None, ends: u8, 1..=2u64, "N", "",
    "2: a gateway for each rank; 1: both paths in the process of rank 0, as loopback always has \
     them"
);
pub const PREPOST: Field<Gateway> = Field {
    opt: Opt {
        name: "prepost",
        letter: None,
        value_name: "YES|NO",
        unit: "",
        help: "whether all receives are posted before the first sample, or while samples come",
        is_number: false,
        words: &["yes", "no"],
        bare: None,
    },
    get: |own| if own.prepost { "yes" } else { "no" }.to_owned(),
    set: |own, text| {
        own.prepost = match text {
            "yes" | "on" => true,
            "no" | "off" => false,
            other => return Err(no_such("answer", other, &["yes", "no"])),
        };
        Ok(())
    },
};
