//! What the simulation of the points of a sweep takes on this machine.

use rdmalab_experiments::Point;
use rdmalab_measure::limits::available_cores;

/// A simulation of a point with other numbers of runs and messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    pub runs: u64,
    /// Messages of a run. There is no warm-up.
    pub messages: u64,
    /// Events of the simulation: the same each time.
    pub events: u64,
    /// Processor time.
    pub cpu_s: f64,
}

/// What the simulation of a point takes here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// To set up and to end.
    pub once_s: f64,
    /// For each run, besides its messages.
    pub run_s: f64,
    /// For each message.
    pub message_s: f64,
}

impl Cost {
    /// From three trials, each with no fewer runs and messages than the one before; of the first
    /// one the time is not used. How many events a run and a message have is known exactly; what
    /// an event takes is the difference of the last two trials, so that the setup does not count.
    pub fn of([first, short, long]: [Trial; 3]) -> Cost {
        let more = |to: u64, from: u64| to.saturating_sub(from) as f64;
        let of_message = match more(short.messages, first.messages) {
            0.0 => 0.0,
            messages => more(short.events, first.events) / messages,
        };
        let all = |trial: &Trial| trial.runs.saturating_mul(trial.messages);
        let events = more(long.events, short.events);
        let of_runs = events - of_message * more(all(&long), all(&short));
        let of_run = of_runs.max(0.0) / more(long.runs, short.runs).max(1.0);
        // All that a trial took is an upper bound.
        let most_s = long.cpu_s / long.events.max(1) as f64;
        let event_s = ((long.cpu_s - short.cpu_s) / events.max(1.0)).clamp(0.0, most_s);
        let (run_s, message_s) = (event_s * of_run, event_s * of_message);
        let varies_s = run_s * short.runs as f64 + message_s * all(&short) as f64;
        Cost { once_s: (short.cpu_s - varies_s).max(0.0), run_s, message_s }
    }

    /// For a point with these runs, and these messages together.
    fn expected_s(&self, runs: u64, messages: u64) -> f64 {
        self.once_s + self.run_s * runs as f64 + self.message_s * messages as f64
    }

    /// Between two costs, at a share of the way. Sizes and numbers of peers grow by factors from
    /// point to point, and so do costs.
    fn between(self, other: Cost, share: f64) -> Cost {
        let mean = |a: f64, b: f64| match a > 0.0 && b > 0.0 {
            true => a.powf(1.0 - share) * b.powf(share),
            false => a * (1.0 - share) + b * share,
        };
        Cost {
            once_s: mean(self.once_s, other.once_s),
            run_s: mean(self.run_s, other.run_s),
            message_s: mean(self.message_s, other.message_s),
        }
    }
}

/// Processors that simulate points.
fn processors() -> f64 {
    available_cores().map_or(1, |cores| cores.len().max(1)) as f64
}

/// What simulations of the points of a part take.
#[derive(Clone, Debug)]
pub struct HostTime {
    /// Of each point that is possible, in their order.
    pub costs: Vec<Cost>,
    /// Whether each repetition of such a point is simulated, and not only the first one.
    pub is_drawn: Vec<bool>,
}

impl HostTime {
    /// The estimated duration for these points on all processors, in seconds.
    pub fn expected_s(&self, points: &[&Point], repeat: u32) -> f64 {
        let each = points.iter().zip(&self.costs).zip(&self.is_drawn);
        let each = each.map(|((point, cost), is_drawn)| {
            let times = if *is_drawn { repeat } else { 1 };
            let once_s = cost.expected_s(point.common.runs, point.common.total());
            (once_s, once_s * f64::from(times))
        });
        let (longest_s, all_s) =
            each.fold((0.0, 0.0), |(longest, all), (one, sum)| (one.max(longest), all + sum));
        f64::max(longest_s, all_s / processors())
    }

    /// Whether repetitions take time of this machine.
    pub fn repeats(&self) -> bool {
        self.is_drawn.contains(&true)
    }
}

