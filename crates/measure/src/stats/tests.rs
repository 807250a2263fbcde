//! Published values, coverage on synthetic distributions, and properties. Every random test has a
//! fixed seed, so that it passes always or never.

use super::samples::{mid_ranks, rank_of};
use super::two_sample::{EXACT_UP_TO, u_distribution};
use super::*;
use proptest::prelude::*;

/// Samples as networks give them.
pub(super) struct Random(rdmalab_random::Random);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(rdmalab_random::Random::new(seed))
    }

    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in 0 .. 1, both ends excluded.
    pub(super) fn uniform(&mut self) -> f64 {
        ((self.next() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    /// A latency as networks have them: exponential, and one in ten from a second mode far away.
    fn skewed(&mut self) -> f64 {
        let base = -self.uniform().ln();
        if self.uniform() < 0.1 { base + 50.0 } else { base }
    }

    fn samples(&mut self, n: usize, one: fn(&mut Self) -> f64) -> Vec<f64> {
        (0..n).map(|_| one(self)).collect()
    }
}

pub(super) fn sorted(mut samples: Vec<f64>) -> Vec<f64> {
    sort(&mut samples);
    samples
}

/// Whether `hits` of `tries` is what probability `p` gives, within 5.5 standard deviations.
fn is_fraction(hits: u32, tries: u32, p: f64) -> bool {
    let n = f64::from(tries);
    (f64::from(hits) - n * p).abs() <= 5.5 * (n * p * (1.0 - p)).sqrt()
}

#[test]
fn medians_and_quantiles_of_few_samples() {
    assert!(median(&[]).is_nan() && quantile(&[], 0.5).is_nan() && mad(&[]).is_nan());
    assert_eq!(median(&[7.0]), 7.0);
    assert_eq!(median(&[1.0, 2.0, 10.0]), 2.0);
    assert_eq!(median(&[1.0, 2.0, 4.0, 10.0]), 3.0);
    let ten: Vec<f64> = (1..=10).map(f64::from).collect();
    for (q, value) in [(0.0, 1.0), (0.1, 1.0), (0.11, 2.0), (0.5, 5.0), (0.9, 9.0), (1.0, 10.0)] {
        assert_eq!(quantile(&ten, q), value, "{q}");
    }
    assert_eq!(mad(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0]), 1.0);
}

#[test]
fn ranks_do_not_suffer_from_decimal_fractions() {
    assert_eq!(rank_of(100_000, 0.9999), Some(99_990));
    assert_eq!(rank_of(1000, 0.999), Some(999));
    assert_eq!(rank_of(100, 0.07), Some(7));
    assert_eq!(rank_of(0, 0.5), None);
}

#[test]
fn a_quantile_is_shown_from_ten_samples_beyond_it() {
    assert!(supports_quantile(100_000, 0.9999));
    assert!(!supports_quantile(99_999, 0.9999));
    assert!(supports_quantile(1000, 0.99) && supports_quantile(1000, 0.01));
    assert!(!supports_quantile(1000, 0.999));
    assert!(supports_quantile(20, 0.5) && !supports_quantile(19, 0.5));
    assert!(!supports_quantile(u64::MAX, 1.0) && !supports_quantile(u64::MAX, 0.0));
    assert!(!supports_quantile(100, f64::NAN) && !supports_quantile(100, 1.5));
}

#[test]
fn a_supported_quantile_has_an_interval() {
    for (n, q) in [(20, 0.5), (100, 0.9), (1000, 0.99), (10_000, 0.999), (1000, 0.01)] {
        let samples: Vec<f64> = (0..n).map(f64::from).collect();
        assert!(supports_quantile(n as u64, q));
        let interval = quantile_interval(&samples, q, 0.95).unwrap();
        assert!(interval.covers(quantile(&samples, q)) && interval.confidence >= 0.95);
    }
}

#[test]
fn intervals_of_quantiles_cover_as_often_as_they_claim() {
    let mut random = Random::new(1);
    const TRIES: u32 = 4000;
    for (n, q, confidence) in [(15, 0.5, 0.95), (60, 0.9, 0.99), (800, 0.99, 0.95), (40, 0.25, 0.5)]
    {
        // Exponential: quantile q is -ln(1 - q).
        let truth = -f64::ln(1.0 - q);
        let (mut hits, mut claim) = (0, 0.0);
        for _ in 0..TRIES {
            let samples = sorted(random.samples(n, |r| -r.uniform().ln()));
            let interval = quantile_interval(&samples, q, confidence).unwrap();
            hits += u32::from(interval.covers(truth));
            claim = interval.confidence;
        }
        // The distribution is continuous: the claim holds exactly, not as a bound only.
        assert!(claim >= confidence);
        assert!(is_fraction(hits, TRIES, claim), "{n} {q}: {hits} of {TRIES} for {claim}");
    }
}

#[test]
fn intervals_of_coarse_and_bimodal_samples_cover_at_least_as_often_as_they_claim() {
    let mut random = Random::new(6);
    const TRIES: u32 = 2000;
    // As a clock with 20 ns ticks shows a latency: many samples are equal, so the claim is a bound.
    let coarse = |r: &mut Random| (-(1.0 - r.uniform()).ln() * 100.0 / 20.0).floor() * 20.0;
    // The true quantile q of the floor of an exponential, in ticks.
    let truth = |q: f64| (-f64::ln(1.0 - q) * 100.0 / 20.0).floor() * 20.0;
    for (n, q) in [(50, 0.5), (200, 0.9), (1000, 0.99)] {
        let mut hits = 0;
        for _ in 0..TRIES {
            let samples = sorted(random.samples(n, coarse));
            hits += u32::from(quantile_interval(&samples, q, 0.95).unwrap().covers(truth(q)));
        }
        let least = 0.95 - 5.5 * (0.95f64 * 0.05 / f64::from(TRIES)).sqrt();
        assert!(f64::from(hits) / f64::from(TRIES) >= least, "{n} {q}: {hits} of {TRIES}");
    }
    // One in ten is 50 higher: the 95th percentile is the median of the far mode, which nothing
    // that assumes a normal distribution would find.
    let far = 50.0 - f64::ln(0.5);
    let mut hits = 0;
    let mut claim = 0.0;
    for _ in 0..TRIES {
        let samples = sorted(random.samples(400, Random::skewed));
        let interval = quantile_interval(&samples, 0.95, 0.95).unwrap();
        hits += u32::from(interval.covers(far));
        claim = interval.confidence;
    }
    assert!(is_fraction(hits, TRIES, claim), "{hits} of {TRIES} for {claim}");
}

#[test]
fn the_tail_of_ten_thousand_is_covered_too() {
    let mut random = Random::new(7);
    const TRIES: u32 = 400;
    let truth = -f64::ln(0.001);
    let (mut hits, mut claim) = (0, 0.0);
    for _ in 0..TRIES {
        let samples = sorted(random.samples(10_000, |r| -r.uniform().ln()));
        let interval = quantile_interval(&samples, 0.999, 0.95).unwrap();
        hits += u32::from(interval.covers(truth));
        claim = interval.confidence;
    }
    assert!(is_fraction(hits, TRIES, claim), "{hits} of {TRIES} for {claim}");
}

#[test]
fn ranks_of_the_median_are_those_of_the_tables() {
    // Campbell and Gardner (1988), "Calculating confidence intervals for some non-parametric
    // analyses", BMJ 296: ranks and exact levels of a median's 95 % interval.
    for (n, low, high, percent) in [
        (6, 1.0, 6.0, 96.9),
        (10, 2.0, 9.0, 97.9),
        (15, 4.0, 12.0, 96.5),
        (20, 6.0, 15.0, 95.9),
        (30, 10.0, 21.0, 95.7),
        (50, 18.0, 33.0, 96.7),
        (100, 40.0, 61.0, 96.5),
    ] {
        let samples: Vec<f64> = (1..=n).map(f64::from).collect();
        let found = quantile_interval(&samples, 0.5, 0.95).unwrap();
        assert_eq!((found.low, found.high), (low, high), "{n}");
        assert!((found.confidence * 100.0 - percent).abs() < 0.051, "{n}: {found:?}");
    }
    let five: Vec<f64> = (1..=5).map(f64::from).collect();
    assert_eq!(quantile_interval(&five, 0.5, 0.95), None);
}

#[test]
fn gauge_readings_of_the_handbook() {
    // NIST/SEMATECH e-Handbook of Statistical Methods, 7.2.6.2: twelve readings. Its own rule
    // interpolates between the 11th and the 12th for the 90th percentile (95.1981); type 1 of
    // Hyndman and Fan, as R's `quantile(x, 0.9, type = 1)`, is the 11th.
    let readings = sorted(vec![
        95.1772, 95.1567, 95.1937, 95.1959, 95.1442, 95.0610, 95.1591, 95.1195, 95.1065, 95.0925,
        95.1990, 95.1682,
    ]);
    assert_eq!(quantile(&readings, 0.9), 95.1959);
    assert!((median(&readings) - 95.1579).abs() < 1e-9);
    assert_eq!((quantile(&readings, 0.25), quantile(&readings, 0.75)), (95.1065, 95.1772));
    let interval = quantile_interval(&readings, 0.5, 0.95).unwrap();
    assert_eq!((interval.low, interval.high), (95.1065, 95.1937));
}

#[test]
fn ozone_in_may_and_in_august() {
    // R's own example of wilcox.test, from its data set airquality (Chambers et al., 1983): with
    // ties and a correction for continuity, W = 127.5 and p = 0.0001208.
    let may = [
        41.0, 36.0, 12.0, 18.0, 28.0, 23.0, 19.0, 8.0, 7.0, 16.0, 11.0, 14.0, 18.0, 14.0, 34.0,
        6.0, 30.0, 11.0, 1.0, 11.0, 4.0, 32.0, 23.0, 45.0, 115.0, 37.0,
    ];
    let august = [
        39.0, 9.0, 16.0, 78.0, 35.0, 66.0, 122.0, 89.0, 110.0, 44.0, 28.0, 65.0, 22.0, 59.0, 23.0,
        31.0, 44.0, 21.0, 9.0, 45.0, 168.0, 73.0, 76.0, 118.0, 84.0, 85.0,
    ];
    let test = mann_whitney(&august, &may).unwrap();
    assert!(!test.exact && test.u == 127.5, "{test:?}");
    assert!((test.p_value - 0.000_120_8).abs() < 5e-8, "{test:?}");
}

#[test]
fn intervals_of_shifts_cover_as_often_as_they_claim() {
    let mut random = Random::new(2);
    const TRIES: u32 = 2000;
    // Exact ranks, unequal sizes, and the normal approximation.
    for (m, n) in [(6, 6), (10, 25), (60, 70)] {
        let (mut hits, mut rejected, mut claim) = (0, 0, 0.0);
        for _ in 0..TRIES {
            let a = random.samples(m, Random::skewed);
            let b: Vec<f64> = random.samples(n, Random::skewed).iter().map(|v| v + 3.0).collect();
            let shift = hodges_lehmann(&a, &b, 0.95).unwrap().interval.unwrap();
            hits += u32::from(shift.covers(3.0));
            claim = shift.confidence;
            let same = random.samples(n, Random::skewed);
            rejected += u32::from(mann_whitney(&a, &same).unwrap().p_value <= 1.0 - claim);
        }
        assert!(claim >= 0.95 - 1e-12);
        assert!(is_fraction(hits, TRIES, claim), "{m} {n}: {hits} of {TRIES} for {claim}");
        assert!(f64::from(rejected) / f64::from(TRIES) < 0.05 + 0.03, "{m} {n}: {rejected}");
    }
}

#[test]
fn permeability_of_the_chorioamnion() {
    // Hollander and Wolfe (1973), p. 69: W = 35, one-sided P = 0.1272. The shift and its
    // interval (96.0 %) are what enumerating all 50 differences and 3003 arrangements gives.
    let at_term = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
    let earlier = [1.15, 0.88, 0.90, 0.74, 1.21];
    let test = mann_whitney(&earlier, &at_term).unwrap();
    assert!(test.exact && test.u == 35.0 && test.b_larger == 0.7);
    assert!((test.p_value / 2.0 - 0.1272).abs() < 5e-5, "{test:?}");
    let shift = hodges_lehmann(&earlier, &at_term, 0.95).unwrap();
    assert!((shift.value - 0.305).abs() < 1e-12, "{shift:?}");
    let interval = shift.interval.unwrap();
    assert!((interval.low + 0.15).abs() < 1e-12 && (interval.high - 0.76).abs() < 1e-12);
    assert!((interval.confidence - 0.960_039_960_039_96).abs() < 1e-12);
    // The other way round, everything is mirrored.
    let mirrored = hodges_lehmann(&at_term, &earlier, 0.95).unwrap();
    assert!((mirrored.value + 0.305).abs() < 1e-12);
    let back = mann_whitney(&at_term, &earlier).unwrap();
    assert!((back.p_value - test.p_value).abs() < 1e-12);
}

#[test]
fn darwins_maize() {
    // Darwin (1876), as in Fisher's Design of Experiments, chapter III: 13 of 15 pairs.
    let crossed = [
        23.5, 12.0, 21.0, 22.0, 19.125, 21.5, 22.125, 20.375, 18.25, 21.625, 23.25, 21.0, 22.125,
        23.0, 12.0,
    ];
    let selfed = [
        17.375, 20.375, 20.0, 20.0, 18.375, 18.625, 18.625, 15.25, 16.5, 18.0, 16.25, 18.0, 12.75,
        15.5, 18.0,
    ];
    let found = paired_ratio(&crossed, &selfed, 0.95).unwrap();
    assert!((found.p_value - 2.0 * 121.0 / 32768.0).abs() < 1e-12, "{found:?}");
    assert_eq!(found.pairs, 15);
    let interval = found.ratio.interval.unwrap();
    assert!(interval.low > 1.0 && interval.covers(found.ratio.value));
}

#[test]
fn hollander_and_wolfes_depression() {
    // Nonparametric Statistical Methods (2nd ed.), examples 3.1, 3.3 and 3.4: two visits each,
    // in thousandths.
    let first = [1830.0, 500.0, 1620.0, 2480.0, 1680.0, 1880.0, 1550.0, 3060.0, 1300.0];
    let second = [878.0, 647.0, 598.0, 2050.0, 1060.0, 1290.0, 1060.0, 3140.0, 1290.0];
    let shift = paired_shift(&first, &second, 0.95).unwrap();
    assert_eq!(shift.value, -460.0);
    let interval = shift.interval.unwrap();
    assert_eq!((interval.low, interval.high), (-786.0, -10.0));
    // 10 of 512 sets of ranks add up to at most 5.
    assert!((interval.confidence - (1.0 - 20.0 / 512.0)).abs() < 1e-15);
}

#[test]
fn pairs_have_an_interval_from_six_on() {
    let first: Vec<f64> = (0..20).map(f64::from).collect();
    let second: Vec<f64> = first.iter().map(|v| v * 1.5 + 1.0).collect();
    let width = |n: usize, confidence| {
        let shift = paired_shift(&first[..n], &second[..n], confidence).unwrap();
        shift.interval.map(|i| (i.low, i.high))
    };
    assert_eq!((width(5, 0.95), width(6, 0.95)), (None, Some((1.0, 3.5))));
    assert_eq!((width(8, 0.99), width(7, 0.99)), (Some((1.0, 4.5)), None));
    assert!(paired_shift(&[], &[], 0.95).is_none());
}

#[test]
fn what_a_pair_shares_cancels() {
    let mut random = Random::new(11);
    let missed = (0..1000)
        .filter(|_| {
            let shared = random.samples(10, |r| 1000.0 * r.uniform());
            let noisy = |random: &mut Random, by: f64| -> Vec<f64> {
                shared.iter().map(|s| s + by + random.uniform()).collect()
            };
            let (first, second) = (noisy(&mut random, 0.0), noisy(&mut random, 2.0));
            let interval = paired_shift(&first, &second, 0.95).unwrap().interval.unwrap();
            assert!(interval.high - interval.low < 2.0, "{interval:?}");
            !interval.covers(2.0)
        })
        .count();
    assert!(missed <= 70, "{missed} of 1000");
}

#[test]
fn pairs_without_a_sound_ratio_have_none() {
    assert!(paired_ratio(&[], &[], 0.95).is_none());
    assert!(paired_ratio(&[1.0], &[0.0], 0.95).is_none());
    assert!(paired_ratio(&[-1.0], &[2.0], 0.95).is_none());
    let few = paired_ratio(&[4.0, 2.0], &[2.0, 2.0], 0.95).unwrap();
    assert_eq!((few.ratio.value, few.ratio.interval, few.p_value), (1.5, None, 1.0));
}

#[test]
fn equals_count_half_and_are_no_difference() {
    let same = mann_whitney(&[5.0; 30], &[5.0; 40]).unwrap();
    assert_eq!((same.u, same.p_value, same.exact), (600.0, 1.0, false));
    let shift = hodges_lehmann(&[5.0; 30], &[5.0; 40], 0.95).unwrap();
    assert_eq!(shift.value, 0.0);
    assert!(shift.interval.unwrap().covers(0.0));
    assert!(mann_whitney(&[], &[1.0]).is_none() && hodges_lehmann(&[1.0], &[], 0.95).is_none());
}

#[test]
fn too_few_runs_give_an_estimate_and_no_interval() {
    let shift = hodges_lehmann(&[1.0, 2.0], &[3.0, 5.0], 0.95).unwrap();
    assert_eq!((shift.value, shift.interval), (2.5, None));
    // Three against three at 95 %: 2/20 is the smallest p-value there is.
    let three = mann_whitney(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]).unwrap();
    assert!((three.p_value - 0.1).abs() < 1e-15);
}

