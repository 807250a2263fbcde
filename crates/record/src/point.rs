//! One finished point, and one that was impossible.

use std::time::{Duration, SystemTime};

use rdmalab_measure::outcome::{Combination, Count, Fact, Figure};
use rdmalab_measure::sync::UNMEASURED_SKEW_NS;
use rdmalab_measure::{Quantity, Summary};

use crate::Object;

/// Which point of the plan, and when.
#[derive(Clone, Debug)]
pub struct PointId {
    /// Its parameters, units in their names: a column each.
    pub parameters: Object,
    /// The number of this run among those with the same parameters, from 0.
    pub repetition: u32,
    /// Its place in the (random) order of the plan, from 0.
    pub order_index: u64,
    /// When it began.
    pub started: SystemTime,
    /// How long it took.
    pub elapsed: Duration,
}

/// A finished point, as the record has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// The number of its line in `points.jsonl`, from 0; also in the names of its sample files.
    pub number: u64,
    /// Its place in the (random) order of the plan, from 0.
    pub order_index: u64,
    /// The number of this run among those with the same parameters, from 0.
    pub repetition: u32,
    /// Its parameters, in the order in which the experiment gave them.
    pub parameters: Object,
    /// When it began, as RFC 3339 in UTC.
    pub started_utc: String,
    /// How long it took.
    pub elapsed_s: f64,
    /// Its series of samples.
    pub series: Vec<SeriesSummary>,
    /// Numbers that a point has once, without samples. NaN where there was none.
    pub figures: Vec<Figure>,
    /// Counted things, such as lost messages.
    pub counts: Vec<Count>,
    /// What the device or the other end granted or agreed to.
    pub facts: Vec<Fact>,
    /// Reasons to doubt the numbers.
    pub warnings: Vec<String>,
    /// The reason why it ended before its time.
    pub cut_short: Option<String>,
}

/// The summary of one series, and where its samples are.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesSummary {
    /// What the samples are.
    pub quantity: Quantity,
    /// A label that tells series of one quantity apart; may be empty.
    pub label: String,
    /// Where its samples are.
    pub samples: Samples,
    /// Its statistics.
    pub summary: Summary,
}

/// Where the samples of a series are. File names are relative to the record's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Samples {
    /// In a file.
    File(String),
    /// Computed from other series, so that no sample is kept twice. Since version 4.
    Derived {
        /// The computation.
        how: Combination,
        /// The files that it is computed from.
        parts: Vec<SourceFile>,
    },
    /// Not in this record: it has only the summary.
    Elsewhere,
}

/// The file of another series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Its name.
    pub samples_file: String,
    /// Number of its first samples that are warm-up.
    pub warm_up: u64,
}

impl Samples {
    /// The names of the sample files.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let (own, parts): (Option<&str>, &[SourceFile]) = match self {
            Self::File(name) => (Some(name), &[]),
            Self::Derived { parts, .. } => (None, parts),
            Self::Elsewhere => (None, &[]),
        };
        own.into_iter().chain(parts.iter().map(|part| &*part.samples_file))
    }
}

/// A point that could not be run here.
#[derive(Clone, Debug, PartialEq)]
pub struct Skipped {
    /// Its place in the (random) order of the plan, from 0.
    pub order_index: u64,
    /// The number of this run among those with the same parameters, from 0.
    pub repetition: u32,
    /// Its parameters.
    pub parameters: Object,
    /// The reason.
    pub reason: String,
}

impl Point {
    /// Whether it ran to its end. A run that was cut short is shown if there is no other one, and
    /// never decides anything.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.cut_short.is_none()
    }

    /// The series of that quantity and label.
    #[must_use]
    pub fn series(&self, quantity: Quantity, label: &str) -> Option<&SeriesSummary> {
        self.series.iter().find(|s| s.quantity == quantity && s.label == label)
    }

    /// The first figure of that quantity.
    #[must_use]
    pub fn figure(&self, quantity: Quantity) -> Option<f64> {
        self.figures.iter().find(|f| f.quantity == quantity).map(|f| f.value)
    }

    /// The count of that name.
    #[must_use]
    pub fn count(&self, name: &str) -> Option<u64> {
        self.counts.iter().find(|c| c.name == name).map(|c| c.value)
    }

    /// The fact of that name.
    #[must_use]
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.facts.iter().find(|f| f.name == name).map(|f| f.value.as_str())
    }

    /// How far all times of this quantity may be off, all in one direction, because each begins on
    /// the clock of one host and ends on that of another; 0 if one clock took both stamps.
    ///
    /// Cores of one machine share a counter, and any offset between them is the same in all records
    /// of that machine: it adds no error between sessions. Between machines the error is larger.
    #[must_use]
    pub fn clock_error_ns(&self, quantity: Quantity) -> f64 {
        let error_ns = self.fact("clock_error_ns").and_then(|value| value.parse::<f64>().ok());
        let is_of_hosts = |error_ns: &f64| *error_ns > UNMEASURED_SKEW_NS;
        let error_ns = error_ns.filter(|_| quantity.is_between_ends()).filter(is_of_hosts);
        error_ns.unwrap_or(0.0)
    }
}
