//! Expectations of a record, such as `p99<5us`: whether they hold, by how much, and whether there
//! are enough samples to decide.

use std::fmt;
use std::str::FromStr;

use rdmalab_measure::Quantity;
use rdmalab_measure::outcome::IS_HIDDEN;
use rdmalab_measure::quantity::fmt_ns;
use rdmalab_measure::stats::{self, Interval, MIN_BEYOND, MIN_RUNS, Timed};
use rdmalab_record::{Point, Record};

use crate::delivery;
use crate::model::{Model, Row, group_name, headline};
use crate::value::{fmt_count, percentile};
use crate::warnings::place;

/// Confidence of the intervals that are shown beside a value.
const CONFIDENCE: f64 = 0.95;

/// An expectation about every point of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    text: String,
    /// Part of the name of a quantity; empty for the first quantity that the experiment measures.
    name: String,
    metric: Metric,
    relation: Relation,
    /// In ns, 1/s or B/s, or as a share.
    bound: f64,
}

/// A statistic of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Metric {
    Quantile(f64),
    Mean,
    Max,
    /// The share of messages that did not arrive.
    Loss,
    Figure(Quantity),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Below,
    NotAbove,
    Above,
    NotBelow,
}

impl Relation {
    const ALL: [(&'static str, Self); 4] =
        [("<=", Self::NotAbove), (">=", Self::NotBelow), ("<", Self::Below), (">", Self::Above)];

    fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Self::Below => value < bound,
            Self::NotAbove => value <= bound,
            Self::Above => value > bound,
            Self::NotBelow => value >= bound,
        }
    }
}

const FORM: &str = "write [QUANTITY] METRIC RELATION BOUND, as 'p99<5us', 'round trip \
                    median<=1.2us' or 'rate>1M/s'; metrics are median, pNN, mean, max, loss, \
                    rate, bandwidth, missed, duplicate";

/// Units of each kind, with the factor to the unit of records.
const TIMES: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
const RATES: [(&str, f64); 4] = [("G/s", 1e9), ("M/s", 1e6), ("k/s", 1e3), ("/s", 1.0)];
const BANDWIDTHS: [(&str, f64); 6] = [
    ("Gb/s", 1e9 / 8.0),
    ("Mb/s", 1e6 / 8.0),
    ("GB/s", 1e9),
    ("MB/s", 1e6),
    ("kB/s", 1e3),
    ("B/s", 1.0),
];
const SHARES: [(&str, f64); 1] = [("%", 0.01)];

impl FromStr for Expectation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let at = text.find(['<', '>']).ok_or_else(|| format!("{text:?} has no < or >: {FORM}"))?;
        let (left, right) = text.split_at(at);
        let (sign, relation) = Relation::ALL
            .into_iter()
            .find(|(sign, _)| right.starts_with(sign))
            .ok_or_else(|| format!("{text:?}: {FORM}"))?;
        let left = left.trim();
        let (name, word) = left.rsplit_once(' ').unwrap_or(("", left));
        let metric = metric(word).ok_or_else(|| format!("{word:?} is not a metric: {FORM}"))?;
        let bound = bound(right[sign.len()..].trim(), metric)?;
        let name = name.trim().to_owned();
        Ok(Self { text: text.trim().to_owned(), name, metric, relation, bound })
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn metric(word: &str) -> Option<Metric> {
    Some(match word {
        "median" => Metric::Quantile(0.5),
        "mean" => Metric::Mean,
        "max" => Metric::Max,
        "loss" => Metric::Loss,
        "rate" => Metric::Figure(Quantity::Rate),
        "bandwidth" => Metric::Figure(Quantity::Bandwidth),
        "missed" => Metric::Figure(Quantity::MissedShare),
        "duplicate" => Metric::Figure(Quantity::DuplicateShare),
        word => {
            let percent: f64 = word.strip_prefix('p')?.parse().ok()?;
            Metric::Quantile(share_of(percent)?)
        }
    })
}

