//! Two independent sets of samples: do they differ, and by how much?

use super::normal;
use super::samples::{Estimate, Interval, assert_confidence, sort};

/// Up to this many samples on each side, the distribution of U is computed exactly.
pub(super) const EXACT_UP_TO: usize = 50;

/// By how much `b` is shifted against `a`: the median of all differences `b[j] - a[i]` (Hodges and
/// Lehmann 1963), with the interval that goes with the test of Mann and Whitney. The samples may be
/// in any order and need not be pairs; `None` when one side is empty. The interval is exact in
/// confidence up to 50 samples a side, a normal approximation beyond, conservative under equals.
/// O((m + n) log) in time, O(m + n) in memory.
///
/// # Panics
/// When `confidence` is not strictly between 0 and 1.
#[must_use]
pub fn hodges_lehmann(a: &[f64], b: &[f64], confidence: f64) -> Option<Estimate> {
    assert_confidence(confidence);
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let (mut a, mut b) = (a.to_vec(), b.to_vec());
    sort(&mut a);
    sort(&mut b);
    let pairs = a.len() as u64 * b.len() as u64;
    let middle = difference(&a, &b, pairs.div_ceil(2));
    let value = middle.midpoint(difference(&a, &b, pairs / 2 + 1));
    let interval = shift_rank(a.len(), b.len(), (1.0 - confidence) / 2.0).map(|rank| Interval {
        low: difference(&a, &b, rank.from_end),
        high: difference(&a, &b, pairs + 1 - rank.from_end),
        confidence: rank.confidence.unwrap_or(confidence),
    });
    Some(Estimate { value, interval })
}

/// By which factor `b` is larger than `a`: [`hodges_lehmann`] of the logarithms. `None` also when a
/// sample is not positive.
///
/// # Panics
/// When `confidence` is not strictly between 0 and 1.
#[must_use]
pub fn hodges_lehmann_ratio(a: &[f64], b: &[f64], confidence: f64) -> Option<Estimate> {
    if !a.iter().chain(b).all(|&v| v > 0.0 && v.is_finite()) {
        return None;
    }
    let logs = |samples: &[f64]| samples.iter().map(|v| v.ln()).collect::<Vec<_>>();
    let shift = hodges_lehmann(&logs(a), &logs(b), confidence)?;
    Some(Estimate {
        value: shift.value.exp(),
        interval: shift.interval.map(|i| Interval { low: i.low.exp(), high: i.high.exp(), ..i }),
    })
}

/// The rank of a difference that ends an interval.
struct ShiftRank {
    /// Counted from the smallest for the lower end, from the largest for the upper.
    from_end: u64,
    /// What the interval then covers, where known exactly.
    confidence: Option<f64>,
}

/// The largest rank k for which P(U < k) is at most `tail`; `None` when that is 0.
fn shift_rank(m: usize, n: usize, tail: f64) -> Option<ShiftRank> {
    if m.max(n) <= EXACT_UP_TO {
        let (mut below, mut from_end) = (0.0, 0);
        for p in u_distribution(m, n) {
            if below + p > tail {
                break;
            }
            below += p;
            from_end += 1;
        }
        return (from_end > 0)
            .then_some(ShiftRank { from_end, confidence: Some(1.0 - 2.0 * below) });
    }
    let pairs = m as f64 * n as f64;
    let sigma = (pairs * ((m + n) as f64 + 1.0) / 12.0).sqrt();
    let rank = (pairs / 2.0 + 0.5 - normal::upper_quantile(tail) * sigma).floor();
    (rank >= 1.0).then_some(ShiftRank { from_end: rank as u64, confidence: None })
}

/// P(U = 0), P(U = 1) ... P(U = m n) without equals, by the recursion of Mann and Whitney: the
/// largest of all samples belongs to one side or the other.
pub(super) fn u_distribution(m: usize, n: usize) -> Vec<f64> {
    // row[j] is the distribution for i samples of one side and j of the other.
    let mut row: Vec<Vec<f64>> = vec![vec![1.0]; n + 1];
    for i in 1..=m {
        let mut next = vec![vec![1.0]];
        for j in 1..=n {
            let share = i as f64 / (i + j) as f64;
            let mut here = vec![0.0; i * j + 1];
            // The largest is of the first side, and larger than all j of the other.
            for (u, p) in row[j].iter().enumerate() {
                here[u + j] += share * p;
            }
            for (u, p) in next[j - 1].iter().enumerate() {
                here[u] += (1.0 - share) * p;
            }
            next.push(here);
        }
        row = next;
    }
    row.swap_remove(n)
}

/// The difference of rank `k` (from 1) among all `b[j] - a[i]`, both ascending: bisection over the
/// floats themselves, so that the outcome is exact and the differences are never stored.
fn difference(a: &[f64], b: &[f64], k: u64) -> f64 {
    let mut low = key(b[0] - a[a.len() - 1]);
    let mut high = key(b[b.len() - 1] - a[0]);
    while low < high {
        let middle = low + (high - low) / 2;
        if differences_up_to(a, b, unkey(middle)) >= k {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    unkey(low)
}

/// How many differences are at most `bound`.
fn differences_up_to(a: &[f64], b: &[f64], bound: f64) -> u64 {
    let mut first = 0;
    let mut count = 0;
    for v in b {
        // A larger b needs a larger a, so that `first` only moves up.
        while first < a.len() && v - a[first] > bound {
            first += 1;
        }
        count += (a.len() - first) as u64;
    }
    count
}

/// An integer that orders as the float does, and back with [`unkey`].
fn key(value: f64) -> u64 {
    // Adding 0.0 turns -0.0, which would order below 0.0, into it.
    let bits = (value + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn unkey(key: u64) -> f64 {
    f64::from_bits(if key >> 63 == 1 { key & !(1 << 63) } else { !key })
}
