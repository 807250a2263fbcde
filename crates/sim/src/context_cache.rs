//! The adapter's cache of queue pair contexts: sets, chosen by the queue pair number, of a few
//! places each; the place that was used longest ago is given away.

use crate::parameters::Parameters;
use crate::time::Ps;

#[derive(Debug)]
pub(crate) struct ContextCache {
    /// The queue pair numbers in each set, the last used one first.
    sets: Vec<Vec<u32>>,
    ways: usize,
    miss: Ps,
}

impl ContextCache {
    pub(crate) fn new(parameters: &Parameters) -> ContextCache {
        ContextCache {
            sets: vec![Vec::new(); parameters.context_sets as usize],
            ways: parameters.context_ways as usize,
            miss: parameters.context_miss_ns,
        }
    }

    /// The time to get the context of a queue pair.
    pub(crate) fn get(&mut self, qpn: u32) -> Ps {
        if self.sets.is_empty() {
            return Ps::ZERO;
        }
        let index = qpn as usize % self.sets.len();
        let set = &mut self.sets[index];
        if let Some(place) = set.iter().position(|other| *other == qpn) {
            set[..=place].rotate_right(1);
            return Ps::ZERO;
        }
        if set.len() == self.ways {
            set.pop();
        }
        set.insert(0, qpn);
        self.miss
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of the queue pairs miss when they are used in turns.
    fn misses(sets: f64, ways: f64, qps: u32) -> u32 {
        let mut parameters = Parameters::least();
        for (name, value) in
            [("context_sets", sets), ("context_ways", ways), ("context_miss_ns", 5.0)]
        {
            parameters.set(name, value).unwrap();
        }
        let mut cache = ContextCache::new(&parameters);
        let mut round = || (0..qps).filter(|qpn| cache.get(*qpn) > Ps::ZERO).count() as u32;
        round();
        round()
    }

    #[test]
    fn consecutive_numbers_miss_from_the_size_on_and_all_miss_one_way_later() {
        assert_eq!(misses(8.0, 2.0, 16), 0);
        assert_eq!(misses(8.0, 2.0, 17), 3);
        assert_eq!(misses(8.0, 2.0, 20), 12);
        assert_eq!(misses(8.0, 2.0, 24), 24);
        assert_eq!(misses(0.0, 1.0, 1000), 0, "without a cache all contexts are there");
    }
}
