//! Comparisons: published values, and how often they err on made-up runs. Fixed seeds.

use super::tests::{Random, mann_whitney, sorted};
use super::*;
use crate::Better;

impl Random {
    /// Standard normal, by the polar method (Marsaglia and Bray 1964).
    pub(super) fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.uniform() - 1.0, 2.0 * self.uniform() - 1.0);
            let square = x * x + y * y;
            if square < 1.0 {
                return x * (-2.0 * square.ln() / square).sqrt();
            }
        }
    }

    /// Latencies around 1000, each remembering `memory` of the one before; skewed.
    fn run(&mut self, n: usize, memory: f64) -> Vec<f64> {
        let fresh = (1.0 - memory * memory).sqrt();
        let mut state = self.normal();
        let step = |r: &mut Self| {
            state = memory * state + fresh * r.normal();
            1000.0 * (0.1 * state).exp()
        };
        self.samples_by(n, step)
    }

    fn samples_by(&mut self, n: usize, mut one: impl FnMut(&mut Self) -> f64) -> Vec<f64> {
        (0..n).map(|_| one(self)).collect()
    }

    /// Runs that differ from each other by `between`, as a share.
    pub(super) fn runs(
        &mut self,
        count: usize,
        n: usize,
        memory: f64,
        between: f64,
    ) -> Vec<Vec<f64>> {
        let one = |r: &mut Self| {
            let factor = (between * r.normal()).exp();
            r.run(n, memory).iter().map(|v| v * factor).collect()
        };
        (0..count).map(|_| one(self)).collect()
    }
}

/// Pain on the third day after two treatments.
const TREATED: [f64; 14] = [1., 2., 1., 1., 1., 1., 1., 1., 1., 1., 2., 4., 1., 1.];
const CONTROL: [f64; 11] = [3., 3., 4., 3., 1., 2., 3., 1., 1., 5., 4.];

#[test]
fn pain_scores_of_brunner_and_munzel() {
    // Brunner and Munzel (2000), table 1; as R's lawstat::brunner.munzel.test computes it:
    // statistic 3.1375, df 17.683, p 0.005786, estimate 0.788961, interval 0.595217 to 0.982705.
    let (a, b) = (Timed::independent(&TREATED).unwrap(), Timed::independent(&CONTROL).unwrap());
    let found = dominance(&a, &b, 0.95).unwrap();
    assert!((found.statistic - 3.1375).abs() < 5e-5, "{found:?}");
    assert!((found.freedom - 17.683).abs() < 5e-4, "{found:?}");
    assert!((found.p_value - 0.005_786).abs() < 5e-7, "{found:?}");
    assert!((found.delta.value - (2.0 * 0.788_961 - 1.0)).abs() < 2e-6, "{found:?}");
    let interval = found.delta.interval.unwrap();
    assert!((interval.low - (2.0 * 0.595_216_9 - 1.0)).abs() < 1e-6, "{found:?}");
    assert!((interval.high - (2.0 * 0.982_705_2 - 1.0)).abs() < 1e-6, "{found:?}");
}

#[test]
fn sleep_of_student() {
    // Cushny and Peebles (1905), as in Student (1908); R's t.test(extra ~ group, data = sleep):
    // t = -1.8608, df = 17.776, p = 0.07939, interval -3.3654832 to 0.2054832 of first - second.
    let first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
    let second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
    let found = welch(&second, &first).unwrap();
    assert!((found.difference / found.deviation + 1.8608).abs() < 5e-5, "{found:?}");
    assert!((found.freedom - 17.776).abs() < 5e-4 && (found.p_value - 0.07939).abs() < 5e-6);
    let reach = student::upper_quantile(0.025, found.freedom) * found.deviation;
    assert!((found.difference - reach + 3.365_483_2).abs() < 5e-7, "{found:?}");
    assert!((found.difference + reach - 0.205_483_2).abs() < 5e-7, "{found:?}");
}

