//! The option that only `rpc` has.

use crate::common::option::{Field, word_field};
use crate::common::words::words;

/// Its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rpc {
    /// What is called.
    pub call: Call,
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
