//! Samples: the parts of a run that they are taken in, memory for them, and one-way times of two
//! clocks.

use rdmalab_measure::quantity::fmt_ns;
use rdmalab_measure::{Outcome, Quantity, stats};

use crate::common::arrivals::Arrival;
use crate::common::params::Common;

/// The warning if the ends have different clocks.
pub(crate) const NO_CLOCK: &str = "the clocks of the two hosts could not be compared: run both \
    ranks on one host, or use `ping`";

/// After this time without a message, or twice the sender's pause, the rest is taken to be lost.
pub(crate) const IDLE_NS: u64 = 2_000_000_000;
/// The parts of a point: the warm-up, if there is one, and the runs; how many messages each.
pub(crate) fn parts(common: &Common) -> impl Iterator<Item = u64> {
    let warm_up = (common.warm_up > 0).then_some(common.warm_up);
    warm_up.into_iter().chain((0..common.runs).map(|_| common.messages))
}

/// Memory for `count` stamps, or other numbers: with its pages there, or not.
pub(crate) fn stamp_memory<T: Copy + From<u8>>(count: usize, touch: bool) -> Vec<T> {
    let mut memory = vec![T::from(0); count];
    if touch {
        std::hint::black_box(&mut memory).fill(T::from(1));
        std::hint::black_box(&mut memory).fill(T::from(0));
    }
    memory
}

/// An empty list with room for so many arrivals: with its pages there, or not.
pub(crate) fn arrivals(count: usize, touch: bool) -> Vec<Arrival> {
    let mut arrivals = Vec::with_capacity(count);
    if touch {
        arrivals.resize(count, Arrival { number: 1, recv: 1, send: 1 });
        std::hint::black_box(&mut arrivals).clear();
    }
    arrivals
}

/// Keeps one-way times, unless the error of the two machines' clocks may exceed the typical time:
/// then the times are dropped, and a warning says so.
pub(crate) fn push_one_way(
    outcome: &mut Outcome,
    (quantity, label): (Quantity, &str),
    warm_up: usize,
    samples: Vec<f64>,
    bound_ns: Option<f64>,
) {
    let mut counted: Vec<f64> = samples.iter().skip(warm_up).copied().collect();
    counted.retain(|sample| !sample.is_nan());
    stats::sort(&mut counted);
    let median = stats::median(&counted);
    match bound_ns {
        Some(bound_ns) if median.abs() < bound_ns => {
            let why = format!(
                "its median, {}, is less than the clocks of the two hosts may be off, {}: use \
                 `ping`, whose round trips need one clock",
                fmt_ns(median),
                fmt_ns(bound_ns)
            );
            outcome.warn_of_hidden(label, &why);
        }
        _ => outcome.push_series(quantity, label, warm_up, samples),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(samples: &[f64], bound_ns: Option<f64>) -> (usize, Vec<String>) {
        let mut outcome = Outcome::default();
        let what = (Quantity::OneWay, "t_lat");
        push_one_way(&mut outcome, what, 1, samples.to_vec(), bound_ns);
        (outcome.series.len(), outcome.warnings)
    }

    #[test]
    fn a_time_below_the_error_of_two_clocks_is_no_result() {
        // The first one is warm-up, and one is lost.
        let samples = [9e9, 900.0, f64::NAN, 1000.0, 1100.0];
        assert_eq!(kept(&samples, None), (1, vec![]));
        assert_eq!(kept(&samples, Some(999.0)), (1, vec![]));
        let (count, warnings) = kept(&samples, Some(1001.0));
        assert_eq!((count, warnings.len()), (0, 1));
        let said = &warnings[0];
        assert!(said.contains("t_lat is not shown") && said.contains("1.00 us"), "{said}");
        // A clock that is wrong the other way hides as much.
        assert_eq!(kept(&[9.0, -1000.0], Some(1001.0)).0, 0);
    }
}
