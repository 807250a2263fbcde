//! The options that only `recvq` has.

use crate::common::number;
use crate::common::option::{Field, Opt, count_or, number_field, within, word_field};
use crate::common::words::words;

/// Its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recvq {
    /// Where receives are posted.
    pub queue: Queue,
    /// Memory regions that the receive buffers lie in; 0: one for each.
    pub regions: u32,
    /// Which of these buffers share a region.
    pub regions_by: RegionsBy,
    /// Receives that the queue has room for and that are never posted.
    pub missing: u32,
    /// When used receives are posted again.
    pub return_at: Return,
    /// On which side of the answer they are.
    pub return_when: ReturnWhen,
}

words! {
    /// Where receives are posted.
    Queue, "receive queue" {
        /// To the queue pair's own queue.
        Own = "own",
        /// To a shared receive queue.
        Srq = "srq",
    }
}

words! {
    /// Which buffers lie in one memory region.
    RegionsBy, "way to distribute buffers" {
        /// Neighbours: the first so many, and so on.
        Block = "block",
        /// Each buffer in the next region, round and round.
        Turn = "turn",
    }
}

words! {
    /// On which side of the answer receives are posted again.
    ReturnWhen, "moment to return buffers" {
        /// Before it is sent.
        Before = "before",
        /// After it was sent, while it is under way.
        After = "after",
    }
}

/// When used receives are posted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Return {
    /// When so many are used: 1 is each at once.
    Every(u32),
    /// When half of the queue is used.
    Half,
    /// When all are used and the queue is empty.
    All,
}

impl Return {
    /// How many are posted again at once, of so many.
    #[must_use]
    pub fn count(self, buffers: usize) -> usize {
        match self {
            Self::Every(count) => (count as usize).clamp(1, buffers.max(1)),
            Self::Half => buffers.div_ceil(2).max(1),
            Self::All => buffers.max(1),
        }
    }
}

/// The most regions and missing buffers: [`crate::check`] knows the device's limits.
const MOST: u64 = u32::MAX as u64;

pub(super) const QUEUE: Field<Recvq> =
    word_field!("queue", None, Queue, queue, "where receives are posted");
pub(super) const REGIONS: Field<Recvq> = Field {
    opt: Opt {
        name: "regions",
        letter: None,
        value_name: "N|each",
        unit: "",
        help: "memory regions of the receive buffers; each: one for every buffer",
        is_number: true,
        words: &["each"],
        bare: None,
    },
    get: |p| if p.regions == 0 { "each".to_owned() } else { p.regions.to_string() },
    set: |p, text| {
        p.regions = count_or(text, "each", MOST)?;
        Ok(())
    },
};
pub(super) const REGIONS_BY: Field<Recvq> = word_field!(
    "regions-by",
    None,
    RegionsBy,
    regions_by,
    "which buffers share a region: neighbours, or every Nth one"
);
pub(super) const MISSING: Field<Recvq> = number_field!(
    "missing", None, missing: u32, 0..=MOST, "N", "",
    "receives that the queue has room for and that are never posted"
);
pub(super) const RETURN: Field<Recvq> = Field {
    opt: Opt {
        name: "return",
        letter: None,
        value_name: "N|WORD",
        unit: "",
        help: "when used receives are posted again: when N are used, when half of the queue is, \
               or all",
        is_number: true,
        words: &["half", "all"],
        bare: None,
    },
    get: |p| match p.return_at {
        Return::Every(n) => n.to_string(),
        Return::Half => "half".to_owned(),
        Return::All => "all".to_owned(),
    },
    set: |p, text| {
        p.return_at = match text {
            "half" => Return::Half,
            "all" => Return::All,
            n => {
                number::parse(n, number::Kind::Count).map_err(|e| format!("{e}; or half, all"))?;
                Return::Every(within(n, "", 1, MOST)? as u32)
            }
        };
        Ok(())
    },
};
pub(super) const RETURN_WHEN: Field<Recvq> = word_field!(
    "return-when",
    None,
    ReturnWhen,
    return_when,
    "on which side of the answer receives are posted again"
);
