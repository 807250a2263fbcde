//! The option that only `rpc` has.

use crate::common::option::{Field, number_field, word_field};
use crate::common::words::words;

/// Its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rpc {
    /// What is called.
    pub call: Call,
    /// How long a server works on each request that it gets.
    pub work_ns: u64,
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

pub(super) const CALL: Field<Rpc> = word_field!("call", None, Call, call, "what is called");

/// Longest work on a request: a second, far below the patience of those who wait for the answer.
const WORK_MAX_NS: u64 = 1_000_000_000;

pub(super) const WORK: Field<Rpc> = number_field!(
    "work", None, work_ns: u64, 0..=WORK_MAX_NS, "TIME", "ns",
    "how long master and backups each keep their processor busy with a request before they go on"
);
