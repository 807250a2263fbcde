//! What can be chosen of a receive queue.

use serde::{Deserialize, Serialize};

use crate::common::number;
use crate::common::words::words;
use crate::options::{Opt, within};
use crate::point::Experiment;

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
    RegionsBy, "way to share out buffers" {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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

/// The experiments that all of this is for.
const HERE: &[Experiment] = &[Experiment::Recvq];

/// The most pieces, regions and missing buffers: [`crate::check`] knows the device's limits.
const MOST: u64 = u32::MAX as u64;

pub(crate) const MAX_SGE: Opt = Opt {
    name: "max-sge",
    letter: None,
    value_name: "N",
    unit: "",
    help: "pieces that a receive may have; it has one, but an adapter reserves room for all",
    applies: &[Experiment::Recvq, Experiment::Rpc],
    is_number: true,
    words: &[],
    bare: None,
    get: |p| p.max_sge.to_string(),
    set: |p, text| {
        p.max_sge = within(text, "", 1, MOST)? as u32;
        Ok(())
    },
};

pub(crate) const REGIONS: Opt = Opt {
    name: "regions",
    letter: None,
    value_name: "N|each",
    unit: "",
    help: "memory regions that the receive buffers lie in; each: one for every buffer",
    applies: HERE,
    is_number: true,
    words: &["each"],
    bare: None,
    get: |p| if p.regions == 0 { "each".to_owned() } else { p.regions.to_string() },
    set: |p, text| {
        p.regions = match text {
            "each" => 0,
            n => within(n, "", 1, MOST).map_err(|e| format!("{e}; or each"))? as u32,
        };
        Ok(())
    },
};

pub(crate) const MISSING: Opt = Opt {
    name: "missing",
    letter: None,
    value_name: "N",
    unit: "",
    help: "receives that the queue has room for and that are never posted",
    applies: HERE,
    is_number: true,
    words: &[],
    bare: None,
    get: |p| p.missing.to_string(),
    set: |p, text| {
        p.missing = within(text, "", 0, MOST)? as u32;
        Ok(())
    },
};

pub(crate) const RETURN: Opt = Opt {
    name: "return",
    letter: None,
    value_name: "N|WORD",
    unit: "",
    help: "when used receives are posted again: when N are used, when half of the queue is, or all",
    applies: HERE,
    is_number: true,
    words: &["half", "all"],
    bare: None,
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
                number::parse(n, false).map_err(|e| format!("{e}; or half, all"))?;
                Return::Every(within(n, "", 1, MOST)? as u32)
            }
        };
        Ok(())
    },
};
