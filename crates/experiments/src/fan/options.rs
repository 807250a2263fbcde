//! The options that only `fan` has.

use crate::common::option::{Field, Opt, count_or, word_field};
use crate::common::words::words;

/// Its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fan {
    /// Ranks that rank 0 has to do with; 0: all.
    pub peers: u32,
    /// Which way the messages go.
    pub direction: Direction,
    /// How rank 0 reaches the others.
    pub cast: Cast,
    /// Which sizes a run goes through.
    pub sizes: Sizes,
}

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
        /// With one message to a multicast group, which they joined: over UD, or to say that it
        /// is time to READ.
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

pub(super) const PEERS: Field<Fan> = Field {
    opt: Opt {
        name: "peers",
        letter: None,
        value_name: "N|all",
        unit: "",
        help: "number of ranks that rank 0 exchanges messages with, from rank 1 on; all: all \
               other ranks",
        is_number: true,
        words: &["all"],
        bare: None,
    },
    get: |p| if p.peers == 0 { "all".to_owned() } else { p.peers.to_string() },
    set: |p, text| {
        p.peers = count_or(text, "all", 1 << 16)?;
        Ok(())
    },
};
pub(super) const DIRECTION: Field<Fan> = word_field!(
    "direction",
    None,
    Direction,
    direction,
    "which way the messages of that size go; the others have one byte"
);
pub(super) const TO: Field<Fan> = word_field!(
    "to",
    None,
    Cast,
    cast,
    "one message to each of the others, or one to a multicast group (UD, or READ, which it starts)"
);
pub(super) const SIZES: Field<Fan> = word_field!(
    "sizes",
    None,
    Sizes,
    sizes,
    "--size alone, or all from 1 byte doubled up to it: in series, or drawn at random"
);