#[test]
fn exact_and_approximate_tests_agree_where_they_meet() {
    let mut random = Random::new(3);
    let a = random.samples(50, Random::uniform);
    let b: Vec<f64> = random.samples(50, Random::uniform).iter().map(|v| v + 0.1).collect();
    let exact = mann_whitney(&a, &b).unwrap();
    // One more sample in the middle hardly changes anything but the method.
    let longer: Vec<f64> = b.iter().copied().chain([0.55]).collect();
    let approximate = mann_whitney(&a, &longer).unwrap();
    assert!(exact.exact && !approximate.exact);
    assert!((exact.p_value - approximate.p_value).abs() < 0.02);
}

#[test]
fn a_ratio_of_two_sets_is_found_under_skew() {
    let mut random = Random::new(4);
    let a = random.samples(3000, Random::skewed);
    let b: Vec<f64> = random.samples(3000, Random::skewed).iter().map(|v| v * 1.3).collect();
    let ratio = hodges_lehmann_ratio(&a, &b, 0.99).unwrap();
    assert!(ratio.interval.unwrap().covers(1.3), "{ratio:?}");
    assert!(!ratio.interval.unwrap().covers(1.0), "{ratio:?}");
    assert!(hodges_lehmann_ratio(&[0.0], &[1.0], 0.95).is_none());
}