/// A number of per cent as a share, without the rounding error of the float: 0.999 for 99.9. `None`
/// unless the result is strictly between 0 and 1, as for 99.9999999999999.
#[must_use]
pub fn share_of(percent: f64) -> Option<f64> {
    let share = (percent / 100.0 * 1e12).round() / 1e12;
    (share > 0.0 && share < 1.0).then_some(share)
}

fn bound(text: &str, metric: Metric) -> Result<f64, String> {
    let units: &[(&str, f64)] = match metric {
        Metric::Loss => &SHARES,
        Metric::Figure(quantity) if quantity.suffix() == "share" => &SHARES,
        Metric::Figure(Quantity::Rate) => &RATES,
        Metric::Figure(_) => &BANDWIDTHS,
        _ => &TIMES,
    };
    let names = || units.iter().map(|(unit, _)| *unit).collect::<Vec<_>>().join(", ");
    let wrong = || {
        format!("{text:?} is not a bound for this metric: write a number and one of {}", names())
    };
    let (unit, factor) = units.iter().find(|(unit, _)| text.ends_with(unit)).ok_or_else(wrong)?;
    let number: f64 = text[..text.len() - unit.len()].trim().parse().map_err(|_| wrong())?;
    if number.is_finite() && number >= 0.0 { Ok(number * factor) } else { Err(wrong()) }
}

/// Whether an expectation holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The expectation holds.
    Holds,
    /// The expectation does not hold, or nothing was measured.
    Fails,
    /// The run does not decide: the error of the clocks is too large, or the messages were lost.
    CannotTell,
}

/// The reason why there is no number to judge.
enum Missing {
    /// The record cannot have the number: no such quantity, or too few samples.
    Asked(String),
    /// The run lost it, for example because messages were lost.
    Unmeasured(String),
}

/// The result of checking an expectation at one point.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// Whether it holds.
    pub answer: Answer,
    /// One line: the measured value, its interval, and the bound.
    pub line: String,
}

/// An observed value, its interval if there is one, and its name.
struct Observed {
    value: f64,
    interval: Option<Interval>,
    name: String,
    /// The quantity whose format the value is shown in.
    quantity: Quantity,
    /// How far the value may be off because it was timed with the clocks of two hosts.
    clock_error_ns: f64,
    remark: String,
}

impl Expectation {
    /// Whether a series of `n` samples is long enough for this statistic.
    ///
    /// # Errors
    /// The number of samples that it needs, and what to do.
    pub fn supported_by(&self, n: u64) -> Result<(), String> {
        match self.metric {
            Metric::Quantile(q) if !stats::supports_quantile(n, q) => {
                let needed = (MIN_BEYOND / q.min(1.0 - q)).round() as u64;
                Err(format!(
                    "--expect '{self}': {} needs {} samples of a point, {} of them beyond it, but \
                     there are {}: raise --messages or --repeat",
                    if q == 0.5 { "the median".to_owned() } else { percentile(q) },
                    fmt_count(needed),
                    MIN_BEYOND,
                    fmt_count(n)
                ))
            }
            _ => Ok(()),
        }
    }

    /// Whether an experiment that measures these quantities may have the expected one. A name that
    /// matches no quantity may be a label.
    ///
    /// # Errors
    /// The experiment does not measure it; the error lists what it measures.
    pub fn foreseen_in(&self, experiment: &str, quantities: &[Quantity]) -> Result<(), String> {
        let is_named = |q: &&Quantity| self.name == q.name() || self.name == q.field();
        let asked = match self.metric {
            Metric::Figure(quantity) => Some(quantity),
            Metric::Loss => None,
            _ => Quantity::ALL.iter().find(is_named).copied(),
        };
        let Some(asked) = asked.filter(|asked| !quantities.contains(asked)) else { return Ok(()) };
        Err(format!(
            "--expect '{self}': {experiment} with these options measures no {asked}; there are: {}",
            names(quantities.iter().map(ToString::to_string))
        ))
    }

