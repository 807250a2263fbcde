//! One measurement as data: everything that both ends have to know.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::common::words::words;
use crate::connect::By;
use crate::fan::options::{Cast, Direction, Sizes};
use crate::recvq::options::{Queue, RegionsBy, Return, ReturnWhen};
use crate::timeout::Absent;

mod defaults;

words! {
    /// An experiment: what is done, and what is looked at.
    Experiment, "experiment" {
        /// One-way times, stamped at both ends.
        Oneway = "oneway",
        /// Round trips, stamped at one end.
        Ping = "ping",
        /// As fast as it goes.
        Blast = "blast",
        /// What the calls cost.
        Overhead = "overhead",
        /// Registering memory, and copying instead.
        Mr = "mr",
        /// Making connections.
        Connect = "connect",
        /// How long a request to nobody takes to fail.
        Timeout = "timeout",
        /// Round trips over a receive queue, for their pattern.
        Recvq = "recvq",
        /// Calls of a store that keeps a log.
        Rpc = "rpc",
        /// One to many and back.
        Fan = "fan",
    }
}

impl Experiment {
    /// How many ranks it takes, at least and at most. As many as at least unless asked otherwise.
    #[must_use]
    pub const fn ranks(self) -> RangeInclusive<usize> {
        match self {
            // A client, a master, and none to three backups.
            Self::Rpc => 2..=5,
            Self::Oneway | Self::Ping | Self::Blast => 2..=2,
            Self::Overhead | Self::Mr | Self::Connect | Self::Timeout | Self::Recvq => 2..=2,
            Self::Fan => 2..=256,
        }
    }

    /// Whether it can be run by so many ranks.
    ///
    /// # Errors
    /// A sentence that says how many it takes.
    pub fn takes(self, count: usize) -> Result<(), String> {
        let (least, most) = self.ranks().into_inner();
        match count {
            count if (least..=most).contains(&count) => Ok(()),
            count if least == most => Err(format!("{self} is run by {least} ranks, not {count}")),
            count => Err(format!("{self} is run by {least} to {most} ranks, not {count}")),
        }
    }

    /// What it measures, in one sentence.
    #[must_use]
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Rpc => {
                "calls of a store that keeps a log: reads and writes of values, with as many \
                 backups as there are more ranks"
            }
            Self::Oneway => {
                "one-way time of each message, from before its post to after its arrival, with the \
                 time of its completion"
            }
            Self::Ping => {
                "round trips: one end sends, the other one answers, or lies still and is written \
                 and read"
            }
            Self::Blast => {
                "messages one way as fast as they go: rate, bandwidth, and the processor time of \
                 both ends"
            }
            Self::Overhead => {
                "what a call costs: posting a list of sends or of receives, polling a completion \
                 queue that has something and one that has nothing"
            }
            Self::Mr => {
                "registering and deregistering memory, and copying as much instead: from which \
                 size on registering is cheaper"
            }
            Self::Connect => {
                "making connected queue pairs, step by step, until the first message is through: \
                 time of each, and how many a second"
            }
            Self::Timeout => {
                "a request to a queue pair that is gone, until it fails: the time-out that a C_ACK \
                 really gives"
            }
            Self::Recvq => {
                "round trips over a receive queue, each in its order: the period, the places and \
                 the heights of what repeats itself"
            }
            Self::Fan => {
                "one to many and back: the time until all have answered, and each of them, and how \
                 evenly they are served"
            }
        }
    }
}

words! {
    /// Transport service of the queue pairs.
    Transport, "transport" {
        /// Reliable connection.
        Rc = "rc",
        /// Unreliable connection.
        Uc = "uc",
        /// Unreliable datagram.
        Ud = "ud",
    }
}

words! {
    /// What is posted.
    Op, "operation" {
        /// SEND into a posted receive.
        Send = "send",
        /// The same with immediate data, which carries the number of the message.
        SendImm = "send_imm",
        /// WRITE; the target looks at its memory.
        Write = "write",
        /// WRITE with immediate data, which uses up a posted receive.
        WriteImm = "write_imm",
        /// READ; the target does nothing.
        Read = "read",
        /// WRITE, then READ of the same bytes; the target does nothing. For `ping` only.
        WriteRead = "write_read",
    }
}

impl Op {
    /// Whether the number of the message goes as immediate data.
    #[must_use]
    pub const fn has_imm(self) -> bool {
        matches!(self, Self::SendImm | Self::WriteImm)
    }

    /// Whether the target posts receives for it.
    #[must_use]
    pub const fn needs_receives(self) -> bool {
        matches!(self, Self::Send | Self::SendImm | Self::WriteImm)
    }

