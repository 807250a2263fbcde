//! What the simulation of the points of a sweep takes on this machine.

use rdmalab_experiments::Point;
use rdmalab_measure::limits::available_cores;

/// What the simulation of a point takes here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// To set up and to end.
    pub once_s: f64,
    /// For each message.
    pub message_s: f64,
}

impl Cost {
    /// From the messages and seconds of trials, the shortest first; there is one at least.
    pub fn of(trials: &[(u64, f64)]) -> Cost {
        let (&(few, first_s), &(many, last_s)) = match (trials.first(), trials.last()) {
            (Some(first), Some(last)) => (first, last),
            _ => return Cost { once_s: 0.0, message_s: 0.0 },
        };
        if few == many {
            return Cost { once_s: 0.0, message_s: last_s / many.max(1) as f64 };
        }
        let message_s = (last_s - first_s).max(0.0) / (many - few) as f64;
        Cost { once_s: (last_s - message_s * many as f64).max(0.0), message_s }
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
            let once_s = cost.once_s + cost.message_s * point.common.total() as f64;
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
        Cost { once_s, message_s }
    }

    #[test]
    fn trials_tell_what_a_message_takes_and_what_comes_once() {
        let found = Cost::of(&[(32, 0.5 + 32.0), (256, 0.5 + 256.0)]);
        assert!((found.once_s - 0.5).abs() < 1e-9 && (found.message_s - 1.0).abs() < 1e-9);
        assert_eq!(Cost::of(&[(4, 2.0)]), cost_of(0.0, 0.5));
        // A disturbed first trial makes nothing negative.
        assert_eq!(Cost::of(&[(32, 9.0), (256, 1.0)]), cost_of(1.0, 0.0));
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
