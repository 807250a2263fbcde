//! A record as reports need it: parameters that vary, rows of equal parameters, one group for each
//! quantity.

use std::collections::{BTreeMap, BTreeSet};

use rdmalab_measure::stats::quantile_interval;
use rdmalab_measure::summary::Outlier;
use rdmalab_measure::text::{and_more, plural};
use rdmalab_measure::{Quantity, Summary, stats};
use rdmalab_record::{Finding, Object, Point, Record, SeriesSummary, Skipped};
use serde_json::Value;

use crate::value::{named, order, shown};

/// Percentiles that tables show beside the median.
pub const TAIL: [f64; 3] = [0.99, 0.999, 0.9999];

/// The beginning of the label of a peer's series.
pub const PEER: &str = "peer ";

/// The beginning of the label of a page's series: times until its operations were done.
pub const PAGE: &str = "page ";

/// The value of the profile fact for a rank without a profile.
const NO_PROFILE: &str = "none";

/// Most ranks that are named; the others are only counted.
const NAMED_RANKS: usize = 3;

/// The lower end of a study's bars.
pub const TENTH: f64 = 0.1;

/// The upper end of a study's bars.
pub const NINTH: f64 = 0.9;

/// A record, arranged for reports.
pub struct Model<'a> {
    /// The record.
    pub record: &'a Record,
    /// Names of parameters that differ between points, in the order of the record.
    pub varying: Vec<&'a str>,
    /// Names and values of parameters that are equal at all points.
    pub constant: Vec<(&'a str, &'a Value)>,
    /// Points of equal parameters, in the order of the parameters.
    pub rows: Vec<Row<'a>>,
    /// The findings over all points.
    pub findings: &'a [Finding],
}

/// Points of equal parameters: the runs of one cell of the plan.
pub struct Row<'a> {
    /// The parameters.
    pub parameters: &'a Object,
    /// The runs, in the order of repetition.
    pub points: Vec<&'a Point>,
}

/// One quantity over all rows.
pub struct Group<'a> {
    /// The quantity.
    pub quantity: Quantity,
    /// The label of the series; may be empty.
    pub label: &'a str,
    /// Rows that have it.
    pub rows: Vec<(&'a Row<'a>, Merged)>,
}

/// A series over all runs of a row. With several runs, values are medians of the runs' values.
/// Their interval comes from the ranks of the runs' medians. If there are too few runs for that, it
/// covers the intervals of all runs, and so the differences between them.
#[derive(Clone, Debug)]
pub struct Merged {
    /// Number of runs.
    pub runs: usize,
    /// Samples that count, in all runs.
    pub n: u64,
    /// Samples in the run that has the fewest.
    pub least_n: u64,
    /// Lost messages.
    pub lost: u64,
    /// Samples below zero.
    pub negative: u64,
    /// Least sample.
    pub min: f64,
    /// Largest sample.
    pub max: f64,
    /// The place of the largest sample in the series of its run.
    pub max_index: Option<u64>,
    /// The run with the largest sample, from 0.
    pub max_run: usize,
    /// The median.
    pub median: f64,
    /// Whether there are enough samples for the median.
    pub is_supported: bool,
    /// The interval of the median.
    pub interval: Option<(f64, f64)>,
    /// The difference of the runs' largest and least median, over their median; `None` for one run.
    pub run_spread: Option<f64>,
    /// The most extreme rank correlation of successive samples.
    pub lag1: Option<f64>,
    /// Effective samples of a run's median over its samples; the least of all runs.
    pub worth: Option<f64>,
    /// Effective samples of the medians of all runs; `None` if a run has too few samples.
    pub effective_n: Option<f64>,
    summaries: Vec<Summary>,
}

impl<'a> Model<'a> {
    /// Arranges a record.
    pub fn of(record: &'a Record) -> Self {
        let mut names: Vec<&str> = Vec::new();
        for name in record.points.iter().flat_map(|p| p.parameters.keys()) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        let differs = |name: &&str| {
            let mut values = record.points.iter().map(|p| p.parameters.get(*name));
            let first = values.next();
            values.any(|v| Some(v) != first)
        };
        let (varying, fixed): (Vec<&str>, Vec<&str>) = names.into_iter().partition(differs);
        let first = record.points.first();
        let value = |name| Some((name, first?.parameters.get(name)?));
        // The header already shows the experiment.
        let is_said = |(name, value): &(&str, &Value)| {
            *name == "experiment" && value.as_str() == Some(record.header.experiment.as_str())
        };
        let constant = fixed.into_iter().filter_map(value).filter(|c| !is_said(c)).collect();
        let rows = rows(record, &varying);
        let findings = record.findings.as_deref().unwrap_or_default();
        Self { record, varying, constant, rows, findings }
    }

