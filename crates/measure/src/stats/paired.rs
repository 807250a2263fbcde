//! Pairs: two things measured side by side, again and again.

use super::binomial;
use super::samples::{Estimate, Interval, assert_confidence, median, median_estimate, sort};

/// The relation of two quantities that were measured in pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairedRatio {
    /// The median of first over second, with its interval.
    pub ratio: Estimate,
    /// Pairs that had a ratio.
    pub pairs: usize,
    /// The two-sided sign test that first and second are as often the larger one; pairs of equals
    /// do not count. 1 when all are equal.
    pub p_value: f64,
}

/// The median of `first[i] / second[i]`. What disturbs both of a pair (another program, a clock
/// rate) cancels, so interleave the two and pair neighbours. `None` when there is no pair, or one
/// of the values is not positive and finite, so that its ratio says nothing.
///
/// # Panics
/// When the slices differ in length, or `confidence` is not strictly between 0 and 1.
#[must_use]
pub fn paired_ratio(first: &[f64], second: &[f64], confidence: f64) -> Option<PairedRatio> {
    assert_eq!(first.len(), second.len(), "pairs need two of each");
    assert_confidence(confidence);
    let is_sound = |v: &f64| v.is_finite() && *v > 0.0;
    if first.is_empty() || !first.iter().chain(second).all(is_sound) {
        return None;
    }
    let mut ratios: Vec<f64> = first.iter().zip(second).map(|(a, b)| a / b).collect();
    sort(&mut ratios);
    let count = |holds: fn(&f64, &f64) -> bool| {
        first.iter().zip(second).filter(|(a, b)| holds(a, b)).count() as u64
    };
    let (more, less) = (count(|a, b| a > b), count(|a, b| a < b));
    let p_value = (2.0 * binomial::fair_at_most(more + less, more.min(less))).min(1.0);
    Some(PairedRatio { ratio: median_estimate(&ratios, confidence), pairs: ratios.len(), p_value })
}

/// By how much `second` exceeds `first` where they were measured in pairs: the median of the means
/// of all two differences (Walsh 1949; Hodges and Lehmann 1963), with the interval that goes with
/// the signed-rank test of Wilcoxon (1945): exact where the differences are symmetric, as they are
/// around nothing when the two may be exchanged. What both of a pair share cancels. `None` when
/// there is no pair; no interval with too few of them (six for 95 %). O(n^2) for n pairs.
///
/// # Panics
/// When the slices differ in length, or `confidence` is not strictly between 0 and 1.
#[must_use]
pub fn paired_shift(first: &[f64], second: &[f64], confidence: f64) -> Option<Estimate> {
    assert_eq!(first.len(), second.len(), "pairs need two of each");
    assert_confidence(confidence);
    let differences: Vec<f64> = first.iter().zip(second).map(|(a, b)| b - a).collect();
    let mut means = Vec::with_capacity(differences.len() * (differences.len() + 1) / 2);
    for (i, one) in differences.iter().enumerate() {
        means.extend(differences[i..].iter().map(|other| one.midpoint(*other)));
    }
    sort(&mut means);
    let interval = signed_rank(differences.len(), (1.0 - confidence) / 2.0).map(|rank| Interval {
        low: means[rank.from_end - 1],
        high: means[means.len() - rank.from_end],
        confidence: 1.0 - 2.0 * rank.below,
    });
    (!means.is_empty()).then(|| Estimate { value: median(&means), interval })
}

/// The rank, counted from either end, of a mean that ends an interval.
struct SignedRank {
    from_end: usize,
    /// What lies below, of the distribution.
    below: f64,
}

/// The largest rank k for which P(W < k) is at most `tail`; `None` when that is 0.
fn signed_rank(pairs: usize, tail: f64) -> Option<SignedRank> {
    // P(W = w) for ranks 1 ..= pairs, each positive or not with even chance.
    let mut distribution = vec![1.0];
    for rank in 1..=pairs {
        let mut next = vec![0.0; distribution.len() + rank];
        for (w, p) in distribution.iter().enumerate() {
            next[w] += p / 2.0;
            next[w + rank] += p / 2.0;
        }
        distribution = next;
    }
    let (mut below, mut from_end) = (0.0, 0);
    for p in distribution {
        if below + p > tail {
            break;
        }
        below += p;
        from_end += 1;
    }
    (from_end > 0 && pairs > 0).then_some(SignedRank { from_end, below })
}
