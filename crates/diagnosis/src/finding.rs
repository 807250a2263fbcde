//! What was found: kinds, occurrences, and the whole.

use std::collections::{BTreeMap, BTreeSet};

use rdmalab_trace::show::time;
use serde::Serialize;

use crate::event::{SideId, Stamp};
use crate::kind::Kind;

/// Occurrences of a finding that are kept unless more are wanted: those that cost most.
pub const OCCURRENCES_MAX: usize = 8;
/// Pairs that a finding over several pairs names.
pub const NAMED_MAX: usize = 16;

/// A frame that proves something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// The frame.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// What it shows.
    pub what: String,
}

/// One time that something went wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Occurrence {
    /// What happened, as a sentence without its full stop.
    pub what: String,
    /// The time that it cost, in nanoseconds.
    pub cost_ns: u64,
    /// The frames that prove it, in order.
    pub proof: Vec<Proof>,
}

impl Occurrence {
    /// An occurrence without proof yet.
    pub(crate) fn new(what: impl Into<String>, cost_ns: u64) -> Self {
        Self { what: what.into(), cost_ns, proof: Vec::new() }
    }

    /// The same with a further frame.
    pub(crate) fn shown(mut self, stamp: Stamp, what: impl Into<String>) -> Self {
        self.proof.push(Proof { stamp, what: what.into() });
        self
    }

    /// The time of its first frame.
    #[must_use]
    pub fn start_ns(&self) -> u64 {
        self.proof.first().map_or(0, |proof| proof.stamp.at_ns)
    }
}

/// Everything of one kind at one requester.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What went wrong.
    pub kind: Kind,
    /// The requester's queue pair; empty if the finding is about several.
    pub requester: String,
    /// The responder's.
    pub responder: String,
    /// Queue pairs of a finding about several, at most [`NAMED_MAX`].
    pub queue_pairs: Vec<String>,
    /// How often it happened.
    pub count: u64,
    /// The time that all of it cost, in nanoseconds.
    pub cost_ns: u64,
    /// The time of the first proof, in nanoseconds since 1970.
    pub first_ns: u64,
    /// The time of the last proof.
    pub last_ns: u64,
    /// Those that cost most, most first.
    pub occurrences: Vec<Occurrence>,
    /// Why it happens.
    pub cause: String,
    /// What to change.
    pub remedy: String,
    /// Why the finding may be wrong.
    pub doubts: BTreeSet<String>,
}

impl Finding {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            requester: String::new(),
            responder: String::new(),
            queue_pairs: Vec::new(),
            count: 0,
            cost_ns: 0,
            first_ns: u64::MAX,
            last_ns: 0,
            occurrences: Vec::new(),
            cause: kind.cause().to_owned(),
            remedy: kind.remedy().to_owned(),
            doubts: BTreeSet::new(),
        }
    }

    /// Keeps the occurrence, if it is among the `most` that cost most.
    fn add(&mut self, occurrence: Occurrence, most: usize) {
        self.count += 1;
        self.cost_ns = self.cost_ns.saturating_add(occurrence.cost_ns);
        for proof in &occurrence.proof {
            self.first_ns = self.first_ns.min(proof.stamp.at_ns);
            self.last_ns = self.last_ns.max(proof.stamp.at_ns);
        }
        let at = self.occurrences.partition_point(|other| other.cost_ns >= occurrence.cost_ns);
        self.occurrences.insert(at, occurrence);
        self.occurrences.truncate(most);
    }

    /// How often and how much: `3 times, 1.20 ms in total`.
    #[must_use]
    pub fn extent(&self) -> String {
        match (self.count, self.cost_ns) {
            (1, 0) => "once".to_owned(),
            (1, cost) => format!("once, {}", time(cost)),
            (n, 0) => format!("{n} times"),
            (n, cost) => format!("{n} times, {} in total", time(cost)),
        }
    }
}

/// Collects findings.
pub struct Findings {
    of: BTreeMap<(Kind, Option<SideId>), Finding>,
    /// Occurrences of each that are kept.
    pub(crate) occurrences_max: usize,
}

impl Default for Findings {
    fn default() -> Self {
        Self { of: BTreeMap::new(), occurrences_max: OCCURRENCES_MAX }
    }
}

impl Findings {
    /// Adds an occurrence at a requester; `None` for one that concerns several.
    pub fn add(&mut self, kind: Kind, side: Option<SideId>, occurrence: Occurrence) {
        let most = self.occurrences_max;
        self.finding(kind, side).add(occurrence, most);
    }

    /// Says why a finding may be wrong.
    pub fn doubt(&mut self, kind: Kind, side: Option<SideId>, doubt: impl Into<String>) {
        self.finding(kind, side).doubts.insert(doubt.into());
    }

    /// The finding, made if there is none yet.
    pub fn finding(&mut self, kind: Kind, side: Option<SideId>) -> &mut Finding {
        self.of.entry((kind, side)).or_insert_with(|| Finding::new(kind))
    }

    /// All, with the place of each.
    pub fn into_parts(self) -> impl Iterator<Item = (Option<SideId>, Finding)> {
        let real = self.of.into_iter().filter(|(_, finding)| finding.count > 0);
        real.map(|((_, side), finding)| (side, finding))
    }
}

/// The diagnosis of captures.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The captures, in the order of their numbers.
    pub files: Vec<String>,
    /// RDMA packets that were looked at; each packet counts once.
    pub packets: u64,
    /// Packets that were captured a second time, and left out.
    pub copies: u64,
    /// Frames of other protocols, and those that cannot be read.
    pub other_frames: u64,
    /// Pairs of queue pairs.
    pub pairs: usize,
    /// The time of the first packet, in nanoseconds since 1970.
    pub start_ns: u64,
    /// The time of the last packet.
    pub end_ns: u64,
    /// What went wrong, the greatest cost first.
    pub findings: Vec<Finding>,
    /// Why anything here may be wrong.
    pub doubts: Vec<String>,
}
