//! The numbers of a figure that a side of a claim means.

use rdmalab_measure::quantity::fmt_ns;
use rdmalab_measure::{Quantity, Summary, stats};
use rdmalab_record::{Object, Point, Record};
use serde_json::Value;

use crate::claim::{Operand, Range, Stat};
use crate::findings;
use crate::plan::Plan;

/// What became of a sweep.
#[derive(Clone, Debug)]
pub struct SweepResult {
    /// The figure's key.
    pub figure: String,
    /// The sweep's name; may be empty.
    pub sweep: String,
    /// Its command, after `rdmalab run`.
    pub line: Vec<String>,
    /// What there is of it.
    pub state: SweepState,
}

/// What there is of a sweep.
#[derive(Clone, Debug)]
pub enum SweepState {
    /// Its record, maybe of less than was planned.
    Measured(Box<Record>),
    /// It cannot be measured: why.
    Missing(String),
    /// It was left out of this run.
    NotAsked,
}

/// A number, with the parameters that it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// The parameters of its points.
    pub parameters: Object,
    /// The number, in its unit.
    pub value: f64,
    /// How well it is known with 95 %: of samples, how well those within the runs know it; else
    /// what the runs say of the next one. `None` where they are too few. An end that lies beyond
    /// what was measured is infinite.
    pub interval: Option<(f64, f64)>,
    /// Samples behind it.
    pub n: u64,
    /// Repetitions; 0 of what was not measured.
    pub runs: usize,
    /// Where it comes from.
    pub basis: Basis,
    /// What each run gave, where that tells how far off the next run may be.
    pub of_runs: Vec<f64>,
    /// The interval as it would be if the clocks of two hosts had no error.
    pub exact: Option<(f64, f64)>,
    /// How far the number may be off since the clocks of two hosts made it, the same way in every
    /// run; 0 where one clock did.
    pub clock_error_ns: f64,
    /// What the number is in.
    pub unit: Unit,
}

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Each run gave samples, or one number.
    Runs,
    /// It was found in so many of the runs.
    FoundIn(usize),
    /// It follows from what the runs are between them, as a share or a crossover does.
    Together,
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

impl Measurement {
    /// The same where the clocks of two hosts may be off by so much, in every run the same way. Of
    /// a share of samples above a limit there is no knowing then.
    fn with_clock_error(self, clock_error_ns: f64) -> Self {
        if clock_error_ns == 0.0 {
            return self;
        }
        let is_time = matches!(self.unit, Unit::Of(_));
        let interval = self.interval.filter(|_| is_time);
        let interval =
            interval.map(|(low, high)| ((low - clock_error_ns).max(0.0), high + clock_error_ns));
        Self { interval, clock_error_ns, ..self }
    }

    /// The number as its unit is written.
    #[must_use]
    pub fn text(&self) -> String {
        self.unit.format(self.value)
    }

    /// The number with what is known of it over runs.
    #[must_use]
    pub fn whole_text(&self) -> String {
        match self.ends() {
            Some((low, high)) if self.runs > 0 => {
                format!("{} ({} - {})", self.text(), self.unit.format(low), self.unit.format(high))
            }
            _ => self.text(),
        }
    }

    /// Between what the number lies with 95 %, also that of the next run. `None` of one run, which
    /// says nothing of the next.
    #[must_use]
    pub fn ends(&self) -> Option<(f64, f64)> {
        match (self.runs, self.of_runs.is_empty()) {
            (1, _) => None,
            (_, true) => self.interval,
            _ => {
                let between = stats::mean_interval(&self.of_runs, 0.95)?;
                let (low, high) =
                    (between.low - self.clock_error_ns, between.high + self.clock_error_ns);
                // They are times, rates and shares.
                Some(hull((low.max(0.0), high), self.interval))
            }
        }
    }
}

/// What covers both.
pub(crate) fn hull(one: (f64, f64), other: Option<(f64, f64)>) -> (f64, f64) {
    other.map_or(one, |other| (one.0.min(other.0), one.1.max(other.1)))
}

/// Parameters that say how much was measured, not what.
pub(crate) const AMOUNTS: [&str; 5] = ["messages", "runs", "warm_up", "seed", "stamp_every"];

/// Runs from which their least and largest enclose the median with 95 %: 1 - 2^(1-n).
pub(crate) const RUNS_FOR_ENDS: usize = 6;

/// The numbers that a side means, or why there are none.
pub(crate) fn cells(
    parts: &[SweepResult],
    side: &Operand,
    range: Option<&Range>,
) -> Result<Vec<Measurement>, String> {
    let figure = side.figure.as_deref().unwrap_or_default();
    let mut found: Vec<Measurement> = Vec::new();
    let mut why = None;
    for part in parts.iter().filter(|part| is_of(part, side)) {
        match &part.state {
            SweepState::Measured(record) => {
                let (cells, why_not) = of_record(record, side, range)?;
                found.extend(cells);
                if found.is_empty() {
                    let skipped = record.skipped.first().map(|s| s.reason.clone());
                    why = why_not.or(skipped).or(why);
                }
            }
            SweepState::Missing(reason) => why = Some(format!("figure {figure}: {reason}")),
            SweepState::NotAsked => {
                why.get_or_insert_with(|| format!("figure {figure} was left out of this run"));
            }
        }
    }
    if found.is_empty() {
        return Err(why.unwrap_or_else(|| no_such_point(figure)));
    }
    Ok(found)
}

