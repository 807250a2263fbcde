//! Two sets of runs side by side: by which factor a quantile differs, how often one side's samples
//! exceed the other's, and what to make of it.

use super::difference::{LEAST_P, RunMeans, logarithms};
use super::samples::{Estimate, Interval, assert_confidence};
use super::student;
use super::timed::{Timed, TimedQuantile};
use crate::Better;

/// How a quantile of `b` relates to that of `a`.
#[derive(Clone, Copy, Debug)]
pub struct QuantileRatio<'a> {
    a: TimedQuantile<'a>,
    b: TimedQuantile<'a>,
}

impl<'a> QuantileRatio<'a> {
    /// Of quantile `q`; `None` where one side has a single block, or a value that is not positive,
    /// of which a ratio says nothing.
    ///
    /// # Panics
    /// When `q` is not strictly between 0 and 1.
    #[must_use]
    pub fn of(a: &'a Timed, b: &'a Timed, q: f64) -> Option<Self> {
        let is_positive = |t: &Timed| t.sorted()[0] > 0.0;
        let (a, b) = (is_positive(a).then_some(a)?, is_positive(b).then_some(b)?);
        Some(Self { a: a.quantile(q)?, b: b.quantile(q)? })
    }

    /// The quantile of the first side.
    #[must_use]
    pub const fn a(&self) -> &TimedQuantile<'a> {
        &self.a
    }

    /// The quantile of the second side.
    #[must_use]
    pub const fn b(&self) -> &TimedQuantile<'a> {
        &self.b
    }

    /// `b` over `a`.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.b.value / self.a.value
    }

    /// The interval of the ratio, from those of the two quantiles (Zou and Donner 2008: on the
    /// logarithms, distances add as squares, each in its own direction). `None` where one of them
    /// has none.
    ///
    /// # Panics
    /// When `confidence` is not strictly between 0 and 1.
    #[must_use]
    pub fn interval(&self, confidence: f64) -> Option<Interval> {
        let (a, b) = (self.a.unrounded(confidence)?, self.b.unrounded(confidence)?);
        // All samples are positive; few are less than the step that was taken off.
        let low = |interval: Interval, least: f64| interval.low.max(least / 2.0);
        let (a_low, b_low) = (low(a, self.a.least()), low(b, self.b.least()));
        let down = (self.b.value / b_low).ln().hypot((a.high / self.a.value).ln());
        let up = (b.high / self.b.value).ln().hypot((self.a.value / a_low).ln());
        let value = self.value();
        Some(Interval { low: value * (-down).exp(), high: value * up.exp(), confidence })
    }

    /// The ratio with its interval.
    ///
    /// # Panics
    /// When `confidence` is not strictly between 0 and 1.
    #[must_use]
    pub fn estimate(&self, confidence: f64) -> Estimate {
        Estimate { value: self.value(), interval: self.interval(confidence) }
    }

    /// Two-sided: 1 - the confidence at which the interval first reaches `ratio`, 1 for "no
    /// difference". At least [`LEAST_P`].
    #[must_use]
    pub fn p_value(&self, ratio: f64) -> f64 {
        let excludes =
            |p: f64| self.interval(1.0 - p).is_some_and(|interval| !interval.covers(ratio));
        // Intervals of higher confidence enclose those of lower: bisection over the exponent.
        let (mut low, mut high) = (LEAST_P.ln(), 0.0f64);
        if excludes(LEAST_P) {
            return LEAST_P;
        }
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            if excludes(middle.exp()) {
                high = middle;
            } else {
                low = middle;
            }
        }
        high.exp()
    }
}

/// The difference `b` - `a` of quantile `q` with its interval: a point of the shift function
/// (Doksum 1974; with the deciles, Wilcox 1995). `None` where one side has a single block.
///
/// # Panics
/// When `q` or `confidence` is not strictly between 0 and 1.
#[must_use]
pub fn shift_at(a: &Timed, b: &Timed, q: f64, confidence: f64) -> Option<Estimate> {
    let (a, b) = (a.quantile(q)?, b.quantile(q)?);
    let value = b.value - a.value;
    let ends = a.unrounded(confidence).zip(b.unrounded(confidence));
    let interval = ends.map(|(of_a, of_b)| Interval {
        low: value - (b.value - of_b.low).hypot(of_a.high - a.value),
        high: value + (of_b.high - b.value).hypot(a.value - of_a.low),
        confidence,
    });
    Some(Estimate { value, interval })
}

