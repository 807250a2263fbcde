//! Samples in the order of measurement, of one or several runs, and confidence intervals that hold
//! although neighbouring samples are correlated.
//!
//! The samples are cut into blocks. Whether one exceeds some value is counted in each block, and
//! how these counts differ *between* blocks tells how much the whole knows: the method of batch
//! means (Schmeiser 1982), applied to the indicator as Woodruff (1952) does for the quantiles of
//! clustered surveys. No distribution is assumed, and ends of intervals are samples.

use std::ops::Range;
use std::sync::OnceLock;

use super::difference::MeanVariance;
use super::samples::{Estimate, Interval, assert_confidence, median, quantile, sort};
use super::{binomial, normal, student};

/// From this many runs on, the runs themselves are the blocks, so that every interval includes the
/// differences between runs.
pub const MIN_RUNS: usize = 5;

/// Blocks of fewer runs than [`MIN_RUNS`], in all. More blocks are shorter, and so less
/// independent of each other; fewer are less certain (Schmeiser advises 10 to 30).
const BLOCKS: usize = 24;

/// The units between which the spread was measured.
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
    layout: Layout,
    step: OnceLock<f64>,
}

/// How samples are arranged.
#[derive(Clone, Debug, Default)]
struct Layout {
    /// Each so many samples.
    blocks: Vec<Range<usize>>,
    /// Each so many blocks.
    runs: Vec<Range<usize>>,
    /// Each so many blocks, too.
    sessions: Vec<Range<usize>>,
}

/// Of a block, a run or a session: the sum of its scores, and how many there are.
#[derive(Clone, Copy, Default)]
struct Sum {
    scores: f64,
    n: usize,
}

impl Layout {
    /// Of runs of such lengths, in each session; those of none do not count.
    fn of(sessions: &[Vec<usize>]) -> Self {
        let count = sessions.iter().flatten().filter(|n| **n > 0).count();
        let pieces = if count >= MIN_RUNS { 1 } else { BLOCKS.div_ceil(count.max(1)) };
        let (mut layout, mut end) = (Self::default(), 0);
        for session in sessions {
            let first = layout.blocks.len();
            for length in session.iter().filter(|n| **n > 0) {
                let from = layout.blocks.len();
                layout.blocks.extend(cut(&(end..end + length), pieces));
                layout.runs.push(from..layout.blocks.len());
                end += length;
            }
            if layout.blocks.len() > first {
                layout.sessions.push(first..layout.blocks.len());
            }
        }
        layout
    }

    /// How well the mean of `score` over all samples is known; `None` from a single block.
    fn spread(&self, in_time: &[f64], score: impl Fn(f64) -> f64) -> Option<MeanVariance> {
        let of = |block: &Range<usize>| Sum {
            scores: in_time[block.clone()].iter().map(|&sample| score(sample)).sum(),
            n: block.len(),
        };
        let blocks: Vec<Sum> = self.blocks.iter().map(of).collect();
        let together = |parts: &[Range<usize>]| -> Vec<Sum> {
            parts.iter().map(|part| blocks[part.clone()].iter().copied().sum()).collect()
        };
        // Differences between runs, or sessions, do not show between blocks of one run. They are
        // known only as well as the number of runs, or sessions, allows, even if a few of these
        // happen to be close to each other.
        let wider = [&self.runs, &self.sessions].map(|parts| between(&together(parts)));
        let both = |a: MeanVariance, b: MeanVariance| MeanVariance {
            variance: a.variance.max(b.variance),
            freedom: a.freedom.min(b.freedom),
        };
        Some(wider.into_iter().flatten().fold(between(&blocks)?, both))
    }

    /// How well the share of samples below a quantile is known, `value` among `in_time`.
    fn share_spread(&self, in_time: &[f64], q: f64, value: f64) -> Option<MeanVariance> {
        let share = |is_below: bool| f64::from(u8::from(is_below));
        // Where samples are equal to it, "below" and "not above" differ.
        let below = self.spread(in_time, |s| share(s < value))?;
        let not_above = self.spread(in_time, |s| share(s <= value))?;
        let wider = if not_above.variance > below.variance { not_above } else { below };
        let independent = q * (1.0 - q) / in_time.len() as f64;
        Some(MeanVariance { variance: wider.variance.max(independent), ..wider })
    }
}

impl std::iter::Sum for Sum {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |a, b| Self { scores: a.scores + b.scores, n: a.n + b.n })
    }
}

