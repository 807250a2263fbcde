//! A measured number: its interval, its source, and its ratio and difference to another.

use rdmalab_measure::stats::{self, RunRatio, Runs, run_shift};
use rdmalab_measure::{Quantity, unit};
use rdmalab_record::Object;

/// A number, with the parameters that it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// The parameters of its points.
    pub parameters: Object,
    /// The number, in [`Measurement::unit`].
    pub value: f64,
    /// The 95 % interval: for statistics of samples, from the samples within the runs; otherwise
    /// from the differences between runs. `None` if there are too few. An end outside the measured
    /// range is infinite.
    pub interval: Option<(f64, f64)>,
    /// Number of samples.
    pub n: u64,
    /// Number of repetitions; 0 for a constant.
    pub runs: usize,
    /// What the number was computed from.
    pub basis: Basis,
    /// The number for each run; empty if it was computed from all runs together.
    pub of_runs: Vec<f64>,
    /// The interval as it would be if the clocks of two hosts had no error.
    pub exact: Option<(f64, f64)>,
    /// How far the number may be off because the clocks of two hosts differ, in the same direction
    /// in every run; 0 if one clock took all times.
    pub clock_error_ns: f64,
    /// The unit of the number.
    pub unit: Unit,
}

/// What a number was computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Each run gave samples, or one number.
    Runs,
    /// Findings of this many of the runs.
    FoundIn(usize),
    /// All runs together, such as a share or a crossover.
    Together,
}

/// The unit of a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The unit of a quantity.
    Of(Quantity),
    /// The suffix of a name: `bytes`, `ns`, `messages`, `code`, `per_s`, `share`.
    Named(String),
}

impl Unit {
    /// A number in this unit, for people.
    #[must_use]
    pub fn format(&self, value: f64) -> String {
        match self {
            _ if value == f64::INFINITY => "any".to_owned(),
            Self::Of(quantity) => quantity.format(value),
            Self::Named(unit) => unit::format(value, unit),
        }
    }
}

impl Measurement {
    /// The same number with the error of two clocks, which widens its interval. A share of samples
    /// above a limit then has no interval: the clocks decide which samples are above.
    pub(crate) fn with_clock_error(self, clock_error_ns: f64) -> Self {
        if clock_error_ns == 0.0 {
            return self;
        }
        let is_time = matches!(self.unit, Unit::Of(_));
        let interval = self.interval.filter(|_| is_time);
        let interval =
            interval.map(|(low, high)| ((low - clock_error_ns).max(0.0), high + clock_error_ns));
        Self { interval, clock_error_ns, ..self }
    }

    /// A constant: an exact number without error between runs.
    pub(crate) fn constant(value: f64, unit: Unit) -> Self {
        let (interval, of_runs) = (Some((value, value)), vec![value; 2]);
        let number = Number { value, interval, n: 0, basis: Basis::Runs, of_runs };
        number.at(Object::new(), 0, unit)
    }

    /// The number in its unit.
    #[must_use]
    pub fn text(&self) -> String {
        self.unit.format(self.value)
    }

    /// The number with its interval over runs.
    #[must_use]
    pub fn whole_text(&self) -> String {
        match self.ends() {
            Some((low, high)) if self.runs > 0 => {
                format!("{} ({} - {})", self.text(), self.unit.format(low), self.unit.format(high))
            }
            _ => self.text(),
        }
    }

    /// The 95 % interval that also holds for the next run. `None` after one run, which shows
    /// nothing about the next one.
    #[must_use]
    pub fn ends(&self) -> Option<(f64, f64)> {
        match (self.runs, self.of_runs.is_empty()) {
            (1, _) => None,
            (_, true) => self.interval,
            _ => {
                let between = stats::mean_interval(&self.of_runs, 0.95)?;
                let (low, high) =
                    (between.low - self.clock_error_ns, between.high + self.clock_error_ns);
                // Times, rates and shares are not negative.
                Some(hull((low.max(0.0), high), self.interval))
            }
        }
    }
}

/// The smallest interval that covers both.
pub(crate) fn hull(one: (f64, f64), other: Option<(f64, f64)>) -> (f64, f64) {
    other.map_or(one, |other| (one.0.min(other.0), one.1.max(other.1)))
}

/// From this many runs on, the least and the largest enclose the median with 95 %: 1 - 2^(1-n).
pub(crate) const RUNS_FOR_ENDS: usize = 6;

