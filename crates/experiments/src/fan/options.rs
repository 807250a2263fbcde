//! What can be chosen of a fan.

use crate::common::words::words;
use crate::options::{Opt, within};
use crate::point::Experiment;

words! {
    /// Which way the messages of the chosen size go.
    Direction, "direction" {
        /// From rank 0 to the others; each answers with one byte.
        Out = "out",
        /// From the others to rank 0, which asks for them with one byte.
        In = "in",
        /// There and back.
        Both = "both",
    }
}

words! {
    /// How rank 0 reaches the others.
    Cast, "way to reach the others" {
        /// With a message for each.
        Each = "each",
        /// With one message to a multicast group, which they joined. UD only.
        Group = "group",
    }
}

words! {
    /// Which sizes a run goes through.
    Sizes, "choice of sizes" {
        /// The one.
        Alone = "alone",
        /// From 1 byte on, doubled until it is that one; all repetitions of a size together.
        Series = "series",
        /// The same sizes, drawn anew for each repetition.
        Random = "random",
    }
}

/// The experiments that all of this is for.
pub(crate) const HERE: &[Experiment] = &[Experiment::Fan];
/// Longest wait for a message that may be lost: a minute.
pub(crate) const LOST_AFTER_MAX_NS: u64 = 60_000_000_000;

pub(crate) const PEERS: Opt = Opt {
    name: "peers",
    letter: None,
    value_name: "N|all",
    unit: "",
    help: "ranks that rank 0 has to do with, from rank 1 on; all: each of the --ranks",
    applies: HERE,
    is_number: true,
    words: &["all"],
    bare: None,
    get: |p| if p.peers == 0 { "all".to_owned() } else { p.peers.to_string() },
    set: |p, text| {
        p.peers = match text {
            "all" => 0,
            n => within(n, "", 1, 1 << 16).map_err(|e| format!("{e}; or all"))? as u32,
        };
        Ok(())
    },
};
