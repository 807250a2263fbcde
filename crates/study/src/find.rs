//! The numbers of a figure that a side of a claim means.

use rdmalab_measure::quantity::fmt_ns;
use rdmalab_measure::{Quantity, Summary, stats};
use rdmalab_record::{Object, Point, Record};
use serde_json::Value;

use crate::claim::{Range, Side, Stat};
use crate::found;

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
    /// The number, in its unit.
    pub value: f64,
    /// A 95 % interval, or the ends of repeated runs; `None` where there is none. An end that lies
    /// beyond what was measured is infinite.
    pub interval: Option<(f64, f64)>,
    /// Samples behind it.
    pub n: u64,
    /// Repetitions.
    pub runs: usize,
    /// Whether each run gave one number, not samples: the interval is then that of the runs.
    pub is_one_a_run: bool,
    /// What the samples of each run gave; empty where runs gave one number each, or no time. The
    /// interval says how well the samples within the runs know it, and these how far off the next
    /// run may be.
    pub of_runs: Vec<f64>,
    /// What the number is in.
    pub unit: Unit,
}

/// What a number is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// That of a quantity.
    Of(Quantity),
    /// As at the end of a name: `bytes`, `ns`, `messages`, `code`, `per_s`, `share`.
    Named(String),
}

impl Unit {
    /// A number in it, for people.
    #[must_use]
    pub fn format(&self, value: f64) -> String {
        match self {
            _ if value == f64::INFINITY => "any".to_owned(),
            Self::Of(quantity) => quantity.format(value),
            Self::Named(unit) => match unit.as_str() {
                "ns" => fmt_ns(value),
                "per_s" => Quantity::Rate.format(value),
                "share" if value > 0.0 && value < 0.01 => format!("{value:.0e}"),
                "share" => format!("{value:.3}"),
                "code" => format!("{value:.0}"),
                unit => format!("{value:.0} {unit}"),
            },
        }
    }
}

impl Cell {
    /// The number as its unit is written.
    #[must_use]
    pub fn text(&self) -> String {
        self.unit.format(self.value)
    }

    /// The number with its interval.
    #[must_use]
    pub fn whole_text(&self) -> String {
        match self.interval {
            Some((low, high)) if self.runs > 0 => {
                format!("{} ({} - {})", self.text(), self.unit.format(low), self.unit.format(high))
            }
            _ => self.text(),
        }
    }
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
        part.figure.eq_ignore_ascii_case(figure)
            && side.sweep.as_ref().is_none_or(|name| *name == part.sweep)
    };
    let mut found: Vec<Cell> = Vec::new();
    let mut why = None;
    for part in parts.iter().filter(of_side) {
        match &part.state {
            State::Measured(record) => {
                let (cells, why_not) = of_record(record, side, range)?;
                found.extend(cells);
                if found.is_empty() {
                    let skipped = record.skipped.first().map(|s| s.reason.clone());
                    why = why_not.or(skipped).or(why);
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

/// Those of one record; why there are none, where that is known.
fn of_record(
    record: &Record,
    side: &Side,
    range: Option<&Range>,
) -> Result<(Vec<Cell>, Option<String>), String> {
    if let Some(name) = &side.finding {
        let cells = found::of_record(record, side, name, range);
        return Ok((cells, found::why_not(record, side, name)));
    }
    let Some(quantity) = side.quantity() else { return Err("it names no quantity".to_owned()) };
    Ok((of_points(record, side, quantity, range), None))
}

fn of_points(record: &Record, side: &Side, quantity: Quantity, range: Option<&Range>) -> Vec<Cell> {
    let mut groups: Vec<(&Object, Vec<&Point>)> = Vec::new();
    // A run that was ended early is no whole one.
    let whole = record.points.iter().filter(|p| p.cut_short.is_none());
    for point in whole.filter(|p| is_meant(&p.parameters, side, range)) {
        match groups.iter_mut().find(|(parameters, _)| **parameters == point.parameters) {
            Some((_, points)) => points.push(point),
            None => groups.push((&point.parameters, vec![point])),
        }
    }
    let cell = |(parameters, points): (&Object, Vec<&Point>)| {
        let (parameters, runs) = (parameters.clone(), points.len());
        let (number, unit) = match side.above {
            Some(limit) => (
                share_above(record, &points, side, quantity, limit)?,
                Unit::Named("share".to_owned()),
            ),
            None => (number(&points, side, quantity)?, Unit::Of(quantity)),
        };
        let Number { value, interval, n, is_one_a_run, of_runs } = number;
        Some(Cell { parameters, value, interval, n, runs, is_one_a_run, of_runs, unit })
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

/// As of a [`Cell`].
struct Number {
    value: f64,
    interval: Option<(f64, f64)>,
    n: u64,
    is_one_a_run: bool,
    of_runs: Vec<f64>,
}

/// The share of the samples above a limit, by Wilson's interval.
fn share_above(
    record: &Record,
    points: &[&Point],
    side: &Side,
    quantity: Quantity,
    limit: f64,
) -> Option<Number> {
    let is_it = |label: &str| side.label.as_ref().is_none_or(|wanted| wanted == label);
    let (mut above, mut all) = (0_usize, 0_usize);
    for point in points {
        let mut series = point.series.iter();
        let one = series.find(|s| s.quantity == quantity && is_it(&s.label))?;
        let samples = record.counted_samples(one).ok()?;
        above += samples.iter().filter(|sample| **sample > limit).count();
        all += samples.len();
    }
    let (n, share) = (all as f64, above as f64 / all as f64);
    let z2 = 1.96_f64 * 1.96;
    let centre = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = (z2 * (share * (1.0 - share) / n + z2 / (4.0 * n * n))).sqrt() / (1.0 + z2 / n);
    let interval = Some(((centre - half).max(0.0), centre + half));
    let (n, is_one_a_run, of_runs) = (all as u64, false, Vec::new());
    (all > 0).then_some(Number { value: share, interval, n, is_one_a_run, of_runs })
}

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
    let values: Vec<f64> = of_it.map(|f| f.value).filter(|v| v.is_finite()).collect();
    let n = values.len() as u64;
    let (value, interval) = merged(values, RUNS_FOR_ENDS);
    (n > 0).then_some(Number { value, interval, n, is_one_a_run: true, of_runs: Vec::new() })
}

/// The median of what each run gave once, and from so many runs on their ends.
pub(crate) fn merged(mut values: Vec<f64>, runs_for_ends: usize) -> (f64, Option<(f64, f64)>) {
    stats::sort(&mut values);
    let ends = values.first().zip(values.last()).map(|(a, b)| (*a, *b));
    // What is the same in each run is no estimate: a nominal value, or a count.
    let is_exact = values.len() > 1 && values.first() == values.last();
    let interval = ends.filter(|_| is_exact || values.len() >= runs_for_ends);
    (if values.is_empty() { f64::NAN } else { stats::median(&values) }, interval)
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
    (!values.is_empty()).then(|| Number {
        value: stats::median(&values),
        interval: hull,
        n,
        is_one_a_run: false,
        of_runs: values,
    })
}