    /// Whether it reads the target's memory.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::WriteRead)
    }

    /// Whether it is a WRITE, with or without immediate data.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::WriteImm | Self::WriteRead)
    }
}

words! {
    /// How an end waits for completions.
    Polling, "way of polling" {
        /// It looks without a pause.
        Busy = "busy",
        /// It sleeps until an event tells of one, then polls until the queue is empty.
        Event = "event",
    }
}

words! {
    /// How a pause is spent.
    PauseBy, "way to pause" {
        /// Asleep from 1 ms on, else busy.
        Auto = "auto",
        /// Busy, looking for completions meanwhile.
        Spin = "spin",
        /// Asleep, after the completions of what was sent.
        Sleep = "sleep",
    }
}

words! {
    /// What kind of memory the messages lie in.
    Memory, "kind of memory" {
        /// What the device reaches best: on the soft device, memory that its peers map.
        Device = "device",
        /// Private memory of the process, like a program's heap.
        Private = "private",
    }
}

words! {
    /// Whether a sender waits for the receiver.
    Flow, "flow control" {
        /// The receiver says how far it is, and the sender keeps within the receive queue.
        Credit = "credit",
        /// It does not: RC meets RNR, UC and UD lose.
        None = "none",
    }
}

words! {
    /// What is called.
    Call, "call" {
        /// A value is answered from the log.
        Read = "read",
        /// A value is appended to the log, and to those of all backups.
        Write = "write",
    }
}

words! {
    /// When messages are due, at a rate.
    Arrivals, "kind of arrivals" {
        /// Evenly spaced.
        Constant = "constant",
        /// Independent of each other: exponential gaps, drawn from the seed.
        Poisson = "poisson",
    }
}

words! {
    /// Which one of WRITE and READ has no completion, in `write_read`.
    Unsignalled, "choice of a request" {
        /// Both have one.
        Neither = "neither",
        /// The WRITE: the completion of the READ says that both are done.
        Write = "write",
        /// The READ: what it brings is looked for in memory.
        Read = "read",
    }
}

words! {
    /// A stamp that `oneway` takes, or a time that it gives.
    StampOf, "stamp" {
        /// Before the post: always.
        Subm = "subm",
        /// When the adapter copies the message: a thread keeps writing the time into it.
        Send = "send",
        /// After the arrival was noticed.
        Recv = "recv",
        /// After the sender's completion was polled.
        Comp = "comp",
        /// After the post returned.
        Post = "post",
    }
}

/// Which stamps are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamps {
    /// When the adapter copies the message, by a thread that keeps writing the time into it.
    pub send: bool,
    /// Arrivals.
    pub recv: bool,
    /// Completions at the sender.
    pub comp: bool,
    /// The end of the post.
    pub post: bool,
}

impl Stamps {
    /// Whether a stamp is among them; the one before the post always is.
    #[must_use]
    pub const fn has(self, stamp: StampOf) -> bool {
        match stamp {
            StampOf::Subm => true,
            StampOf::Send => self.send,
            StampOf::Recv => self.recv,
            StampOf::Comp => self.comp,
            StampOf::Post => self.post,
        }
    }
}

/// How much goes with the request instead of from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Inline {
    /// Messages of up to [`Inline::AUTO_BYTES`], as far as the device grants it.
    Auto,
    /// All messages; not possible beyond the device's limit.
    On,
    /// None.
    Off,
    /// Messages of up to so many bytes.
    Bytes(u32),
}

impl Inline {
    /// What [`Inline::Auto`] asks for: what adapters commonly grant, and perftest's default.
    pub const AUTO_BYTES: u32 = 220;

    /// Inline bytes that queue pairs are asked for, for messages of that size.
    #[must_use]
    pub fn wanted_bytes(self, size_bytes: u64) -> u32 {
        let size = u32::try_from(size_bytes).unwrap_or(u32::MAX);
        match self {
            Self::Auto if size <= Self::AUTO_BYTES => size,
            Self::Auto | Self::Off => 0,
            Self::On => size,
            Self::Bytes(limit) => limit,
        }
    }
}

/// Which sends have a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// One in so many; 1 is each.
    Every(u32),
    /// Only where the send queue would overflow otherwise.
    Max,
}

