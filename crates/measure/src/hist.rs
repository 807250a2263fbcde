//! A histogram of times in which every sample counts.

use hdrhistogram::Histogram;

/// Significant decimal digits of what is between minimum and maximum.
const DIGITS: u8 = 3;

/// The highest time that has a bucket of its own: an hour. Longer ones share the last bucket; the
/// maximum is exact all the same.
const HIGHEST_NS: u64 = 3_600_000_000_000;

/// Times in ns, to three significant digits (a quantile is off by at most 0.1 % of its value),
/// beside the exact minimum and maximum and the index of the maximum. Recording never allocates
/// and never fails; the memory (about 0.25 MiB) does not grow.
///
/// ```
/// let mut hist = rdmalab_measure::LatencyHistogram::new();
/// for ns in [700, 90_000, 800] {
///     hist.record(ns);
/// }
/// assert_eq!((hist.max_ns(), hist.max_index()), (Some(90_000), Some(1)));
/// ```
#[derive(Clone, Debug)]
pub struct LatencyHistogram {
    buckets: Histogram<u64>,
    min_ns: u64,
    max_ns: u64,
    max_index: u64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self::new()
    }
}

impl LatencyHistogram {
    /// An empty histogram.
    #[must_use]
    pub fn new() -> Self {
        Self {
            buckets: Histogram::new_with_bounds(1, HIGHEST_NS, DIGITS)
                .expect("constant bounds and digits that the library allows"),
            min_ns: u64::MAX,
            max_ns: 0,
            max_index: 0,
        }
    }

