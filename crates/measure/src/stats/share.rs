//! Confidence intervals of a share, from the number of successes and trials.

use super::binomial::at_least;
use super::normal::{bisect, upper_quantile};
use super::samples::{Interval, assert_confidence};

/// The interval of a share by few independent trials, of Clopper and Pearson (1934): never narrower
/// than its confidence, so that none of two is not "never". `None` without trials, or with more
/// successes than trials.
///
/// # Panics
/// When `confidence` is not strictly between 0 and 1.
#[must_use]
pub fn few_trials(successes: u64, trials: u64, confidence: f64) -> Option<Interval> {
    assert_confidence(confidence);
    if trials == 0 || successes > trials {
        return None;
    }
    let tail = (1.0 - confidence) / 2.0;
    let low = match successes {
        0 => 0.0,
        k => bisect(0.0, 1.0, |p| at_least(trials, k, p) < tail),
    };
    let high = match trials - successes {
        0 => 1.0,
        misses => 1.0 - bisect(0.0, 1.0, |p| at_least(trials, misses, p) < tail),
    };
    Some(Interval { low, high, confidence })
}

/// The interval of a share by many independent trials, of Wilson (1927). `None` without trials, or
/// with more successes than trials.
///
/// # Panics
/// When `confidence` is not strictly between 0 and 1.
#[must_use]
pub fn many_trials(successes: u64, trials: u64, confidence: f64) -> Option<Interval> {
    assert_confidence(confidence);
    if trials == 0 || successes > trials {
        return None;
    }
    let (n, share) = (trials as f64, successes as f64 / trials as f64);
    let z2 = upper_quantile((1.0 - confidence) / 2.0).powi(2);
    let centre = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = (z2 * (share * (1.0 - share) / n + z2 / (4.0 * n * n))).sqrt() / (1.0 + z2 / n);
    Some(Interval { low: (centre - half).max(0.0), high: (centre + half).min(1.0), confidence })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thousandths(interval: Option<Interval>) -> (f64, f64) {
        let Interval { low, high, .. } = interval.unwrap();
        ((low * 1000.0).round() / 1000.0, (high * 1000.0).round() / 1000.0)
    }

    /// Successes, trials, and the ends of the interval in a table.
    type Row = (u64, u64, (f64, f64));

    fn is_as_in(rows: &[Row], of: impl Fn(u64, u64, f64) -> Option<Interval>) {
        for &(successes, trials, ends) in rows {
            let found = thousandths(of(successes, trials, 0.95));
            assert_eq!(found, ends, "{successes} of {trials}");
        }
        assert_eq!((of(0, 0, 0.95), of(3, 2, 0.95)), (None, None));
    }

    #[test]
    fn few_trials_are_as_in_the_tables() {
        let rows = [
            // None and all have a closed form: (tail)^(1/n).
            (0, 2, (0.0, 0.842)),
            (2, 2, (0.158, 1.0)),
            (6, 6, (0.541, 1.0)),
            (5, 6, (0.359, 0.996)),
            (1, 1, (0.025, 1.0)),
            // Newcombe (1998), table I: 81 of 263, 15 of 148.
            (81, 263, (0.253, 0.368)),
            (15, 148, (0.058, 0.162)),
        ];
        is_as_in(&rows, few_trials);
    }

    #[test]
    fn many_trials_are_as_in_the_tables() {
        // Newcombe (1998), table I, method 3.
        let rows = [
            (81, 263, (0.255, 0.366)),
            (15, 148, (0.062, 0.160)),
            (0, 20, (0.0, 0.161)),
            (1, 29, (0.006, 0.172)),
        ];
        is_as_in(&rows, many_trials);
    }
}