/// One measurement. What an experiment does not use keeps its default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Which experiment.
    pub experiment: Experiment,
    /// Transport service.
    pub transport: Transport,
    /// What is posted.
    pub op: Op,
    /// Length of a message.
    pub size_bytes: u64,
    /// Messages, or round trips, of a run.
    pub messages: u64,
    /// Runs. Both ends meet before each.
    pub runs: u64,
    /// Messages before the first run, kept apart.
    pub warm_up: u64,
    /// What goes inline.
    pub inline: Inline,
    /// Which sends have a completion.
    pub signal_every: Signal,
    /// How send completions are waited for.
    pub poll_send: Polling,
    /// How receive completions are waited for.
    pub poll_recv: Polling,
    /// Messages posted one after the other before everything is waited for; 0: the whole run.
    pub burst: u64,
    /// From one post to the next, or from the end of a burst to the next one.
    pub pause_ns: u64,
    /// How a pause is spent.
    pub pause_by: PauseBy,
    /// Messages that are due a second, whatever became of those before; 0: each follows the one
    /// before. [`Point::SWEEP`] stands for several that the command line finds.
    pub rate_per_s: u64,
    /// When they are due.
    pub arrivals: Arrivals,
    /// Places in memory that messages go round through: so many are under way in `blast`.
    pub buffers: u32,
    /// Requests in one post; 0: as many as there are free buffers.
    pub list: u32,
    /// Payload of a packet; 0: what the port uses.
    pub mtu_bytes: u32,
    /// Service level.
    pub sl: u8,
    /// Queue pairs, used in turns.
    pub qps: u32,
    /// Threads of each end, each with memory of its own, and all messages.
    pub threads: u32,
    /// Whether all threads of an end use the same queue pairs.
    pub share_qp: bool,
    /// Requests that a send queue holds.
    pub tx_depth: u32,
    /// Requests that a receive queue holds.
    pub rx_depth: u32,
    /// READs under way.
    pub outstanding_reads: u8,
    /// Whether the sender keeps within the receive queue.
    pub flow: Flow,
    /// Whether memory for stamps is touched before.
    pub touch: bool,
    /// Which stamps `oneway` takes.
    pub stamps: Stamps,
    /// `blast` takes a stamp after so many messages; 0: none.
    pub stamp_every: u64,
    /// Which one of WRITE and READ has no completion.
    pub unsignalled: Unsignalled,
    /// What kind of memory messages lie in.
    pub memory: Memory,
    /// Port of the device, from 1.
    pub port: u8,
    /// Index of the local GID; `None`: by LID where the port has LIDs, else 0.
    pub gid_index: Option<u8>,
    /// Local ACK time-out, as 4.096 us x 2^n; 0 waits for ever.
    pub timeout: u8,
    /// Retries after time-outs.
    pub retry_cnt: u8,
    /// Retries after RNR; 7 means for ever.
    pub rnr_retry: u8,
    /// How long a peer without a receive tells us to wait, as a code (IBA 9.7.5.2.8).
    pub min_rnr_timer: u8,
    /// What `rpc` calls.
    pub call: Call,
    /// How connections are made, in `connect`.
    pub by: By,
    /// The longest time that a sample of `timeout` may take; 0 for as long as its code allows.
    pub limit_ns: u64,
    /// What its request lacks.
    pub absent: Absent,
    /// Where receives are posted, in `recvq`.
    pub queue: Queue,
    /// Pieces that a receive of `recvq` may have.
    pub max_sge: u32,
    /// Memory regions that the receive buffers of `recvq` lie in; 0: one for each.
    pub regions: u32,
    /// Which of these buffers share a region.
    pub regions_by: RegionsBy,
    /// Receives of `recvq` that the queue has room for and that are never posted.
    pub missing: u32,
    /// When used receives of `recvq` are posted again.
    pub return_at: Return,
    /// On which side of the answer they are.
    pub return_when: ReturnWhen,
    /// Ranks that rank 0 of `fan` has to do with; 0: all.
    pub peers: u32,
    /// Which way the messages of `fan` go.
    pub direction: Direction,
    /// How rank 0 of `fan` reaches the others.
    pub cast: Cast,
    /// Which sizes a run of `fan` goes through.
    pub sizes: Sizes,
    /// After so long a message of `fan` is taken to be lost, over UC and UD.
    pub lost_after_ns: u64,
    /// For whatever is drawn; the same seed draws the same.
    pub seed: u64,
    /// Which of the seed's sequences: one for each [repetition](Point::repeated) and thread.
    pub stream: u64,
}

impl Point {
    /// A rate that stands for a curve over rates.
    pub const SWEEP: u64 = u64::MAX;

    /// Messages together, warm-up included.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.warm_up.saturating_add(self.messages.saturating_mul(self.runs))
    }

    /// Whether a pause is slept through.
    #[must_use]
    pub fn sleeps(&self) -> bool {
        match self.pause_by {
            PauseBy::Auto => self.pause_ns >= 1_000_000,
            PauseBy::Spin => false,
            PauseBy::Sleep => true,
        }
    }
}