#[test]
fn sides_that_do_not_overlap_are_as_certain_as_their_blocks_are_many() {
    let of = |first: i32| {
        let samples: Vec<f64> = (first..first + 5).map(f64::from).collect();
        Timed::independent(&samples).unwrap()
    };
    let apart = dominance(&of(0), &of(100), 0.95).unwrap();
    // 10 over 5 arrangements.
    assert!((apart.p_value - 2.0 / 252.0).abs() < 1e-12, "{apart:?}");
    assert_eq!(apart.delta.value, 1.0);
    let interval = apart.delta.interval.unwrap();
    assert!(interval.low < 0.0 && interval.high == 1.0, "{interval:?}");
    let back = dominance(&of(100), &of(0), 0.95).unwrap();
    assert_eq!((back.delta.value, back.p_value), (-1.0, apart.p_value));
    let same = dominance(&of(0), &of(0), 0.95).unwrap();
    assert_eq!((same.delta.value, same.p_value), (0.0, 1.0));
    let equal = Timed::independent(&[7.0; 9]).unwrap();
    let same = dominance(&equal, &equal, 0.95).unwrap();
    assert_eq!((same.delta.value, same.p_value), (0.0, 1.0));
}

/// What made-up sides come to, of so many tries.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// The interval of `a` covers the truth, or there is none.
    covered: u32,
    faster: u32,
    slower: u32,
    regressions: u32,
}

/// Compares sides of which the second is slower by `factor`.
fn tally(
    tries: u32,
    q: f64,
    factor: f64,
    mut side: impl FnMut(&mut Random) -> Vec<Vec<f64>>,
) -> Tally {
    let mut random = Random::new(11);
    // Quantile 0.9 of a standard normal: as in the tables.
    let truth = if q == 0.5 { 1000.0 } else { 1000.0 * f64::exp(0.1 * 1.281_551_565_544_6) };
    let mut found = Tally::default();
    for _ in 0..tries {
        let a = side(&mut random);
        let b: Vec<Vec<f64>> =
            side(&mut random).iter().map(|run| run.iter().map(|v| v * factor).collect()).collect();
        let (a, b) = (Timed::new(&a).unwrap(), Timed::new(&b).unwrap());
        let interval = a.quantile(q).unwrap().interval(0.95);
        found.covered += u32::from(interval.is_none_or(|i| i.covers(truth)));
        let ratio = QuantileRatio::of(&a, &b, q).unwrap().interval(0.95);
        let verdict = Verdict::of(ratio, 0.05, Better::Less);
        found.slower += u32::from(verdict == Verdict::Slower);
        found.faster += u32::from(verdict == Verdict::Faster);
        found.regressions += u32::from(is_regression(ratio, 0.05, Better::Less));
    }
    found
}

/// At most so many hits are what `p` gives: 5.5 standard deviations more would be another `p`.
pub(super) fn at_most(hits: u32, tries: u32, p: f64) -> bool {
    let n = f64::from(tries);
    f64::from(hits) <= n * p + 5.5 * (n * p * (1.0 - p)).sqrt()
}

#[test]
fn a_side_compared_with_its_like_differs_as_seldom_as_it_may() {
    const TRIES: u32 = 250;
    for (name, count, n, memory, between) in [
        ("independent", 1, 1000, 0.0, 0.0),
        ("few", 1, 60, 0.0, 0.0),
        ("neighbours that depend on each other", 1, 2000, 0.9, 0.0),
        ("two runs", 2, 600, 0.9, 0.0),
        ("a few runs", 3, 600, 0.9, 0.0),
        ("two runs that differ by 3 %", 2, 600, 0.3, 0.03),
        ("three runs that differ by 3 %", 3, 600, 0.3, 0.03),
        ("four runs that differ by 3 %", 4, 600, 0.3, 0.03),
        ("runs that differ by 3 %", 5, 300, 0.3, 0.03),
        ("runs that differ by 20 %", 6, 300, 0.3, 0.2),
    ] {
        for q in [0.5, 0.9] {
            let found = tally(TRIES, q, 1.0, |r| r.runs(count, n, memory, between));
            let differ = found.faster + found.slower;
            assert!(at_most(differ, TRIES, 0.05), "{name}, q {q}: {found:?}");
            // Of runs that differ, the quantile of all is another one than that of each.
            if between == 0.0 || q == 0.5 {
                assert!(at_most(TRIES - found.covered, TRIES, 0.05), "{name}, q {q}: {found:?}");
            }
        }
    }
}

