//! The options that only `odp` has.

use crate::common::option::{Field, number_field, word_field};
use crate::common::params::Op;
use crate::common::words::words;

/// Its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Odp {
    /// Whose memory is registered for on-demand paging.
    pub fault: Side,
    /// Operations of a trial.
    pub operations: u32,
    /// From one post to the next.
    pub interval_ns: u64,
    /// What the second operation is.
    pub second_op: SecondOp,
    /// Where the second operation lies.
    pub second_page: SecondPage,
    /// Which pages the adapters have used before.
    pub warm: Warm,
    /// What is done against losses and repetitions.
    pub work_around: WorkAround,
    /// How long nothing is completed before a work-around acts.
    pub work_around_after_ns: u64,
}

words! {
    /// Whose memory is registered for on-demand paging.
    Side, "side that faults" {
        /// Nobody's.
        None = "none",
        /// That of rank 1.
        Server = "server",
        /// That of rank 0.
        Client = "client",
        /// That of both.
        Both = "both",
    }
}

words! {
    /// What the second operation of a trial is.
    SecondOp, "operation" {
        /// As the others.
        Same = "same",
        /// A READ.
        Read = "read",
        /// A WRITE.
        Write = "write",
        /// A SEND.
        Send = "send",
    }
}

impl SecondOp {
    /// What it stands for, where the others are `op`.
    pub const fn of(self, op: Op) -> Op {
        match self {
            Self::Same => op,
            Self::Read => Op::Read,
            Self::Write => Op::Write,
            Self::Send => Op::Send,
        }
    }
}

words! {
    /// Where the second operation of a trial lies.
    SecondPage, "place" {
        /// Right behind the first one: in its page, if there is room.
        Same = "same",
        /// At the begin of the next page; those after it lie behind it.
        Other = "other",
    }
}

words! {
    /// Which pages the adapters have used before a trial.
    Warm, "set of pages" {
        /// None.
        None = "none",
        /// All but those of the first operation.
        ButFirst = "but_first",
    }
}

words! {
    /// What a program can do against operations that are lost or repeated around page faults.
    WorkAround, "work-around" {
        /// Nothing.
        None = "none",
        /// Fetch all pages of on-demand memory before the trial (`ibv_advise_mr`).
        Prefetch = "prefetch",
        /// Post a WRITE of no bytes, behind which a loss is noticed.
        Dummy = "dummy",
        /// Post the oldest operation of the queue pair again.
        Repeat = "repeat",
    }
}

impl WorkAround {
    /// Whether it posts something while operations wait.
    pub const fn posts(self) -> bool {
        matches!(self, Self::Dummy | Self::Repeat)
    }
}

/// Most operations of a trial: each has a sample, and a request of its own.
const OPERATIONS_MAX: u64 = 1 << 20;
/// The longest time until a work-around acts: a minute.
const AFTER_MAX_NS: u64 = 60_000_000_000;
/// Longest time between two posts: a minute.
const INTERVAL_MAX_NS: u64 = 60_000_000_000;

pub(super) const FAULT: Field<Odp> = word_field!(
    "fault",
    None,
    Side,
    fault,
    "whose memory is registered for on-demand paging, so that each first use of a page faults: of \
     rank 1 (server), rank 0 (client), both or none"
);
pub(super) const OPERATIONS: Field<Odp> = number_field!(
    "operations", None, operations: u32, 1..=OPERATIONS_MAX, "N", "",
    "operations of a trial; they use the queue pairs in turns"
);
pub(super) const INTERVAL: Field<Odp> = number_field!(
    "interval", None, interval_ns: u64, 0..=INTERVAL_MAX_NS, "TIME", "ns",
    "from one post to the next; 0: back to back"
);
pub(super) const SECOND_OP: Field<Odp> =
    word_field!("second-op", None, SecondOp, second_op, "what the second operation is");
pub(super) const SECOND_PAGE: Field<Odp> = word_field!(
    "second-page",
    None,
    SecondPage,
    second_page,
    "where the second operation lies: behind the first (same), or at the begin of the next page"
);
pub(super) const WARM: Field<Odp> = word_field!(
    "warm",
    None,
    Warm,
    warm,
    "which pages the adapters have used before: none, or all but those of the first operation"
);
pub(super) const WORK_AROUND: Field<Odp> = word_field!(
    "work-around",
    None,
    WorkAround,
    work_around,
    "what is done against losses and repetitions: fetch all pages before the trial (prefetch), \
     or, after the last post, if nothing is completed for --work-around-after, post a WRITE of no \
     bytes (dummy) or the oldest operation once more (repeat) on each queue pair that waits"
);
pub(super) const WORK_AROUND_AFTER: Field<Odp> = number_field!(
    "work-around-after", None, work_around_after_ns: u64, 1..=AFTER_MAX_NS, "TIME", "ns",
    "how long nothing is completed, after the last post, before --work-around dummy or repeat posts"
);
