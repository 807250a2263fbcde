//! The parameters that several experiments share. Options of a single experiment are in its folder.

use rdmalab_random::scrambled;
use serde::{Deserialize, Serialize};

use crate::common::limits::Limits;
use crate::common::model::Model;
use crate::common::words::words;

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
        /// Atomic fetch-and-add of 1 to eight bytes; the target does nothing.
        FetchAdd = "fetch_add",
        /// Atomic compare-and-swap of eight bytes that are as compared; the target does nothing.
        CmpSwap = "cmp_swap",
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

    /// Whether it is an atomic.
    #[must_use]
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CmpSwap)
    }

    /// Whether it reads the target's memory: a READ or an atomic.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::WriteRead) || self.is_atomic()
    }

    /// Whether the request carries a payload, which may go inline.
    #[must_use]
    pub const fn has_payload(self) -> bool {
        !matches!(self, Self::Read) && !self.is_atomic()
    }

    /// Whether the target does not notice it: only its initiator knows that it is done.
    #[must_use]
    pub const fn is_unnoticed(self) -> bool {
        self.reads() || matches!(self, Self::Write)
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
        /// The sender does not wait: RC gets RNR NAKs, UC and UD lose messages.
        None = "none",
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
    /// The limit of [`Inline::Auto`]: adapters commonly grant it, and it is perftest's default.
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

/// The options that several experiments have. Options that an experiment does not use keep their
/// defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Common {
    /// Transport service.
    pub transport: Transport,
    /// What is posted.
    pub op: Op,
    /// Length of a message.
    pub size_bytes: u64,
    /// Messages, or round trips, of a run.
    pub messages: u64,
    /// Instead of `messages`: the time of all runs together; 0: none.
    pub duration_ns: u64,
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
    /// Pause between two posts, or between the end of a burst and the next burst.
    pub pause_ns: u64,
    /// How a pause is spent.
    pub pause_by: PauseBy,
    /// Messages that are due per second in an open loop; 0: closed loop, each message follows the
    /// one before. [`Common::SWEEP`] stands for several rates that the command line chooses.
    pub rate_per_s: u64,
    /// When they are due.
    pub arrivals: Arrivals,
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
    /// READs and atomics under way.
    pub outstanding_reads: u8,
    /// Whether the sender keeps within the receive queue.
    pub flow: Flow,
    /// Whether the payload is a pattern that the receiver checks.
    pub verify: bool,
    /// Whether memory for stamps is touched before.
    pub touch: bool,
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
    /// The RNR timer code that a peer without a posted receive sends (IBA 9.7.5.2.8).
    pub min_rnr_timer: u8,
    /// After so long a message that may be lost is taken to be lost.
    pub lost_after_ns: u64,
    /// Pieces of memory that the payload of a send lies in.
    pub sge: u32,
    /// Pieces that a receive may have.
    pub max_sge: u32,
    /// Seed of all random numbers; the same seed gives the same numbers.
    pub seed: u64,
    /// Which of the seed's sequences: one for each [repetition](Common::repeated) and thread.
    pub stream: u64,
    /// Parameters of a simulated adapter that differ from its profile.
    pub model: Model,
}

impl Common {
    /// The defaults, which an experiment may override.
    pub const DEFAULT: Self = Self {
        transport: Transport::Rc,
        op: Op::Send,
        size_bytes: 32,
        messages: 100_000,
        duration_ns: 0,
        runs: 1,
        warm_up: 1000,
        inline: Inline::Auto,
        signal_every: Signal::Every(1),
        poll_send: Polling::Busy,
        poll_recv: Polling::Busy,
        pause_ns: 0,
        pause_by: PauseBy::Auto,
        rate_per_s: 0,
        arrivals: Arrivals::Poisson,
        list: 1,
        mtu_bytes: 0,
        sl: 0,
        qps: 1,
        threads: 1,
        share_qp: false,
        tx_depth: 128,
        rx_depth: 512,
        outstanding_reads: 1,
        flow: Flow::Credit,
        verify: false,
        touch: true,
        memory: Memory::Device,
        port: 1,
        gid_index: None,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 12,
        lost_after_ns: 2_000_000_000,
        sge: 1,
        max_sge: 1,
        seed: 1,
        stream: 0,
        model: Model::OF_PROFILE,
    };

    /// The value of `--rate` that asks for a curve over several rates.
    pub const SWEEP: u64 = u64::MAX;

    /// The seed of this repetition and thread: the seed itself for the first of both.
    #[must_use]
    pub const fn stream_seed(&self) -> u64 {
        self.seed ^ scrambled(self.stream)
    }

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

    /// The payload of a packet that is used.
    #[must_use]
    pub fn packet_bytes(&self, limits: &Limits) -> u32 {
        if self.mtu_bytes == 0 { limits.active_mtu_bytes } else { self.mtu_bytes }
    }
}