impl Timed {
    /// The samples of each run in the order of measurement. `None` when there is none; runs
    /// without samples do not count.
    #[must_use]
    pub fn new(runs: &[Vec<f64>]) -> Option<Self> {
        let lengths = runs.iter().map(Vec::len).collect();
        Self::arranged(runs.concat(), Layout::of(&[lengths]))
    }

    /// The samples of the runs of several sessions (records, calls of the program). Every interval
    /// includes the differences between sessions, too.
    #[must_use]
    pub fn of_sessions(sessions: &[Vec<Vec<f64>>]) -> Option<Self> {
        let lengths = |runs: &Vec<Vec<f64>>| runs.iter().map(Vec::len).collect();
        let lengths: Vec<Vec<usize>> = sessions.iter().map(lengths).collect();
        Self::arranged(sessions.iter().flatten().flatten().copied().collect(), Layout::of(&lengths))
    }

    /// Samples that are known to be independent: each is a block of its own.
    #[must_use]
    pub fn independent(samples: &[f64]) -> Option<Self> {
        let blocks: Vec<Range<usize>> = (0..samples.len()).map(|i| i..i + 1).collect();
        let one = || std::iter::once(0..samples.len()).collect();
        Self::arranged(samples.to_vec(), Layout { blocks, runs: one(), sessions: one() })
    }

    fn arranged(in_time: Vec<f64>, layout: Layout) -> Option<Self> {
        let mut sorted = in_time.clone();
        sort(&mut sorted);
        (!in_time.is_empty()).then(|| Self { in_time, sorted, layout, step: OnceLock::new() })
    }

    /// The step of the clock, in the unit of the samples, as far as they show it: the least
    /// distance of two different samples of a run. 0 when all of each run are equal.
    #[must_use]
    pub fn step(&self) -> f64 {
        let samples = |run: &Range<usize>| {
            let blocks = &self.layout.blocks[run.clone()];
            let mut samples: Vec<f64> =
                blocks.iter().flat_map(|block| &self.in_time[block.clone()]).copied().collect();
            sort(&mut samples);
            samples
        };
        let least = || match self.layout.runs.as_slice() {
            [_] => step(&self.sorted),
            runs => runs.iter().filter_map(|run| step(&samples(run))).reduce(f64::min),
        };
        *self.step.get_or_init(|| least().unwrap_or(0.0))
    }

    /// Samples of all runs; at least one.
    #[must_use]
    pub fn n(&self) -> usize {
        self.in_time.len()
    }

    /// Runs that have samples.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.layout.runs.len()
    }

    /// Sessions whose runs have samples.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.layout.sessions.len()
    }

    /// All samples in ascending order.
    #[must_use]
    pub fn sorted(&self) -> &[f64] {
        &self.sorted
    }

    /// The units between which the spread was measured.
    #[must_use]
    pub fn units(&self) -> Units {
        let count = self.layout.blocks.len();
        if self.runs() >= MIN_RUNS { Units::Runs(count) } else { Units::Blocks(count) }
    }

    /// Sessions, else runs, else blocks: whichever of them there are several of.
    pub(super) fn numbers(&self) -> usize {
        match (self.sessions(), self.runs()) {
            (1, 1) => self.layout.blocks.len(),
            (1, runs) => runs,
            (sessions, _) => sessions,
        }
    }

    /// How well the mean of `score` over all samples is known; `None` from a single block.
    pub(super) fn spread(&self, score: impl Fn(f64) -> f64) -> Option<MeanVariance> {
        self.layout.spread(&self.in_time, score)
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
        let value = value_of(&self.sorted, q);
        let spread = self.layout.share_spread(&self.in_time, q, value)?;
        let effective_n = q * (1.0 - q) / spread.variance;
        Some(TimedQuantile { q, value, effective_n, freedom: spread.freedom, timed: self })
    }
}

/// What one run of samples that may depend on each other knows of a quantile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// The effective number of samples: as many independent samples would give the quantile as
    /// precisely.
    pub(crate) effective_n: f64,
    /// As of [`TimedQuantile::interval`], and at least a step of the clock wide.
    pub(crate) interval: Option<Interval>,
}

/// What the samples of one run know of quantile `q`. They are given in the order of measurement,
/// and ascending. `None` from a single block.
pub(crate) fn known(in_time: &[f64], sorted: &[f64], q: f64, confidence: f64) -> Option<Known> {
    let layout = Layout::of(&[vec![in_time.len()]]);
    let spread = layout.share_spread(in_time, q, value_of(sorted, q))?;
    let effective_n = q * (1.0 - q) / spread.variance;
    let interval = interval(sorted, q, effective_n, spread.freedom, confidence);
    let least = if sorted[0] < 0.0 { f64::NEG_INFINITY } else { 0.0 };
    let step = clock_step(sorted).unwrap_or(0.0);
    let widened = |i: Interval| {
        let short = (step - (i.high - i.low)).max(0.0) / 2.0;
        Interval { low: (i.low - short).max(least), high: i.high + short, ..i }
    };
    Some(Known { effective_n, interval: interval.map(widened) })
}

