//! Samples in the order of measurement, of one or several runs, and what they say for certain
//! although neighbours depend on each other.
//!
//! The samples are cut into blocks. Whether one exceeds some value is counted in each block, and
//! how these counts differ *between* blocks tells how much the whole knows: the method of batch
//! means (Schmeiser 1982), applied to the indicator as Woodruff (1952) does for the quantiles of
//! clustered surveys. No distribution is assumed, and ends of intervals are samples.

use std::ops::Range;

use super::{
    Estimate, Interval, assert_confidence, binomial, median, normal, quantile, sort, student,
};

/// From so many runs on, the runs themselves are the blocks: what differs from run to run is then
/// in every interval.
pub const MIN_RUNS: usize = 5;

/// Blocks of fewer runs than [`MIN_RUNS`], in all. More blocks are shorter, and so less
/// independent of each other; fewer are less certain (Schmeiser advises 10 to 30).
const BLOCKS: usize = 24;

/// What counted as independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    /// So many runs.
    Runs(usize),
    /// So many blocks of successive samples.
    Blocks(usize),
}

/// Samples of one or several runs. NaN is not among them.
#[derive(Clone, Debug)]
pub struct Timed {
    /// All runs, one behind the other.
    in_time: Vec<f64>,
    /// The same, ascending.
    sorted: Vec<f64>,
    runs: Vec<Range<usize>>,
    blocks: Vec<Range<usize>>,
    step: f64,
}

/// How well a mean is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    /// Of the mean itself, not of what it is the mean of.
    pub variance: f64,
    /// Degrees of freedom.
    pub freedom: f64,
}

impl Timed {
    /// The samples of each run in the order of measurement. `None` when there is none; runs
    /// without samples do not count.
    #[must_use]
    pub fn new(runs: &[Vec<f64>]) -> Option<Self> {
        let mut timed = Self::whole(runs)?;
        if timed.runs.len() >= MIN_RUNS {
            timed.blocks.clone_from(&timed.runs);
        } else {
            let each = BLOCKS.div_ceil(timed.runs.len());
            timed.blocks = timed.runs.iter().flat_map(|run| cut(run, each)).collect();
        }
        Some(timed)
    }

    /// Samples that are known to be independent: each is a block of its own.
    #[must_use]
    pub fn independent(samples: &[f64]) -> Option<Self> {
        let mut timed = Self::whole(&[samples.to_vec()])?;
        timed.blocks = (0..samples.len()).map(|i| i..i + 1).collect();
        Some(timed)
    }

    fn whole(runs: &[Vec<f64>]) -> Option<Self> {
        let in_time = runs.concat();
        let mut sorted = in_time.clone();
        sort(&mut sorted);
        let mut end = 0;
        let mut ranges = Vec::new();
        for run in runs.iter().filter(|run| !run.is_empty()) {
            ranges.push(end..end + run.len());
            end += run.len();
        }
        let step = runs.iter().filter_map(|run| step(run)).reduce(f64::min).unwrap_or(0.0);
        (end > 0).then(|| Self { in_time, sorted, runs: ranges, blocks: Vec::new(), step })
    }

    /// The step of the clock, in the unit of the samples, as far as they show it: the least
    /// distance of two different samples of a run. 0 when all of each run are equal.
    #[must_use]
    pub const fn step(&self) -> f64 {
        self.step
    }

    /// Samples of all runs; at least one.
    #[must_use]
    pub fn n(&self) -> usize {
        self.in_time.len()
    }

    /// Runs that have samples.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// All samples in ascending order.
    #[must_use]
    pub fn sorted(&self) -> &[f64] {
        &self.sorted
    }

    /// What counts as independent.
    #[must_use]
    pub fn units(&self) -> Units {
        let count = self.blocks.len();
        if self.runs.len() >= MIN_RUNS { Units::Runs(count) } else { Units::Blocks(count) }
    }

    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// How well the mean of `score` over all samples is known; `None` from a single block.
    pub(super) fn spread(&self, score: impl Fn(f64) -> f64) -> Option<Spread> {
        let scores: Vec<f64> = self.in_time.iter().map(|&sample| score(sample)).collect();
        let between = between(&scores, &self.blocks)?;
        // Too few runs to be the blocks; yet what is seen between them is not less than it is.
        let runs = between_variance(&scores, &self.runs).unwrap_or(0.0);
        Some(Spread { variance: between.variance.max(runs), ..between })
    }

    /// The arithmetic mean, with an interval of Student's t over the blocks.
    ///
    /// # Panics
    /// When `confidence` is not strictly between 0 and 1.
    #[must_use]
    pub fn mean(&self, confidence: f64) -> Estimate {
        assert_confidence(confidence);
        let value = self.in_time.iter().sum::<f64>() / self.n() as f64;
        let interval = self.spread(|sample| sample).map(|spread| {
            let t = student::upper_quantile((1.0 - confidence) / 2.0, spread.freedom);
            let reach = t * spread.variance.sqrt();
            Interval { low: value - reach, high: value + reach, confidence }
        });
        Estimate { value, interval }
    }