    /// Whether the expectation is about samples of times.
    #[must_use]
    pub const fn is_of_samples(&self) -> bool {
        matches!(self.metric, Metric::Quantile(_) | Metric::Mean | Metric::Max)
    }

    /// Checks the expectation at every point of a record; runs of the same point count together.
    ///
    /// # Errors
    /// If the expected number cannot exist: no such quantity, or too few samples for it.
    pub fn check(&self, record: &Record) -> Result<Vec<Checked>, String> {
        let model = Model::of(record);
        let mut found = Vec::new();
        for row in &model.rows {
            let at = match place(&model, row) {
                nowhere if nowhere.is_empty() => String::new(),
                place => format!(" at {place}"),
            };
            if let Some(first) = row.points.first().filter(|point| !point.is_whole()) {
                found.push(self.unmeasured(first, &at));
                continue;
            }
            let mut one = match self.measured(record, row) {
                Ok(one) => one,
                Err(Missing::Asked(why)) => return Err(why),
                Err(Missing::Unmeasured(why)) => {
                    let line =
                        format!("{self}: cannot be checked{at}, because {why}: measure it again");
                    found.push(Checked { answer: Answer::CannotTell, line });
                    continue;
                }
            };
            match row.cut_short(record) {
                0 => {}
                1 => one.remark += ", without a run that was cut short",
                n => one.remark += &format!(", without {n} runs that were cut short"),
            }
            found.push(self.checked(&one, &at));
        }
        match found.is_empty() {
            true => Err(format!("--expect '{self}': the record has no points")),
            false => Ok(found),
        }
    }

    /// The result for a point whose runs were all cut short.
    fn unmeasured(&self, point: &Point, at: &str) -> Checked {
        let why = point.cut_short.as_deref().unwrap_or_default();
        let line = format!(
            "{self}: cannot be checked{at}, because its measurement was cut short ({why}): does \
             not hold; measure it again"
        );
        Checked { answer: Answer::Fails, line }
    }

    fn checked(&self, found: &Observed, at: &str) -> Checked {
        let share = |v: f64| format!("{:.3} %", v * 100.0);
        let format = |v: f64| match self.metric {
            Metric::Loss => share(v),
            _ => found.quantity.format(v),
        };
        let holds = self.relation.holds(found.value, self.bound);
        let error = found.clock_error_ns;
        let is_beyond = |ends: [f64; 2]| {
            let [low, high] = [ends[0] - error, ends[1] + error];
            [low, high].into_iter().all(|end| self.relation.holds(end, self.bound) == holds)
        };
        let interval = found.interval.map_or(String::new(), |i| {
            format!(", 95 % interval {} .. {}", format(i.low), format(i.high))
        });
        let is_sure = found.interval.is_none_or(|i| is_beyond([i.low, i.high]));
        let clocks = match error {
            0.0 => String::new(),
            error => format!(", and the clocks of the two hosts may be off by {}", fmt_ns(error)),
        };
        let (answer, verdict) = match (holds, is_sure) {
            // More messages do not reduce the clock error.
            _ if !is_beyond([found.value; 2]) => (
                Answer::CannotTell,
                "cannot be decided, because the clocks may differ by more than the distance to \
                 the bound: use round trips (ping), which need one clock",
            ),
            (true, true) => (Answer::Holds, "holds"),
            (true, false) => (
                Answer::Holds,
                "holds, but its interval, with the clock error if there is one, includes the \
                 bound: measure more to be sure",
            ),
            (false, true) => (Answer::Fails, "does not hold"),
            (false, false) => (
                Answer::Fails,
                "does not hold, but its interval, with the clock error if there is one, includes \
                 the bound: measure more to be sure",
            ),
        };
        let line = format!(
            "{self}: {}{at} is {}{interval}{}{clocks}; the bound is {}: {verdict}",
            found.name,
            format(found.value),
            found.remark,
            format(self.bound)
        );
        Checked { answer, line }
    }

