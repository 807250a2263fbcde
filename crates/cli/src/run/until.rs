//! `--until 'median±1%'`: repeats runs until the interval is narrow enough or the time is over.

use std::str::FromStr;
use std::time::{Duration, Instant};

use rdmalab_experiments::{Turn, shuffle};
use rdmalab_measure::outcome::Series;
use rdmalab_measure::stats::{MIN_RUNS, Timed};
use rdmalab_measure::{Outcome as Measured, Quantity};

/// Most runs of each point.
const MAX_ROUNDS: usize = 10_000;

/// Confidence of the interval.
const CONFIDENCE: f64 = 0.95;

/// The required width of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// The quantile.
    pub quantile: f64,
    /// The largest distance of the interval's ends from the quantile, as a share of it.
    pub share: f64,
}

impl FromStr for Goal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?}: write a quantile and the largest half-width of its interval, such as \
                 'median±1%' or 'p99+-5%'"
            )
        };
        let (what, share) =
            text.split_once('±').or_else(|| text.split_once("+-")).ok_or_else(wrong)?;
        let quantile = crate::values::quantile(what.trim()).map_err(|_| wrong())?;
        let percent = share.trim().strip_suffix('%').and_then(|p| p.trim().parse::<f64>().ok());
        match percent {
            Some(p) if p > 0.0 && p <= 100.0 => Ok(Self { quantile, share: p / 100.0 }),
            _ => Err(wrong()),
        }
    }
}

/// The results of each point so far.
#[derive(Debug)]
pub struct Until {
    goal: Goal,
    /// For each point, one series of each run.
    runs: Vec<Vec<Vec<f64>>>,
    /// The series of each point: the first of its first run, as for an expectation without a name.
    which: Vec<Option<(Quantity, String)>>,
    seed: u64,
    round: usize,
    began: Instant,
    round_began: Instant,
    max_time: Duration,
}

impl Until {
    /// For `points` points; the time starts now.
    pub fn new(goal: Goal, points: usize, seed: u64, max_time: Duration) -> Self {
        let now = Instant::now();
        let runs = vec![Vec::new(); points];
        let which = vec![None; points];
        Self { goal, runs, which, seed, round: 0, began: now, round_began: now, max_time }
    }

    /// Adds a run of a point.
    pub fn add(&mut self, point: usize, measured: &Measured) {
        let first = || measured.series.first().map(|s| (s.quantity, s.label.clone()));
        let which = &mut self.which[point];
        *which = which.take().or_else(first);
        let is_it = |s: &&Series| {
            which
                .as_ref()
                .is_some_and(|(quantity, label)| (s.quantity, &s.label) == (*quantity, label))
        };
        let samples = measured.series.iter().find(is_it).map(|s| s.counted().collect());
        self.runs[point].push(samples.unwrap_or_default());
    }

    /// The distance of the interval's ends, as a share; `None` while it is unknown.
    fn width(&self, point: usize) -> Option<f64> {
        if self.runs[point].len() < MIN_RUNS {
            return None;
        }
        let timed = Timed::new(&self.runs[point])?;
        let found = timed.quantile(self.goal.quantile)?;
        let interval = found.interval(CONFIDENCE)?;
        // The clock rounds each sample to its step, so equal samples may differ by half a step.
        let rounded = timed.step() / 2.0;
        let away = (found.value - interval.low).max(interval.high - found.value) + rounded;
        (found.value > 0.0).then(|| away / found.value)
    }

    /// The points whose interval is still too wide.
    fn wide(&self) -> Vec<usize> {
        let is_wide = |point: &usize| self.width(*point).is_none_or(|w| w > self.goal.share);
        (0..self.runs.len()).filter(is_wide).collect()
    }

    /// The next round, in random order, with the points that need it. Empty if all intervals are
    /// narrow enough, or if another round would take too long.
    pub fn next_round(&mut self) -> Vec<Turn> {
        let took = self.round_began.elapsed();
        let is_late = self.round > 0 && self.began.elapsed() + took > self.max_time;
        if is_late || self.round >= MAX_ROUNDS {
            return Vec::new();
        }
        self.round_began = Instant::now();
        let wide = self.wide();
        let turns = shuffle(wide.len(), 1, self.seed.wrapping_add(self.round as u64));
        let repetition = self.round;
        self.round += 1;
        turns.iter().map(|turn| Turn { point: wide[turn.point], repetition }).collect()
    }

