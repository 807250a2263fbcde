//! What became of the samples of a path. Sequence numbers are numbers of ticks, so each gap and
//! each repetition is counted where it shows.

use rdmalab_measure::stats;
use rdmalab_sample::Histogram;
use serde::Serialize;

/// Sequence numbers behind the highest one of which it is known whether they came.
const WINDOW: u64 = 1024;

/// A gap that no sender leaves: its numbers began anew.
const GAP_MAX: u64 = 1 << 32;

/// Follows the sequence numbers of a stream.
#[derive(Clone, Debug)]
pub struct Tracker {
    /// The number after the highest one; `None` before the first.
    next: Option<u64>,
    /// Whether the number came, for the last [`WINDOW`] numbers, by the number modulo the window.
    came: Box<[u64; (WINDOW / 64) as usize]>,
    /// What was found.
    pub found: Sequence,
}

/// What sequence numbers have shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sequence {
    /// Samples that came.
    pub samples: u64,
    /// Numbers that were left out, and have not come later.
    pub lost: u64,
    /// Numbers that came again.
    pub duplicate: u64,
    /// Numbers that came after a higher one.
    pub reordered: u64,
    /// Times that the numbers began anew, far from those before: the sender was started again.
    pub restarts: u64,
    /// The first number.
    pub first: Option<u64>,
    /// The highest number since the latest start.
    pub last: Option<u64>,
}

impl Default for Tracker {
    fn default() -> Self {
        Self { next: None, came: Box::new([0; 16]), found: Sequence::default() }
    }
}

impl Tracker {
    /// A sample with this number has come.
    pub fn saw(&mut self, number: u64) {
        self.found.samples += 1;
        let Some(next) = self.next else {
            self.found.first.get_or_insert(number);
            self.begin_at(number);
            return;
        };
        if number >= next && number - next > GAP_MAX {
            self.found.restarts += 1;
            self.begin_at(number);
        } else if number >= next {
            let gap = number - next;
            self.found.lost = self.found.lost.saturating_add(gap);
            (0..gap.min(WINDOW)).for_each(|back| self.set(number - 1 - back, false));
            self.set(number, true);
            (self.next, self.found.last) = (Some(number.saturating_add(1)), Some(number));
        } else if next - number > WINDOW {
            self.found.restarts += 1;
            self.begin_at(number);
        } else if self.has(number) {
            self.found.duplicate += 1;
        } else {
            self.set(number, true);
            self.found.reordered += 1;
            self.found.lost = self.found.lost.saturating_sub(1);
        }
    }

    /// The sender begins anew: its next number, whatever it is, is a first one.
    pub fn restart(&mut self) {
        if self.next.take().is_some() {
            self.found.restarts += 1;
        }
    }

    fn begin_at(&mut self, number: u64) {
        // Numbers before the first one count as duplicates if they come: nobody waited for them.
        self.came.fill(u64::MAX);
        (self.next, self.found.last) = (Some(number.saturating_add(1)), Some(number));
    }

    fn set(&mut self, number: u64, came: bool) {
        let (word, bit) = ((number % WINDOW / 64) as usize, 1 << (number % 64));
        match came {
            true => self.came[word] |= bit,
            false => self.came[word] &= !bit,
        }
    }

    fn has(&self, number: u64) -> bool {
        self.came[(number % WINDOW / 64) as usize] >> (number % 64) & 1 == 1
    }
}

/// Times from the origin of samples until they were received, in nanoseconds. One more takes the
/// same time however many there are.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Histogram);

/// Quantiles of times, in nanoseconds, right to 1.6 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    /// How many times were measured.
    pub count: u64,
    /// The shortest.
    pub min_ns: f64,
    /// The median.
    pub p50_ns: f64,
    /// The 90th percentile.
    pub p90_ns: f64,
    /// The 99th percentile.
    pub p99_ns: f64,
    /// The 99.9th percentile; `None` when there are too few samples for it.
    pub p999_ns: Option<f64>,
    /// The longest.
    pub max_ns: f64,
}

impl Latencies {
    /// One more.
    pub fn push(&mut self, ns: i64) {
        self.0.add(ns);
    }