/// The least value of the range's parameter at which the device could not measure what a side is
/// of.
pub(crate) fn impossible_from(
    parts: &[SweepResult],
    side: &Operand,
    range: Option<&Range>,
) -> Option<f64> {
    let records =
        parts.iter().filter(|part| is_of(part, side)).filter_map(|part| match &part.state {
            SweepState::Measured(record) => Some(record),
            _ => None,
        });
    let skipped = records.flat_map(|record| &record.skipped);
    let meant = skipped.filter(|skipped| matches_operand(&skipped.parameters, side, range));
    let at = meant.filter_map(|s| s.parameters.get(&range?.parameter)?.as_f64());
    at.reduce(f64::min)
}

fn is_of(part: &SweepResult, side: &Operand) -> bool {
    let figure = side.figure.as_deref().unwrap_or_default();
    part.figure.eq_ignore_ascii_case(figure)
        && side.sweep.as_ref().is_none_or(|name| *name == part.sweep)
}

fn no_such_point(figure: &str) -> String {
    format!("figure {figure} has no such point")
}

/// Why there are no numbers, and where `--quick` leaves them out, why it does.
pub(crate) fn with_note(plan: &Plan, side: &Operand, why: String) -> String {
    let figure = side.figure.as_deref().and_then(|key| Some((key, plan.figure(key)?)));
    match figure {
        Some((key, figure)) if !figure.quick_note.is_empty() && why == no_such_point(key) => {
            format!("{why} (with --quick: {})", figure.quick_note)
        }
        _ => why,
    }
}

/// Those of one record; why there are none, where that is known.
fn of_record(
    record: &Record,
    side: &Operand,
    range: Option<&Range>,
) -> Result<(Vec<Measurement>, Option<String>), String> {
    if let Some(name) = &side.finding {
        let cells = findings::of_record(record, side, name, range);
        return Ok((cells, findings::why_not(record, side, name)));
    }
    let Some(quantity) = side.quantity() else { return Err("it names no quantity".to_owned()) };
    Ok((of_points(record, side, quantity, range), None))
}

fn of_points(
    record: &Record,
    side: &Operand,
    quantity: Quantity,
    range: Option<&Range>,
) -> Vec<Measurement> {
    let mut groups: Vec<(&Object, Vec<&Point>)> = Vec::new();
    // A run that was ended early is no whole one.
    for point in record.whole_points().filter(|p| matches_operand(&p.parameters, side, range)) {
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
        let Number { value, interval, n, basis, of_runs } = number;
        let (exact, clock_error_ns) = (interval, 0.0);
        let cell = Measurement {
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
        let errors = points.iter().map(|point| point.clock_error_ns(quantity));
        Some(cell.with_clock_error(errors.fold(0.0, f64::max)))
    };
    groups.into_iter().filter_map(cell).collect()
}

/// Whether parameters are those that a side and a range want. A side that says itself what the
/// parameter of the range has to be is held against all of the range.
pub(crate) fn matches_operand(parameters: &Object, side: &Operand, range: Option<&Range>) -> bool {
    let has = |(name, wanted): (String, &toml::Value)| {
        parameters.get(&name).is_some_and(|value| text(value) == toml_text(wanted))
    };
    let range = range.filter(|range| !side.place.contains_key(&range.parameter));
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
pub(crate) fn fixed(side: &Operand) -> Vec<String> {
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

/// As of a [`Measurement`].
struct Number {
    value: f64,
    interval: Option<(f64, f64)>,
    n: u64,
    basis: Basis,
    of_runs: Vec<f64>,
}

/// The share of the samples above a limit. Slow messages come together, so what the runs differ by
/// counts as well as what so many samples leave open.
fn share_above(
    record: &Record,
    points: &[&Point],
    side: &Operand,
    quantity: Quantity,
    limit: f64,
) -> Option<Number> {
    let is_it = |label: &str| side.label.as_ref().is_none_or(|wanted| wanted == label);
    let (mut above, mut all, mut of_runs) = (0, 0, Vec::new());
    for point in points {
        let mut series = point.series.iter();
        let one = series.find(|s| s.quantity == quantity && is_it(&s.label))?;
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

/// Over repeated runs: the median of their numbers; the hull of their intervals.
fn number(points: &[&Point], side: &Operand, quantity: Quantity) -> Option<Number> {
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
    let (value, interval) = merged(&values);
    (n > 0).then_some(Number { value, interval, n, basis: Basis::Runs, of_runs: values })
}

/// The median of what each run gave once, and from [`RUNS_FOR_ENDS`] on their ends.
pub(crate) fn merged(values: &[f64]) -> (f64, Option<(f64, f64)>) {
    let mut values = values.to_vec();
    stats::sort(&mut values);
    let ends = values.first().zip(values.last()).map(|(a, b)| (*a, *b));
    let interval = ends.filter(|_| values.len() >= RUNS_FOR_ENDS);
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