    /// A sentence on the points whose interval is still too wide; `None` if there are none.
    pub fn shortfall(&self) -> Option<String> {
        let wide = self.wide();
        let widths: Vec<f64> = wide.iter().filter_map(|point| self.width(*point)).collect();
        let worst = widths.iter().copied().fold(f64::NAN, f64::max);
        let known = match widths.len() {
            n if n == wide.len() => format!("the widest is +-{:.1} %", worst * 100.0),
            _ if wide.iter().any(|point| self.runs[*point].len() < MIN_RUNS) => {
                format!("a point needs {MIN_RUNS} runs")
            }
            _ => "too few samples for this quantile: raise --messages".to_owned(),
        };
        let ended = match self.round {
            MAX_ROUNDS.. => format!("the limit of {MAX_ROUNDS} rounds was reached"),
            _ => format!("--max-time {} s has passed", self.max_time.as_secs_f64()),
        };
        (!wide.is_empty()).then(|| {
            format!(
                "{ended}, and {} of {} points are not known to +-{} %: {known}",
                wide.len(),
                self.runs.len(),
                (self.goal.share * 1e11).round() / 1e9
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: f64, n: usize) -> Measured {
        let mut measured = Measured::default();
        let samples = (0..n).map(|i| first + (i * 37 % 101) as f64).collect();
        measured.push_series(Quantity::RoundTrip, "", 0, samples);
        measured
    }

    #[test]
    fn goals_are_read() {
        assert_eq!("median±1%".parse(), Ok(Goal { quantile: 0.5, share: 0.01 }));
        assert_eq!("p99 +- 5 %".parse(), Ok(Goal { quantile: 0.99, share: 0.05 }));
        for wrong in ["", "median", "median±", "median±1", "median±0%", "mean±1%", "p100±1%"] {
            assert!(wrong.parse::<Goal>().unwrap_err().contains("median±1%"), "{wrong}");
        }
    }

    #[test]
    fn points_go_on_until_they_are_known() {
        let goal = Goal { quantile: 0.5, share: 0.02 };
        let mut until = Until::new(goal, 2, 7, Duration::from_secs(3600));
        let mut counts = [0, 0];
        // The second point varies by ten per cent between runs at first.
        for round in 0..200 {
            let turns = until.next_round();
            if turns.is_empty() {
                break;
            }
            for turn in turns {
                assert_eq!(turn.repetition, round);
                counts[turn.point] += 1;
                let offset = if turn.point == 1 { [0.0, 100.0, 50.0][round % 3] } else { 0.0 };
                until.add(turn.point, &run(1000.0 + offset, 1000));
            }
        }
        assert_eq!(counts[0], MIN_RUNS, "{counts:?}");
        assert!(counts[1] > MIN_RUNS && counts[1] < 200, "{counts:?}");
        assert_eq!(until.shortfall(), None);
    }

    #[test]
    fn equal_samples_know_no_more_than_the_clock_that_rounded_them() {
        let width = |step: f64, hair: f64| {
            let mut until = Until::new(Goal { quantile: 0.5, share: 0.01 }, 1, 7, Duration::ZERO);
            for _ in 0..MIN_RUNS {
                let mut measured = Measured::default();
                let samples = (0..1000).map(|i| match i % 10 {
                    0 => 1000.0 + step,
                    1 => 1000.0 + hair,
                    _ => 1000.0,
                });
                measured.push_series(Quantity::RoundTrip, "", 0, samples.collect());
                until.add(0, &measured);
            }
            until.width(0).unwrap()
        };
        let of_steps = (width(10.0, 0.0), width(1.0, 0.0), width(0.0, 0.0));
        assert_eq!(of_steps, (0.005, 0.0005, 0.0));
        // Rounding errors from the conversion of ticks are no clock step.
        assert!((width(10.0, 1e-7) - 0.005).abs() < 1e-9);
    }

    #[test]
    fn the_same_series_counts_in_every_run() {
        let goal = Goal { quantile: 0.5, share: 0.02 };
        let mut until = Until::new(goal, 1, 7, Duration::ZERO);
        for round in 0..3 {
            let mut measured = Measured::default();
            // If the clocks cannot be trusted in a run, it has no one-way times.
            if round != 1 {
                measured.push_series(Quantity::OneWay, "t_lat", 0, vec![1.0; 3]);
            }
            measured.push_series(Quantity::CompletionTime, "t_lat_comp", 0, vec![9.0; 4]);
            until.add(0, &measured);
        }
        assert_eq!(until.runs[0], [vec![1.0; 3], vec![], vec![1.0; 3]]);
    }

    #[test]
    fn time_that_is_up_is_told() {
        let goal = Goal { quantile: 0.5, share: 1e-6 };
        let mut until = Until::new(goal, 1, 7, Duration::ZERO);
        assert_eq!(until.next_round().len(), 1);
        until.add(0, &run(1000.0, 100));
        assert!(until.next_round().is_empty());
        let said = until.shortfall().unwrap();
        assert!(said.contains("1 of 1 points are not known to +-0.0001 %"), "{said}");
        assert!(said.contains("needs 5 runs"), "{said}");
    }

    #[test]
    fn a_quantile_too_far_out_is_told() {
        let goal = Goal { quantile: 0.9999, share: 0.05 };
        let mut until = Until::new(goal, 1, 7, Duration::from_secs(3600));
        for _ in 0..MIN_RUNS {
            assert_eq!(until.next_round().len(), 1);
            until.add(0, &run(1000.0, 100));
        }
        let said = until.shortfall().unwrap();
        assert!(said.contains("raise --messages"), "{said}");
    }
}
