//! The findings of a record that an operand names.

use rdmalab_measure::group::by_key;
use rdmalab_measure::{stats, unit};
use rdmalab_record::{Finding, Object, Record};

use crate::measurement::{Basis, Measurement, Number, Unit, hull, merged};
use crate::operand::{Operand, Range};

/// A number that every finding has: the share of the runs that have the finding.
const FOUND: &str = "found";

/// The value of one finding, and its interval.
#[derive(Clone, Copy, Debug)]
struct FindingValue {
    value: f64,
    interval: Option<(f64, f64)>,
}

/// The numbers that an operand names in a record's findings.
pub(crate) fn of_record(
    record: &Record,
    operand: &Operand,
    name: &str,
    range: Option<&Range>,
) -> Vec<Measurement> {
    if operand.number.as_deref() == Some(FOUND) {
        return shares(record, operand, name, range);
    }
    let numbers = of_name(record, operand, name).filter_map(|finding| {
        let parameters = common(record, finding);
        let number = number(finding, operand.number.as_deref())?;
        operand.matches(&parameters, range).then_some((parameters, (finding, number)))
    });
    let groups = by_key(numbers).into_iter();
    groups.map(|(parameters, all)| cell(record, parameters, &all)).collect()
}

/// The median of the runs' findings, with an interval that also holds for the next run.
fn cell(
    record: &Record,
    parameters: Object,
    all: &[(&Finding, (Unit, FindingValue))],
) -> Measurement {
    let unit = all[0].1.0.clone();
    let values: Vec<f64> = all.iter().map(|(_, (_, ends))| ends.value).collect();
    let own = all.iter().map(|(_, (_, ends))| ends.interval).reduce(|sum, one| {
        let (sum, one) = sum.zip(one)?;
        Some(hull(sum, Some(one)))
    });
    let own = own.flatten();
    let n = all.iter().map(|(finding, _)| finding.points.len() as u64).sum();
    let number = |interval, basis| {
        let (value, of_runs) = (merged(&values).0, Vec::new());
        Number { value, interval, n, basis, of_runs }
    };
    let Some(runs) = all.iter().find_map(|(finding, _)| runs_along(record, finding)) else {
        let runs = record.whole_points().filter(|p| p.parameters == parameters).count();
        let runs = runs.max(values.len());
        let interval = ends_over_runs(&values, runs).map(|ends| hull(ends, own));
        return number(interval, Basis::FoundIn(values.len())).at(parameters, runs, unit);
    };
    number(own, Basis::Together).at(parameters, runs, unit)
}

/// The least and the largest value that the runs found. `None` if half of the runs or more may lack
/// the finding, or if too few have it.
fn ends_over_runs(values: &[f64], runs: usize) -> Option<(f64, f64)> {
    let share = stats::few_trials(values.len() as u64, runs as u64, 0.95)?;
    merged(values).1.filter(|_| share.low > 0.5)
}

/// How often the points of a finding along a parameter were measured: the least number of runs of a
/// value. `None` if the finding is not along a parameter: then each run has its own.
fn runs_along(record: &Record, finding: &Finding) -> Option<usize> {
    let along = finding.along.as_ref()?;
    let points = record.whole_points().filter(|p| finding.points.contains(&p.number));
    let places = by_key(points.map(|point| (point.parameters.get(along), point.number)));
    Some(places.iter().map(|(_, runs)| runs.len()).min().unwrap_or(1))
}

/// The share of the runs that have the finding.
fn shares(
    record: &Record,
    operand: &Operand,
    name: &str,
    range: Option<&Range>,
) -> Vec<Measurement> {
    let is_there = |number: u64| {
        let mut all = of_name(record, operand, name);
        all.any(|finding| finding.value.is_some() && finding.points.contains(&number))
    };
    let points = record.whole_points().filter(|p| operand.matches(&p.parameters, range));
    let groups = by_key(points.map(|point| (&point.parameters, is_there(point.number))));
    let cell = |(parameters, all): (&Object, Vec<bool>)| {
        let (there, runs) = (all.iter().filter(|is| **is).count(), all.len());
        let share = stats::few_trials(there as u64, runs as u64, 0.95)?;
        let number = Number {
            value: there as f64 / runs as f64,
            interval: Some((share.low, share.high)),
            n: runs as u64,
            basis: Basis::Together,
            of_runs: Vec::new(),
        };
        Some(number.at(parameters.clone(), runs, Unit::Named("share".to_owned())))
    };
    groups.into_iter().filter_map(cell).collect()
}

