//! `--duration`: how many messages fit a time, found by trials before the measurement. So both ends
//! know the number beforehand, and the loops that measure look at no clock for it.

use std::ops::ControlFlow;

use rdmalab_measure::outcome::Figure;
use rdmalab_measure::{Outcome, Quantity};
use rdmalab_rank::{Rank, Stopped};

use crate::common::params::Common;

/// The share of the time that the last trial takes, and the bounds of its duration in nanoseconds.
const TRIAL_SHARE: f64 = 0.125;
const TRIAL_NS: (f64, f64) = (1e7, 1e9);
/// Most messages of the second trial. The first one has a single message, and shows how long it
/// takes to connect.
const SECOND: u64 = 64;
/// A trial has at least and at most so many times the messages of the one before.
const GROWTH: (f64, f64) = (2.0, 32.0);
/// What all trials take at most, as a share of the measurement, for estimates.
pub(crate) const ALL_TRIALS_SHARE: f64 = 0.25;
/// In the number that rank 0 sends: no trial follows.
const IS_LAST: u64 = 1 << 63;
/// In place of a number: this rank was told to stop.
const IS_CUT: u64 = u64::MAX;

/// What the trials have shown so far.
struct Trials {
    duration_ns: f64,
    /// The least time from one message to the next.
    pause_ns: f64,
    runs: u64,
    /// The most messages of a run.
    most: u64,
    /// How long a trial takes beside its messages.
    setup_ns: Option<f64>,
}

impl Trials {
    fn of(common: &Common, most: u64) -> Self {
        let (duration_ns, pause_ns) = (common.duration_ns as f64, common.pause_ns as f64);
        Self { duration_ns, pause_ns, runs: common.runs, most, setup_ns: None }
    }

    /// The messages of a run, if each takes so long.
    fn of_a_run(&self, each_ns: f64) -> u64 {
        ((self.duration_ns / self.runs as f64 / each_ns).round() as u64).clamp(1, self.most)
    }

    /// After a trial of `messages` that took so long: the messages of the next one, or, with
    /// [`IS_LAST`], those of a run. `told_ns` is the time that the trial measured for its messages,
    /// if it did: without the time to connect, or to wait for lost ones at the end.
    fn next(&mut self, messages: u64, took_ns: f64, told_ns: Option<f64>) -> u64 {
        let wanted_ns = (self.duration_ns * TRIAL_SHARE).clamp(TRIAL_NS.0, TRIAL_NS.1);
        let Some(setup_ns) = self.setup_ns else {
            self.setup_ns = Some(took_ns);
            let fit = (wanted_ns / self.pause_ns.max(1.0)) as u64;
            return fit.clamp(2, SECOND).min(self.most);
        };
        // The first trial is the slowest one to connect.
        let setup_ns = setup_ns.min(took_ns);
        self.setup_ns = Some(setup_ns);
        let sending_ns = told_ns.unwrap_or(took_ns - setup_ns).max(1.0);
        if sending_ns < wanted_ns && messages < self.most {
            let factor = (1.25 * wanted_ns / sending_ns).clamp(GROWTH.0, GROWTH.1);
            return ((messages as f64 * factor) as u64).min(self.most);
        }
        let alike = if told_ns.is_some() { messages } else { messages.saturating_sub(1).max(1) };
        self.of_a_run(sending_ns / alike as f64) | IS_LAST
    }
}

/// The options with a number of messages in place of a time; or the results of a trial that was cut
/// short. `most` is the most messages that a run can have. All ranks have to call this.
///
/// # Errors
/// A trial fails.
pub(crate) fn counted<R: Rank>(
    rank: &R,
    common: &Common,
    most: u64,
    trial: impl Fn(&Common) -> Result<Outcome, Stopped>,
) -> Result<ControlFlow<Outcome, Common>, Stopped> {
    let mut trials = Trials::of(common, most);
    let of = |messages| Common { messages, duration_ns: 0, ..common.clone() };
    // At a rate it is known how many fit.
    if common.rate_per_s > 0 {
        return Ok(ControlFlow::Continue(of(trials.of_a_run(1e9 / common.rate_per_s as f64))));
    }
    let mut messages = 1;
    loop {
        let begin = rank.now();
        let mut outcome = trial(&Common { runs: 1, warm_up: 0, ..of(messages) })?;
        let took_ns = rank.clock().ns_between(begin, rank.now());
        let is_cut = outcome.cut_short.is_some();
        let own = match (is_cut, rank.index()) {
            (true, _) => IS_CUT,
            (false, 0) => trials.next(messages, took_ns, told_ns(&outcome)),
            // The others follow rank 0.
            (false, _) => 0,
        };
        let (_, agreed) = match rank.agree(own) {
            Err(why) if !is_cut => return Err(why),
            agreed => agreed.unwrap_or((0, IS_CUT)),
        };
        if agreed == IS_CUT {
            outcome.cut_short.get_or_insert_with(|| "another rank stopped in a trial".to_owned());
            return Ok(ControlFlow::Break(outcome));
        }
        messages = agreed & !IS_LAST;
        if agreed & IS_LAST != 0 {
            return Ok(ControlFlow::Continue(of(messages)));
        }
    }
}

