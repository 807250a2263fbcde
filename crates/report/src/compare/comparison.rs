//! A comparison: its sides, options and rows.

use rdmalab_measure::Quantity;
use rdmalab_measure::stats::{Dominance, Estimate, Interval, Units, Verdict};
use rdmalab_record::{Object, Point, Record};

/// Probability that none of all intervals of a comparison misses its true value.
pub const CONFIDENCE: f64 = 0.95;

/// What is compared, and how much matters.
#[derive(Clone, Debug)]
pub struct Options {
    /// The quantile that is compared.
    pub quantile: f64,
    /// The share that matters: 0.05 is 5 %.
    pub threshold: f64,
    /// Only quantities whose name or label contains this.
    pub only: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { quantile: 0.5, threshold: 0.05, only: None }
    }
}

/// One side: records that count as runs of the same thing.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// What it is called: a condition, a directory.
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
    /// What differs between the sides as a whole: name, and both values.
    pub(super) differing: Vec<(String, String, String)>,
    /// Parameters by which points were matched.
    pub(super) varying: Vec<String>,
    /// Pairs, in the order of quantities and parameters.
    pub(super) rows: Vec<Row>,
    /// Points without a partner, of each side.
    pub(super) alone: [usize; 2],
    /// What makes it doubtful.
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
    /// `b` over `a`, with an interval of [`CONFIDENCE`] for all rows together; none where nothing
    /// is known of how runs differ.
    pub(super) ratio: Option<Estimate>,
    /// Where one run a side is all there is: where its samples alone see the ratio.
    pub(super) within: Option<Interval>,
    /// The p-value of no difference, corrected for the number of rows.
    pub(super) p_value: Option<f64>,
    /// Of single pairs of samples; with an interval of its own.
    pub(super) dominance: Option<Dominance>,
    /// `b` - `a` at the deciles, each with its own interval; of samples within one run where
    /// there is only one.
    pub(super) deciles: Vec<Estimate>,
    pub(super) verdict: Verdict,
    pub(super) is_regression: bool,
    /// Why there is no verdict, where the interval does not say so.
    pub(super) obstacle: Option<String>,
}

/// The runs of a side, summarised.
#[derive(Clone, Debug, Default)]
pub(super) struct SideSummary {
    /// Records that have runs: where there are several, each counts as one number.
    pub(super) records: usize,
    pub(super) runs: usize,
    pub(super) n: usize,
    pub(super) lost: u64,
    /// NaN when there is none.
    pub(super) value: f64,
    pub(super) interval: Option<Interval>,
    pub(super) effective_n: Option<f64>,
    pub(super) units: Option<Units>,
    /// How far all its values may be off together because the clocks of two hosts differ.
    pub(super) clock_error_ns: f64,
}

/// Points of equal parameters of one side.
pub(super) struct PointGroup<'a> {
    pub(super) parameters: &'a Object,
    pub(super) points: Vec<(&'a Record, &'a Point)>,
}

/// A comparison that has yet to be made.
pub(super) struct Pair<'a> {
    pub(super) place: Object,
    pub(super) quantity: Quantity,
    pub(super) label: &'a str,
    pub(super) is_figure: bool,
    pub(super) cells: [&'a PointGroup<'a>; 2],
}

/// Runs that were cut short.
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