    /// Their quantiles; `None` without any.
    #[must_use]
    pub fn quantiles(&self) -> Option<Quantiles> {
        let of = |q| self.0.quantile(q).map(|ns| ns as f64);
        let count = self.0.count();
        Some(Quantiles {
            count,
            min_ns: self.0.lowest()? as f64,
            p50_ns: of(0.5)?,
            p90_ns: of(0.9)?,
            p99_ns: of(0.99)?,
            p999_ns: of(0.999).filter(|_| stats::supports_quantile(count, 0.999)),
            max_ns: self.0.highest()? as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(numbers: &[u64]) -> Sequence {
        let mut tracker = Tracker::default();
        numbers.iter().for_each(|&number| tracker.saw(number));
        tracker.found
    }

    #[test]
    fn each_kind_of_trouble_has_its_own_count() {
        let of = |numbers: &[u64]| {
            let f = found(numbers);
            (f.samples, f.lost, f.duplicate, f.reordered, f.restarts)
        };
        assert_eq!(of(&[5, 6, 7]), (3, 0, 0, 0, 0));
        assert_eq!(of(&[0, 1, 4, 5]), (4, 2, 0, 0, 0));
        assert_eq!(of(&[0, 1, 1, 2, 2, 2]), (6, 0, 3, 0, 0));
        assert_eq!(of(&[0, 2, 1, 3]), (4, 0, 0, 1, 0));
        assert_eq!(of(&[0, 2, 1, 1, 3]), (5, 0, 1, 1, 0));
        assert_eq!(of(&[5000, 5001, 0, 1]), (4, 0, 0, 0, 1));
        assert_eq!(of(&[7, 6]), (2, 0, 1, 0, 0));
        let last = found(&[3, 9, 4]);
        assert_eq!((last.first, last.last), (Some(3), Some(9)));
    }

    #[test]
    fn the_window_has_an_end() {
        let with = |back: u64| found(&[0, 10_000, 10_001 - back]);
        assert_eq!((with(WINDOW).reordered, with(WINDOW).restarts), (1, 0));
        assert_eq!((with(WINDOW + 1).reordered, with(WINDOW + 1).restarts), (0, 1));
    }

    #[test]
    fn the_largest_numbers_are_numbers() {
        let max = u64::MAX;
        let of = |numbers: &[u64]| {
            let f = found(numbers);
            (f.lost, f.duplicate, f.restarts, f.last)
        };
        assert_eq!(of(&[max - 1, max]), (0, 0, 0, Some(max)));
        assert_eq!(of(&[max, 0, 1]), (0, 0, 1, Some(1)));
        assert_eq!(of(&[0, max, 1, max, 2]), (0, 0, 4, Some(2)));
        assert_eq!(of(&[0, GAP_MAX + 1]), (GAP_MAX, 0, 0, Some(GAP_MAX + 1)));
        assert_eq!(of(&[0, GAP_MAX + 2]), (0, 0, 1, Some(GAP_MAX + 2)));
    }

    #[test]
    fn a_permutation_loses_nothing() {
        let mut random = rdmalab_random::Random::new(7);
        let mut numbers: Vec<u64> = (0..900).collect();
        for at in (1..numbers.len()).rev() {
            // The first stays: what comes before it counts as a duplicate.
            numbers.swap(at, 1 + random.below(at as u64) as usize);
        }
        let f = found(&numbers);
        assert_eq!((f.samples, f.lost, f.duplicate, f.restarts), (900, 0, 0, 0));
        assert!(f.reordered > 0);
    }

    #[test]
    fn times_give_their_quantiles() {
        let mut all = Latencies::default();
        assert_eq!(all.quantiles(), None);
        let n = 1_000_000;
        (0..n).for_each(|ns| all.push(ns));
        let q = all.quantiles().unwrap();
        assert_eq!((q.count, q.min_ns, q.max_ns), (n as u64, 0.0, (n - 1) as f64));
        for (q, ns) in [(0.5, q.p50_ns), (0.9, q.p90_ns), (0.99, q.p99_ns)] {
            assert!((ns / n as f64 / q - 1.0).abs() < 0.016, "{q}: {ns}");
        }
        assert!((q.p999_ns.unwrap() / n as f64 - 0.999).abs() < 0.016, "{q:?}");
    }
}
