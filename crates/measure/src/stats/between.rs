//! Compares repeated runs of two sides by how their quantiles differ *between* runs, not by the
//! spread within a run.
//!
//! A run has its own pages, queue pairs and cores. Its samples, however many, show only how well
//! the quantile of this run is known; only other runs show how far off the next run may be. So each
//! run counts as one number, and the numbers of two sides are compared by the test of Welch (1947)
//! on logarithms: from two runs a side on, with accordingly wide intervals. If a few runs are of
//! another kind, the test errs on the safe side.
//!
//! Runs of one session share more: the same hour, load and temperature. Where a side has several
//! sessions, each of these is one number.

use super::difference::{LEAST_P, MeanVariance, RunMeans, logarithms};
use super::samples::{Estimate, Interval, assert_confidence, median, quantile, sort};
use super::{student, timed};

/// The runs of one side, each in ascending order; those of a session (a record, a call of the
/// program) stand together.
#[derive(Clone, Debug)]
pub struct Runs {
    sessions: Vec<Vec<Vec<f64>>>,
    /// The least step of the clock in all.
    step: f64,
    /// The common error of all runs.
    error: f64,
}

impl Runs {
    /// Of the samples of each run of each session, in any order. Runs without samples, and sessions
    /// without runs, do not count.
    #[must_use]
    pub fn new(mut sessions: Vec<Vec<Vec<f64>>>) -> Self {
        for session in &mut sessions {
            session.retain(|run| !run.is_empty());
            session.iter_mut().for_each(|run| sort(run));
        }
        sessions.retain(|session| !session.is_empty());
        let runs = sessions.iter().flatten();
        let step = runs.filter_map(|run| timed::step(run)).reduce(f64::min).unwrap_or(0.0);
        Self { sessions, step, error: 0.0 }
    }

    /// Runs with a common error: all may be off by up to this much in the same direction, as times
    /// between two clocks are. More runs do not reduce this error.
    #[must_use]
    pub fn with_common_error(self, error: f64) -> Self {
        Self { error, ..self }
    }

    /// Of one session.
    #[must_use]
    pub fn of_session(runs: &[Vec<f64>]) -> Self {
        Self::new(vec![runs.to_vec()])
    }

    /// Quantile `q` of each run of each session.
    ///
    /// # Panics
    /// When `q` is not strictly between 0 and 1.
    #[must_use]
    pub fn quantiles(&self, q: f64) -> Vec<Vec<f64>> {
        assert!(q > 0.0 && q < 1.0, "a quantile with an interval lies within 0 .. 1, not {q}");
        let of = |run: &Vec<f64>| if q == 0.5 { median(run) } else { quantile(run, q) };
        self.sessions.iter().map(|runs| runs.iter().map(of).collect()).collect()
    }
}

/// How a quantile of the runs of one side relates to that of the other's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunRatio {
    /// Of logarithms, `b` - `a`.
    difference: f64,
    spread: MeanVariance,
    /// What the clock's steps, and its error, may hide, in logarithms.
    slack: f64,
}

impl RunRatio {
    /// Of quantile `q` of each run. `None` below two runs of a side, or where a quantile is not
    /// positive, of which a ratio says nothing.
    ///
    /// # Panics
    /// When `q` is not strictly between 0 and 1.
    #[must_use]
    pub fn of(a: &Runs, b: &Runs, q: f64) -> Option<Self> {
        let side = |runs: &Runs| {
            let values = runs.quantiles(q);
            if !values.iter().flatten().all(|v| *v > 0.0 && v.is_finite()) {
                return None;
            }
            // A step as a share of the smallest: steps of logarithms differ.
            let least = values.iter().flatten().copied().reduce(f64::min)?;
            let step = runs.step / least;
            Some((RunMeans::of(&logarithms(&values), step)?, step, hidden_by(runs.error, least)))
        };
        let ((a, step_a, hidden_a), (b, step_b, hidden_b)) = (side(a)?, side(b)?);
        let difference = b.mean - a.mean;
        let slack = step_a.max(step_b) + hidden_a + hidden_b;
        Some(Self { difference, spread: a.of_difference_to(&b), slack })
    }

    /// `b` over `a`: of the geometric means.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.difference.exp()
    }

    /// The interval of the ratio, wider at each end by a step of the clock, and by what
    /// [`Runs::with_common_error`] says of both sides.
    ///
    /// # Panics
    /// When `confidence` is not strictly between 0 and 1.
    #[must_use]
    pub fn interval(&self, confidence: f64) -> Interval {
        assert_confidence(confidence);
        let t = student::upper_quantile((1.0 - confidence) / 2.0, self.spread.freedom);
        let reach = t * self.spread.variance.sqrt() + self.slack;
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

    /// Two-sided, that the sides do not differ by more than the clock may hide. At least
    /// [`LEAST_P`].
    #[must_use]
    pub fn p_value(&self) -> f64 {
        let beyond = self.difference.abs() - self.slack;
        if beyond <= 0.0 {
            return 1.0;
        }
        let tail = student::upper_tail(beyond / self.spread.variance.sqrt(), self.spread.freedom);
        (2.0 * tail).clamp(LEAST_P, 1.0)
    }
}

/// By which share, as a logarithm, a value may be off whose clock may be off by `error`; infinite
/// where nothing of the value is left.
#[must_use]
pub fn hidden_by(error: f64, value: f64) -> f64 {
    match error {
        0.0 => 0.0,
        error if error < value => -(-error / value).ln_1p(),
        _ => f64::INFINITY,
    }
}

/// The difference `b` - `a` of quantile `q` with its interval, by how runs differ and how far the
/// clock may be off. `None` below two
/// runs a side.
///
/// # Panics
/// When `q` or `confidence` is not strictly between 0 and 1.
#[must_use]
pub fn run_shift(a: &Runs, b: &Runs, q: f64, confidence: f64) -> Option<Estimate> {
    assert_confidence(confidence);
    let of_a = RunMeans::of(&a.quantiles(q), a.step)?;
    let of_b = RunMeans::of(&b.quantiles(q), b.step)?;
    let (difference, spread) = (of_b.mean - of_a.mean, of_a.of_difference_to(&of_b));
    let t = student::upper_quantile((1.0 - confidence) / 2.0, spread.freedom);
    let reach = t * spread.variance.sqrt() + a.step.max(b.step) + a.error + b.error;
    let interval = Interval { low: difference - reach, high: difference + reach, confidence };
    Some(Estimate { value: difference, interval: Some(interval) })
}