/// How often a sample of one side exceeds one of the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dominance {
    /// Cliff's delta (1993): pairs in which `b` is larger minus those in which it is smaller, over
    /// all pairs; -1 ..= 1, 0 when neither tends to be larger.
    pub delta: Estimate,
    /// Two-sided, that it is 0.
    pub p_value: f64,
    /// The statistic, as Brunner and Munzel define it; infinite when the sides do not overlap.
    pub statistic: f64,
    /// Degrees of freedom of Student's t, with which it is compared.
    pub freedom: f64,
}

/// The test of Mann and Whitney as Brunner and Munzel (2000) generalised it: the sides may differ
/// in shape, samples may be equal, and here, by blocks, depend on their neighbours. `None` where
/// one side has a single block.
///
/// # Panics
/// When `confidence` is not strictly between 0 and 1.
#[must_use]
pub fn dominance(a: &Timed, b: &Timed, confidence: f64) -> Option<Dominance> {
    assert_confidence(confidence);
    // P(the other side is below) + P(it is equal) / 2.
    let place = |sorted: &[f64], sample: f64| {
        let below = sorted.partition_point(|v| *v < sample);
        let not_above = below + sorted[below..].partition_point(|v| *v <= sample);
        (below + not_above) as f64 / 2.0 / sorted.len() as f64
    };
    let of_a = a.spread(|s| place(b.sorted(), s))?;
    let of_b = b.spread(|s| place(a.sorted(), s))?;
    let larger = b.sorted().iter().map(|s| place(a.sorted(), *s)).sum::<f64>() / b.n() as f64;
    let spread = of_a.of_difference_to(of_b);
    let freedom = spread.freedom;
    let delta = 2.0 * larger - 1.0;
    let statistic = if delta == 0.0 { 0.0 } else { (larger - 0.5) / spread.variance.sqrt() };
    // However far apart: no arrangement of what counts as independent is rarer than one in all.
    let rarest = 2.0 / arrangements(a.numbers(), b.numbers());
    let p_value = (2.0 * student::upper_tail(statistic.abs(), freedom)).max(rarest).min(1.0);
    let tail = (1.0 - confidence) / 2.0;
    let reach = 2.0 * student::upper_quantile(tail, freedom) * spread.variance.sqrt();
    // Without overlap nothing varies; then as of a share of all (Clopper and Pearson 1934).
    let least = 2.0 * tail.powf(1.0 / a.numbers().min(b.numbers()) as f64) - 1.0;
    let (mut low, mut high) = ((delta - reach).max(-1.0), (delta + reach).min(1.0));
    if delta == 1.0 {
        low = low.min(least);
    } else if delta == -1.0 {
        high = high.max(-least);
    }
    let interval = Some(Interval { low, high, confidence });
    let delta = Estimate { value: delta, interval };
    Some(Dominance { delta, p_value, statistic, freedom })
}

/// In how many ways `m` and `n` things can be told apart: (m + n) over m.
fn arrangements(m: usize, n: usize) -> f64 {
    (1..=m.min(n)).fold(1.0, |all, i| all * (m.max(n) + i) as f64 / i as f64)
}

/// The ratio of means of logarithms, `b` over `a`, with the interval and two-sided p-value of Welch
/// (1947): for single numbers of whole runs, of which there are too few for ranks; the runs of a
/// session stand together, see [`RunRatio`](super::RunRatio). `None` with fewer than two on a side,
/// values that are not positive, or none that differ.
///
/// # Panics
/// When `confidence` is not strictly between 0 and 1.
#[must_use]
pub fn welch_ratio(a: &[Vec<f64>], b: &[Vec<f64>], confidence: f64) -> Option<(Estimate, f64)> {
    assert_confidence(confidence);
    if !a.iter().chain(b).flatten().all(|v| *v > 0.0 && v.is_finite()) {
        return None;
    }
    let found = welch_of(&RunMeans::of(&logarithms(a), 0.0)?, &RunMeans::of(&logarithms(b), 0.0)?)?;
    let reach = student::upper_quantile((1.0 - confidence) / 2.0, found.freedom) * found.deviation;
    let (low, high) = ((found.difference - reach).exp(), (found.difference + reach).exp());
    let interval = Some(Interval { low, high, confidence });
    Some((Estimate { value: found.difference.exp(), interval }, found.p_value))
}

/// The geometric mean of single numbers of whole runs, which stand together as for [`welch_ratio`],
/// so that the ratio of two such means is that ratio; with the interval of Student's t (1908) of
/// the logarithms. `None` with fewer than two numbers, or values that are not positive.
///
/// # Panics
/// When `confidence` is not strictly between 0 and 1.
#[must_use]
pub fn geometric_mean(sessions: &[Vec<f64>], confidence: f64) -> Option<Estimate> {
    assert_confidence(confidence);
    if !sessions.iter().flatten().all(|v| *v > 0.0 && v.is_finite()) {
        return None;
    }
    let found = RunMeans::of(&logarithms(sessions), 0.0)?;
    let t = student::upper_quantile((1.0 - confidence) / 2.0, found.spread.freedom);
    let reach = t * found.spread.variance.sqrt();
    let (low, high) = ((found.mean - reach).exp(), (found.mean + reach).exp());
    let interval = Some(Interval { low, high, confidence }).filter(|i| i.high.is_finite());
    Some(Estimate { value: found.mean.exp(), interval })
}