    fn measured(&self, record: &Record, row: &Row) -> Result<Observed, Missing> {
        match self.metric {
            Metric::Figure(quantity) => self.figure(row, quantity),
            Metric::Loss => self.loss(row),
            _ => self.series(record, row),
        }
    }

    fn has_name(&self, quantity: Quantity, label: &str) -> bool {
        group_name(quantity, label).contains(&self.name) || quantity.field().contains(&self.name)
    }

    fn figure(&self, row: &Row, quantity: Quantity) -> Result<Observed, Missing> {
        let figures = row.points.iter().flat_map(|point| &point.figures);
        let of_it = figures.filter(|f| f.quantity == quantity && f.value.is_finite());
        let named = of_it.clone().map(|f| f.label.as_str());
        let named = named.filter(|label| self.has_name(quantity, label));
        // If several labels match, such as those of each thread, the first one is used.
        let first = || named.clone().next().filter(|_| !self.name.is_empty());
        let Some(label) = headline(named.clone()).or_else(first) else {
            return Err(match (of_it.clone().next(), lost(row)) {
                (None, 1..) => Missing::Unmeasured(format!(
                    "{} messages were lost, and no {quantity} was measured",
                    fmt_count(lost(row))
                )),
                (None, 0) => Missing::Asked(format!(
                    "--expect '{self}': the experiment measures no {quantity}; `blast` does"
                )),
                (Some(_), _) => Missing::Asked(format!(
                    "--expect '{self}': the record has no such {quantity}; it has: {}",
                    names(of_it.map(|f| group_name(quantity, &f.label)))
                )),
            });
        };
        let ours = of_it.filter(|f| f.label == label);
        let values: Vec<f64> = ours.map(|f| f.value).collect();
        // Both numbers are of the mean: the interval would not belong to a median.
        Ok(Observed {
            value: values.iter().sum::<f64>() / values.len() as f64,
            interval: stats::mean_interval(&values, CONFIDENCE),
            name: group_name(quantity, label),
            quantity,
            clock_error_ns: 0.0,
            remark: match values.len() {
                1 => ", of one run".to_owned(),
                n => format!(", the mean of {n} runs"),
            },
        })
    }

    fn loss(&self, row: &Row) -> Result<Observed, Missing> {
        let of = |point: &&Point| -> Option<(u64, u64)> {
            let counted = point.count("lost").zip(point.count("sent"));
            let series = || {
                let first = point.series.first().map(|series| &series.summary);
                first.map(|s| (s.lost, s.n.saturating_add(s.lost)))
            };
            counted.or_else(series)
        };
        let each: Option<Vec<(u64, u64)>> = row.points.iter().map(of).collect();
        let each = each.ok_or_else(|| {
            let why = "the experiment does not count lost messages";
            Missing::Asked(format!("--expect '{self}': {why}"))
        })?;
        // Records may come from strangers: their counts may have any value.
        let sum = |of: fn(&(u64, u64)) -> u64| each.iter().map(of).fold(0, u64::saturating_add);
        let (lost, sent) = (sum(|both| both.0), sum(|both| both.1));
        if sent == 0 {
            return Err(Missing::Unmeasured("nothing was sent".to_owned()));
        }
        Ok(Observed {
            value: lost as f64 / sent as f64,
            interval: None,
            name: "loss".to_owned(),
            quantity: Quantity::CpuShare,
            clock_error_ns: 0.0,
            remark: format!(" ({} of {})", fmt_count(lost), fmt_count(sent)),
        })
    }

