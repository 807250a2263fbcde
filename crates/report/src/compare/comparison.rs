//! A comparison: its sides, options and rows.

use rdmalab_measure::Quantity;
use rdmalab_measure::stats::{Dominance, Estimate, Interval, Units, Verdict};
use rdmalab_record::{Object, Point, Record};

/// Probability that all intervals of a comparison contain their true values.
pub const CONFIDENCE: f64 = 0.95;

/// Options: what is compared, and which difference matters.
#[derive(Clone, Debug)]
pub struct Options {
    /// The quantile that is compared.
    pub quantile: f64,
    /// The smallest difference that matters, as a share: 0.05 is 5 %.
    pub threshold: f64,
    /// Only quantities whose name or label contains this.
    pub only: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { quantile: 0.5, threshold: 0.05, only: None }
    }
}

/// One side: records that count as runs under the same conditions.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// Its name: a condition or a directory.
    pub name: &'a str,
    /// Its records; at least one.
    pub records: &'a [Record],
}

/// A comparison of two sides.
#[derive(Clone, Debug)]
pub struct Comparison {
    pub(super) options: Options,
    pub(super) names: [String; 2],
    pub(super) descriptions: [String; 2],
    /// Differences between the sides as a whole: name, and both values.
    pub(super) differing: Vec<(String, String, String)>,
    /// Parameters by which points were matched.
    pub(super) varying: Vec<String>,
    /// Pairs, in the order of quantities and parameters.
    pub(super) rows: Vec<Row>,
    /// Number of points without a partner, for each side.
    pub(super) alone: [usize; 2],
    /// Reasons to doubt the comparison.
    pub(super) cautions: Vec<String>,
}

/// One quantity at one pair of points.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// The values of the parameters by which points were matched.
    pub(super) place: Object,
    pub(super) quantity: Quantity,
    pub(super) label: String,
    pub(super) a: SideSummary,
    pub(super) b: SideSummary,
    /// `b` over `a`, with an interval of [`CONFIDENCE`] for all rows together; no interval if the
    /// difference between runs is unknown.
    pub(super) ratio: Option<Estimate>,
    /// If a side has only one run: the interval of the ratio from the samples of the runs.
    pub(super) within: Option<Interval>,
    /// The p-value of no difference, corrected for the number of rows.
    pub(super) p_value: Option<f64>,
    /// The comparison of single pairs of samples, with its own interval.
    pub(super) dominance: Option<Dominance>,
    /// `b` - `a` at the deciles, each with its own interval; from samples within a run if there is
    /// only one.
    pub(super) deciles: Vec<Estimate>,
    /// Whether the values of both sides are means over runs, see [`SideSummary::value`].
    pub(super) is_of_means: bool,
    pub(super) verdict: Verdict,
    pub(super) is_regression: bool,
    /// The reason why there is no verdict, unless the interval is the reason.
    pub(super) obstacle: Option<String>,
}

/// The runs of a side, summarised.
#[derive(Clone, Debug, Default)]
pub(super) struct SideSummary {
    /// Number of records with runs; if there are several, each counts as one number.
    pub(super) records: usize,
    pub(super) runs: usize,
    pub(super) n: usize,
    pub(super) lost: u64,
    /// Of several runs, the geometric mean of their numbers, so that the quotient of two sides is
    /// their ratio; else the number of all. NaN if there is none.
    pub(super) value: f64,
    pub(super) interval: Option<Interval>,
    pub(super) effective_n: Option<f64>,
    pub(super) units: Option<Units>,
    /// How far all values may be off in the same direction because the clocks of two hosts differ.
    pub(super) clock_error_ns: f64,
}

/// Points of one side with equal parameters.
pub(super) struct PointGroup<'a> {
    pub(super) parameters: &'a Object,
    pub(super) points: Vec<(&'a Record, &'a Point)>,
}

/// Two points before they are compared.
pub(super) struct Pair<'a> {
    pub(super) place: Object,
    pub(super) quantity: Quantity,
    pub(super) label: &'a str,
    pub(super) is_figure: bool,
    pub(super) cells: [&'a PointGroup<'a>; 2],
}

/// Number of runs that were cut short.
pub(super) fn cut_short(records: &[Record]) -> usize {
    let points = records.iter().flat_map(|record| &record.points);
    points.filter(|point| !point.is_whole()).count()
}

/// All names of parameters, in the order of the records.
pub(super) fn names<'a>(sides: &[Vec<PointGroup<'a>>; 2]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for name in sides.iter().flatten().flat_map(|cell| cell.parameters.keys()) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names
}
