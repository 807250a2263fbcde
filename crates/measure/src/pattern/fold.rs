//! Scores of a series, folded with a period.

use std::f64::consts::LN_2;

use super::chance::{ln_chi_squared_tail, ln_normal_tail, normal_quantile};
use libm::log;

/// Normal scores of the ranks among all samples; 0 for NaN. `None` where fewer than two samples are
/// there.
pub fn scores(samples: &[f64]) -> Option<Vec<f64>> {
    let there = samples.iter().filter(|s| !s.is_nan()).count();
    (there >= 2).then(|| scores_within(samples, 1))
}

/// Normal scores of the ranks among the samples of the same place of a period: whatever depends on
/// the place is gone, its spread included.
///
/// Ties are broken by a hash of the index: the same series gives the same scores, and equal samples
/// are in no order that has to do with any period.
pub fn scores_within(samples: &[f64], period: usize) -> Vec<f64> {
    let mut scores = vec![0.0; samples.len()];
    let mut order: Vec<usize> = Vec::with_capacity(samples.len() / period + 1);
    for place in 0..period {
        order.clear();
        order.extend((place..samples.len()).step_by(period).filter(|i| !samples[*i].is_nan()));
        order.sort_unstable_by(|a, b| {
            let by_value = samples[*a].total_cmp(&samples[*b]);
            by_value.then_with(|| scattered(*a).cmp(&scattered(*b)))
        });
        let count = order.len() as f64;
        for (rank, index) in order.iter().enumerate() {
            scores[*index] = normal_quantile((rank as f64 + 0.5) / count);
        }
    }
    scores
}

/// A number without any order that follows from an index.
fn scattered(index: usize) -> u64 {
    rdmalab_random::nth(0, index as u64)
}

/// What a folding gave.
#[derive(Clone, Debug)]
pub struct Folded {
    /// The period.
    pub period: usize,
    /// Sum of the squared means, each times its count: chi-squared where there is no pattern.
    pub squares: f64,
    /// The largest mean times the root of its count: normal where there is no pattern.
    pub largest: f64,
    /// Degrees of freedom of the squares.
    pub freedom: f64,
    /// The mean at each place, minus that of all.
    pub means: Vec<f64>,
    /// Samples at each place.
    pub counts: Vec<f64>,
    /// Samples, and their sum of squares about the mean.
    total: (f64, f64),
}

impl Folded {
    /// About the value that chi-squared of this folding stays below with probability `q` where
    /// there is no pattern (Wilson and Hilferty 1931).
    pub fn quantile(&self, q: f64) -> f64 {
        let freedom = self.freedom;
        let spread = 2.0 / (9.0 * freedom);
        let root = 1.0 - spread + normal_quantile(q) * spread.sqrt();
        let root = root.max(0.05);
        freedom * root * root * root
    }

    /// Folds scores, of whole periods. `is_there` is 0 where a sample is missing.
    pub fn of(scores: &[f64], is_there: Option<&[f64]>, period: usize) -> Self {
        let mut sums = folded_sums(scores, period);
        let counts = match is_there {
            Some(is_there) => folded_sums(is_there, period),
            None => vec![(scores.len() / period) as f64; period],
        };
        let count: f64 = counts.iter().sum();
        let mean = sums.iter().sum::<f64>() / count.max(1.0);
        let variance = scores.iter().map(|s| s * s).sum::<f64>() - count * mean * mean;
        let mut squares = 0.0;
        let mut largest = 0f64;
        for (sum, count) in sums.iter_mut().zip(&counts) {
            *sum = if *count > 0.0 { *sum / count - mean } else { 0.0 };
            squares += count * *sum * *sum;
            largest = largest.max(sum.abs() * count.sqrt());
        }
        let freedom = period as f64 - 1.0;
        Self { period, squares, largest, freedom, means: sums, counts, total: (count, variance) }
    }

    /// Folds scores that are those within the places of a divisor of the period
    /// ([`scores_within`]): by how much the parts of each such place differ among themselves.
    ///
    /// The samples at a place are drawn without replacement: `c` of the `n` samples at a place of
    /// the divisor. So the variance of their mean is smaller than for `c` independent normal
    /// scores, by `1 - c/n` (a half if `c` is `n / 2`). Each place has that many degrees of
    /// freedom.
    pub fn within(scores: &[f64], is_there: Option<&[f64]>, period: usize, divisor: usize) -> Self {
        let mut folded = Self::of(scores, is_there, period);
        let (sums, mut all) = (folded_sums(scores, period), vec![(0.0, 0.0); divisor]);
        for (place, sum) in sums.iter().enumerate() {
            all[place % divisor].0 += sum;
            all[place % divisor].1 += folded.counts[place];
        }
        (folded.squares, folded.largest, folded.freedom) = (0.0, 0.0, 0.0);
        for (place, sum) in sums.iter().enumerate() {
            let (count, (sum_of_all, count_of_all)) = (folded.counts[place], all[place % divisor]);
            let free = 1.0 - count / count_of_all.max(1.0);
            if count <= 0.0 || free <= 0.0 {
                continue;
            }
            let off = sum - count * sum_of_all / count_of_all;
            folded.squares += off * off / count;
            folded.largest = folded.largest.max(off.abs() / (count * free).sqrt());
            folded.freedom += free;
        }
        folded
    }

    /// The logarithm of the probability of such a folding, without the number of periods that were
    /// tried.
    pub fn ln_chance(&self, excess: f64) -> f64 {
        if self.freedom <= 0.0 {
            return 0.0;
        }
        let squares = ln_chi_squared_tail(self.squares / excess, self.freedom);
        let places = 2.0 * self.period as f64;
        let largest = ln_normal_tail(self.largest / excess.sqrt()) + log(places);
        (squares.min(largest) + LN_2).min(0.0)
    }

    /// The deviation of a score from the mean of its place.
    pub fn deviation_within(&self, excess: f64) -> f64 {
        let (count, variance) = self.total;
        let freedom = (count - self.period as f64).max(1.0);
        // Where all of a place are alike, rounding is left.
        let within = (variance - self.squares).max(variance * 1e-12);
        (within / freedom * excess).sqrt()
    }
}

fn folded_sums(values: &[f64], period: usize) -> Vec<f64> {
    let mut sums = vec![0.0; period];
    for cycle in values.chunks_exact(period) {
        for (sum, value) in sums.iter_mut().zip(cycle) {
            *sum += value;
        }
    }
    sums
}