/// The intervals of a record's summaries, over 1000 series of each kind.
#[test]
fn intervals_of_a_summary_cover_although_samples_depend_on_each_other() {
    const SERIES: u32 = 1000;
    let mut random = Random::new(15);
    for (n, memory, q) in
        [(1000, 0.0, 0.5), (1000, 0.8, 0.5), (2000, 0.9, 0.5), (2000, 0.9, 0.9), (100, 0.5, 0.5)]
    {
        // The state of the series is standard normal.
        let truth = 1000.0 * (0.1 * normal::upper_quantile(1.0 - q)).exp();
        let (mut covered, mut naive) = (0, 0);
        for _ in 0..SERIES {
            let samples = random.run(n, memory);
            let sorted = sorted(samples.clone());
            let known = known(&samples, &sorted, q, 0.95).unwrap();
            covered += u32::from(known.interval.unwrap().covers(truth));
            naive += u32::from(quantile_interval(&sorted, q, 0.95).unwrap().covers(truth));
        }
        // 3.5 standard deviations below 95 %.
        assert!(covered >= 926, "{n} samples, memory {memory}, {q}: {covered} of {SERIES}");
        assert!(memory < 0.8 || naive < 750, "as if independent: {naive} of {SERIES}");
    }
}

/// Of times of which all but a few are equal, the clock's step is the least that is unknown.
#[test]
fn an_interval_is_a_step_of_the_clock_wide() {
    let ends = |samples: &[f64]| {
        let known = known(samples, &sorted(samples.to_vec()), 0.5, 0.95).unwrap();
        known.interval.map(|interval| (interval.low, interval.high))
    };
    let but = |others: [f64; 2]| -> Vec<f64> {
        (0..100).map(|i| if i % 45 == 3 { others[i / 50] } else { 580.0 }).collect()
    };
    assert_eq!(ends(&but([590.0, 600.0])), Some((575.0, 585.0)));
    // Two values, or three that are not as far apart, show no step.
    assert_eq!(ends(&but([8000.0, 8000.0])), Some((580.0, 580.0)));
    assert_eq!(ends(&but([5000.0, 8000.0])), Some((580.0, 580.0)));
    assert_eq!(ends(&[2.0; 100]), Some((2.0, 2.0)));
}

#[test]
fn what_ignores_that_neighbours_depend_on_each_other_errs_often() {
    // The reason for blocks: the same samples as if independent, compared by the same test.
    let mut random = Random::new(12);
    let (mut naive, mut ours) = (0, 0);
    for _ in 0..100 {
        let (a, b) = (random.run(2000, 0.9), random.run(2000, 0.9));
        naive += u32::from(mann_whitney(&a, &b).unwrap().p_value < 0.05);
        let (a, b) = (Timed::new(&[a]).unwrap(), Timed::new(&[b]).unwrap());
        ours += u32::from(dominance(&a, &b, 0.95).unwrap().p_value < 0.05);
        // 2000 samples of this kind know as much as (1 - 0.9) / (1 + 0.9) of them, or so.
        assert!(a.quantile(0.5).unwrap().effective_n < 600.0);
    }
    assert!(naive > 40, "{naive}");
    assert!(at_most(ours, 100, 0.05), "{ours}");
}

