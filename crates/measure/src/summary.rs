//! The summary of a series for records and reports: pure functions, with the same result for both.

use crate::outcome::Series;
use crate::stats::{self, Interval};

/// Quantiles that every summary holds, supported by the number of samples or not.
pub const QUANTILES: [f64; 12] =
    [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999];

/// Confidence of all intervals of a summary.
pub const CONFIDENCE: f64 = 0.95;

/// One quantile of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantile {
    /// Which, 0 .. 1.
    pub q: f64,
    /// A sample (for the median of an even number, the mean of two), in the series' unit.
    pub value: f64,
    /// It holds although neighbouring samples depend on each other, see [`stats::Timed`], and is at
    /// least a step of the clock wide. `None` when no sample lies far enough out.
    pub interval: Option<Interval>,
    /// Whether there are samples enough to speak of it, see [`stats::supports_quantile`]. A value
    /// that is not supported is an accident of this run: show "n too small" instead.
    pub supported: bool,
}

/// One of the largest samples of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outlier {
    /// Where it stands in the series, from 0, the warm-up included.
    pub index: u64,
    /// Its value, in the series' unit.
    pub value: f64,
    /// When it was taken, in nanoseconds since 1970; `None` where nobody knows.
    pub unix_ns: Option<u64>,
}

/// The numbers that stand for a series. All values are in the series' unit; NaN where there is no
/// sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Samples that count: neither warm-up nor lost.
    pub n: u64,
    /// Samples kept apart at the beginning.
    pub warm_up: u64,
    /// Messages that did not arrive, after the warm-up.
    pub lost: u64,
    /// Samples below zero: a one-way time that two clocks disagree on.
    pub negative: u64,
    /// The least.
    pub min: f64,
    /// The largest: nothing is trimmed.
    pub max: f64,
    /// Where the largest stands in the series, from 0, the warm-up included; the first if several.
    pub max_index: Option<u64>,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation, with n - 1; NaN below two samples.
    pub stdev: f64,
    /// The effective number of samples: as many independent samples would give the median as
    /// precisely as these correlated ones do, see [`stats::Timed`]. `None` for fewer than four.
    pub effective_n: Option<f64>,
    /// The largest samples that count, the largest first.
    pub largest: Vec<Outlier>,
    /// Rank correlation of neighbours, see [`stats::lag1_autocorrelation`].
    pub lag1_autocorrelation: Option<f64>,
    /// One entry for each of [`QUANTILES`], in that order; none when there is no sample.
    pub quantiles: Vec<Quantile>,
}

impl Summary {
    /// The summary of a series.
    #[must_use]
    pub fn of(series: &Series) -> Self {
        let in_time: Vec<f64> = series.counted().collect();
        let n = in_time.len() as u64;
        let warm_up = series.warm_up.min(series.samples.len());
        let mut sorted = in_time.clone();
        stats::sort(&mut sorted);
        let max = sorted.last().copied().unwrap_or(f64::NAN);
        let is_largest = |&(_, s): &(usize, &f64)| *s == max;
        let max_index = series.samples.iter().enumerate().skip(warm_up).find(is_largest);
        let mean = in_time.iter().sum::<f64>() / n as f64;
        let squares: f64 = in_time.iter().map(|s| (s - mean) * (s - mean)).sum();
        Self {
            n,
            warm_up: warm_up as u64,
            lost: (series.samples.len() - warm_up) as u64 - n,
            negative: in_time.iter().filter(|s| **s < 0.0).count() as u64,
            min: sorted.first().copied().unwrap_or(f64::NAN),
            max,
            max_index: max_index.map(|(i, _)| i as u64),
            mean,
            stdev: if n > 1 { (squares / (n - 1) as f64).sqrt() } else { f64::NAN },
            effective_n: stats::known(&in_time, &sorted, 0.5, CONFIDENCE).map(|k| k.effective_n),
            largest: largest(series),
            lag1_autocorrelation: stats::lag1_autocorrelation(&in_time),
            quantiles: quantiles(&in_time, &sorted),
        }
    }

