//! How often a few runs a side are called different, and how often rightly. Fixed seeds.

use super::compare_tests::at_most;
use super::tests::Random;
use super::*;
use crate::Better;

const TRIES: u32 = 300;

/// Of runs of one session a side.
fn ratio(a: &[Vec<f64>], b: &[Vec<f64>], q: f64) -> Option<RunRatio> {
    RunRatio::of(&Runs::of_session(a), &Runs::of_session(b), q)
}

/// How often sides of a few runs, of which the second is slower by `factor`, come out different,
/// worse, and with an interval that misses `factor`.
fn tally(count: usize, between: f64, q: f64, factor: f64) -> (u32, u32, u32) {
    let mut random = Random::new(17);
    let (mut differ, mut worse, mut missed) = (0, 0, 0);
    for _ in 0..TRIES {
        let a = random.runs(count, 300, 0.5, between);
        let b = times(random.runs(count, 300, 0.5, between), factor);
        let ratio = ratio(&a, &b, q).unwrap();
        let interval = ratio.interval(0.95);
        let differs = !interval.covers(1.0);
        differ += u32::from(differs);
        assert_eq!(differs, ratio.p_value() < 0.05, "{ratio:?}");
        worse += u32::from(is_regression(Some(interval), 0.05, Better::Less));
        missed += u32::from(!interval.covers(factor));
    }
    (differ, worse, missed)
}

fn times(mut runs: Vec<Vec<f64>>, factor: f64) -> Vec<Vec<f64>> {
    runs.iter_mut().flatten().for_each(|v| *v *= factor);
    runs
}

#[test]
fn a_few_runs_differ_from_their_like_as_seldom_as_they_may() {
    for count in [2, 3, 5, 9] {
        for between in [0.0, 0.03, 0.2] {
            for q in [0.5, 0.9] {
                let (differ, worse, missed) = tally(count, between, q, 1.0);
                let what = format!("{count} runs that differ by {between}, q {q}");
                assert!(at_most(differ, TRIES, 0.05), "{what}: {differ} differ");
                assert!(at_most(worse, TRIES, 0.025), "{what}: {worse} regressions");
                assert_eq!(differ, missed);
            }
        }
    }
    // Runs of two kinds: one in five takes twice as long.
    let mut random = Random::new(21);
    let mut side = |count| {
        let mut runs = random.runs(count, 100, 0.5, 0.02);
        for run in &mut runs {
            if random.uniform() < 0.2 {
                run.iter_mut().for_each(|v| *v *= 2.0);
            }
        }
        runs
    };
    for count in [3, 5, 9] {
        let differ = |_| {
            let ratio = ratio(&side(count), &side(count), 0.5).unwrap();
            u32::from(ratio.p_value() < 0.05)
        };
        let differ = (0..TRIES).map(differ).sum::<u32>();
        assert!(at_most(differ, TRIES, 0.05), "{count} runs of two kinds: {differ} differ");
    }
    // What is there is found: the more runs, the surer.
    let (differ, worse, missed) = tally(4, 0.03, 0.5, 1.3);
    assert!(differ > TRIES * 9 / 10 && worse > TRIES * 8 / 10, "{differ} {worse}");
    assert!(at_most(missed, TRIES, 0.05), "{missed}");
}

#[test]
fn what_looks_within_runs_only_errs_often() {
    // The reason why one run a side decides nothing: runs of the same thing that differ by 3 % are
    // called different by what their samples know, most of the time.
    let mut random = Random::new(18);
    let mut differ = 0;
    for _ in 0..100 {
        let (a, b) = (random.runs(1, 5000, 0.2, 0.03), random.runs(1, 5000, 0.2, 0.03));
        let (a, b) = (Timed::new(&a).unwrap(), Timed::new(&b).unwrap());
        let ratio = QuantileRatio::of(&a, &b, 0.5).unwrap().interval(0.95).unwrap();
        differ += u32::from(!ratio.covers(1.0));
    }
    assert!(differ > 60, "{differ}");
    let (one, five) = (random.runs(1, 50, 0.0, 0.0), random.runs(5, 50, 0.0, 0.0));
    assert_eq!(ratio(&one, &five, 0.5), None);
}

#[test]
fn shifts_between_runs_are_covered() {
    let mut random = Random::new(19);
    let mut missed = 0;
    for _ in 0..TRIES {
        let a = random.runs(3, 200, 0.3, 0.05);
        let mut b = random.runs(3, 200, 0.3, 0.05);
        b.iter_mut().flatten().for_each(|v| *v += 400.0);
        let shift = run_shift(&Runs::of_session(&a), &Runs::of_session(&b), 0.5, 0.95).unwrap();
        missed += u32::from(!shift.interval.unwrap().covers(400.0));
    }
    assert!(at_most(missed, TRIES, 0.05), "{missed}");
    let (one, two) = (Runs::of_session(&[vec![1.0]]), Runs::of_session(&[vec![1.0], vec![2.0]]));
    assert_eq!(run_shift(&one, &two, 0.5, 0.95), None);
}

#[test]
fn runs_that_a_step_of_the_clock_makes_equal_are_not_surer_than_it() {
    let side = |median: f64| vec![vec![median - 10.0, median, median, median + 10.0]; 3];
    let same = ratio(&side(500.0), &side(500.0), 0.5).unwrap();
    assert_eq!(same.p_value(), 1.0);
    let step = ratio(&side(500.0), &side(510.0), 0.5).unwrap();
    assert!(step.interval(0.95).covers(1.0) && step.p_value() > 0.9, "{step:?}");
    let far = ratio(&side(500.0), &side(600.0), 0.5).unwrap();
    assert!(!far.interval(0.95).covers(1.0) && far.p_value() < 0.01, "{far:?}");
}