    fn series(&self, record: &Record, row: &Row) -> Result<Observed, Missing> {
        let series = row.points.iter().flat_map(|point| &point.series);
        let mut ours = series.filter(|s| self.has_name(s.quantity, &s.label));
        let first = ours.next();
        if let Some(why) = self.hidden(row, first.map(|series| series.quantity)) {
            return Err(Missing::Unmeasured(why.to_owned()));
        }
        let Some(first) = first else {
            let all = row.points.iter().flat_map(|p| &p.series);
            return Err(Missing::Asked(format!(
                "--expect '{self}': the record has no quantity {:?}; it has: {}",
                self.name,
                names(all.map(|s| group_name(s.quantity, &s.label)))
            )));
        };
        let (quantity, label) = (first.quantity, first.label.as_str());
        let each = row.points.iter().filter_map(|point| point.series(quantity, label));
        let lost = each.clone().map(|series| series.summary.lost).fold(0, u64::saturating_add);
        let read = |series| record.counted_samples(series);
        let unread = |error: rdmalab_record::Error| Missing::Asked(error.to_string());
        let runs: Result<Vec<Vec<f64>>, Missing> = each.map(|s| read(s).map_err(unread)).collect();
        let name = format!("{} of {}", self.metric_name(), group_name(quantity, label));
        let nothing = || Missing::Unmeasured(format!("there is no sample of {}", quantity.name()));
        let timed = Timed::new(&runs?).ok_or_else(nothing)?;
        let n = timed.n() as u64;
        self.supported_by(n).map_err(|why| match self.supported_by(n.saturating_add(lost)) {
            // Without the losses there would be enough samples.
            Ok(()) => {
                let (lost, n) = (fmt_count(lost), fmt_count(n));
                Missing::Unmeasured(format!("{lost} messages were lost, and {n} samples are left"))
            }
            Err(_) => Missing::Asked(why),
        })?;
        let (value, interval, remark) = match self.metric {
            Metric::Mean => {
                let mean = timed.mean(CONFIDENCE);
                (mean.value, mean.interval, String::new())
            }
            Metric::Max => {
                let largest = timed.sorted()[timed.n() - 1];
                (largest, None, format!(", the largest of {}", fmt_count(timed.n() as u64)))
            }
            Metric::Quantile(q) => {
                let found = timed.quantile(q).ok_or_else(nothing)?;
                let interval = found.interval(CONFIDENCE);
                let remark = match (interval, timed.runs()) {
                    (None, 2..MIN_RUNS) => ", of too few runs for an interval",
                    (None, _) => ", of too few samples for an interval",
                    _ => "",
                };
                (found.value, interval, remark.to_owned())
            }
            Metric::Loss | Metric::Figure(_) => return Err(nothing()),
        };
        let errors = row.points.iter().map(|point| point.clock_error_ns(quantity));
        let clock_error_ns = errors.fold(0.0, f64::max);
        Ok(Observed { value, interval, name, quantity, clock_error_ns, remark })
    }

    /// The reason why the expected series is hidden in one of the runs; without this check `found`
    /// would be judged instead of it.
    fn hidden<'a>(&self, row: &'a Row, found: Option<Quantity>) -> Option<&'a str> {
        // One-way times are preferred to others.
        if found.is_some_and(Quantity::is_between_ends) {
            return None;
        }
        let is_meant = |(label, _): (&str, &str)| self.has_name(Quantity::OneWay, label);
        let warnings = row.points.iter().flat_map(|point| &point.warnings);
        let mut hidden = warnings.filter(|w| w.split_once(IS_HIDDEN).is_some_and(is_meant));
        hidden.next().map(String::as_str)
    }

    fn metric_name(&self) -> String {
        match self.metric {
            Metric::Quantile(0.5) => "median".to_owned(),
            Metric::Quantile(q) => percentile(q),
            Metric::Mean => "mean".to_owned(),
            Metric::Max => "maximum".to_owned(),
            Metric::Loss => "loss".to_owned(),
            Metric::Figure(quantity) => quantity.name().to_owned(),
        }
    }
}

/// Messages that were lost in the runs of a point.
fn lost(row: &Row) -> u64 {
    row.points.iter().map(|point| delivery::lost(point)).fold(0, u64::saturating_add)
}

/// Names, each once.
fn names(all: impl Iterator<Item = String>) -> String {
    let mut names: Vec<String> = all.collect();
    names.sort();
    names.dedup();
    names.join("; ")
}

#[cfg(test)]
#[path = "expect_tests.rs"]
mod tests;