fn of_name<'a>(
    record: &'a Record,
    operand: &'a Operand,
    name: &'a str,
) -> impl Iterator<Item = &'a Finding> {
    let is_it =
        move |finding: &&Finding| finding.name == name && operand.matches_label(&finding.label);
    record.findings.iter().flatten().filter(is_it)
}

/// The parameters that all points of the finding share.
fn common(record: &Record, finding: &Finding) -> Object {
    let mut points = record.points.iter().filter(|p| finding.points.contains(&p.number));
    let mut common = points.next().map(|point| point.parameters.clone()).unwrap_or_default();
    for point in points {
        common.retain(|name, value| point.parameters.get(name) == Some(value));
    }
    common.extend(finding.parameters.clone());
    common
}

/// The finding's value, or one of its other numbers. If there is only a bound, the bound.
fn number(finding: &Finding, name: Option<&str>) -> Option<(Unit, FindingValue)> {
    let (unit, value, low, high) = match name {
        None => (finding.unit.as_str(), finding.value, finding.low, finding.high),
        Some(name) => {
            let number = finding.numbers.iter().find(|number| number.name == name)?;
            let unit = unit::of_name(name).unwrap_or_default();
            (unit, number.value, number.low, number.high)
        }
    };
    // An unknown end of a parameter's value lies outside the measured range.
    let is_place = name.is_none() && finding.along.is_some();
    let interval = match (low, high) {
        (Some(low), Some(high)) => Some((low, high)),
        (None, None) if !is_place => None,
        _ => Some((low.unwrap_or(0.0), high.unwrap_or(f64::INFINITY))),
    };
    let value = value.or(low).or(high)?;
    Some((Unit::Named(unit.to_owned()), FindingValue { value, interval }))
}

/// Why the findings have none of these numbers.
pub(crate) fn why_not(record: &Record, operand: &Operand, name: &str) -> Option<String> {
    let meant = |finding: &&Finding| operand.matches(&common(record, finding), None);
    if let Some(finding) = of_name(record, operand, name).find(meant) {
        return Some(match &operand.number {
            None => finding.sentence.clone(),
            Some(_) if finding.numbers.is_empty() => {
                format!("{}: the record has no numbers of this finding", finding.sentence)
            }
            Some(number) => {
                let names: Vec<&str> = finding.numbers.iter().map(|n| n.name.as_str()).collect();
                format!("{name} has no number {number} here; it has {}", names.join(", "))
            }
        });
    }
    let is_measured = record.points.iter().any(|p| operand.matches(&p.parameters, None));
    let label = operand.label.as_deref().map_or(String::new(), |label| format!(" of {label}"));
    is_measured.then(|| format!("no {name}{label} was found there"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_a_number_with_one_end() {
        let crossover = |value, low, high| Finding {
            name: "crossover".to_owned(),
            unit: "bytes".to_owned(),
            along: Some("size_bytes".to_owned()),
            value,
            low,
            high,
            ..Finding::default()
        };
        let of = |finding: &Finding| number(finding, None).map(|(_, e)| (e.value, e.interval));
        let inf = f64::INFINITY;
        assert_eq!(of(&crossover(Some(9.0), Some(8.0), None)), Some((9.0, Some((8.0, inf)))));
        assert_eq!(of(&crossover(None, None, Some(4.0))), Some((4.0, Some((0.0, 4.0)))));
        assert_eq!(of(&crossover(None, Some(4.0), None)), Some((4.0, Some((4.0, inf)))));
        assert_eq!(of(&crossover(None, None, None)), None);
        // A finding that is not along a parameter has only the ends that it states.
        let period = Finding { along: None, ..crossover(Some(32.0), None, None) };
        assert_eq!(of(&period), Some((32.0, None)));
    }
}