#[test]
fn neighbours_that_depend_on_each_other_are_noticed() {
    let mut random = Random::new(5);
    let independent = random.samples(10_000, Random::skewed);
    assert!(lag1_autocorrelation(&independent).unwrap().abs() < 0.05);
    // Each sample is the mean of two neighbours' noise: correlation about 1/2.
    let blurred: Vec<f64> = independent.windows(2).map(|w| w[0] + w[1]).collect();
    assert!(lag1_autocorrelation(&blurred).unwrap() > 0.3);
    let alternating: Vec<f64> = (0..100).map(|i| f64::from(i % 2)).collect();
    assert!(lag1_autocorrelation(&alternating).unwrap() < -0.95);
    assert_eq!(lag1_autocorrelation(&[1.0; 50]), None);
    assert_eq!(lag1_autocorrelation(&[1.0, 2.0]), None);
}

#[test]
#[should_panic(expected = "a confidence lies within 0 .. 1")]
fn a_confidence_of_one_is_refused() {
    let _ = quantile_interval(&[1.0], 0.5, 1.0);
}

proptest! {
    #[test]
    fn the_shift_is_the_median_of_all_differences(
        a in prop::collection::vec(-1000i32..1000, 1..30),
        b in prop::collection::vec(-1000i32..1000, 1..30),
    ) {
        let float = |v: &[i32]| v.iter().map(|&x| f64::from(x) / 8.0).collect::<Vec<_>>();
        let (a, b) = (float(&a), float(&b));
        let all = b.iter().flat_map(|y| a.iter().map(move |x| y - x)).collect();
        let shift = hodges_lehmann(&a, &b, 0.95).unwrap();
        prop_assert_eq!(shift.value, median(&sorted(all)));
        if let Some(interval) = shift.interval {
            prop_assert!(interval.covers(shift.value));
        }
    }

    #[test]
    fn intervals_enclose_the_quantile_and_widen_with_confidence(
        samples in prop::collection::vec(0.0f64..1e9, 1..300),
        q in 0.01f64..0.99,
    ) {
        let samples = sorted(samples);
        let wide = quantile_interval(&samples, q, 0.99);
        let narrow = quantile_interval(&samples, q, 0.9);
        if let Some(wide) = wide {
            let narrow = narrow.expect("less confidence needs no more samples");
            prop_assert!(wide.low <= narrow.low && narrow.high <= wide.high);
            prop_assert!(narrow.covers(quantile(&samples, q)));
        }
    }

    #[test]
    fn the_mean_of_ranks_is_kept_under_equals(
        samples in prop::collection::vec(0u8..10, 1..100),
    ) {
        let samples: Vec<f64> = samples.into_iter().map(f64::from).collect();
        let n = samples.len() as f64;
        let total: f64 = mid_ranks(&samples).iter().sum();
        prop_assert!((total - n * (n + 1.0) / 2.0).abs() < 1e-9);
    }
}