    /// The points of all rows, in the order of the record.
    fn shown(&self) -> impl Iterator<Item = &'a Point> {
        let is_in_row = |point: &&Point| {
            let mut rows = self.rows.iter().filter(|row| *row.parameters == point.parameters);
            rows.any(|row| row.points.iter().any(|other| std::ptr::eq(*other, *point)))
        };
        self.record.points.iter().filter(move |point| point.is_whole() || is_in_row(point))
    }

    /// The quantities that have samples, in the order in which they first appear.
    pub fn groups(&'a self) -> Vec<Group<'a>> {
        let mut keys: Vec<(Quantity, &str)> = Vec::new();
        // When something happened is no sample of a quantity.
        let of_samples = |s: &&SeriesSummary| !s.quantity.is_of_intervals();
        for series in self.shown().flat_map(|p| &p.series).filter(of_samples) {
            let key = (series.quantity, series.label.as_str());
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let group = |(quantity, label)| {
            let rows = self.rows.iter();
            let rows = rows.filter_map(|r| Some((r, r.merged(quantity, label)?))).collect();
            Group { quantity, label, rows }
        };
        keys.into_iter().map(group).collect()
    }

    /// The figures that there are, in the order in which they first appear.
    pub fn figures(&self) -> Vec<(Quantity, &'a str)> {
        let mut keys: Vec<(Quantity, &str)> = Vec::new();
        for figure in self.shown().flat_map(|p| &p.figures) {
            let key = (figure.quantity, figure.label.as_str());
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    /// The values of a fact: all if there are few, otherwise the ends. Numbers are sorted.
    pub fn fact(&self, name: &str) -> String {
        const FEW: usize = 5;
        let values: BTreeSet<&str> =
            self.record.points.iter().filter_map(|p| p.fact(name)).collect();
        let number = |text: &str| text.parse::<f64>().ok();
        let mut values: Vec<&str> = values.into_iter().collect();
        let in_order = |a: &&str, b: &&str| match (number(a), number(b)) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            (a, b) => b.is_some().cmp(&a.is_some()),
        };
        values.sort_by(in_order);
        let text = |value: &str| {
            let parsed = serde_json::from_str::<Value>(value).ok();
            parsed.filter(Value::is_number).map_or(value.to_owned(), |v| shown(name, &v))
        };
        match values.as_slice() {
            all if all.len() <= FEW => all.iter().map(|v| text(v)).collect::<Vec<_>>().join(" | "),
            [first, .., last] if number(first).is_some() && number(last).is_some() => {
                format!("{} to {}", text(first), text(last))
            }
            [first, rest @ ..] => format!("{} and {} others", text(first), rest.len()),
            [] => String::new(),
        }
    }

    /// Describes a skipped point by the parameters that it does not share with all measured points.
    pub fn skipped_place(&self, skipped: &Skipped) -> String {
        let others = &self.record.skipped;
        let is_shared = |name: &String, value: &Value| match self.record.points.first() {
            None => others.iter().all(|s| s.parameters.get(name) == Some(value)),
            Some(_) if self.varying.contains(&name.as_str()) => false,
            Some(first) => first.parameters.get(name) == Some(value),
        };
        let own = skipped.parameters.iter().filter(|(name, value)| !is_shared(name, value));
        let own: Vec<String> = own.map(|(name, value)| named(name, value)).collect();
        if own.is_empty() { "a point".to_owned() } else { own.join(", ") }
    }

    /// Names of all facts, beginning with those about the packets; without facts that the record's
    /// header or the parameters show, and without those that have no value.
    pub fn facts(&self) -> Vec<&'a str> {
        let points = &self.record.points;
        let told = points.iter().flat_map(|p| &p.facts).filter(|f| f.value != "none");
        let names: BTreeSet<&str> = told.map(|f| f.name.as_str()).collect();
        let is_known = |name: &&str| {
            let is_parameter = points.iter().all(|p| p.parameters.contains_key(*name));
            let is_in_head =
                ["device", "device_kind"].contains(name) || name.starts_with("profile");
            is_in_head || is_parameter && *name != "inline"
        };
        let mut names: Vec<&str> = names.into_iter().filter(|n| !is_known(n)).collect();
        // Faults, captures and the placement of data come first: they influence the numbers most.
        let first = ["faults", "capture", "placement"];
        names.sort_by_key(|name| first.iter().position(|n| n == name).unwrap_or(first.len()));
        names
    }
}

fn rows<'a>(record: &'a Record, varying: &[&str]) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'a>> = Vec::new();
    for point in &record.points {
        match rows.iter_mut().find(|r| *r.parameters == point.parameters) {
            Some(row) => row.points.push(point),
            None => rows.push(Row { parameters: &point.parameters, points: vec![point] }),
        }
    }
    for row in &mut rows {
        // Runs that were cut short do not count if the row has a complete run. Otherwise they are
        // all that can be shown; a warning says so.
        if row.points.iter().any(|point| point.is_whole()) {
            row.points.retain(|point| point.is_whole());
        }
        row.points.sort_by_key(|p| p.repetition);
    }
    // Points ran in random order; reports show them in the order of the plan.
    rows.sort_by(|a, b| {
        let each = varying.iter().map(|n| order(a.parameters.get(*n), b.parameters.get(*n)));
        each.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
    });
    rows
}

