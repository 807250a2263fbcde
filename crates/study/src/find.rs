//! The numbers of a figure that a side of a claim means.

use rdmalab_measure::{Quantity, Summary, stats};
use rdmalab_record::{Object, Point, Record};
use serde_json::Value;

use crate::claim::{Range, Side, Stat};

/// What became of a sweep.
#[derive(Clone, Debug)]
pub struct Part {
    /// The figure's key.
    pub figure: String,
    /// The sweep's name; may be empty.
    pub sweep: String,
    /// Its command, after `rdmalab run`.
    pub line: Vec<String>,
    /// What there is of it.
    pub state: State,
}

/// What there is of a sweep.
#[derive(Clone, Debug)]
pub enum State {
    /// Its record, maybe of less than was planned.
    Measured(Box<Record>),
    /// It cannot be measured: why.
    Missing(String),
    /// It was left out of this run.
    NotAsked,
}

/// A number, with the parameters that it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The parameters of its points.
    pub parameters: Object,
    /// The number, in the unit of its quantity.
    pub value: f64,
    /// A 95 % interval, or the ends of repeated runs; `None` where there is none.
    pub interval: Option<(f64, f64)>,
    /// Samples behind it.
    pub n: u64,
    /// Repetitions.
    pub runs: usize,
    /// Whether each run gave one number, not samples: the interval is then that of the runs.
    pub is_one_a_run: bool,
}

/// Parameters that say how much was measured, not what.
pub(crate) const AMOUNTS: [&str; 5] = ["messages", "runs", "warm_up", "seed", "stamp_every"];

/// Runs from which their least and largest enclose the median with 95 %: 1 - 2^(1-n).
pub(crate) const RUNS_FOR_ENDS: usize = 6;

/// The numbers that a side means, or why there are none.
pub(crate) fn cells(
    parts: &[Part],
    side: &Side,
    range: Option<&Range>,
) -> Result<Vec<Cell>, String> {
    let figure = side.figure.as_deref().unwrap_or_default();
    let of_side = |part: &&Part| {
        part.figure == figure && side.sweep.as_ref().is_none_or(|name| *name == part.sweep)
    };
    let Some(quantity) = side.quantity() else { return Err("it names no quantity".to_owned()) };
    let mut found: Vec<Cell> = Vec::new();
    let mut why = None;
    for part in parts.iter().filter(of_side) {
        match &part.state {
            State::Measured(record) => {
                found.extend(of_record(record, side, quantity, range));
                if found.is_empty() {
                    why = record.skipped.first().map(|s| s.reason.clone()).or(why);
                }
            }
            State::Missing(reason) => why = Some(format!("figure {figure}: {reason}")),
            State::NotAsked => {
                why.get_or_insert_with(|| format!("figure {figure} was left out of this run"));
            }
        }
    }
    if found.is_empty() {
        return Err(why.unwrap_or_else(|| format!("figure {figure} has no such point")));
    }
    Ok(found)
}

fn of_record(record: &Record, side: &Side, quantity: Quantity, range: Option<&Range>) -> Vec<Cell> {
    let mut groups: Vec<(&Object, Vec<&Point>)> = Vec::new();
    for point in record.points.iter().filter(|p| is_meant(&p.parameters, side, range)) {
        match groups.iter_mut().find(|(parameters, _)| **parameters == point.parameters) {
            Some((_, points)) => points.push(point),
            None => groups.push((&point.parameters, vec![point])),
        }
    }
    let cell = |(parameters, points): (&Object, Vec<&Point>)| {
        let (value, interval, n, is_one_a_run) = number(&points, side, quantity)?;
        let (parameters, runs) = (parameters.clone(), points.len());
        Some(Cell { parameters, value, interval, n, runs, is_one_a_run })
    };
    groups.into_iter().filter_map(cell).collect()
}

/// Whether parameters are those that a side and a range want.
pub(crate) fn is_meant(parameters: &Object, side: &Side, range: Option<&Range>) -> bool {
    let has = |(name, wanted): (String, &toml::Value)| {
        parameters.get(&name).is_some_and(|value| text(value) == toml_text(wanted))
    };
    let in_range = |range: &Range| {
        let value = parameters.get(&range.parameter).and_then(Value::as_f64);
        value.is_some_and(|v| range.from <= v && v <= range.to)
    };
    side.place.iter().flat_map(spelled_out).all(has) && range.is_none_or(in_range)
}

/// `poll` is both sides' way of polling.
fn spelled_out<'a>((name, value): (&'a String, &'a toml::Value)) -> Vec<(String, &'a toml::Value)> {
    match name.as_str() {
        "poll" => vec![("poll_send".to_owned(), value), ("poll_recv".to_owned(), value)],
        _ => vec![(name.clone(), value)],
    }
}

/// Names of parameters that a side fixes.
pub(crate) fn fixed(side: &Side) -> Vec<String> {
    side.place.iter().flat_map(spelled_out).map(|(name, _)| name).collect()
}

fn toml_text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Float(number) => number.to_string(),
        toml::Value::Boolean(yes) => yes.to_string(),
        _ => String::new(),
    }
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The number, its interval, the samples behind it, and whether each run gave one.
type Number = (f64, Option<(f64, f64)>, u64, bool);

/// Over repeated runs: the median of their numbers; the hull of their intervals.
fn number(points: &[&Point], side: &Side, quantity: Quantity) -> Option<Number> {
    let is_it = |label: &str| side.label.as_ref().is_none_or(|wanted| wanted == label);
    let series = |p: &Point| {
        let mut all = p.series.iter().filter(|s| s.quantity == quantity && is_it(&s.label));
        all.next().map(|s| s.summary.clone())
    };
    let summaries: Vec<Summary> = points.iter().filter_map(|p| series(p)).collect();
    if summaries.iter().any(|s| s.n > 0) {
        return of_summaries(&summaries, side.stat.unwrap_or_default());
    }
    let figures = points.iter().flat_map(|p| &p.figures);
    let of_it = figures.filter(|f| f.quantity == quantity && is_it(&f.label));
    let mut values: Vec<f64> = of_it.map(|f| f.value).filter(|v| v.is_finite()).collect();
    stats::sort(&mut values);
    let ends = values.first().zip(values.last()).map(|(a, b)| (*a, *b));
    // What is the same in each run is no estimate: a nominal value, or a count.
    let is_exact = values.len() > 1 && values.first() == values.last();
    let interval = ends.filter(|_| is_exact || values.len() >= RUNS_FOR_ENDS);
    (!values.is_empty()).then(|| (stats::median(&values), interval, values.len() as u64, true))
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
                // Of the normal approximation; a mean of so many samples allows it.
                let error = 1.96 * summary.stdev / (summary.n as f64).sqrt();
                let ends = (summary.mean - error, summary.mean + error);
                (summary.mean, error.is_finite().then_some(ends))
            }
        };
        values.push(value);
        hull = hull.zip(interval).map(|(h, i)| (h.0.min(i.0), h.1.max(i.1)));
    }
    stats::sort(&mut values);
    (!values.is_empty()).then(|| (stats::median(&values), hull, n, false))
}
