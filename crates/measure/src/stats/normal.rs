//! The standard normal distribution, to about 13 digits.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// Where the series hands over to the continued fraction.
const SERIES_UP_TO: f64 = 2.5;

/// The probability of more than `z`.
pub fn upper_tail(z: f64) -> f64 {
    let x = z * FRAC_1_SQRT_2;
    if x < 0.0 {
        return 1.0 - upper_tail(-z);
    }
    let bell = libm::exp(-x * x) / PI.sqrt();
    if x < SERIES_UP_TO {
        // erf(x) = 2 bell (x + 2 x^3 / 3 + 4 x^5 / 15 + ...): all terms positive. Abramowitz and
        // Stegun, 7.1.6.
        let (mut term, mut sum, mut n) = (x, x, 0.0);
        while term > sum * 1e-17 {
            n += 1.0;
            term *= 2.0 * x * x / (2.0 * n + 1.0);
            sum += term;
        }
        0.5 - bell * sum
    } else {
        // erfc(x) = bell / (x + (1/2) / (x + (2/2) / (x + (3/2) / ...))): 7.1.14 there, evaluated
        // from the inside. 100 levels are ample from 2.5 on.
        let fraction = (1..=100).rev().fold(x, |inner, k| x + k as f64 / 2.0 / inner);
        bell / fraction / 2.0
    }
}

/// The `z` that is exceeded with probability `tail`, for 0 < `tail` <= 1/2.
pub fn upper_quantile(tail: f64) -> f64 {
    bisect(0.0, 40.0, |z| upper_tail(z) > tail)
}

/// Where `is_below` turns from true at `low` to false at `high`, as near as numbers go.
pub(super) fn bisect(mut low: f64, mut high: f64, is_below: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if is_below(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_and_quantiles_are_those_of_the_tables() {
        // As in Abramowitz and Stegun, tables 26.1 and 26.2, with more digits.
        for (z, tail) in [
            (0.0, 0.5),
            (1.0, 0.158_655_253_931_457_05),
            (1.959_963_984_540_054, 0.025),
            (3.0, 1.349_898_031_630_094_5e-3),
            (5.0, 2.866_515_718_791_939e-7),
            (8.0, 6.220_960_574_271_786e-16),
        ] {
            let found = upper_tail(z);
            assert!((found / tail - 1.0).abs() < 1e-11, "{z}: {found}");
            assert!((upper_quantile(tail) - z).abs() < 1e-9, "{z}");
        }
        assert!((upper_tail(-1.0) - 0.841_344_746_068_542_9).abs() < 1e-12);
    }

    #[test]
    fn series_and_fraction_meet() {
        let z = SERIES_UP_TO / FRAC_1_SQRT_2;
        let (below, above) = (upper_tail(z - 1e-9), upper_tail(z + 1e-9));
        assert!(below > above && (below / above - 1.0).abs() < 1e-7);
    }
}
