//! Estimates over the repetitions of a point, and how they are entered in a finding.

use rdmalab_measure::Quantity;
use rdmalab_measure::curve::Position;
use rdmalab_measure::stats::Estimate;
use rdmalab_measure::stats::{self, Interval, RunRatio, Runs};
use rdmalab_record::{Finding, Point};

/// The median of each run.
pub fn medians(points: &[&Point], quantity: Quantity, label: &str) -> Vec<f64> {
    let summaries = points.iter().filter_map(|p| Some(&p.series(quantity, label)?.summary));
    let medians = summaries.filter_map(|s| Some(s.quantile(0.5)?.value));
    medians.filter(|value| value.is_finite()).collect()
}

/// The median of the runs' medians. Its interval covers the intervals of all runs and, with several
/// runs, the interval from the differences between them.
pub fn known(points: &[&Point], quantity: Quantity, label: &str) -> Option<Estimate> {
    let values = medians(points, quantity, label);
    let summaries = points.iter().filter_map(|p| Some(&p.series(quantity, label)?.summary));
    let intervals = summaries.filter_map(|s| s.quantile(0.5)?.interval);
    let between = between_runs(&values);
    let widest = intervals.chain(between).reduce(|mut sum, one| {
        (sum.low, sum.high) = (sum.low.min(one.low), sum.high.max(one.high));
        sum
    });
    Some(Estimate { value: median(values.into_iter())?, interval: widest })
}

/// The interval of the median from the differences between runs, whose values are positive.
fn between_runs(values: &[f64]) -> Option<Interval> {
    let one = Runs::of_session(&[vec![1.0], vec![1.0]]);
    let each: Vec<Vec<f64>> = values.iter().map(|value| vec![*value]).collect();
    Some(RunRatio::of(&one, &Runs::of_session(&each), 0.5)?.interval(0.95))
}

/// The finding with the value and bounds of a crossing on a curve from `first` to `last`.
pub fn placed(
    finding: Finding,
    at: Position,
    range: (Position, Position),
    (first, last): (f64, f64),
) -> Finding {
    let exact = |place| match place {
        Position::At(x) => Some(x),
        Position::Before | Position::Beyond => None,
    };
    match at {
        Position::At(x) => {
            Finding { value: Some(x), low: exact(range.0), high: exact(range.1), ..finding }
        }
        Position::Before => Finding { high: Some(first), ..finding },
        Position::Beyond => Finding { low: Some(last), ..finding },
    }
}

/// The finding with a measured time, which is not a value of the curve's parameter.
pub fn timed(finding: Finding, known: Estimate) -> Finding {
    let (low, high) = (known.interval.map(|i| i.low), known.interval.map(|i| i.high));
    Finding { value: Some(known.value), low, high, along: None, ..finding }
}

/// The median of the finite values; `None` when there are none.
pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.filter(|v| v.is_finite()).collect();
    stats::sort(&mut values);
    (!values.is_empty()).then(|| stats::median(&values))
}
