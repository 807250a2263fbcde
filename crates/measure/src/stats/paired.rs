//! Pairs: two things measured side by side, again and again.

use super::{Estimate, assert_confidence, binomial, median_estimate, sort};

/// How two quantities measured in pairs relate.
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