impl Row<'_> {
    /// Number of its runs that were cut short.
    pub fn cut_short(&self, record: &Record) -> usize {
        let own = record.points.iter().filter(|point| point.parameters == *self.parameters);
        own.filter(|point| !point.is_whole()).count()
    }

    /// The series of all its runs, merged; `None` if no run has it.
    pub fn merged(&self, quantity: Quantity, label: &str) -> Option<Merged> {
        let each = self.points.iter().filter_map(|p| p.series(quantity, label));
        let summaries: Vec<Summary> = each.map(|s| s.summary.clone()).collect();
        (!summaries.is_empty()).then(|| Merged::of(summaries))
    }

    /// The series of its first run.
    pub fn first_series(&self, quantity: Quantity, label: &str) -> Option<&SeriesSummary> {
        self.points.iter().find_map(|p| p.series(quantity, label))
    }

    /// The median of the figure over its runs; `None` if no run has a number for it.
    pub fn figure(&self, quantity: Quantity, label: &str) -> Option<f64> {
        let figures = self.points.iter().flat_map(|p| &p.figures);
        let mut values: Vec<f64> = figures
            .filter(|f| f.quantity == quantity && f.label == label && f.value.is_finite())
            .map(|f| f.value)
            .collect();
        stats::sort(&mut values);
        (!values.is_empty()).then(|| stats::median(&values))
    }
}

impl Merged {
    fn of(summaries: Vec<Summary>) -> Self {
        let sum = |f: fn(&Summary) -> u64| summaries.iter().map(f).sum::<u64>();
        let mut max_run = 0;
        for (run, summary) in summaries.iter().enumerate() {
            let so_far = summaries[max_run].max;
            if so_far.is_nan() || summary.max > so_far {
                max_run = run;
            }
        }
        let lag1 = summaries.iter().filter_map(|s| s.lag1_autocorrelation);
        let intervals: Option<Vec<_>> =
            summaries.iter().map(|s| s.quantile(0.5).and_then(|q| q.interval)).collect();
        let hull = intervals.map(|all| {
            let low = all.iter().map(|i| i.low).fold(f64::INFINITY, f64::min);
            (low, all.iter().map(|i| i.high).fold(f64::NEG_INFINITY, f64::max))
        });
        let interval = hull.map(|hull| between_runs(&summaries).unwrap_or(hull));
        let is_supported = |s: &Summary| s.quantile(0.5).is_some_and(|q| q.supported);
        Self {
            runs: summaries.len(),
            n: sum(|s| s.n),
            least_n: summaries.iter().map(|s| s.n).min().unwrap_or(0),
            lost: sum(|s| s.lost),
            negative: sum(|s| s.negative),
            min: summaries.iter().map(|s| s.min).fold(f64::NAN, f64::min),
            max: summaries[max_run].max,
            max_index: summaries[max_run].max_index,
            max_run,
            median: middle(summaries.iter().map(Summary::median)),
            is_supported: summaries.iter().all(is_supported),
            interval,
            run_spread: run_spread(&summaries),
            lag1: lag1.max_by(|a, b| a.abs().total_cmp(&b.abs())),
            worth: worth(&summaries),
            effective_n: summaries.iter().map(|s| s.effective_n).sum(),
            summaries,
        }
    }

