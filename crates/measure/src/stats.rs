//! Statistics of samples, by rank: nothing here assumes a shape of the distribution, and nothing
//! is trimmed. Pure functions.
//!
//! Functions over one distribution take samples in ascending order, see [`sort`]; those over pairs
//! or time take them in the order of measurement. NaN is not a sample and must not be among them.
//! Intervals hold for independent samples of one distribution.

mod between;
mod binomial;
mod compare;
mod difference;
pub(crate) mod normal;
mod paired;
mod samples;
mod share;
mod student;
mod timed;
mod two_sample;

pub use between::{RunRatio, Runs, hidden_by, run_shift};
pub use compare::{
    Dominance, QuantileRatio, Verdict, Welch, dominance, geometric_mean, is_regression,
    mean_interval, mean_interval_of, shift_at, welch, welch_ratio,
};
pub use difference::LEAST_P;
pub use paired::{PairedRatio, paired_ratio, paired_shift};
pub use samples::{
    Estimate, Interval, MIN_BEYOND, lag1_autocorrelation, mad, median, median_estimate, quantile,
    quantile_interval, sort, supports_quantile,
};
pub use share::{few_trials, many_trials};
pub(crate) use timed::known;
pub use timed::{MIN_RUNS, Timed, TimedQuantile, Units};
pub use two_sample::{hodges_lehmann, hodges_lehmann_ratio};

#[cfg(test)]
mod between_tests;
#[cfg(test)]
mod compare_tests;
#[cfg(test)]
mod tests;
