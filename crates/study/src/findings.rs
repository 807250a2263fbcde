//! What was found in several points together, as a side of a claim.

use rdmalab_measure::stats;
use rdmalab_record::{Finding, Object, Record};
use serde_json::Value;

use crate::claim::{Operand, Range};
use crate::measurement::{Basis, Measurement, Unit, hull, matches_operand, merged};

/// The number that every finding has: in which share of the runs it is there.
const FOUND: &str = "found";

/// The value and the ends of one finding's number.
#[derive(Clone, Copy, Debug)]
struct Ends {
    value: f64,
    interval: Option<(f64, f64)>,
}

/// Findings of the same parameters, each with its number.
type Found<'a> = Vec<(&'a Finding, Ends)>;

/// The numbers of a record's findings that a side means.
pub(crate) fn of_record(
    record: &Record,
    side: &Operand,
    name: &str,
    range: Option<&Range>,
) -> Vec<Measurement> {
    if side.number.as_deref() == Some(FOUND) {
        return shares(record, side, name, range);
    }
    let mut groups: Vec<(Object, Unit, Found)> = Vec::new();
    for finding in of_name(record, side, name) {
        let parameters = common(record, finding);
        if !matches_operand(&parameters, side, range) {
            continue;
        }
        let Some((unit, ends)) = number(finding, side.number.as_deref()) else { continue };
        match groups.iter_mut().find(|(known, ..)| *known == parameters) {
            Some((.., all)) => all.push((finding, ends)),
            None => groups.push((parameters, unit, vec![(finding, ends)])),
        }
    }
    groups.into_iter().map(|(parameters, unit, all)| cell(record, parameters, unit, &all)).collect()
}

/// The median of what the runs found, and between what that of the next one may lie.
fn cell(record: &Record, parameters: Object, unit: Unit, all: &[(&Finding, Ends)]) -> Measurement {
    let values: Vec<f64> = all.iter().map(|(_, ends)| ends.value).collect();
    let own = all.iter().map(|(_, ends)| ends.interval).reduce(|sum, one| {
        let (sum, one) = sum.zip(one)?;
        Some(hull(sum, Some(one)))
    });
    let own = own.flatten();
    let n = all.iter().map(|(finding, _)| finding.points.len() as u64).sum();
    let (value, of_runs, clock_error_ns) = (merged(&values).0, Vec::new(), 0.0);
    let Some(runs) = all.iter().find_map(|(finding, _)| runs_along(record, finding)) else {
        let runs = record.whole_points().filter(|p| p.parameters == parameters).count();
        let runs = runs.max(values.len());
        let interval = ends_over_runs(&values, runs).map(|ends| hull(ends, own));
        let basis = Basis::FoundIn(values.len());
        let exact = interval;
        return Measurement {
            parameters,
            value,
            interval,
            exact,
            n,
            runs,
            basis,
            of_runs,
            clock_error_ns,
            unit,
        };
    };
    let (interval, exact, basis) = (own, own, Basis::Together);
    Measurement {
        parameters,
        value,
        interval,
        exact,
        n,
        runs,
        basis,
        of_runs,
        clock_error_ns,
        unit,
    }
}

/// The ends of what some of so many runs found; `None` while those that did not may be as many, or
/// those that did are too few.
fn ends_over_runs(values: &[f64], runs: usize) -> Option<(f64, f64)> {
    let share = stats::few_trials(values.len() as u64, runs as u64, 0.95)?;
    merged(values).1.filter(|_| share.low > 0.5)
}

/// How often what a finding along a parameter follows from was measured: the least of its places.
/// `None` of what each run finds for itself.
fn runs_along(record: &Record, finding: &Finding) -> Option<usize> {
    let along = finding.along.as_ref()?;
    let mut places: Vec<(Option<&Value>, usize)> = Vec::new();
    for point in record.whole_points().filter(|p| finding.points.contains(&p.number)) {
        let at = point.parameters.get(along);
        match places.iter_mut().find(|(known, _)| *known == at) {
            Some((_, runs)) => *runs += 1,
            None => places.push((at, 1)),
        }
    }
    Some(places.iter().map(|(_, runs)| *runs).min().unwrap_or(1))
}