/// The fields of a [`Measurement`] except its parameters, its runs and its unit.
pub(crate) struct Number {
    pub value: f64,
    pub interval: Option<(f64, f64)>,
    pub n: u64,
    pub basis: Basis,
    pub of_runs: Vec<f64>,
}

impl Number {
    /// The measurement with this number at these parameters. One clock took all its times.
    pub(crate) fn at(self, parameters: Object, runs: usize, unit: Unit) -> Measurement {
        let Self { value, interval, n, basis, of_runs } = self;
        let (exact, clock_error_ns) = (interval, 0.0);
        Measurement {
            parameters,
            value,
            interval,
            n,
            runs,
            basis,
            of_runs,
            exact,
            clock_error_ns,
            unit,
        }
    }
}

/// The median of one number per run and, from [`RUNS_FOR_ENDS`] runs on, the least and the largest.
pub(crate) fn merged(values: &[f64]) -> (f64, Option<(f64, f64)>) {
    let mut values = values.to_vec();
    stats::sort(&mut values);
    let ends = values.first().zip(values.last()).map(|(a, b)| (*a, *b));
    let interval = ends.filter(|_| values.len() >= RUNS_FOR_ENDS);
    (if values.is_empty() { f64::NAN } else { stats::median(&values) }, interval)
}

/// Left over right, with an interval from the differences between runs: `None` if one of the two
/// has only one run.
pub(crate) fn ratio(left: &Measurement, right: &Measurement) -> (f64, Option<(f64, f64)>) {
    let value = left.value / right.value;
    if left.runs == 1 || right.runs == 1 {
        return (value, None);
    }
    let over = |(l, r): ((f64, f64), (f64, f64))| (l.0 / r.1, l.1 / r.0);
    let is_number = |ends: &(f64, f64)| !ends.0.is_nan() && !ends.1.is_nan();
    let ends = if left.of_runs.is_empty() || right.of_runs.is_empty() {
        left.ends().zip(right.ends()).map(over).filter(is_number)
    } else {
        let within = left.interval.zip(right.interval).map(over).filter(is_number);
        let between = between_runs(left, right).map(|between| hull(between, within));
        between.or_else(|| over_constant(left, right))
    };
    (value, ends)
}

/// The interval of a number over a constant, if the number is 0 in a run, of which a ratio of runs
/// says nothing: a share may be.
fn over_constant(left: &Measurement, right: &Measurement) -> Option<(f64, f64)> {
    let (low, high) = left.ends().filter(|_| right.runs == 0 && right.value > 0.0)?;
    Some((low / right.value, high / right.value))
}

/// The numbers of the runs, with the clock error that all of them may share.
fn runs(cell: &Measurement) -> Runs {
    let each: Vec<Vec<f64>> = cell.of_runs.iter().map(|value| vec![*value]).collect();
    Runs::of_session(&each).with_common_error(cell.clock_error_ns)
}

/// The interval of the ratio from the differences between runs. Many samples of one run describe
/// that run well, but not the next one. `None` if one of the two has only one run.
fn between_runs(left: &Measurement, right: &Measurement) -> Option<(f64, f64)> {
    let ratio = RunRatio::of(&runs(right), &runs(left), 0.5)?;
    let interval = ratio.interval(0.95);
    Some((interval.low, interval.high))
}

/// A number that was computed from two others.
pub(crate) fn following(
    one: &Measurement,
    other: &Measurement,
    value: f64,
    interval: Option<(f64, f64)>,
) -> Measurement {
    Measurement {
        value,
        interval,
        exact: interval,
        n: one.n.min(other.n),
        runs: one.runs.min(other.runs),
        basis: Basis::Together,
        of_runs: Vec::new(),
        clock_error_ns: one.clock_error_ns.max(other.clock_error_ns),
        ..one.clone()
    }
}

/// The interval of a difference, from the differences between runs and from the samples within
/// them. `None` if one of the two has only one run.
pub(crate) fn difference(ours: &Measurement, less: &Measurement) -> Option<(f64, f64)> {
    let by_ends = |o: (f64, f64), l: (f64, f64)| (o.0 - l.1, o.1 - l.0);
    if ours.of_runs.is_empty() || less.of_runs.is_empty() {
        return Some(by_ends(ours.ends()?, less.ends()?));
    }
    let between = run_shift(&runs(less), &runs(ours), 0.5, 0.95)?.interval?;
    let within = ours.interval.zip(less.interval).map(|(o, l)| by_ends(o, l));
    Some(hull((between.low, between.high), within))
}
