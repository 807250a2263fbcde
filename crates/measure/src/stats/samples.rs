//! Samples of one distribution: their order, quantiles, and intervals of these.

use super::binomial;

/// Samples that must be expected on the thinner side of a quantile before it is shown.
pub const MIN_BEYOND: f64 = 10.0;

/// A confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end, included.
    pub low: f64,
    /// Upper end, included.
    pub high: f64,
    /// The probability that such an interval covers the true value: at least what was asked for,
    /// as ranks are whole numbers. (Of a normal approximation: what was asked for.)
    pub confidence: f64,
}

impl Interval {
    /// Whether `value` lies within.
    #[must_use]
    pub fn covers(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// An estimate, with its interval where the number of samples allows one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate itself.
    pub value: f64,
    /// `None` when even the outermost samples do not enclose the true value with the confidence
    /// asked for.
    pub interval: Option<Interval>,
}

impl Estimate {
    /// A number that is known exactly.
    #[must_use]
    pub const fn exactly(value: f64) -> Self {
        Self { value, interval: None }
    }

    /// The estimate and its interval, both multiplied by `factor`.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        let scaled = |i: Interval| Interval { low: i.low * factor, high: i.high * factor, ..i };
        Self { value: self.value * factor, interval: self.interval.map(scaled) }
    }
}

/// Flat, as documents have it: `value`, and `low`, `high` and `confidence`, which are null where
/// there is no interval.
impl serde::Serialize for Estimate {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut fields = to.serialize_struct("Estimate", 4)?;
        fields.serialize_field("value", &self.value)?;
        fields.serialize_field("low", &self.interval.map(|i| i.low))?;
        fields.serialize_field("high", &self.interval.map(|i| i.high))?;
        fields.serialize_field("confidence", &self.interval.map(|i| i.confidence))?;
        fields.end()
    }
}

/// Puts samples in ascending order.
pub fn sort(samples: &mut [f64]) {
    samples.sort_unstable_by(f64::total_cmp);
}

/// The median: the middle sample, or the mean of the two in the middle. NaN when there is none.
#[must_use]
pub fn median(sorted: &[f64]) -> f64 {
    let n = sorted.len();
    match n {
        0 => f64::NAN,
        _ if n % 2 == 1 => sorted[n / 2],
        _ => sorted[n / 2 - 1].midpoint(sorted[n / 2]),
    }
}

/// The smallest sample that at least `q` of all samples do not exceed: always a value that was
/// measured (type 1 of Hyndman and Fan). NaN when there is none.
///
/// # Panics
/// When `q` is not within 0 ..= 1.
#[must_use]
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    assert!((0.0..=1.0).contains(&q), "a quantile lies within 0 ..= 1, not {q}");
    match rank_of(sorted.len() as u64, q) {
        Some(rank) => sorted[rank as usize - 1],
        None => f64::NAN,
    }
}

/// The rank, from 1, of quantile `q` among `n` samples; `None` when there are none.
pub(super) fn rank_of(n: u64, q: f64) -> Option<u64> {
    // 0.9999 of 100 000 is rank 99 990, though the product of the floats lies a hair above.
    let hair = n as f64 * 4.0 * f64::EPSILON;
    let rank = (q * n as f64 - hair).ceil().max(1.0) as u64;
    (n > 0).then(|| rank.min(n))
}

/// Whether `n` samples are enough to show quantile `q`: [`MIN_BEYOND`] samples or more are expected
/// on each side of it. So the median needs 20, the 99th percentile 1000, the 99.99th 100 000; the
/// minimum and the maximum are never quantiles of the distribution (say "the largest of n").
///
/// With 10 expected beyond, the count beyond is 10 +- 3.2, and the 95 % interval still ends inside
/// the samples (that needs 4 of them); with 1 it is a single accident.
#[must_use]
pub fn supports_quantile(n: u64, q: f64) -> bool {
    // The tolerance is for 1 - 0.9999, which no float holds exactly.
    (0.0..=1.0).contains(&q) && n as f64 * q.min(1.0 - q) >= MIN_BEYOND * (1.0 - 1e-9)
}

/// A confidence interval of quantile `q`, by order statistics: the ends are samples, whose ranks
/// come from the exact binomial distribution, each tail with at most half of 1 - `confidence`.
/// `None` when no sample lies far enough out.
///
/// # Panics
/// When `q` or `confidence` is not strictly between 0 and 1.
#[must_use]
pub fn quantile_interval(sorted: &[f64], q: f64, confidence: f64) -> Option<Interval> {
    assert!(q > 0.0 && q < 1.0, "a quantile with an interval lies within 0 .. 1, not {q}");
    assert_confidence(confidence);
    let ranks = binomial::ranks(sorted.len() as u64, q, (1.0 - confidence) / 2.0)?;
    Some(Interval {
        low: sorted[ranks.low as usize - 1],
        high: sorted[ranks.high as usize - 1],
        confidence: ranks.confidence,
    })
}

/// The median with its interval. The value is NaN when there is no sample.
///
/// # Panics
/// When `confidence` is not strictly between 0 and 1.
#[must_use]
pub fn median_estimate(sorted: &[f64], confidence: f64) -> Estimate {
    Estimate { value: median(sorted), interval: quantile_interval(sorted, 0.5, confidence) }
}

/// Median absolute deviation from the median, not scaled: half of all samples are nearer to the
/// median than this. NaN when there is no sample.
#[must_use]
pub fn mad(sorted: &[f64]) -> f64 {
    let middle = median(sorted);
    let mut deviations: Vec<f64> = sorted.iter().map(|s| (s - middle).abs()).collect();
    sort(&mut deviations);
    median(&deviations)
}

/// How much a sample says about the next one: the correlation of the *ranks* of neighbours in
/// time, -1 ..= 1, so that a few huge samples do not decide it. Near 0 (within 2 / sqrt(n))
/// intervals may be taken at their word; else repeat whole runs. `None`
/// for fewer than 3 samples, or when all are equal.
#[must_use]
pub fn lag1_autocorrelation(in_time: &[f64]) -> Option<f64> {
    let n = in_time.len();
    if n < 3 {
        return None;
    }
    let centre = (n as f64 + 1.0) / 2.0;
    let ranks = mid_ranks(in_time);
    let deviations: Vec<f64> = ranks.iter().map(|r| r - centre).collect();
    let variance: f64 = deviations.iter().map(|d| d * d).sum();
    let covariance: f64 = deviations.windows(2).map(|w| w[0] * w[1]).sum();
    (variance > 0.0).then(|| covariance / variance)
}

/// The rank of each sample, from 1; equal samples share the mean of their ranks.
pub(super) fn mid_ranks(samples: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..samples.len()).collect();
    order.sort_unstable_by(|&a, &b| samples[a].total_cmp(&samples[b]));
    let mut ranks = vec![0.0; samples.len()];
    let mut below = 0;
    for equal in order.chunk_by(|&a, &b| samples[a] == samples[b]) {
        let rank = below as f64 + (equal.len() as f64 + 1.0) / 2.0;
        equal.iter().for_each(|&i| ranks[i] = rank);
        below += equal.len();
    }
    ranks
}

pub(super) fn assert_confidence(confidence: f64) {
    assert!(
        confidence > 0.0 && confidence < 1.0,
        "a confidence lies within 0 .. 1, not {confidence}"
    );
}