/// In how many of the runs there is such a finding.
fn shares(record: &Record, side: &Operand, name: &str, range: Option<&Range>) -> Vec<Measurement> {
    let is_there = |number: u64| {
        let mut all = of_name(record, side, name);
        all.any(|finding| finding.value.is_some() && finding.points.contains(&number))
    };
    let mut groups: Vec<(&Object, Vec<bool>)> = Vec::new();
    for point in record.whole_points().filter(|p| matches_operand(&p.parameters, side, range)) {
        let there = is_there(point.number);
        match groups.iter_mut().find(|(parameters, _)| **parameters == point.parameters) {
            Some((_, all)) => all.push(there),
            None => groups.push((&point.parameters, vec![there])),
        }
    }
    let cell = |(parameters, all): (&Object, Vec<bool>)| {
        let (there, runs) = (all.iter().filter(|is| **is).count(), all.len());
        let share = stats::few_trials(there as u64, runs as u64, 0.95)?;
        Some(Measurement {
            parameters: parameters.clone(),
            value: there as f64 / runs as f64,
            interval: Some((share.low, share.high)),
            exact: Some((share.low, share.high)),
            n: runs as u64,
            runs,
            basis: Basis::Together,
            of_runs: Vec::new(),
            clock_error_ns: 0.0,
            unit: Unit::Named("share".to_owned()),
        })
    };
    groups.into_iter().filter_map(cell).collect()
}

fn of_name<'a>(
    record: &'a Record,
    side: &'a Operand,
    name: &'a str,
) -> impl Iterator<Item = &'a Finding> {
    let is_it = move |finding: &&Finding| {
        finding.name == name && side.label.as_ref().is_none_or(|label| *label == finding.label)
    };
    record.findings.iter().flatten().filter(is_it)
}

/// The parameters of its points, as far as they agree.
fn common(record: &Record, finding: &Finding) -> Object {
    let mut points = record.points.iter().filter(|p| finding.points.contains(&p.number));
    let mut common = points.next().map(|point| point.parameters.clone()).unwrap_or_default();
    for point in points {
        common.retain(|name, value| point.parameters.get(name) == Some(value));
    }
    common.extend(finding.parameters.clone());
    common
}

/// The finding's value, or one of its other numbers. Where there is a bound and no value, that is
/// the number.
fn number(finding: &Finding, name: Option<&str>) -> Option<(Unit, Ends)> {
    let (unit, value, low, high) = match name {
        None => (finding.unit.as_str(), finding.value, finding.low, finding.high),
        Some(name) => {
            let number = finding.numbers.iter().find(|number| number.name == name)?;
            let unit = name.rfind('_').map_or("", |at| &name[at + 1..]);
            (unit, number.value, number.low, number.high)
        }
    };
    // Of a value of a parameter the end that is not known lies beyond what was measured.
    let is_place = name.is_none() && finding.along.is_some();
    let interval = match (low, high) {
        (Some(low), Some(high)) => Some((low, high)),
        (None, None) if !is_place => None,
        _ => Some((low.unwrap_or(0.0), high.unwrap_or(f64::INFINITY))),
    };
    let value = value.or(low).or(high)?;
    Some((Unit::Named(unit.to_owned()), Ends { value, interval }))
}

/// Why there is none of these numbers.
pub(crate) fn why_not(record: &Record, side: &Operand, name: &str) -> Option<String> {
    let meant = |finding: &&Finding| matches_operand(&common(record, finding), side, None);
    if let Some(finding) = of_name(record, side, name).find(meant) {
        return Some(match &side.number {
            None => finding.sentence.clone(),
            Some(_) if finding.numbers.is_empty() => {
                format!("{}: no more is kept", finding.sentence)
            }
            Some(number) => {
                let names: Vec<&str> = finding.numbers.iter().map(|n| n.name.as_str()).collect();
                format!("{name} has no number {number} here; it has {}", names.join(", "))
            }
        });
    }
    let is_measured = record.points.iter().any(|p| matches_operand(&p.parameters, side, None));
    let label = side.label.as_deref().map_or(String::new(), |label| format!(" of {label}"));
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
        // What is no place among those measured has no ends but its own.
        let period = Finding { along: None, ..crossover(Some(32.0), None, None) };
        assert_eq!(of(&period), Some((32.0, None)));
    }
}