#[test]
fn a_difference_that_is_there_is_found() {
    const TRIES: u32 = 60;
    // 3 % slower: seen; not more than 5 %, so no regression.
    let small = tally(TRIES, 0.5, 1.03, |r| r.runs(1, 2000, 0.3, 0.0));
    assert!(small.slower > 9 * TRIES / 10 && small.faster == 0, "{small:?}");
    assert_eq!(small.regressions, 0, "{small:?}");
    // 15 % slower, in runs that differ by 3 %.
    let large = tally(TRIES, 0.5, 1.15, |r| r.runs(5, 300, 0.3, 0.03));
    assert!(large.regressions > 8 * TRIES / 10 && large.faster == 0, "{large:?}");
    let tail = tally(TRIES, 0.9, 1.2, |r| r.runs(1, 1000, 0.5, 0.0));
    assert!(tail.regressions > 9 * TRIES / 10, "{tail:?}");
    // A regression of just the threshold is called one as seldom as nothing is.
    let edge = tally(200, 0.5, 1.05, |r| r.runs(1, 500, 0.5, 0.0));
    assert!(at_most(edge.regressions, 200, 0.05), "{edge:?}");
}

#[test]
fn deciles_of_a_shift_are_that_shift() {
    let mut random = Random::new(13);
    let mut hits = 0;
    for _ in 0..40 {
        let (a, b) = (random.run(1000, 0.5), random.run(1000, 0.5));
        let b: Vec<f64> = b.iter().map(|v| v + 250.0).collect();
        let (a, b) = (Timed::new(&[a]).unwrap(), Timed::new(&[b]).unwrap());
        for decile in 1..10 {
            let q = f64::from(decile) / 10.0;
            let shift = shift_at(&a, &b, q, 0.95).unwrap();
            hits += u32::from(shift.interval.unwrap().covers(250.0));
            assert!((shift.value - 250.0).abs() < 100.0);
        }
    }
    // The deciles of one try hang together: no closer bound.
    assert!(hits > 360 * 88 / 100, "{hits} of 360");
}

#[test]
fn certainty_and_interval_say_the_same() {
    let mut random = Random::new(14);
    let (a, b) = (random.run(500, 0.2), random.run(500, 0.2));
    let b: Vec<f64> = b.iter().map(|v| v * 1.02).collect();
    let (a, b) = (Timed::new(&[a]).unwrap(), Timed::new(&[b]).unwrap());
    let ratio = QuantileRatio::of(&a, &b, 0.5).unwrap();
    for nothing in [1.0, 1.01, 1.1] {
        let p = ratio.p_value(nothing);
        let covers = |p: f64| ratio.interval(1.0 - p).is_none_or(|i| i.covers(nothing));
        assert!(p > 0.4 || !covers(2.0 * p), "{nothing}: {p}");
        assert!(p <= LEAST_P || covers(p / 2.0), "{nothing}: {p}");
    }
    assert!(ratio.p_value(1.02) > ratio.p_value(1.0) && ratio.p_value(1.0) < 0.9);
    // One sample, or one block: no certainty at all.
    let one = Timed::new(&[vec![5.0]]).unwrap();
    assert!(one.quantile(0.5).is_none() && QuantileRatio::of(&one, &a, 0.5).is_none());
    assert!(Timed::new(&[vec![], vec![]]).is_none());
    let negative = Timed::new(&[vec![-1.0; 50]]).unwrap();
    assert!(QuantileRatio::of(&negative, &a, 0.5).is_none());
    assert!(shift_at(&negative, &a, 0.5, 0.95).is_some());
}