/// The interval of the mean of independent numbers, by Student's t (1908). `None` below two.
///
/// # Panics
/// When `confidence` is not strictly between 0 and 1.
#[must_use]
pub fn mean_interval(samples: &[f64], confidence: f64) -> Option<Interval> {
    Timed::independent(samples)?.mean(confidence).interval
}

/// The same of numbers of which only the mean, the standard deviation and how many are kept.
///
/// # Panics
/// When `confidence` is not strictly between 0 and 1.
#[must_use]
pub fn mean_interval_of(mean: f64, deviation: f64, n: u64, confidence: f64) -> Option<Interval> {
    assert_confidence(confidence);
    if n < 2 {
        return None;
    }
    let t = student::upper_quantile((1.0 - confidence) / 2.0, (n - 1) as f64);
    let reach = t * deviation / (n as f64).sqrt();
    let is_number = (mean + reach).is_finite();
    is_number.then_some(Interval { low: mean - reach, high: mean + reach, confidence })
}

/// Welch's test of two means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Welch {
    /// Mean of `b` minus mean of `a`.
    pub difference: f64,
    /// Its standard deviation.
    pub deviation: f64,
    /// Degrees of freedom.
    pub freedom: f64,
    /// Two-sided.
    pub p_value: f64,
}

/// The test of Welch (1947) that two means are equal, whatever the variances. `None` with fewer
/// than two samples on a side, or when nothing varies.
#[must_use]
pub fn welch(a: &[f64], b: &[f64]) -> Option<Welch> {
    let side = |samples: &[f64]| RunMeans::of(&[samples.to_vec()], 0.0);
    welch_of(&side(a)?, &side(b)?)
}

fn welch_of(a: &RunMeans, b: &RunMeans) -> Option<Welch> {
    let spread = a.of_difference_to(b);
    let (difference, deviation) = (b.mean - a.mean, spread.variance.sqrt());
    let p_value = 2.0 * student::upper_tail((difference / deviation).abs(), spread.freedom);
    (deviation > 0.0).then_some(Welch { difference, deviation, freedom: spread.freedom, p_value })
}

/// What a comparison says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The second side is better.
    Faster,
    /// The second side is worse.
    Slower,
    /// The second side has more, of what is neither better nor worse.
    More,
    /// The second side has less, of what is neither better nor worse.
    Less,
    /// The interval holds 1, and nothing as far off as the threshold.
    NoDifference,
    /// The interval holds 1, and differences as large as the threshold too; or there is none.
    CannotTell,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Faster, Self::Slower, Self::More, Self::Less, Self::NoDifference, Self::CannotTell];

    /// From the interval of the ratio `b` over `a`; `threshold` is the share that matters, such as
    /// 0.05.
    #[must_use]
    pub fn of(ratio: Option<Interval>, threshold: f64, better: Better) -> Self {
        let Some(ratio) = ratio else { return Self::CannotTell };
        let bound = 1.0 + threshold;
        if !ratio.covers(1.0) {
            match (better, ratio.low > 1.0) {
                (Better::More, true) | (Better::Less, false) => Self::Faster,
                (Better::More, false) | (Better::Less, true) => Self::Slower,
                (Better::Neither, true) => Self::More,
                (Better::Neither, false) => Self::Less,
            }
        } else if ratio.low >= 1.0 / bound && ratio.high <= bound {
            Self::NoDifference
        } else {
            Self::CannotTell
        }
    }

    /// Whether the sides differ, with certainty.
    #[must_use]
    pub const fn is_difference(self) -> bool {
        !matches!(self, Self::NoDifference | Self::CannotTell)
    }

    /// For tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::More => "more",
            Self::Less => "less",
            Self::NoDifference => "no difference seen",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// Whether all of the interval is worse by more than `threshold`: more than "slower". Never of
/// what is neither better nor worse.
#[must_use]
pub fn is_regression(ratio: Option<Interval>, threshold: f64, better: Better) -> bool {
    let bound = 1.0 + threshold;
    ratio.is_some_and(|r| match better {
        Better::More => r.high < 1.0 / bound,
        Better::Less => r.low > bound,
        Better::Neither => false,
    })
}
