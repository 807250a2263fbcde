//! The numbers of a record's points that an operand names.

use rdmalab_measure::group::by_key;
use rdmalab_measure::{Quantity, Summary, stats};
use rdmalab_record::{Object, Point, Record};

use crate::measurement::{Basis, Measurement, Number, Unit, hull, merged};
use crate::operand::{Operand, Range, Stat};

/// One measurement for each set of parameters: repeated runs of the same point count together.
pub(crate) fn of_points(
    record: &Record,
    operand: &Operand,
    quantity: Quantity,
    range: Option<&Range>,
) -> Vec<Measurement> {
    // A run that was cut short does not count.
    let points = record.whole_points().filter(|p| operand.matches(&p.parameters, range));
    let groups = by_key(points.map(|point| (&point.parameters, point)));
    let cell = |(parameters, points): (&Object, Vec<&Point>)| {
        let (parameters, runs) = (parameters.clone(), points.len());
        let (number, unit) = match operand.above {
            Some(limit) => (
                share_above(record, &points, operand, quantity, limit)?,
                Unit::Named("share".to_owned()),
            ),
            None => (number(&points, operand, quantity)?, Unit::Of(quantity)),
        };
        let errors = points.iter().map(|point| point.clock_error_ns(quantity));
        Some(number.at(parameters, runs, unit).with_clock_error(errors.fold(0.0, f64::max)))
    };
    groups.into_iter().filter_map(cell).collect()
}

/// The share of the samples above a limit. Slow messages come in bursts, so the interval covers
/// both the binomial uncertainty of the samples and the differences between runs.
fn share_above(
    record: &Record,
    points: &[&Point],
    operand: &Operand,
    quantity: Quantity,
    limit: f64,
) -> Option<Number> {
    let (mut above, mut all, mut of_runs) = (0, 0, Vec::new());
    for point in points {
        let mut series = point.series.iter();
        let one = series.find(|s| s.quantity == quantity && operand.matches_label(&s.label))?;
        let samples = record.counted_samples(one).ok()?;
        let here = samples.iter().filter(|sample| **sample > limit).count() as u64;
        of_runs.push(here as f64 / samples.len() as f64);
        (above, all) = (above + here, all + samples.len() as u64);
    }
    let within = stats::many_trials(above, all, 0.95)?;
    let between = stats::mean_interval(&of_runs, 0.95);
    let between = between.map(|i| (i.low.max(0.0), i.high.min(1.0)));
    let interval = Some(hull((within.low, within.high), between));
    let (value, basis) = (above as f64 / all as f64, Basis::Together);
    Some(Number { value, interval, n: all, basis, of_runs: Vec::new() })
}

/// The median of the numbers of repeated runs, with an interval that covers all of theirs.
fn number(points: &[&Point], operand: &Operand, quantity: Quantity) -> Option<Number> {
    let series = |p: &Point| {
        let mut all =
            p.series.iter().filter(|s| s.quantity == quantity && operand.matches_label(&s.label));
        all.next().map(|s| s.summary.clone())
    };
    let summaries: Vec<Summary> = points.iter().filter_map(|p| series(p)).collect();
    if summaries.iter().any(|s| s.n > 0) {
        return of_summaries(&summaries, operand.stat.unwrap_or_default());
    }
    let figures = points.iter().flat_map(|p| &p.figures);
    let of_it = figures.filter(|f| f.quantity == quantity && operand.matches_label(&f.label));
    let values: Vec<f64> = of_it.map(|f| f.value).filter(|v| v.is_finite()).collect();
    let n = values.len() as u64;
    let (value, interval) = merged(&values);
    (n > 0).then_some(Number { value, interval, n, basis: Basis::Runs, of_runs: values })
}

fn of_summaries(summaries: &[Summary], stat: Stat) -> Option<Number> {
    let n = summaries.iter().map(|s| s.n).sum();
    let mut values = Vec::new();
    let mut hull: Option<(f64, f64)> = Some((f64::INFINITY, f64::NEG_INFINITY));
    for summary in summaries.iter().filter(|s| s.n > 0) {
        let quantile = stat.quantile().map(|q| summary.quantile(q));
        let (value, interval) = match (stat, quantile) {
            (_, Some(quantile)) => {
                let quantile = quantile.filter(|q| q.supported || q.q == 0.5)?;
                (quantile.value, quantile.interval.map(|i| (i.low, i.high)))
            }
            (Stat::Min, _) => (summary.min, None),
            (Stat::Max, _) => (summary.max, None),
            _ => {
                let ends = stats::mean_interval_of(summary.mean, summary.stdev, summary.n, 0.95);
                (summary.mean, ends.map(|i| (i.low, i.high)))
            }
        };
        values.push(value);
        hull = hull.zip(interval).map(|(h, i)| (h.0.min(i.0), h.1.max(i.1)));
    }
    stats::sort(&mut values);
    (!values.is_empty()).then(|| Number {
        value: stats::median(&values),
        interval: hull,
        n,
        basis: Basis::Runs,
        of_runs: values,
    })
}