/// The outcome of a rank test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankTest {
    /// Pairs in which the sample of `b` is the larger one, equals counting half.
    pub u: f64,
    /// The fraction of such pairs: 0.5 when neither tends to be larger.
    pub b_larger: f64,
    /// Two-sided: how likely a U as far off, were there no difference.
    pub p_value: f64,
    /// Whether the p-value is exact; else it is the normal approximation, corrected for equals
    /// and for continuity.
    pub exact: bool,
}

/// The test of Mann and Whitney (1947) whether samples of `b` tend to be larger, or smaller, than
/// those of `a`; in any order. `None` when one of them is empty. Exact up to 50 samples a side
/// without equals.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> Option<RankTest> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let (m, n) = (a.len(), b.len());
    let pairs = m as f64 * n as f64;
    let mut all: Vec<(f64, bool)> = Vec::with_capacity(m + n);
    all.extend(a.iter().map(|&v| (v, false)));
    all.extend(b.iter().map(|&v| (v, true)));
    all.sort_unstable_by(|x, y| x.0.total_cmp(&y.0));
    let (mut u, mut a_below, mut ties) = (0.0, 0.0, 0.0);
    for equal in all.chunk_by(|x, y| x.0 == y.0) {
        let from_b = equal.iter().filter(|x| x.1).count() as f64;
        let from_a = equal.len() as f64 - from_b;
        u += from_b * (a_below + from_a / 2.0);
        a_below += from_a;
        ties += (equal.len() as f64).powi(3) - equal.len() as f64;
    }
    let exact = ties == 0.0 && m.max(n) <= EXACT_UP_TO;
    let p_value = if exact {
        let less = u.min(pairs - u) as usize;
        let at_most: f64 = u_distribution(m, n)[..=less].iter().sum();
        (2.0 * at_most).min(1.0)
    } else {
        let total = (m + n) as f64;
        let variance = pairs / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
        let distance = ((u - pairs / 2.0).abs() - 0.5).max(0.0);
        // All equal: no variance, and no difference.
        let z = if variance > 0.0 { distance / variance.sqrt() } else { 0.0 };
        (2.0 * normal::upper_tail(z)).min(1.0)
    };
    Some(RankTest { u, b_larger: u / pairs, p_value, exact })
}