    /// A quantile that every run's samples support.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let each = self.summaries.iter().map(|s| s.quantile(q).filter(|v| v.supported));
        let values: Option<Vec<f64>> = each.map(|v| v.map(|v| v.value)).collect();
        values.map(|v| middle(v.into_iter()))
    }

    /// The largest samples of all runs whose time is known, the largest first.
    pub fn dated(&self) -> Vec<Outlier> {
        let all = self.summaries.iter().flat_map(|s| &s.largest);
        let mut dated: Vec<Outlier> = all.filter(|one| one.unix_ns.is_some()).copied().collect();
        dated.sort_by(|a, b| b.value.total_cmp(&a.value));
        dated
    }

    /// The width of the median's interval, over the median.
    pub fn relative_width(&self) -> Option<f64> {
        let (low, high) = self.interval?;
        (self.median > 0.0).then(|| (high - low) / self.median)
    }
}

/// The interval of the median over all possible runs; `None` for fewer than six runs.
fn between_runs(summaries: &[Summary]) -> Option<(f64, f64)> {
    let mut medians: Vec<f64> = summaries.iter().map(Summary::median).collect();
    medians.sort_by(f64::total_cmp);
    let is_known = medians.iter().all(|median| !median.is_nan());
    let interval = quantile_interval(&medians, 0.5, 0.95).filter(|_| is_known)?;
    Some((interval.low, interval.high))
}

/// The range of the runs' medians, as a share of their median.
fn run_spread(summaries: &[Summary]) -> Option<f64> {
    let medians = || summaries.iter().map(Summary::median).filter(|m| !m.is_nan());
    let (low, high) = (medians().fold(f64::NAN, f64::min), medians().fold(f64::NAN, f64::max));
    let centre = middle(medians());
    (medians().count() > 1 && centre > 0.0).then(|| (high - low) / centre)
}

fn worth(summaries: &[Summary]) -> Option<f64> {
    let share = |s: &Summary| Some(s.effective_n? / s.n as f64);
    summaries.iter().filter_map(share).min_by(f64::total_cmp)
}

/// The median of the values that are not NaN.
fn middle(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.filter(|v| !v.is_nan()).collect();
    stats::sort(&mut values);
    stats::median(&values)
}

/// The name of a group: the quantity and the label.
pub fn group_name(quantity: Quantity, label: &str) -> String {
    match label {
        "" => quantity.name().to_owned(),
        label => format!("{}, {label}", quantity.name()),
    }
}

/// The headline of a quantity's labels if none was named: the total, then the achieved rate, then
/// another label. The offered rate is an input and no result.
pub fn headline<'a>(labels: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let of = |wanted: &str| labels.clone().find(|label| *label == wanted);
    of("").or_else(|| of("achieved")).or_else(|| labels.clone().find(|l| !is_offered(l)))
}

/// Whether the label is that of a figure that follows from a series of the same point; also for one
/// thread.
pub fn is_derived(label: &str) -> bool {
    label.split(',').next().is_some_and(|what| ["1 / RTT", "size / RTT"].contains(&what))
}

/// Whether the label is that of an offered rate; also for one thread.
fn is_offered(label: &str) -> bool {
    label.split(',').next() == Some("offered")
}

/// `device soft0 (soft: numbers of this host, not of an adapter)`.
pub fn device_line(record: &Record) -> String {
    let device = &record.header.device;
    let disturbed = if is_disturbed(record) { "; disturbed on purpose" } else { "" };
    let others: String = unlike_ends(record).iter().map(|what| format!("; {what}")).collect();
    format!("{} ({}{others}{disturbed})", device.name, device.described())
}

/// Ends with another profile than the record's device, or with none: `rank 1: profile late-ack`,
/// for each profile.
pub fn unlike_ends(record: &Record) -> Vec<String> {
    let own = record.header.device.profile.as_deref().unwrap_or(NO_PROFILE);
    let mut profiles: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for fact in record.points.iter().flat_map(|point| &point.facts) {
        let rank = fact.name.strip_prefix("profile_at_rank_").and_then(|rank| rank.parse().ok());
        if let Some(rank) = rank.filter(|_| fact.value != own) {
            profiles.entry(&fact.value).or_default().insert(rank);
        }
    }
    let one = |(profile, ranks): (&str, BTreeSet<u32>)| {
        let word = plural(ranks.len(), "rank", "ranks");
        let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
        let ranks = and_more(&ranks, NAMED_RANKS);
        match profile {
            NO_PROFILE => format!("{word} {ranks}: no profile"),
            profile => format!("{word} {ranks}: profile {profile}"),
        }
    };
    profiles.into_iter().map(one).collect()
}