/// The cost of a point from those that are known, by index.
pub fn interpolated(known: &[(usize, Cost)], index: usize) -> Option<Cost> {
    let after = known.iter().find(|(at, _)| *at >= index);
    let before = known.iter().rev().find(|(at, _)| *at <= index);
    match (before, after) {
        (Some((low, a)), Some((high, b))) if low < high => {
            Some(a.between(*b, (index - low) as f64 / (high - low) as f64))
        }
        (one, other) => one.or(other).map(|(_, cost)| *cost),
    }
}

#[cfg(test)]
mod tests {
    use rdmalab_experiments::{Experiment, sweep};

    use super::*;

    fn cost_of(once_s: f64, message_s: f64) -> Cost {
        Cost { once_s, run_s: 0.0, message_s }
    }

    /// Trials of 100 events of setup, 20 of each run and 5 of each message, by runs and messages.
    /// The setup takes 3 s, and an event 1 ms.
    fn trials(lengths: [(u64, u64); 3]) -> [Trial; 3] {
        lengths.map(|(runs, messages)| {
            let events = 100 + runs * (20 + 5 * messages);
            Trial { runs, messages, events, cpu_s: 2.9 + events as f64 * 1e-3 }
        })
    }

    fn assert_near(cost: Cost, once_s: f64, run_s: f64, message_s: f64) {
        let off = [cost.once_s - once_s, cost.run_s - run_s, cost.message_s - message_s];
        assert!(off.iter().all(|off| off.abs() < 1e-9), "{cost:?}");
    }

    #[test]
    fn trials_tell_setup_runs_and_messages_apart() {
        assert_near(Cost::of(trials([(1, 2), (1, 8), (2, 64)])), 3.0, 0.02, 0.005);
        // A point of one run, whose setup and run cannot be told apart.
        assert_near(Cost::of(trials([(1, 2), (1, 8), (1, 64)])), 3.02, 0.0, 0.005);
        // One that has no messages.
        assert_near(Cost::of(trials([(1, 0), (1, 0), (2, 0)])), 3.0, 0.02, 0.0);
        // One that was tried as a whole.
        assert_near(Cost::of(trials([(1, 2), (1, 2), (1, 2)])), 3.03, 0.0, 0.0);
    }

    #[test]
    fn a_disturbed_trial_makes_no_cost_negative_or_larger_than_all() {
        let [first, mut short, mut long] = trials([(1, 2), (1, 8), (2, 64)]);
        short.cpu_s = 9.0;
        assert_eq!(Cost::of([first, short, long]), cost_of(9.0, 0.0));
        (short.cpu_s, long.cpu_s) = (0.0, 9.0);
        let found = Cost::of([first, short, long]);
        assert!(found.message_s <= 5.0 * 9.0 / long.events as f64, "{found:?}");
    }

    #[test]
    fn points_between_are_interpolated_by_factors() {
        let known = [(0, cost_of(0.0, 1.0)), (2, cost_of(2.0, 100.0))];
        let at = |index| interpolated(&known, index).unwrap();
        assert_eq!((at(0), at(2), at(7)), (known[0].1, known[1].1, known[1].1));
        assert!((at(1).message_s - 10.0).abs() < 1e-9 && (at(1).once_s - 1.0).abs() < 1e-9);
        assert_eq!(interpolated(&[], 0), None);
    }

    #[test]
    fn what_repeats_exactly_is_simulated_once() {
        let points = sweep(Experiment::PING, &[("messages", "90"), ("warm-up", "10")]).unwrap();
        let points: Vec<&Point> = points.iter().collect();
        let of = |is_drawn| {
            HostTime { costs: vec![cost_of(1.0, 0.1)], is_drawn: vec![is_drawn] }
                .expected_s(&points, 1000)
        };
        assert!((of(false) - 11.0).abs() < 1e-6, "{}", of(false));
        assert!(of(true) >= 1000.0 * 11.0 / processors() - 1e-6);
    }
}