#[test]
fn verdicts_follow_from_the_interval() {
    let of = |low: f64, high: f64| Some(Interval { low, high, confidence: 0.95 });
    for (low, high, verdict, is_worse) in [
        (1.02, 1.04, Verdict::Slower, false),
        (1.06, 1.2, Verdict::Slower, true),
        (0.8, 0.99, Verdict::Faster, false),
        (0.97, 1.04, Verdict::NoDifference, false),
        (0.97, 1.06, Verdict::CannotTell, false),
        (0.9, 1.01, Verdict::CannotTell, false),
    ] {
        assert_eq!(Verdict::of(of(low, high), 0.05, Better::Less), verdict, "{low} {high}");
        assert_eq!(is_regression(of(low, high), 0.05, Better::Less), is_worse, "{low} {high}");
    }
    // Of rates, more is better.
    assert_eq!(Verdict::of(of(1.02, 1.04), 0.05, Better::More), Verdict::Faster);
    assert_eq!(Verdict::of(of(0.8, 0.9), 0.05, Better::More), Verdict::Slower);
    assert!(
        is_regression(of(0.8, 0.9), 0.05, Better::More)
            && !is_regression(of(0.8, 0.96), 0.05, Better::More)
    );
    // What is neither better nor worse is more or less, and never a regression.
    for (low, high, verdict) in [(1.5, 2.0, Verdict::More), (0.1, 0.2, Verdict::Less)] {
        assert_eq!(Verdict::of(of(low, high), 0.05, Better::Neither), verdict);
        assert!(!is_regression(of(low, high), 0.05, Better::Neither) && verdict.is_difference());
    }
    assert_eq!(Verdict::of(None, 0.05, Better::Less), Verdict::CannotTell);
    assert!(!is_regression(None, 0.05, Better::Less));
}

#[test]
fn a_mean_has_the_interval_of_student() {
    // Student (1908), the additional hours of sleep by the second drug: mean 2.33, s 2.002; with
    // t = 2.262 at 9 degrees the 95 % interval is 0.898 to 3.762, as R's t.test(extra) has it.
    let hours = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
    let found = mean_interval(&hours, 0.95).unwrap();
    assert!((found.low - 0.8976775).abs() < 1e-6 && (found.high - 3.7623225).abs() < 1e-6);
    assert_eq!(mean_interval(&[1.0], 0.95), None);
    // Of R, to the digits that are kept: mean(extra) 2.33, sd(extra) 2.002249.
    let kept = mean_interval_of(2.33, 2.002249, 10, 0.95).unwrap();
    assert!((kept.low - found.low).abs() < 1e-5 && (kept.high - found.high).abs() < 1e-5);
    assert_eq!(mean_interval_of(2.33, f64::NAN, 10, 0.95), None);
    assert_eq!(mean_interval_of(2.33, 0.0, 1, 0.95), None);
    // Means of dependent samples, in blocks.
    let mut random = Random::new(15);
    let mut covered = 0;
    for _ in 0..200 {
        let timed = Timed::new(&[random.run(1000, 0.8)]).unwrap();
        // A log-normal of sigma 0.1.
        covered += u32::from(timed.mean(0.95).interval.unwrap().covers(1000.0 * 0.005f64.exp()));
    }
    assert!(at_most(200 - covered, 200, 0.05), "{covered}");
}

#[test]
fn single_numbers_of_runs_are_compared_as_ratios() {
    let a = [100.0, 102.0, 98.0, 101.0, 99.0];
    let b = a.map(|v| v * 1.2);
    let one = |runs: &[f64]| [runs.to_vec()];
    let welch_ratio = |a: &[f64], b: &[f64]| welch_ratio(&one(a), &one(b), 0.95);
    let (ratio, p) = welch_ratio(&a, &b).unwrap();
    assert!((ratio.value - 1.2).abs() < 1e-12 && p < 1e-5, "{ratio:?} {p}");
    assert!(ratio.interval.unwrap().low > 1.15);
    assert!(welch_ratio(&a, &[1.0]).is_none() && welch_ratio(&a, &[0.0, 1.0]).is_none());
    assert!(welch_ratio(&[5.0; 3], &[5.0; 3]).is_none());
}