/// Sessions of five runs each, which differ by `sessions` and, within one, by `runs`.
fn sessions(random: &mut Random, count: usize, sessions: f64, runs: f64) -> Vec<Vec<Vec<f64>>> {
    let mut one = || {
        let factor = (sessions * random.normal()).exp();
        times(random.runs(5, 60, 0.3, runs), factor)
    };
    (0..count).map(|_| one()).collect()
}

#[test]
fn what_differs_between_sessions_is_no_difference_of_the_sides() {
    for (of_a, of_b) in [(2, 2), (3, 3), (5, 3), (1, 4), (3, 1)] {
        for (between, within) in [(0.03, 0.01), (0.0, 0.02)] {
            let mut random = Random::new(22);
            let (mut differ, mut worse, mut figures, mut shifts) = (0, 0, 0, 0);
            for _ in 0..TRIES {
                let a = sessions(&mut random, of_a, between, within);
                let b = sessions(&mut random, of_b, between, within);
                let means = |side: &[Vec<Vec<f64>>]| -> Vec<Vec<f64>> {
                    let of = |run: &Vec<f64>| run.iter().sum::<f64>() / run.len() as f64;
                    side.iter().map(|runs| runs.iter().map(of).collect()).collect()
                };
                let (_, p) = welch_ratio(&means(&a), &means(&b), 0.95).unwrap();
                figures += u32::from(p < 0.05);
                let (a, b) = (Runs::new(a), Runs::new(b));
                let ratio = RunRatio::of(&a, &b, 0.5).unwrap();
                differ += u32::from(ratio.p_value() < 0.05);
                worse += u32::from(is_regression(Some(ratio.interval(0.95)), 0.05, Better::Less));
                let shift = run_shift(&a, &b, 0.5, 0.95).unwrap().interval.unwrap();
                shifts += u32::from(!shift.covers(0.0));
            }
            let what = format!("{of_a} and {of_b} sessions that differ by {between}");
            for (name, hits) in [("medians", differ), ("means", figures), ("shifts", shifts)] {
                assert!(at_most(hits, TRIES, 0.05), "{what}: {hits} of {TRIES} {name} differ");
            }
            assert!(at_most(worse, TRIES, 0.025), "{what}: {worse} regressions");
        }
    }
    // As if each run were of its own: the reason why sessions count as one.
    let mut random = Random::new(23);
    let mut side = || -> Vec<Vec<f64>> { sessions(&mut random, 3, 0.03, 0.01).concat() };
    let pooled = (0..100).filter(|_| ratio(&side(), &side(), 0.5).unwrap().p_value() < 0.05);
    assert!(pooled.count() > 25);
}

#[test]
fn what_is_there_is_found_in_sessions_too() {
    let mut random = Random::new(24);
    let (mut found, mut missed) = (0, 0);
    for _ in 0..100 {
        let a = sessions(&mut random, 4, 0.03, 0.01);
        let b = sessions(&mut random, 4, 0.03, 0.01).into_iter().map(|runs| times(runs, 1.2));
        let ratio = RunRatio::of(&Runs::new(a), &Runs::new(b.collect()), 0.5).unwrap();
        let interval = ratio.interval(0.95);
        found += u32::from(interval.low > 1.0);
        missed += u32::from(!interval.covers(1.2));
    }
    assert!(found > 90 && at_most(missed, 100, 0.05), "{found} {missed}");
    // A session of no runs, or of runs without samples, is none.
    let odd = Runs::new(vec![vec![], vec![vec![]], vec![vec![1.0], vec![2.0], vec![]]]);
    assert_eq!(RunRatio::of(&odd, &odd, 0.5).map(|ratio| ratio.value()), Some(1.0));
    assert_eq!(RunRatio::of(&odd, &Runs::new(Vec::new()), 0.5), None);
}

#[test]
fn what_clocks_are_off_by_is_in_the_interval_however_many_runs_there_are() {
    let run = |ns: f64| (0..101).map(|i| ns + f64::from(i) - 50.0).collect::<Vec<f64>>();
    let side = |ns: f64| (0..9).map(|i| run(ns + 10.0 * f64::from(i))).collect::<Vec<_>>();
    let (a, b) = (side(20_000.0), side(22_000.0));
    let of = |error_a: f64, error_b: f64| {
        let (a, b) = (
            Runs::of_session(&a).with_common_error(error_a),
            Runs::of_session(&b).with_common_error(error_b),
        );
        let ratio = RunRatio::of(&a, &b, 0.5).unwrap();
        let shift = run_shift(&a, &b, 0.5, 0.95).unwrap().interval.unwrap();
        let differs = !ratio.interval(0.95).covers(1.0);
        assert_eq!(differs, ratio.p_value() < 0.05, "{ratio:?}");
        assert_eq!(differs, !shift.covers(0.0), "{shift:?}");
        (differs, ratio.interval(0.95))
    };
    assert!(of(0.0, 0.0).0 && of(500.0, 500.0).0);
    assert!(!of(5000.0, 5000.0).0 && !of(0.0, 5000.0).0 && !of(5000.0, 0.0).0);
    // The truth may be 25 against 17 us as well as 15 against 27.
    let widest = of(5000.0, 5000.0).1;
    assert!(widest.covers(17.0 / 25.0) && widest.covers(27.0 / 15.0), "{widest:?}");
    // Where the clocks are off by more than the time there is no end to it.
    assert_eq!((of(30_000.0, 0.0).1.low, of(30_000.0, 0.0).1.high), (0.0, f64::INFINITY));
}