/// The step of the clock that took ascending samples; `None` if they do not show it: at least two
/// pairs of neighbouring values have to be the least distance apart.
fn clock_step(sorted: &[f64]) -> Option<f64> {
    let least = step(sorted)?;
    let is_step = |pair: &[f64]| (pair[1] - pair[0] - least).abs() <= 0.1 * least;
    (sorted.windows(2).filter(|pair| is_step(pair)).count() > 1).then_some(least)
}

/// The interval of a quantile of ascending samples that know as much as `effective_n` independent
/// ones; `freedom` tells how well that number is known.
fn interval(
    sorted: &[f64],
    q: f64,
    effective_n: f64,
    freedom: f64,
    confidence: f64,
) -> Option<Interval> {
    let tail = (1.0 - confidence) / 2.0;
    // The spread between few blocks is itself uncertain: the cost of Student's t, in samples.
    let cost = normal::upper_quantile(tail) / student::upper_quantile(tail, freedom);
    let n = sorted.len() as f64;
    let known = (effective_n * cost * cost).min(n).floor().max(0.0);
    let ranks = binomial::ranks(known as u64, q, tail)?;
    let scale = n / known;
    let low = (ranks.low as f64 * scale).floor().max(1.0) as usize;
    let high = ((ranks.high as f64 * scale).ceil() as usize).min(sorted.len());
    Some(Interval { low: sorted[low - 1], high: sorted[high - 1], confidence })
}

fn value_of(sorted: &[f64], q: f64) -> f64 {
    if q == 0.5 { median(sorted) } else { quantile(sorted, q) }
}

/// `range` in `pieces` of at least two, as equal as can be.
fn cut(range: &Range<usize>, pieces: usize) -> Vec<Range<usize>> {
    let pieces = pieces.min(range.len() / 2).max(1);
    let bound = |i: usize| range.start + range.len() * i / pieces;
    (0..pieces).map(|i| bound(i)..bound(i + 1)).collect()
}

/// The least distance of two different samples of a run, which are ascending; what the conversion
/// from ticks leaves is none.
pub(super) fn step(sorted: &[f64]) -> Option<f64> {
    let apart = sorted.windows(2).map(|pair| (pair[1] - pair[0], pair[1].abs() * 1e-9));
    apart.filter(|(apart, least)| apart > least).map(|(apart, _)| apart).reduce(f64::min)
}

/// How well the mean of all is known, by how its parts differ, each weighted by its length. `None`
/// from a single one.
fn between(parts: &[Sum]) -> Option<MeanVariance> {
    let count = parts.len() as f64;
    let all: Sum = parts.iter().copied().sum();
    let mean = all.scores / all.n as f64;
    let square = |part: &Sum| ((part.scores - mean * part.n as f64) / all.n as f64).powi(2);
    let variance = parts.iter().map(square).sum::<f64>() * count / (count - 1.0);
    (parts.len() > 1).then_some(MeanVariance { variance, freedom: count - 1.0 })
}

/// A quantile of samples that may depend on each other.
#[derive(Clone, Copy, Debug)]
pub struct TimedQuantile<'a> {
    /// Which, 0 .. 1.
    pub q: f64,
    /// Its value; for the median of an even number, the mean of two samples.
    pub value: f64,
    /// The effective number of independent samples: at most the actual number.
    pub effective_n: f64,
    freedom: f64,
    timed: &'a Timed,
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
        interval(self.timed.sorted(), self.q, self.effective_n, self.freedom, confidence)
    }

    /// The least sample.
    pub(super) fn least(&self) -> f64 {
        self.timed.sorted[0]
    }

    /// The interval before the clock rounded it: a step wider at each end, as a time is the
    /// difference of two stamps. Quantiles of neighbouring steps need not differ.
    ///
    /// # Panics
    /// When `confidence` is not strictly between 0 and 1.
    #[must_use]
    pub fn unrounded(&self, confidence: f64) -> Option<Interval> {
        let rounded = self.timed.step();
        let interval = self.interval(confidence)?;
        Some(Interval { low: interval.low - rounded, high: interval.high + rounded, confidence })
    }
}