#[test]
fn nothing_that_varies_leaves_numbers_that_are_numbers() {
    let equal = |runs: usize| Timed::new(&vec![vec![7.0; 40]; runs]).unwrap();
    for (a, b) in [(1, 1), (2, 3), (6, 5)] {
        let found = dominance(&equal(a), &equal(b), 0.95).unwrap();
        assert!(found.freedom >= 2.0 && found.freedom.is_finite(), "{a} {b}: {found:?}");
        assert_eq!((found.delta.value, found.p_value), (0.0, 1.0));
    }
    // Variances whose squares no float holds.
    for scale in [1e-160, 1e160] {
        let sides = [[1.0, 2.0, 4.0], [1.0, 3.0, 4.0]].map(|side| side.map(|v| v * scale));
        let found = welch(&sides[0], &sides[1]).unwrap();
        assert!((found.freedom - 4.0).abs() < 0.1 && found.p_value > 0.5, "{found:?}");
    }
}

#[test]
fn an_interval_of_a_few_runs_is_known_as_well_as_there_are_runs() {
    const TRIES: u32 = 400;
    let mut random = Random::new(16);
    for (count, wide) in [(2, 300), (3, 300), (4, 300), (5, 300)] {
        let (mut mean, mut delta) = (0, 0);
        for _ in 0..TRIES {
            let runs = random.runs(count, wide, 0.3, 0.03);
            let timed = Timed::new(&runs).unwrap();
            // A log-normal of sigmas 0.1 and 0.03.
            let truth = 1000.0 * f64::exp((0.01 + 0.0009) / 2.0);
            mean += u32::from(!timed.mean(0.95).interval.unwrap().covers(truth));
            let other = Timed::new(&random.runs(count, wide, 0.3, 0.03)).unwrap();
            let found = dominance(&timed, &other, 0.95).unwrap();
            delta += u32::from(!found.delta.interval.unwrap().covers(0.0));
        }
        assert!(at_most(mean, TRIES, 0.05), "{count} runs: {mean} means missed");
        assert!(at_most(delta, TRIES, 0.05), "{count} runs: {delta} deltas missed");
    }
    // Sessions of several runs are known as well as there are sessions.
    let mut missed = 0;
    for _ in 0..TRIES {
        let mut session = || {
            let factor = (0.05 * random.normal()).exp();
            let runs = random.runs(5, 40, 0.3, 0.01).into_iter();
            runs.map(|run| run.iter().map(|v| v * factor).collect()).collect()
        };
        let sessions: Vec<Vec<Vec<f64>>> = (0..3).map(|_| session()).collect();
        let timed = Timed::of_sessions(&sessions).unwrap();
        assert_eq!((timed.sessions(), timed.runs(), timed.n()), (3, 15, 600));
        let truth = 1000.0 * f64::exp((0.01 + 0.0025 + 0.0001) / 2.0);
        missed += u32::from(!timed.mean(0.95).interval.unwrap().covers(truth));
    }
    assert!(at_most(missed, TRIES, 0.05), "{missed} missed");
}

#[test]
fn a_step_of_the_clock_is_no_difference() {
    // The same ticks by two calibrations of one clock, and a median that is a step higher.
    let side = |tick: f64, above: usize| {
        let samples = (0..2000).map(|i| tick * (120 + usize::from(i * 37 % 100 < above)) as f64);
        Timed::new(&[samples.collect()]).unwrap()
    };
    let (a, b) = (side(10.0, 20), side(10.000_000_01, 80));
    assert_eq!(a.step(), 10.0);
    let (of_a, of_b) = (a.quantile(0.5).unwrap(), b.quantile(0.5).unwrap());
    assert!(of_b.value > of_a.value && of_a.interval(0.95).unwrap().high < of_b.value);
    let found = QuantileRatio::of(&a, &b, 0.5).unwrap().interval(0.95);
    assert_eq!(Verdict::of(found, 0.05, Better::Less), Verdict::NoDifference, "{found:?}");
    let two_steps = side(10.0, 20).sorted().iter().map(|s| s + 20.0).collect();
    let c = Timed::new(&[two_steps]).unwrap();
    let found = QuantileRatio::of(&a, &c, 0.5).unwrap().interval(0.95);
    assert_eq!(Verdict::of(found, 0.05, Better::Less), Verdict::Slower, "{found:?}");
}
