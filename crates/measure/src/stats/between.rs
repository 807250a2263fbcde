//! Repeated runs on each side: how their quantiles differ *between* runs decides, and nothing
//! that was seen within one.
//!
//! A run has its own pages, queue pairs and cores. Its samples, however many, tell how well that
//! run's quantile is known; how far off the next run's will be, only other runs tell. So each run
//! is one number, and two sides of them are compared by the test of Welch (1947) on logarithms:
//! from two runs a side on, with intervals as wide as so few allow. Where a few runs are of another
//! kind it errs on the safe side.

use super::compare::LEAST_P;
use super::{Estimate, Interval, assert_confidence, median, quantile, sort, student, timed};

/// How a quantile of the runs of one side relates to that of the other's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunRatio {
    /// Of logarithms, `b` - `a`.
    difference: f64,
    /// Of that difference.
    deviation: f64,
    freedom: f64,
    /// What the clock's steps may hide, in logarithms.
    slack: f64,
}

/// One number for each run: mean, variance of the mean, degrees of freedom.
struct Side {
    mean: f64,
    variance: f64,
    freedom: f64,
}

impl Side {
    /// `None` below two runs. What varies less than the `step` of the clock does not show: its
    /// rounding is added.
    fn of(values: &[f64], step: f64) -> Option<Self> {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
        let variance = squares / (n - 1.0) + step * step / 12.0;
        (values.len() > 1).then_some(Self { mean, variance: variance / n, freedom: n - 1.0 })
    }
}

/// The difference of means, its deviation, and the degrees of freedom of Welch and Satterthwaite.
fn welch(a: &Side, b: &Side) -> (f64, f64, f64) {
    let variance = a.variance + b.variance;
    let share = |side: &Side| side.variance * side.variance / side.freedom;
    let freedom = variance * variance / (share(a) + share(b));
    let freedom = if freedom.is_finite() { freedom.max(1.0) } else { a.freedom + b.freedom };
    (b.mean - a.mean, variance.sqrt(), freedom)
}

/// The quantile of each run that has samples, and the least step of the clock in all.
fn quantiles(runs: &[Vec<f64>], q: f64) -> (Vec<f64>, f64) {
    assert!(q > 0.0 && q < 1.0, "a quantile with an interval lies within 0 .. 1, not {q}");
    let of = |run: &Vec<f64>| {
        let mut sorted = run.clone();
        sort(&mut sorted);
        if q == 0.5 { median(&sorted) } else { quantile(&sorted, q) }
    };
    let step = runs.iter().filter_map(|run| timed::step(run)).reduce(f64::min).unwrap_or(0.0);
    (runs.iter().filter(|run| !run.is_empty()).map(of).collect(), step)
}

impl RunRatio {
    /// Of quantile `q` of each run's samples, which may be in any order. `None` below two runs a
    /// side, or where a quantile is not positive, of which a ratio says nothing.
    ///
    /// # Panics
    /// When `q` is not strictly between 0 and 1.
    #[must_use]
    pub fn of(a: &[Vec<f64>], b: &[Vec<f64>], q: f64) -> Option<Self> {
        let side = |runs: &[Vec<f64>]| {
            let (values, step) = quantiles(runs, q);
            if !values.iter().all(|v| *v > 0.0 && v.is_finite()) {
                return None;
            }
            let logs: Vec<f64> = values.iter().map(|v| v.ln()).collect();
            // A step as a share of the smallest: steps of logarithms differ.
            let step = step / values.iter().copied().reduce(f64::min)?;
            Some((Side::of(&logs, step)?, step))
        };
        let ((a, step_a), (b, step_b)) = (side(a)?, side(b)?);
        let (difference, deviation, freedom) = welch(&a, &b);
        Some(Self { difference, deviation, freedom, slack: step_a.max(step_b) })
    }

    /// `b` over `a`: of the geometric means.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.difference.exp()
    }

    /// The interval of the ratio, a step of the clock wider at each end.
    ///
    /// # Panics
    /// When `confidence` is not strictly between 0 and 1.
    #[must_use]
    pub fn interval(&self, confidence: f64) -> Interval {
        assert_confidence(confidence);
        let t = student::upper_quantile((1.0 - confidence) / 2.0, self.freedom);
        let reach = t * self.deviation + self.slack;
        let (low, high) = ((self.difference - reach).exp(), (self.difference + reach).exp());
        Interval { low, high, confidence }
    }

    /// The ratio with its interval.
    ///
    /// # Panics
    /// When `confidence` is not strictly between 0 and 1.
    #[must_use]
    pub fn estimate(&self, confidence: f64) -> Estimate {
        Estimate { value: self.value(), interval: Some(self.interval(confidence)) }
    }

    /// Two-sided, that the sides do not differ by more than a step. At least [`LEAST_P`].
    #[must_use]
    pub fn p_value(&self) -> f64 {
        let beyond = self.difference.abs() - self.slack;
        if beyond <= 0.0 {
            return 1.0;
        }
        (2.0 * student::upper_tail(beyond / self.deviation, self.freedom)).clamp(LEAST_P, 1.0)
    }
}

/// The difference `b` - `a` of quantile `q` with its interval, by how runs differ. `None` below two
/// runs a side.
///
/// # Panics
/// When `q` or `confidence` is not strictly between 0 and 1.
#[must_use]
pub fn run_shift(a: &[Vec<f64>], b: &[Vec<f64>], q: f64, confidence: f64) -> Option<Estimate> {
    assert_confidence(confidence);
    let ((of_a, step_a), (of_b, step_b)) = (quantiles(a, q), quantiles(b, q));
    let (difference, deviation, freedom) =
        welch(&Side::of(&of_a, step_a)?, &Side::of(&of_b, step_b)?);
    let t = student::upper_quantile((1.0 - confidence) / 2.0, freedom);
    let reach = t * deviation + step_a.max(step_b);
    let interval = Interval { low: difference - reach, high: difference + reach, confidence };
    Some(Estimate { value: difference, interval: Some(interval) })
}