    /// Counts one sample. Its index is the number of samples before it.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        if ns > self.max_ns || self.buckets.is_empty() {
            self.max_ns = ns;
            self.max_index = self.buckets.len();
        }
        self.min_ns = self.min_ns.min(ns);
        self.buckets.saturating_record(ns);
    }

    /// Appends the samples of `other`, as if they had been recorded after ours: the index of a
    /// maximum that is theirs counts our samples too. Of two equal maxima the first one's stays.
    pub fn merge(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        if other.max_ns > self.max_ns || self.is_empty() {
            self.max_ns = other.max_ns;
            self.max_index = self.len() + other.max_index;
        }
        self.min_ns = self.min_ns.min(other.min_ns);
        self.buckets.add(&other.buckets).expect("both histograms have the same bounds");
    }

    /// Samples recorded.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.buckets.len()
    }

    /// Whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// The exact minimum; `None` when empty.
    #[must_use]
    pub fn min_ns(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.min_ns)
    }

    /// The exact maximum; `None` when empty.
    #[must_use]
    pub fn max_ns(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.max_ns)
    }

    /// The index of the first sample that was as long as the maximum; `None` when empty.
    #[must_use]
    pub fn max_index(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.max_index)
    }

    /// The mean of the buckets' values; `None` when empty. Of skewed times the median says more.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.buckets.mean())
    }

    /// The smallest time that at least `q` of all samples do not exceed, to three digits and never
    /// outside minimum and maximum; the same rank as [`crate::stats::quantile`]. `None` when empty.
    ///
    /// # Panics
    /// When `q` is not within 0 ..= 1.
    #[must_use]
    pub fn quantile_ns(&self, q: f64) -> Option<u64> {
        assert!((0.0..=1.0).contains(&q), "a quantile lies within 0 ..= 1, not {q}");
        let rank = crate::stats::rank_of(self.len(), q)?;
        // The library takes a quantile, not a rank: the middle of the rank's step avoids rounding.
        let middle = (rank as f64 - 0.5) / self.len() as f64;
        let ns = self.buckets.value_at_quantile(middle);
        let exact_end = if rank == 1 { self.min_ns } else { self.max_ns };
        let is_end = rank == 1 || rank == self.len();
        Some(if is_end { exact_end } else { ns.clamp(self.min_ns, self.max_ns) })
    }

    /// The buckets that hold samples, in order: the highest time of each, and its count. For plots.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let recorded = self.buckets.iter_recorded();
        recorded.map(|b| (b.value_iterated_to(), b.count_at_value()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_histogram_has_nothing_to_say() {
        let mut hist = LatencyHistogram::new();
        assert!(hist.is_empty());
        assert_eq!((hist.min_ns(), hist.max_ns(), hist.max_index()), (None, None, None));
        assert_eq!((hist.quantile_ns(0.5), hist.mean_ns()), (None, None));
        hist.merge(&LatencyHistogram::new());
        assert!(hist.is_empty());
    }

    #[test]
    fn ends_are_exact_also_beyond_the_last_bucket() {
        let mut hist = LatencyHistogram::new();
        for ns in [123_457, u64::MAX, 0, u64::MAX] {
            hist.record(ns);
        }
        assert_eq!(hist.max_ns(), Some(u64::MAX));
        assert_eq!(hist.max_index(), Some(1));
        assert_eq!(hist.min_ns(), Some(0));
        assert_eq!(hist.quantile_ns(0.0), Some(0));
        assert_eq!(hist.quantile_ns(1.0), Some(u64::MAX));
        assert_eq!(hist.len(), 4);
    }

    #[test]
    fn all_zero_has_its_maximum_at_the_first() {
        let mut hist = LatencyHistogram::new();
        hist.record(0);
        hist.record(0);
        assert_eq!((hist.max_ns(), hist.max_index()), (Some(0), Some(0)));
    }

    #[test]
    fn merging_continues_the_index() {
        let (mut a, mut b) = (LatencyHistogram::new(), LatencyHistogram::new());
        for ns in [10, 30, 20] {
            a.record(ns);
        }
        for ns in [5, 7, 40, 30] {
            b.record(ns);
        }
        a.merge(&b);
        assert_eq!((a.len(), a.min_ns(), a.max_ns()), (7, Some(5), Some(40)));
        assert_eq!(a.max_index(), Some(5));
        // An equal maximum that comes later does not take the index.
        let mut c = LatencyHistogram::new();
        c.record(40);
        a.merge(&c);
        assert_eq!(a.max_index(), Some(5));
    }

    #[test]
    #[should_panic(expected = "within 0 ..= 1")]
    fn a_quantile_beyond_one_is_refused() {
        let _ = LatencyHistogram::new().quantile_ns(1.5);
    }

    proptest! {
        #[test]
        fn quantiles_equal_the_sorted_samples_to_three_digits(
            samples in prop::collection::vec(0u64..10_000_000_000, 1..400),
            q in 0.0f64..=1.0,
        ) {
            let mut hist = LatencyHistogram::new();
            samples.iter().for_each(|&ns| hist.record(ns));
            let mut sorted: Vec<f64> = samples.iter().map(|&ns| ns as f64).collect();
            crate::stats::sort(&mut sorted);
            let exact = crate::stats::quantile(&sorted, q);
            let ours = hist.quantile_ns(q).unwrap() as f64;
            prop_assert!((ours - exact).abs() <= exact * 1e-3 + 1e-9, "{} for {}", ours, exact);
        }

        #[test]
        fn merging_is_recording_one_after_the_other(
            a in prop::collection::vec(0u64..1_000_000, 0..50),
            b in prop::collection::vec(0u64..1_000_000, 0..50),
        ) {
            let record = |samples: &[u64]| {
                let mut hist = LatencyHistogram::new();
                samples.iter().for_each(|&ns| hist.record(ns));
                hist
            };
            let mut merged = record(&a);
            merged.merge(&record(&b));
            let whole = record(&[a, b].concat());
            prop_assert_eq!(merged.max_index(), whole.max_index());
            prop_assert_eq!(merged.min_ns(), whole.min_ns());
            prop_assert!(merged.buckets().eq(whole.buckets()));
        }
    }
}
