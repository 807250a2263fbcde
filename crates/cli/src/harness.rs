//! Measures the cost of measuring. It is a part of every number, and is never subtracted.

use rdmalab_measure::Clock;
use rdmalab_measure::quantity::fmt_ns;

/// Number of stamps, and of iterations of the loop.
const TURNS: usize = 100_000;

/// One sentence: the cost of a time stamp, and of an empty loop with one stamp per iteration.
pub fn cost(clock: &Clock) -> String {
    let stamp = clock.cost(TURNS);
    format!(
        "the harness: a stamp costs {} (median; p99 {}), an empty loop that takes one a turn {}; \
         they are not subtracted from any number",
        fmt_ns(stamp.median_ns),
        fmt_ns(stamp.p99_ns),
        fmt_ns(empty_loop_ns(clock)),
    )
}

/// Time per iteration of a loop that takes a stamp and stores it, as an experiment's loop does.
fn empty_loop_ns(clock: &Clock) -> f64 {
    let mut stamps = vec![clock.now(); TURNS];
    let began = clock.now();
    for stamp in std::hint::black_box(&mut stamps) {
        *stamp = clock.now();
    }
    let ended = clock.now();
    std::hint::black_box(&stamps);
    clock.ns_between(began, ended) / TURNS as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_loop_takes_some_time_and_the_line_says_so() {
        let clock = Clock::new();
        assert!(empty_loop_ns(&clock) > 0.0);
        assert!(cost(&clock).contains("an empty loop"));
    }
}