/// How long the messages of a trial took, those of all threads and directions, as it measured it.
fn told_ns(outcome: &Outcome) -> Option<f64> {
    let is_it = |f: &&Figure| f.quantity == Quantity::MessageTime && f.label.is_empty();
    let each = outcome.figures.iter().find(is_it)?;
    let came = outcome.count("received").or_else(|| outcome.count("sent"))?;
    Some(each.value * came as f64)
}

/// Says how many messages a run had, and if there were not enough for the time.
pub(crate) fn note(outcome: &mut Outcome, asked: &Common, counted: &Common, most: u64) {
    outcome.push_fact("messages_of_a_run", counted.messages);
    if counted.messages == most {
        outcome.warnings.push(format!(
            "--duration: a run has at most {most} messages here, so it may have taken less than \
             its share of {} s",
            asked.duration_ns as f64 / 1e9
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages of a run on a device with these times, and how long all trials took.
    fn fitted(duration_ns: f64, each_ns: f64, setup_ns: f64, most: u64) -> (u64, f64) {
        let mut trials = Trials { duration_ns, pause_ns: 0.0, runs: 2, most, setup_ns: None };
        let (mut messages, mut all_ns) = (1, 0.0);
        loop {
            let took_ns = setup_ns + messages as f64 * each_ns;
            let next = trials.next(messages, took_ns, None);
            all_ns += took_ns;
            if next & IS_LAST != 0 {
                return (next & !IS_LAST, all_ns);
            }
            assert!(next > messages || next == most, "{next} after {messages}");
            messages = next;
        }
    }

    #[test]
    fn the_runs_take_the_time_together_however_long_a_message_takes() {
        for each_ns in [20.0, 700.0, 1e5, 2e7] {
            for duration_ns in [1e9, 1e10] {
                let (messages, all_ns) = fitted(duration_ns, each_ns, 5e6, 1 << 40);
                let share = 2.0 * messages as f64 * each_ns / duration_ns;
                assert!((0.95..1.05).contains(&share), "{each_ns} {duration_ns}: {share}");
                let most = if each_ns > 1e6 { 2.0 } else { ALL_TRIALS_SHARE };
                assert!(all_ns < most * duration_ns, "{each_ns} {duration_ns}: {all_ns}");
            }
        }
    }

    /// A first trial that had to resolve an address says nothing of the later ones.
    #[test]
    fn a_slow_first_trial_makes_the_runs_no_longer() {
        let mut trials =
            Trials::of(&Common { duration_ns: 1_000_000_000, runs: 1, ..Common::DEFAULT }, 1 << 40);
        let (mut messages, mut took_ns, mut all_ns) = (1, 3e9, 0.0);
        loop {
            let next = trials.next(messages, took_ns, None);
            if next & IS_LAST != 0 {
                messages = next & !IS_LAST;
                break;
            }
            messages = next;
            took_ns = 5e6 + messages as f64 * 2e3;
            all_ns += took_ns;
        }
        assert!((450_000..550_000).contains(&messages), "{messages}");
        assert!(all_ns < 1e9, "{all_ns}");
    }

    #[test]
    fn there_is_one_message_at_least_and_no_more_than_can_be_kept() {
        assert_eq!(fitted(1e6, 1e9, 0.0, 1 << 40).0, 1);
        assert_eq!(fitted(1e12, 100.0, 0.0, 5000).0, 5000);
        assert_eq!(fitted(1e9, 100.0, 0.0, 1).0, 1);
    }

    /// What a trial measured counts, and not how long it waited for lost messages.
    #[test]
    fn a_wait_for_lost_messages_is_no_time_of_a_message() {
        let common = Common { duration_ns: 1_000_000_000, ..Common::DEFAULT };
        let mut trials = Trials::of(&common, 1 << 40);
        assert_eq!(trials.next(1, 5e6, Some(1e6)), SECOND);
        let next = trials.next(SECOND, 2e9, Some(64e3));
        assert!(next & IS_LAST == 0 && next > SECOND, "{next}");
        assert_eq!(trials.next(200_000, 2e9, Some(2e8)), 1_000_000 | IS_LAST);
        // A pause bounds the second trial.
        let paused = Common { pause_ns: 1_000_000_000, ..common };
        assert_eq!(Trials::of(&paused, 1 << 40).next(1, 5e6, None), 2);
    }

    #[test]
    fn a_run_with_the_most_messages_is_said_to_be_short() {
        let asked = Common { duration_ns: 2_000_000_000, ..Common::DEFAULT };
        let warnings = |messages| {
            let mut outcome = Outcome::default();
            note(&mut outcome, &asked, &Common { messages, ..Common::DEFAULT }, 100);
            assert_eq!(outcome.fact("messages_of_a_run"), Some(&*messages.to_string()));
            outcome.warnings.len()
        };
        assert_eq!((warnings(99), warnings(100)), (0, 1));
    }
}
