//! The binomial distribution by its probabilities relative to the mode: no gamma function, so no
//! loss of digits for large n, and O(sqrt(n)) steps.

/// Probabilities below this fraction of the largest are left out. With at most some 10^5 of them,
/// a tail is off by less than 10^-24.
const NEGLIGIBLE: f64 = 1e-30;

/// Ranks, from 1, of the two samples that enclose a quantile.
#[derive(Debug, PartialEq)]
pub struct Ranks {
    /// Of the lower sample.
    pub low: u64,
    /// Of the upper sample.
    pub high: u64,
    /// The probability that they enclose it.
    pub confidence: f64,
}

/// The binomial distribution of `n` trials.
struct Binomial {
    /// The number of successes that `probability[0]` is for.
    first: u64,
    /// Of `first`, `first + 1` ... successes; what is left out is negligible.
    probability: Vec<f64>,
}

impl Binomial {
    /// `p` strictly between 0 and 1.
    fn new(n: u64, p: f64) -> Self {
        let odds = p / (1.0 - p);
        let mode = (((n + 1) as f64 * p) as u64).min(n);
        let mut first = mode;
        let mut down = Vec::new();
        let mut weight = 1.0;
        while first > 0 {
            weight *= first as f64 / ((n - first + 1) as f64 * odds);
            if weight < NEGLIGIBLE {
                break;
            }
            down.push(weight);
            first -= 1;
        }
        let mut probability: Vec<f64> = down.into_iter().rev().collect();
        probability.push(1.0);
        let mut last = mode;
        weight = 1.0;
        while last < n {
            weight *= (n - last) as f64 * odds / (last + 1) as f64;
            if weight < NEGLIGIBLE {
                break;
            }
            probability.push(weight);
            last += 1;
        }
        let total: f64 = probability.iter().sum();
        probability.iter_mut().for_each(|w| *w /= total);
        Self { first, probability }
    }
}

/// The ranks of the samples that enclose quantile `q` of the distribution which `n` samples come
/// from, each missing it with probability `tail` at most. The number of samples below the quantile
/// is binomial; sample `low` lies above the quantile when fewer than `low` samples are below it.
pub fn ranks(n: u64, q: f64, tail: f64) -> Option<Ranks> {
    let distribution = Binomial::new(n, q);
    let probability = &distribution.probability;
    let below = |p: &mut f64, w: &f64| {
        *p += w;
        Some(*p)
    };
    let misses_low = probability.iter().scan(0.0, below);
    let (steps, miss_low) = within(misses_low, tail);
    let low = distribution.first + steps;
    let misses_high = probability.iter().rev().scan(0.0, below);
    let (steps, miss_high) = within(misses_high, tail);
    let high = distribution.first + probability.len() as u64 - steps;
    (low >= 1 && high <= n).then_some(Ranks { low, high, confidence: 1.0 - miss_low - miss_high })
}

/// How many of the cumulated probabilities are at most `tail`, and the last of them.
fn within(cumulated: impl Iterator<Item = f64>, tail: f64) -> (u64, f64) {
    cumulated.take_while(|&p| p <= tail).fold((0, 0.0), |(steps, _), p| (steps + 1, p))
}

/// The probability of at most `k` successes in `n` trials of probability 1/2.
pub fn fair_at_most(n: u64, k: u64) -> f64 {
    let distribution = Binomial::new(n, 0.5);
    let known = (k + 1).saturating_sub(distribution.first) as usize;
    let probability = &distribution.probability;
    probability[..known.min(probability.len())].iter().sum()
}

/// The probability of at least `k` successes in `n` trials of probability `p`, which lies strictly
/// between 0 and 1.
pub fn at_least(n: u64, k: u64, p: f64) -> f64 {
    let distribution = Binomial::new(n, p);
    let below = k.saturating_sub(distribution.first) as usize;
    let probability = &distribution.probability;
    probability[below.min(probability.len())..].iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn median_ranks(n: u64) -> Option<(u64, u64, f64)> {
        let thousandths = |p: f64| (p * 1000.0).round() / 1000.0;
        ranks(n, 0.5, 0.025).map(|r| (r.low, r.high, thousandths(r.confidence)))
    }

    #[test]
    fn ranks_of_the_median_are_those_of_the_tables() {
        // As in the tables of the sign test, two-sided 5 %.
        assert_eq!(median_ranks(5), None);
        assert_eq!(median_ranks(6), Some((1, 6, 0.969)));
        assert_eq!(median_ranks(8), Some((1, 8, 0.992)));
        assert_eq!(median_ranks(9), Some((2, 8, 0.961)));
        assert_eq!(median_ranks(10), Some((2, 9, 0.979)));
        assert_eq!(median_ranks(15), Some((4, 12, 0.965)));
        assert_eq!(median_ranks(20), Some((6, 15, 0.959)));
        assert_eq!(median_ranks(25), Some((8, 18, 0.957)));
        assert_eq!(median_ranks(30), Some((10, 21, 0.957)));
        assert_eq!(median_ranks(0), None);
    }

    #[test]
    fn probabilities_are_exact_for_few_trials() {
        let distribution = Binomial::new(4, 0.5);
        assert_eq!(distribution.first, 0);
        let exact = [1.0, 4.0, 6.0, 4.0, 1.0].map(|c| c / 16.0);
        for (p, e) in distribution.probability.iter().zip(exact) {
            assert!((p - e).abs() < 1e-15);
        }
        // 9 sixteenths of (1/4, 3/4): C(2,0) .75^2.
        let skewed = Binomial::new(2, 0.25);
        assert!((skewed.probability[0] - 0.5625).abs() < 1e-15);
    }

    #[test]
    fn ranks_of_many_samples_are_those_of_the_normal_distribution() {
        let n = 100_000_000;
        let found = ranks(n, 0.5, 0.025).unwrap();
        // 1.959963985 sigma, with sigma = sqrt(n) / 2 = 5000, and the correction for continuity.
        let expected = 50_000_000.0 - 1.959963985 * 5000.0;
        assert!((found.low as f64 - expected).abs() < 2.0, "{found:?}");
        assert!((found.confidence - 0.95).abs() < 1e-4, "{found:?}");
        let tail = ranks(1_000_000, 0.9999, 0.025).unwrap();
        // About Poisson of mean 100: 81 .. 120 samples beyond.
        assert!((999_879..=999_883).contains(&tail.low), "{tail:?}");
        assert!((999_918..=999_923).contains(&tail.high), "{tail:?}");
    }

    #[test]
    fn the_sign_test_is_exact() {
        assert!((fair_at_most(10, 1) - 11.0 / 1024.0).abs() < 1e-15);
        assert!((fair_at_most(10, 10) - 1.0).abs() < 1e-12);
        assert!((fair_at_most(0, 0) - 1.0).abs() < 1e-15);
        assert_eq!(fair_at_most(1_000_000, 10), 0.0);
    }
}
