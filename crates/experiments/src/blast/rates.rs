//! What `blast` computes from its runs: the rate, the bandwidth and the time of a message.

use rdmalab_measure::{Clock, Outcome, Quantity, Stamp};

use super::part::Part;
use crate::common::params::Common;

/// The rate of all runs, and the time of a message in each.
pub(super) struct Rates {
    per_s: f64,
    each_ns: Vec<f64>,
}

impl Rates {
    /// `None` if no message counts.
    pub fn of(clock: &Clock, runs: &[Part]) -> Option<Self> {
        let elapsed_ns = |p: &Part| clock.ns_between(Stamp(p.first), Stamp(p.last));
        let counted = || runs.iter().filter(|p| p.messages > 0 && elapsed_ns(p) > 0.0);
        let messages: u64 = counted().map(|p| p.messages).sum();
        let total_ns: f64 = counted().map(elapsed_ns).sum();
        let each_ns = counted().map(|p| elapsed_ns(p) / p.messages as f64).collect();
        (messages > 0).then(|| Self { per_s: messages as f64 / total_ns * 1e9, each_ns })
    }

    /// Adds rate and bandwidth under a label.
    pub fn push(&self, common: &Common, label: &str, outcome: &mut Outcome) {
        outcome.push_figure(Quantity::Rate, label, self.per_s);
        outcome.push_figure(Quantity::Bandwidth, label, self.per_s * common.size_bytes as f64);
    }

    /// Adds rate, bandwidth and time of a message, of all runs and of each.
    pub fn push_all(&self, common: &Common, outcome: &mut Outcome) {
        self.push(common, "", outcome);
        outcome.push_figure(Quantity::MessageTime, "", 1e9 / self.per_s);
        // One run is the figure above, and no distribution.
        if self.each_ns.len() > 1 {
            outcome.push_series(Quantity::MessageTime, "runs", 0, self.each_ns.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_directions_take_the_time_of_the_slower_one() {
        let clock = Clock::monotonic_raw();
        let ticks = |ns: f64| (ns / clock.ns_per_tick()).round() as u64;
        let run = |messages, ns| Part { messages, first: 5, last: 5 + ticks(ns) };
        let one = Rates::of(&clock, &[run(10, 1e6), run(0, 1e6), run(30, 1e6)]).unwrap();
        assert!((one.per_s - 20_000.0).abs() < 1.0, "{}", one.per_s);
        assert_eq!(one.each_ns.len(), 2);
        let together = run(10, 1e6).with(&run(30, 2e6));
        let both = Rates::of(&clock, &[together]).unwrap();
        assert!((both.per_s - 20_000.0).abs() < 1.0, "{}", both.per_s);
        assert!(Rates::of(&clock, &[run(0, 1e6)]).is_none());
    }
}
