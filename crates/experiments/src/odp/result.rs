//! What the trials of a point say.

use rdmalab_measure::{Outcome, Quantity, stats};

use crate::odp::layout::Plan;
use crate::odp::trial::Trial;

/// From this many operations on, those of each page have a series of their own.
const MIN_PAGED: usize = 32;
/// Up to this many pages have series of their own.
const MAX_PAGES: usize = 16;

/// The trials of a point.
pub(super) struct Trials {
    plan: Plan,
    /// The least time-out, T_tr, ns.
    least_timeout_ns: f64,
    each_ns: Vec<f64>,
    whole_ns: Vec<f64>,
    /// Until the operations of each page were done, if that is kept.
    pages_ns: Vec<Vec<f64>>,
    time_outs: u64,
    failed: u64,
    flushed: u64,
    /// What a work-around posted; `None` without one.
    probes: Option<u64>,
}

impl Trials {
    pub fn new(plan: Plan, least_timeout_ns: f64) -> Self {
        let pages = if has_pages(&plan) { plan.pages() } else { 0 };
        Self {
            plan,
            least_timeout_ns,
            each_ns: Vec::new(),
            whole_ns: Vec::new(),
            pages_ns: vec![Vec::new(); pages],
            time_outs: 0,
            failed: 0,
            flushed: 0,
            probes: plan.work_around.posts().then_some(0),
        }
    }

    pub fn add(&mut self, trial: Trial) {
        if !self.pages_ns.is_empty() {
            for (i, ns) in trial.done_ns.iter().enumerate() {
                self.pages_ns[self.plan.page(i)].push(*ns);
            }
        }
        // Without all of its operations a trial has no execution time.
        let is_whole = trial.failed + trial.flushed == 0;
        self.whole_ns.push(if is_whole { trial.whole_ns } else { f64::NAN });
        self.each_ns.extend(trial.each_ns);
        self.time_outs += u64::from(trial.longest_ns > self.least_timeout_ns);
        self.failed += trial.failed;
        self.flushed += trial.flushed;
        self.probes = self.probes.map(|probes| probes + trial.probes);
    }

    pub fn outcome(self, outcome: &mut Outcome) {
        let trials = self.whole_ns.len() as u64;
        outcome.push_count("trials", trials);
        outcome.push_count("trials_with_time_out", self.time_outs);
        outcome.push_count("touched_pages", self.plan.pages() as u64);
        outcome.push_count("failed", self.failed);
        outcome.push_count("flushed", self.flushed);
        if let Some(probes) = self.probes {
            outcome.push_count("work_around_requests", probes);
        }
        outcome.push_fact("t_tr_ns", self.least_timeout_ns);
        if self.failed > 0 {
            outcome.warnings.push(format!(
                "{} operations failed after all retries, and {} behind them were flushed: trials \
                 with these have no execution time",
                self.failed, self.flushed
            ));
        }
        let mut whole: Vec<f64> = self.whole_ns.iter().copied().filter(|ns| !ns.is_nan()).collect();
        stats::sort(&mut whole);
        if !whole.is_empty() {
            outcome.push_figure(Quantity::ExecutionTime, "", stats::median(&whole));
        }
        outcome.push_series(Quantity::ExecutionTime, "trials", 0, self.whole_ns);
        outcome.push_series(Quantity::CompletionTime, "", 0, self.each_ns);
        for (page, done) in self.pages_ns.into_iter().enumerate() {
            outcome.push_series(Quantity::ExecutionTime, &format!("page {page}"), 0, done);
        }
        if trials > 0 {
            let share = self.time_outs as f64 / trials as f64;
            outcome.push_figure(Quantity::TimeoutShare, "", share);
        }
    }
}

/// Whether the operations of each page have a series of their own.
fn has_pages(plan: &Plan) -> bool {
    plan.operations >= MIN_PAGED && plan.pages() <= MAX_PAGES
}

/// How many series have a sample of each operation.
pub(super) fn series_of_each(plan: &Plan) -> u64 {
    1 + u64::from(has_pages(plan))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::params::Common;
    use crate::odp::options::Odp;
    use crate::workload::Workload;

    fn plan(operations: u32) -> Plan {
        Plan::of(&Common { size_bytes: 128, ..Odp::COMMON }, &Odp { operations, ..Odp::OWN })
    }

    /// A trial whose last operation took so long, and failed or not.
    fn trial(operations: usize, last_ns: f64, failed: u64) -> Trial {
        let mut each_ns = vec![1e3; operations];
        each_ns[operations - 1] = if failed > 0 { f64::NAN } else { last_ns };
        Trial {
            done_ns: each_ns.clone(),
            each_ns,
            whole_ns: last_ns,
            longest_ns: last_ns,
            failed,
            flushed: 0,
            probes: 0,
        }
    }

    #[test]
    fn a_trial_beyond_the_least_time_out_has_one() {
        let mut trials = Trials::new(plan(2), 8192.0);
        for (last_ns, failed) in [(8192.0, 0), (8193.0, 0), (9e9, 1), (2e3, 0)] {
            trials.add(trial(2, last_ns, failed));
        }
        let mut outcome = Outcome::default();
        trials.outcome(&mut outcome);
        let counts = ["trials", "trials_with_time_out", "failed"].map(|name| outcome.count(name));
        assert_eq!(counts, [Some(4), Some(2), Some(1)]);
        let figures = outcome.figures.iter().map(|figure| (figure.quantity, figure.value));
        let expected = [(Quantity::ExecutionTime, 8192.0), (Quantity::TimeoutShare, 0.5)];
        assert_eq!(figures.collect::<Vec<_>>(), expected);
        assert_eq!(outcome.warnings.len(), 1);
        let whole = &outcome.series[0];
        assert_eq!(whole.counted().collect::<Vec<_>>(), [8192.0, 8193.0, 2e3]);
        assert_eq!((outcome.series[1].samples.len(), outcome.series.len()), (8, 2));
    }

    #[test]
    fn many_operations_on_few_pages_are_kept_by_page() {
        let mut trials = Trials::new(plan(64), 1e9);
        trials.add(trial(64, 5e3, 0));
        trials.add(trial(64, 6e3, 0));
        let mut outcome = Outcome::default();
        trials.outcome(&mut outcome);
        let labels: Vec<&str> = outcome.series.iter().map(|one| one.label.as_str()).collect();
        assert_eq!(labels, ["trials", "", "page 0", "page 1"]);
        assert_eq!(outcome.series[3].samples.len(), 64);
        assert_eq!(outcome.series[3].samples[63], 6e3);
        assert_eq!((series_of_each(&plan(31)), series_of_each(&plan(32))), (1, 2));
        assert_eq!(series_of_each(&plan(1 << 20)), 1);
    }
}