    /// Quantile `q` of all runs, ready for intervals. `None` from a single block.
    ///
    /// # Panics
    /// When `q` is not strictly between 0 and 1.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<TimedQuantile<'_>> {
        assert!(q > 0.0 && q < 1.0, "a quantile with an interval lies within 0 .. 1, not {q}");
        let value = if q == 0.5 { median(&self.sorted) } else { quantile(&self.sorted, q) };
        let share = |is_below: bool| f64::from(u8::from(is_below));
        // Where samples are equal to it, "below" and "not above" differ.
        let below = self.spread(|s| share(s < value))?;
        let not_above = self.spread(|s| share(s <= value))?;
        let independent = q * (1.0 - q) / self.n() as f64;
        let variance = below.variance.max(not_above.variance).max(independent);
        let effective_n = q * (1.0 - q) / variance;
        let freedom = below.freedom;
        Some(TimedQuantile {
            q,
            value,
            effective_n,
            freedom,
            sorted: &self.sorted,
            step: self.step,
        })
    }
}

/// `range` in `pieces` of at least two, as equal as can be.
fn cut(range: &Range<usize>, pieces: usize) -> Vec<Range<usize>> {
    let pieces = pieces.min(range.len() / 2).max(1);
    let bound = |i: usize| range.start + range.len() * i / pieces;
    (0..pieces).map(|i| bound(i)..bound(i + 1)).collect()
}

/// The least distance of two different samples; what the conversion from ticks leaves is none.
pub(super) fn step(run: &[f64]) -> Option<f64> {
    let mut sorted = run.to_vec();
    sort(&mut sorted);
    let apart = sorted.windows(2).map(|pair| (pair[1] - pair[0], pair[1].abs() * 1e-9));
    apart.filter(|(apart, least)| apart > least).map(|(apart, _)| apart).reduce(f64::min)
}

fn between(scores: &[f64], blocks: &[Range<usize>]) -> Option<Spread> {
    let variance = between_variance(scores, blocks)?;
    Some(Spread { variance, freedom: blocks.len() as f64 - 1.0 })
}

/// The variance of the mean of all blocks, each weighted by its length.
fn between_variance(scores: &[f64], blocks: &[Range<usize>]) -> Option<f64> {
    let count = blocks.len() as f64;
    if blocks.len() < 2 {
        return None;
    }
    let total: usize = blocks.iter().map(Range::len).sum();
    let of = |block: &Range<usize>| scores[block.clone()].iter().sum::<f64>();
    let mean = blocks.iter().map(of).sum::<f64>() / total as f64;
    let square = |block: &Range<usize>| {
        let deviation = (of(block) - mean * block.len() as f64) / total as f64;
        deviation * deviation
    };
    Some(blocks.iter().map(square).sum::<f64>() * count / (count - 1.0))
}

/// A quantile of samples that may depend on each other.
#[derive(Clone, Copy, Debug)]
pub struct TimedQuantile<'a> {
    /// Which, 0 .. 1.
    pub q: f64,
    /// Its value; for the median of an even number, the mean of two samples.
    pub value: f64,
    /// So many independent samples would know it as well: at most those that there are.
    pub effective_n: f64,
    freedom: f64,
    sorted: &'a [f64],
    step: f64,
}

impl TimedQuantile<'_> {
    /// An interval that covers the true quantile with probability `confidence` or more, as far as
    /// blocks are independent. `None` where no sample lies far enough out.
    ///
    /// # Panics
    /// When `confidence` is not strictly between 0 and 1.
    #[must_use]
    pub fn interval(&self, confidence: f64) -> Option<Interval> {
        assert_confidence(confidence);
        let tail = (1.0 - confidence) / 2.0;
        // Blocks know their own spread only so well: what t costs, in samples.
        let z = normal::upper_quantile(tail);
        let cost = z / student::upper_quantile(tail, self.freedom);
        let n = self.sorted.len() as f64;
        let known = (self.effective_n * cost * cost).min(n).floor().max(0.0);
        let ranks = binomial::ranks(known as u64, self.q, tail)?;
        let scale = n / known;
        let low = (ranks.low as f64 * scale).floor().max(1.0) as usize;
        let high = ((ranks.high as f64 * scale).ceil() as usize).min(self.sorted.len());
        Some(Interval { low: self.sorted[low - 1], high: self.sorted[high - 1], confidence })
    }

    /// The least sample.
    pub(super) fn least(&self) -> f64 {
        self.sorted[0]
    }

    /// The interval before the clock rounded it: a step wider at each end, as a time is the
    /// difference of two stamps. Quantiles of neighbouring steps need not differ.
    ///
    /// # Panics
    /// When `confidence` is not strictly between 0 and 1.
    #[must_use]
    pub fn unrounded(&self, confidence: f64) -> Option<Interval> {
        let rounded = self.step;
        let interval = self.interval(confidence)?;
        Some(Interval { low: interval.low - rounded, high: interval.high + rounded, confidence })
    }
}
