//! What "best" means.

use std::fmt;
use std::str::FromStr;

use rdmalab_measure::Quantity;
use rdmalab_measure::quantity::{fmt_ns, fmt_rate};
use rdmalab_record::{Object, Point, SeriesSummary};
use serde_json::Value;

/// The quantile of predictability.
const TAIL: f64 = 0.99;

/// A goal. Each looks at one number of a run, so that what differs from run to run is in what is
/// said of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Goal {
    /// The median of the round trips of a run.
    Latency,
    /// Messages a second.
    Rate,
    /// The time that 99 of 100 round trips of a run stay below. Not its ratio to the median: that
    /// one improves when the median gets worse. The ratio stands beside it.
    Predictability,
    /// Processor time of both ends for a message.
    Cpu,
}

impl Goal {
    /// All of them, in the order of the answers.
    pub const ALL: [Self; 4] = [Self::Latency, Self::Rate, Self::Predictability, Self::Cpu];

    /// The word of the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Rate => "rate",
            Self::Predictability => "predictability",
            Self::Cpu => "cpu",
        }
    }

    /// As in "for ...".
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Latency => "low latency",
            Self::Rate => "rate",
            Self::Predictability => "predictability",
            Self::Cpu => "little processor time",
        }
    }

    /// What is compared.
    #[must_use]
    pub const fn measure(self) -> &'static str {
        match self {
            Self::Latency => "median round trip of a run",
            Self::Rate => "messages a second",
            Self::Predictability => "p99 of the round trips of a run",
            Self::Cpu => "processor time of both ends for a message",
        }
    }

    /// A field that holds it, with its unit.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Latency => "median_round_trip_ns",
            Self::Rate => "rate_per_s",
            Self::Predictability => "p99_round_trip_ns",
            Self::Cpu => "cpu_time_per_message_ns",
        }
    }

    /// Whether more is better.
    #[must_use]
    pub const fn more_is_better(self) -> bool {
        matches!(self, Self::Rate)
    }

    /// Whether single times are behind it, which a clock rounds.
    #[must_use]
    pub const fn is_of_samples(self) -> bool {
        matches!(self, Self::Latency | Self::Predictability)
    }

    /// A value for people.
    #[must_use]
    pub fn format(self, value: f64) -> String {
        match self {
            Self::Rate => fmt_rate(value),
            _ => fmt_ns(value),
        }
    }

    /// The number of a run; `None` where it has none, or too few samples for it.
    #[must_use]
    pub fn of(self, point: &Point) -> Option<f64> {
        let value = match self {
            Self::Latency => quantile(round_trip(point)?, 0.5),
            Self::Predictability => quantile(round_trip(point)?, TAIL),
            Self::Rate => rate(point),
            Self::Cpu => cpu_ns(point),
        };
        value.filter(|v| v.is_finite() && *v > 0.0)
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Goal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|goal| goal.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("{text:?} is no goal: choose one of {names}")
        })
    }
}

/// The round trips of a run: from when they were due, where they were.
pub(crate) fn round_trip(point: &Point) -> Option<&SeriesSummary> {
    point.series.iter().find(|series| series.quantity == Quantity::RoundTrip)
}

/// How far the tail is from the middle: p99 over the median.
pub(crate) fn tail_ratio(point: &Point) -> Option<f64> {
    let series = round_trip(point)?;
    Some(quantile(series, TAIL)? / quantile(series, 0.5)?)
}

fn quantile(series: &SeriesSummary, q: f64) -> Option<f64> {
    series.summary.quantile(q).filter(|found| found.supported).map(|found| found.value)
}

/// As fast as it went: at a rate that was asked for, nothing is said by the one that was reached.
fn rate(point: &Point) -> Option<f64> {
    let mut rates = point.figures.iter().filter(|f| f.quantity == Quantity::Rate);
    let found = rates.find(|f| f.label.is_empty()).map(|f| f.value);
    found.filter(|_| !is_paced(&point.parameters))
}

/// Whether messages were due at a rate.
pub(crate) fn is_paced(parameters: &Object) -> bool {
    parameters.get("rate_per_s").and_then(Value::as_u64).is_some_and(|rate| rate > 0)
}

/// Processor time of both ends over messages that went through: trips, where they came back.
fn cpu_ns(point: &Point) -> Option<f64> {
    let shares = || point.figures.iter().filter(|f| f.quantity == Quantity::CpuShare);
    let both = ["rank 0", "rank 1"].iter().all(|end| shares().any(|f| f.label == *end));
    let mut rates = point.figures.iter().filter(|f| f.quantity == Quantity::Rate);
    let rate = rates.find(|f| f.label.is_empty() || f.label == "achieved").map(|f| f.value);
    let sum: f64 = shares().map(|f| f.value).sum();
    both.then(|| rate.map(|rate| sum / rate * 1e9)).flatten()
}
