//! The option that only `connect` has.

use crate::common::option::{Field, word_field};
use crate::common::words::words;

/// Its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Connect {
    /// How connections are made.
    pub by: By,
}

words! {
    /// How queue pairs come to know of each other.
    By, "way to connect" {
        /// The ends exchange their numbers themselves, over TCP.
        Plain = "plain",
        /// The connection manager.
        RdmaCm = "rdma_cm",
    }
}

pub(super) const BY: Field<Connect> =
    word_field!("by", None, By, by, "how the queue pairs exchange their numbers and addresses");
