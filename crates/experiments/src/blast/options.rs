//! The options that only `blast` has.

use crate::common::option::{COUNT_MAX, Field, number_field, yes_no_field};

/// Its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blast {
    /// Buffers for messages, used in a ring; also the number of messages under way.
    pub buffers: u32,
    /// Whether both ends send and receive at once.
    pub is_bidirectional: bool,
    /// A stamp is taken after this many messages; 0: none.
    pub stamp_every: u64,
}

pub(super) const BUFFERS: Field<Blast> = number_field!(
    "buffers", None, buffers: u32, 1..=u32::MAX, "N", "",
    "buffers that the messages use in turns: the number of messages in flight"
);
pub(super) const BIDIRECTIONAL: Field<Blast> = yes_no_field!(
    "bidirectional",
    Some('b'),
    is_bidirectional,
    "whether both ends send and receive at once, over queue pairs of each direction"
);
pub(super) const STAMP_EVERY: Field<Blast> = number_field!(
    "stamp-every", None, stamp_every: u64, 0..=COUNT_MAX, "N", "",
    "messages between two timestamps; 0: no timestamps"
);
