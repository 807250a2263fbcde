//! The options that only `timeout` has.

use crate::common::option::{Field, number_field, word_field};
use crate::common::words::words;

/// Its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Timeout {
    /// The longest time that a sample may take; 0 for as long as its code allows.
    pub limit_ns: u64,
    /// What the request lacks.
    pub absent: Absent,
}

words! {
    /// What a request to nobody lacks.
    Absent, "kind of absent peer" {
        /// The queue pair: the other end gets requests and drops them.
        QueuePair = "queue_pair",
        /// The LID: no port has it.
        Lid = "lid",
    }
}

/// Longest wait for a sample: a day.
const LIMIT_MAX_NS: u64 = 86_400_000_000_000;

pub(super) const LIMIT: Field<Timeout> = number_field!(
    "limit", None, limit_ns: u64, 0..=LIMIT_MAX_NS, "TIME", "ns",
    "the longest time that a sample may take; 0: as long as its code allows, 20 s to 10 min"
);
pub(super) const ABSENT: Field<Timeout> =
    word_field!("absent", None, Absent, absent, "what is absent at the other rank");
