//! What happened to pages, how often and when.

use std::collections::BTreeMap;

/// Most intervals of a [`Timeline`].
pub const INTERVALS_MAX: usize = 256;

/// The length of an interval at first, ns.
const FINEST_NS: u64 = 1_000_000;

/// What happened to the pages of a region, as `rdma statistic show mr` counts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Faults that an access raised.
    pub page_faults: u64,
    /// Pages that an invalidation took away.
    pub page_invalidations: u64,
    /// Pages that were prefetched.
    pub page_prefetches: u64,
}

impl Counters {
    /// Each number with its name.
    pub fn named(&self) -> [(&'static str, u64); 3] {
        [
            ("page_faults", self.page_faults),
            ("page_invalidations", self.page_invalidations),
            ("page_prefetches", self.page_prefetches),
        ]
    }

    /// What was counted since an earlier state.
    #[must_use]
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            page_faults: self.page_faults.saturating_sub(earlier.page_faults),
            page_invalidations: self.page_invalidations.saturating_sub(earlier.page_invalidations),
            page_prefetches: self.page_prefetches.saturating_sub(earlier.page_prefetches),
        }
    }

    /// Adds what another one counted.
    fn add(&mut self, other: &Counters) {
        self.page_faults = self.page_faults.saturating_add(other.page_faults);
        self.page_invalidations = self.page_invalidations.saturating_add(other.page_invalidations);
        self.page_prefetches = self.page_prefetches.saturating_add(other.page_prefetches);
    }
}

/// What was counted in each interval of a clock. Intervals in which nothing happened take no
/// memory. If more than [`INTERVALS_MAX`] have something, all get twice as long, so the memory is
/// bounded and no count is lost. Intervals begin at multiples of their length, so timelines of
/// several processes with one clock can be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    interval_ns: u64,
    /// By the number of the interval, from the clock's zero.
    by_number: BTreeMap<u64, Counters>,
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline { interval_ns: FINEST_NS, by_number: BTreeMap::new() }
    }
}

impl Timeline {
    /// Without counts. `None` if no timeline has intervals of this length.
    pub fn with_intervals(interval_ns: u64) -> Option<Timeline> {
        let times = interval_ns / FINEST_NS;
        let is_one = interval_ns.is_multiple_of(FINEST_NS) && times.is_power_of_two();
        is_one.then(|| Timeline { interval_ns, ..Timeline::default() })
    }

    /// The length of an interval, ns.
    pub fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    /// Adds what happened at a time.
    pub fn add(&mut self, at_ns: u64, counters: &Counters) {
        self.by_number.entry(at_ns / self.interval_ns).or_default().add(counters);
        while self.by_number.len() > INTERVALS_MAX {
            self.coarsen();
        }
    }

    /// Adds another one of the same clock.
    pub fn add_all(&mut self, other: &Timeline) {
        while self.interval_ns < other.interval_ns {
            self.coarsen();
        }
        other.intervals().for_each(|(start_ns, counters)| self.add(start_ns, counters));
    }

    /// The intervals in which something happened: the time at which each begins, and the counts.
    pub fn intervals(&self) -> impl Iterator<Item = (u64, &Counters)> {
        self.by_number.iter().map(|(number, one)| (number * self.interval_ns, one))
    }

    /// The length of an interval, and all intervals from the one that contains `start_ns` to the
    /// last one in which something happened, at most [`INTERVALS_MAX`].
    #[must_use]
    pub fn from(mut self, start_ns: u64) -> (u64, Vec<Counters>) {
        loop {
            let first = start_ns / self.interval_ns;
            let place = |number: u64| number.saturating_sub(first) as usize;
            let count = self.by_number.last_key_value().map_or(0, |(last, _)| place(*last) + 1);
            if count <= INTERVALS_MAX {
                let mut all = vec![Counters::default(); count];
                self.by_number.iter().for_each(|(number, one)| all[place(*number)].add(one));
                return (self.interval_ns, all);
            }
            self.coarsen();
        }
    }

    /// Makes the intervals twice as long.
    fn coarsen(&mut self) {
        self.interval_ns *= 2;
        for (number, counters) in std::mem::take(&mut self.by_number) {
            self.by_number.entry(number / 2).or_default().add(&counters);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(page_faults: u64) -> Counters {
        Counters { page_faults, ..Counters::default() }
    }

    #[test]
    fn a_long_timeline_is_coarser_and_loses_nothing() {
        let mut timeline = Timeline::default();
        let most = INTERVALS_MAX as u64;
        (0..most).for_each(|ms| timeline.add(ms * FINEST_NS, &faults(1)));
        assert_eq!((timeline.interval_ns(), timeline.intervals().count()), (FINEST_NS, 256));
        timeline.add(most * FINEST_NS, &faults(5));
        assert_eq!((timeline.interval_ns(), timeline.intervals().count()), (2 * FINEST_NS, 129));
        assert_eq!(timeline.intervals().last(), Some((most * FINEST_NS, &faults(5))));
        // The rarest events of the longest run.
        (0..=most).for_each(|n| timeline.add(n * (u64::MAX / most), &faults(1)));
        assert!(timeline.intervals().count() <= INTERVALS_MAX);
        let sum: u64 = timeline.intervals().map(|(_, one)| one.page_faults).sum();
        assert_eq!(sum, most + 5 + most + 1);
    }

    #[test]
    fn timelines_of_processes_are_added_at_the_coarser_resolution() {
        let mut fine = Timeline::default();
        fine.add(3 * FINEST_NS, &faults(1));
        fine.add(4 * FINEST_NS, &faults(2));
        let mut coarse = Timeline::with_intervals(4 * FINEST_NS).unwrap();
        coarse.add(FINEST_NS, &faults(10));
        coarse.add(8 * FINEST_NS, &faults(20));
        let expected =
            [(0, &faults(11)), (4 * FINEST_NS, &faults(2)), (8 * FINEST_NS, &faults(20))];
        for (mut one, other) in [(fine.clone(), &coarse), (coarse.clone(), &fine)] {
            one.add_all(other);
            assert_eq!(one.interval_ns(), 4 * FINEST_NS);
            assert_eq!(one.intervals().collect::<Vec<_>>(), expected);
        }
        for wrong in [0, 1, FINEST_NS + 1, 3 * FINEST_NS] {
            assert_eq!(Timeline::with_intervals(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn intervals_without_events_are_zero_and_there_are_not_too_many() {
        let mut timeline = Timeline::default();
        assert_eq!(timeline.clone().from(5), (FINEST_NS, Vec::new()));
        timeline.add(12 * FINEST_NS, &faults(1));
        timeline.add(14 * FINEST_NS + 1, &faults(2));
        let (interval_ns, all) = timeline.clone().from(11 * FINEST_NS + 7);
        assert_eq!(interval_ns, FINEST_NS);
        assert_eq!(all, [faults(0), faults(1), faults(0), faults(2)]);
        // A second later something happens again.
        timeline.add(1_012 * FINEST_NS, &faults(3));
        let (interval_ns, all) = timeline.from(12 * FINEST_NS);
        assert_eq!((interval_ns, all.len()), (4 * FINEST_NS, 251));
        assert_eq!((all[0], all[250]), (faults(3), faults(3)));
    }
}
