//! What a gateway has done, as JSON.

use serde::Serialize;

use crate::counts::{Quantiles, Sequence};
use crate::node::NodeCounts;

/// The summary of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The version of this form.
    pub version: u32,
    /// The paths, in the order of the configuration.
    pub paths: Vec<PathReport>,
    /// How far the wall clock jumped during the run, in nanoseconds; each step once.
    pub clock_steps_ns: Vec<i64>,
}

/// What became of the samples of a path.
#[derive(Clone, Debug, Serialize)]
pub struct PathReport {
    /// The path.
    pub name: String,
    /// Samples of all sources.
    pub samples: u64,
    /// Ticks that a source did not get to in time.
    pub missed: u64,
    /// Numbers that did not come, beyond those missed here. A tick that the sender missed has no
    /// sample either: subtract its `missed`.
    pub lost: u64,
    /// Numbers that came again.
    pub duplicate: u64,
    /// Numbers that came after a higher one.
    pub reordered: u64,
    /// Samples that found a queue full.
    pub dropped: u64,
    /// From the origin of samples to their arrival here.
    pub latency: Option<Quantiles>,
    /// Each source.
    pub sources: Vec<InputReport>,
    /// Each destination.
    pub destinations: Vec<OutputReport>,
}

/// What a source has given.
#[derive(Clone, Debug, Serialize)]
pub struct InputReport {
    /// The node.
    pub node: String,
    /// Its sequence numbers.
    #[serde(flatten)]
    pub sequence: Sequence,
    /// Ticks that it missed.
    pub missed: u64,
    /// Samples that it dropped, or that found the queue to another path full.
    pub dropped: u64,
    /// Messages that were no samples.
    pub garbage: u64,
    /// Whether it ended early.
    pub has_failed: bool,
    /// Peers that came.
    pub connected: u64,
    /// Peers that went.
    pub disconnected: u64,
}

/// What a destination has taken.
#[derive(Clone, Debug, Serialize)]
pub struct OutputReport {
    /// The node.
    pub node: String,
    /// Samples that it took, without those that it lost.
    pub written: u64,
    /// Samples for which it had no room.
    pub dropped: u64,
    /// Samples that it could not hand over at the end, or after it failed.
    pub lost: u64,
    /// Samples that a peer that is gone had not read, as far as is known.
    pub unread: u64,
    /// Times that a peer broke the protocol; of a node that reads too, its wrong messages besides.
    pub garbage: u64,
    /// Whether it ended early.
    pub has_failed: bool,
    /// Peers that came.
    pub connected: u64,
    /// Peers that went.
    pub disconnected: u64,
}

impl InputReport {
    /// What a source has given. `skipped` numbers are those of ticks that it missed.
    #[must_use]
    pub fn new(
        node: &str,
        sequence: Sequence,
        skipped: u64,
        has_failed: bool,
        counts: &NodeCounts,
    ) -> Self {
        let missed = counts.missed.get();
        let lost = sequence.lost.saturating_sub(skipped);
        Self {
            node: node.to_owned(),
            sequence: Sequence { lost, ..sequence },
            missed,
            dropped: counts.dropped.get(),
            garbage: counts.garbage.get(),
            has_failed,
            connected: counts.connected.get(),
            disconnected: counts.disconnected.get(),
        }
    }
}

impl Summary {
    /// The sources and destinations that ended early.
    #[must_use]
    pub fn failed(&self) -> Vec<&str> {
        let mut failed = Vec::new();
        for path in &self.paths {
            failed.extend(path.sources.iter().filter(|s| s.has_failed).map(|s| s.node.as_str()));
            let ends = path.destinations.iter().filter(|d| d.has_failed);
            failed.extend(ends.map(|d| d.node.as_str()));
        }
        failed
    }
}

impl PathReport {
    /// The report of a path, with the sums over its sources and destinations.
    #[must_use]
    pub fn new(
        name: &str,
        sources: Vec<InputReport>,
        destinations: Vec<OutputReport>,
        latency: Option<Quantiles>,
    ) -> Self {
        let sum = |of: fn(&InputReport) -> u64| sources.iter().map(of).sum();
        let dropped: u64 = destinations.iter().map(|d| d.dropped).sum();
        Self {
            name: name.to_owned(),
            samples: sum(|s| s.sequence.samples),
            missed: sum(|s| s.missed),
            lost: sum(|s| s.sequence.lost),
            duplicate: sum(|s| s.sequence.duplicate),
            reordered: sum(|s| s.sequence.reordered),
            dropped: dropped + sum(|s| s.dropped),
            latency,
            sources,
            destinations,
        }
    }

    /// One line for the terminal.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { name, samples, missed, lost, duplicate, reordered, dropped, .. } = self;
        let latency = self.latency.map_or_else(String::new, |q| {
            let us = |ns: f64| ns / 1e3;
            format!(
                "; from origin to arrival {:.1} us (median), {:.1} us (p99)",
                us(q.p50_ns),
                us(q.p99_ns)
            )
        });
        format!(
            "{name}: {samples} samples, {missed} missed, {lost} lost, {duplicate} duplicate, \
             {reordered} reordered, {dropped} dropped{latency}"
        )
    }
}
