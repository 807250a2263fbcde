//! The variance of means and of their difference: the arithmetic that all comparisons share.

/// The least p-value that is told apart from 0.
pub const LEAST_P: f64 = 1e-12;

/// The variance of a mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanVariance {
    /// Of the mean itself, not of what it is the mean of.
    pub variance: f64,
    /// Degrees of freedom.
    pub freedom: f64,
}

impl MeanVariance {
    /// Of the difference to another mean, as Satterthwaite (1946) and Welch (1947) approximate it.
    pub fn of_difference_to(self, other: Self) -> Self {
        let variance = self.variance + other.variance;
        // By shares of the sum: squares of variances would leave the range of a float.
        let part = |one: Self| (one.variance / variance).powi(2) / one.freedom;
        let freedom = 1.0 / (part(self) + part(other));
        // Where nothing varies, 0 / 0.
        let both = self.freedom + other.freedom;
        let freedom = if freedom.is_finite() { freedom.max(1.0) } else { both };
        Self { variance, freedom }
    }
}

/// The mean of one number for each run, with its variance.
#[derive(Clone, Copy, Debug)]
pub struct RunMeans {
    pub mean: f64,
    pub spread: MeanVariance,
    /// Of a session's mean; of a run where there is one session.
    of_one: f64,
    sessions: usize,
}

impl RunMeans {
    /// Of the runs of each session (a record, a call of the program). What sessions differ by is
    /// not seen within one, so where there are several each is one number; one session's runs are
    /// a number each. `None` below two numbers. What varies less than the `step` of the clock does
    /// not show: its rounding is added.
    pub fn of(sessions: &[Vec<f64>], step: f64) -> Option<Self> {
        let sessions: Vec<&Vec<f64>> = sessions.iter().filter(|runs| !runs.is_empty()).collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let numbers = match sessions.as_slice() {
            [only] => (*only).clone(),
            several => several.iter().map(|runs| mean(runs)).collect(),
        };
        let n = numbers.len() as f64;
        let middle = mean(&numbers);
        let squares: f64 = numbers.iter().map(|v| (v - middle) * (v - middle)).sum();
        let of_one = squares / (n - 1.0) + step * step / 12.0;
        let spread = MeanVariance { variance: of_one / n, freedom: n - 1.0 };
        let side = Self { mean: middle, spread, of_one, sessions: sessions.len() };
        (numbers.len() > 1).then_some(side)
    }

    /// How well the difference to another side is known.
    pub fn of_difference_to(&self, other: &Self) -> MeanVariance {
        match (self.sessions, other.sessions) {
            (1, 2..) => self.alone_of_difference_to(other),
            (2.., 1) => other.alone_of_difference_to(self),
            _ => self.spread.of_difference_to(other.spread),
        }
    }

    /// One session against several: only the other side shows how far off a single session may be.
    fn alone_of_difference_to(&self, several: &Self) -> MeanVariance {
        let (own, others) = (self.spread, several.spread);
        let (variance, freedom) = if own.variance > several.of_one {
            (own.variance, own.freedom.min(others.freedom))
        } else {
            (several.of_one, others.freedom)
        };
        MeanVariance { variance: variance + others.variance, freedom }
    }
}

/// The logarithms of the numbers of each session's runs.
pub(super) fn logarithms(sessions: &[Vec<f64>]) -> Vec<Vec<f64>> {
    sessions.iter().map(|runs| runs.iter().map(|v| v.ln()).collect()).collect()
}