/// Whether packets of a point were lost, late or damaged on purpose, at either end.
pub fn is_disturbed(record: &Record) -> bool {
    let mut facts = record.points.iter().flat_map(|point| &point.facts);
    facts.any(|fact| fact.name == "faults" || fact.name.starts_with("faults_at_rank_"))
}

/// Points for tests.
#[cfg(test)]
pub mod test_points {
    use super::*;

    /// A point with these rates only.
    pub fn point(rates: &[(&str, f64)]) -> Point {
        let mut found = rdmalab_measure::Outcome::default();
        rates.iter().for_each(|(label, rate)| found.push_figure(Quantity::Rate, label, *rate));
        Point { elapsed_s: 1.0, figures: found.figures, ..Point::default() }
    }
}

#[cfg(test)]
mod tests {
    use rdmalab_record::{Device, DeviceKind, Header};

    use super::*;

    /// A run of that size, cut short or whole.
    fn run(size_bytes: u64, rate: f64, is_whole: bool) -> Point {
        let mut point = test_points::point(&[("", rate)]);
        point.parameters.insert("size_bytes".to_owned(), size_bytes.into());
        point.cut_short = (!is_whole).then(|| "interrupted".to_owned());
        point
    }

    #[test]
    fn a_run_that_was_cut_short_counts_only_where_there_is_no_other() {
        let device = Device { name: "d".to_owned(), kind: DeviceKind::Soft, profile: None };
        let mut cut = run(8, 900.0, false);
        cut.figures[0].label = "of a cut run only".to_owned();
        let record = Record {
            dir: std::path::PathBuf::new(),
            header: Header::new("blast", Vec::new(), device),
            environment: Object::new(),
            // As after `--resume`: the run was measured again.
            points: vec![cut, run(8, 900.0, false), run(8, 1.0, true), run(64, 5.0, false)],
            skipped: Vec::new(),
            findings: None,
            damaged_points: 0,
            damage: Vec::new(),
        };
        let model = Model::of(&record);
        let rates: Vec<Option<f64>> =
            model.rows.iter().map(|row| row.figure(Quantity::Rate, "")).collect();
        assert_eq!(rates, [Some(1.0), Some(5.0)]);
        assert_eq!(model.figures(), [(Quantity::Rate, "")]);
        let counts: Vec<usize> = model.rows.iter().map(|row| row.cut_short(&record)).collect();
        assert_eq!(counts, [2, 1]);
        let warned = crate::warnings::warnings(&record);
        let beside = "they do not count beside whole runs";
        assert_eq!(warned.iter().filter(|w| w.contains(beside)).count(), 1, "{warned:?}");
        assert!(warned.iter().any(|w| w.starts_with("points 0 and 0 were")), "{warned:?}");
    }

    /// Runs of 100 samples around these medians.
    fn merged(medians: &[f64]) -> Merged {
        let summaries = medians.iter().map(|median| {
            let mut outcome = rdmalab_measure::Outcome::default();
            let samples = (0..100).map(|i| median - 49.5 + f64::from(i)).collect();
            outcome.push_series(Quantity::RoundTrip, "", 0, samples);
            Summary::of(&outcome.series[0])
        });
        Merged::of(summaries.collect())
    }

    #[test]
    fn many_runs_know_the_median_better_than_few() {
        let (low, high) = merged(&[1000.0, 1010.0]).interval.expect("of each run");
        assert!(low < 1000.0 && high > 1010.0, "all that the runs leave open: {low} {high}");
        // Of six runs, the least and the largest; of twenty, the sixth from either end: the median
        // is outside of each with a probability of 2.1 %.
        let of = |n: u32| merged(&(0..n).map(|i| 1000.0 + f64::from(i)).collect::<Vec<_>>());
        assert_eq!(of(6).interval, Some((1000.0, 1005.0)));
        assert_eq!(of(20).interval, Some((1005.0, 1014.0)));
    }
}
