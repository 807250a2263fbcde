//! The option that only `ping` has.

use crate::common::option::{Field, word_field};
use crate::common::words::words;

/// Its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ping {
    /// Which one of WRITE and READ has no completion.
    pub unsignalled: Unsignalled,
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

pub(super) const UNSIGNALLED: Field<Ping> = word_field!(
    "unsignalled",
    None,
    Unsignalled,
    unsignalled,
    "which request of write_read has no completion"
);
