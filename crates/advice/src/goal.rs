//! What "best" means.

use std::fmt;
use std::str::FromStr;

use rdmalab_measure::Quantity;
use rdmalab_measure::quantity::{fmt_ns, fmt_rate};
use rdmalab_record::{Object, Point, SeriesSummary};
use serde_json::Value;

/// The quantile for the goal of predictability.
const TAIL: f64 = 0.99;

/// A goal. Each uses one number of a run, so that conclusions include the differences between runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Goal {
    /// The median of the round trips of a run.
    Latency,
    /// Messages per second.
    Rate,
    /// The 99th percentile of the round trips of a run. Its ratio to the median is no goal, since
    /// it improves if the median gets worse; reports show the ratio beside it.
    Predictability,
    /// Processor time of both ends per message.
    Cpu,
}

impl Goal {
    /// All goals, in the order of the answers.
    pub const ALL: [Self; 4] = [Self::Latency, Self::Rate, Self::Predictability, Self::Cpu];

    /// The word on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Rate => "rate",
            Self::Predictability => "predictability",
            Self::Cpu => "cpu",
        }
    }

    /// The goal after the word "for".
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Latency => "low latency",
            Self::Rate => "rate",
            Self::Predictability => "predictability",
            Self::Cpu => "little processor time",
        }
    }

    /// The number that is compared.
    #[must_use]
    pub const fn measure(self) -> &'static str {
        match self {
            Self::Latency => "median round trip of a run",
            Self::Rate => "messages a second",
            Self::Predictability => "p99 of the round trips of a run",
            Self::Cpu => "processor time of both ends for a message",
        }
    }

    /// The name of a field for the number, with its unit.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Latency => "median_round_trip_ns",
            Self::Rate => "rate_per_s",
            Self::Predictability => "p99_round_trip_ns",
            Self::Cpu => "cpu_time_per_message_ns",
        }
    }

    /// Whether a larger number is better.
    #[must_use]
    pub const fn more_is_better(self) -> bool {
        matches!(self, Self::Rate)
    }

    /// Whether the number is a quantile of single times, which the clock's step rounds.
    #[must_use]
    pub const fn is_of_samples(self) -> bool {
        matches!(self, Self::Latency | Self::Predictability)
    }

    /// The value for people.
    #[must_use]
    pub fn format(self, value: f64) -> String {
        match self {
            Self::Rate => fmt_rate(value),
            _ => fmt_ns(value),
        }
    }

    /// The goal's number of a run; `None` if the run has none, or too few samples for it.
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
            format!("{text:?} is not a goal: choose one of {names}")
        })
    }
}

/// The round trips of a run; in a run with an intended rate, from the intended start.
pub(crate) fn round_trip(point: &Point) -> Option<&SeriesSummary> {
    point.series.iter().find(|series| series.quantity == Quantity::RoundTrip)
}

/// The ratio of the tail to the middle: p99 over the median.
pub(crate) fn tail_ratio(point: &Point) -> Option<f64> {
    let series = round_trip(point)?;
    Some(quantile(series, TAIL)? / quantile(series, 0.5)?)
}

fn quantile(series: &SeriesSummary, q: f64) -> Option<f64> {
    series.summary.quantile(q).filter(|found| found.supported).map(|found| found.value)
}

/// The highest rate. A run with an intended rate has none: its achieved rate shows no limit.
fn rate(point: &Point) -> Option<f64> {
    let mut rates = point.figures.iter().filter(|f| f.quantity == Quantity::Rate);
    let found = rates.find(|f| f.label.is_empty()).map(|f| f.value);
    found.filter(|_| !is_paced(&point.parameters))
}

/// Whether messages were sent at an intended rate.
pub(crate) fn is_paced(parameters: &Object) -> bool {
    parameters.get("rate_per_s").and_then(Value::as_u64).is_some_and(|rate| rate > 0)
}

/// Processor time of both ends per completed message, or per round trip.
fn cpu_ns(point: &Point) -> Option<f64> {
    let shares = || point.figures.iter().filter(|f| f.quantity == Quantity::CpuShare);
    let both = ["rank 0", "rank 1"].iter().all(|end| shares().any(|f| f.label == *end));
    let mut rates = point.figures.iter().filter(|f| f.quantity == Quantity::Rate);
    let rate = rates.find(|f| f.label.is_empty() || f.label == "achieved").map(|f| f.value);
    let sum: f64 = shares().map(|f| f.value).sum();
    both.then(|| rate.map(|rate| sum / rate * 1e9)).flatten()
}