    /// That quantile; `None` when it is not one of [`QUANTILES`] or there is no sample.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<&Quantile> {
        self.quantiles.iter().find(|one| (one.q - q).abs() < 1e-12)
    }

    /// The median, however few the samples.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.quantile(0.5).map_or(f64::NAN, |m| m.value)
    }

    /// Width of the median's interval over the median: how well the typical value is known.
    #[must_use]
    pub fn relative_width(&self) -> Option<f64> {
        let median = self.quantile(0.5)?;
        let interval = median.interval?;
        (median.value > 0.0).then(|| (interval.high - interval.low) / median.value)
    }
}

fn largest(series: &Series) -> Vec<Outlier> {
    let one = |index: usize| Outlier {
        index: index as u64,
        value: series.samples[index],
        unix_ns: series.dated.iter().find(|d| d.index == index as u64).and_then(|d| d.unix_ns),
    };
    series.largest().into_iter().map(one).collect()
}

fn quantiles(in_time: &[f64], sorted: &[f64]) -> Vec<Quantile> {
    if sorted.is_empty() {
        return Vec::new();
    }
    let one = |q| Quantile {
        q,
        value: if q == 0.5 { stats::median(sorted) } else { stats::quantile(sorted, q) },
        interval: stats::known(in_time, sorted, q, CONFIDENCE).and_then(|known| known.interval),
        supported: stats::supports_quantile(sorted.len() as u64, q),
    };
    QUANTILES.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quantity;

    fn summary(warm_up: usize, samples: Vec<f64>) -> Summary {
        let mut outcome = crate::Outcome::default();
        outcome.push_series(Quantity::OneWay, "", warm_up, samples);
        Summary::of(&outcome.series[0])
    }

    #[test]
    fn warm_up_losses_and_negatives_are_counted_apart() {
        let found = summary(2, vec![900.0, 800.0, -1.0, f64::NAN, 5.0, 7.0, 7.0, f64::NAN]);
        assert_eq!((found.n, found.warm_up, found.lost, found.negative), (4, 2, 2, 1));
        assert_eq!((found.min, found.max, found.max_index), (-1.0, 7.0, Some(5)));
        assert_eq!((found.mean, found.median()), (4.5, 6.0));
        // Deviations 5.5, 0.5, 2.5, 2.5: squares 43 over 3.
        assert!((found.stdev - (43.0f64 / 3.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn nothing_measured_is_no_number() {
        for (warm_up, samples) in
            [(0, vec![]), (5, vec![1.0, 2.0]), (0, vec![f64::NAN]), (usize::MAX, vec![1.0])]
        {
            let found = summary(warm_up, samples);
            assert!(found.n == 0 && found.median().is_nan() && found.max.is_nan());
            assert_eq!((found.max_index, found.relative_width()), (None, None));
        }
        let one = summary(0, vec![3.0]);
        assert!(one.stdev.is_nan() && one.max == 3.0 && one.median() == 3.0);
    }

    #[test]
    fn a_quantile_beyond_the_samples_is_marked() {
        // In an order without a trend, and without memory.
        let thousand = summary(0, (0..1000).map(|i| f64::from(i * 7919 % 1000)).collect());
        let is_supported = |q| thousand.quantile(q).unwrap().supported;
        assert!(is_supported(0.5) && is_supported(0.99) && !is_supported(0.999));
        assert_eq!(thousand.quantile(0.99).unwrap().value, 989.0);
        assert_eq!(thousand.quantile(0.1).map(|q| (q.value, q.supported)), Some((99.0, true)));
        assert!(thousand.quantile(0.42).is_none());
        let width = thousand.relative_width().unwrap();
        assert!(width > 0.05 && width < 0.3, "{width}");
    }
}
