//! How often a few runs a side are called different, and how often rightly. Fixed seeds.

use super::compare_tests::at_most;
use super::tests::Random;
use super::*;

const TRIES: u32 = 300;

/// How often sides of a few runs, of which the second is slower by `factor`, come out different,
/// worse, and with an interval that misses `factor`.
fn tally(count: usize, between: f64, q: f64, factor: f64) -> (u32, u32, u32) {
    let mut random = Random(17);
    let (mut differ, mut worse, mut missed) = (0, 0, 0);
    for _ in 0..TRIES {
        let a = random.runs(count, 300, 0.5, between);
        let b = times(random.runs(count, 300, 0.5, between), factor);
        let ratio = RunRatio::of(&a, &b, q).unwrap();
        let interval = ratio.interval(0.95);
        let differs = !interval.covers(1.0);
        differ += u32::from(differs);
        assert_eq!(differs, ratio.p_value() < 0.05, "{ratio:?}");
        worse += u32::from(is_regression(Some(interval), 0.05, false));
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
    let mut random = Random(21);
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
            let ratio = RunRatio::of(&side(count), &side(count), 0.5).unwrap();
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
    let mut random = Random(18);
    let mut differ = 0;
    for _ in 0..100 {
        let (a, b) = (random.runs(1, 5000, 0.2, 0.03), random.runs(1, 5000, 0.2, 0.03));
        let (a, b) = (Timed::new(&a).unwrap(), Timed::new(&b).unwrap());
        let ratio = QuantileRatio::of(&a, &b, 0.5).unwrap().interval(0.95).unwrap();
        differ += u32::from(!ratio.covers(1.0));
    }
    assert!(differ > 60, "{differ}");
    let (one, five) = (random.runs(1, 50, 0.0, 0.0), random.runs(5, 50, 0.0, 0.0));
    assert_eq!(RunRatio::of(&one, &five, 0.5), None);
}

#[test]
fn shifts_between_runs_are_covered() {
    let mut random = Random(19);
    let mut missed = 0;
    for _ in 0..TRIES {
        let a = random.runs(3, 200, 0.3, 0.05);
        let mut b = random.runs(3, 200, 0.3, 0.05);
        b.iter_mut().flatten().for_each(|v| *v += 400.0);
        let shift = run_shift(&a, &b, 0.5, 0.95).unwrap();
        missed += u32::from(!shift.interval.unwrap().covers(400.0));
    }
    assert!(at_most(missed, TRIES, 0.05), "{missed}");
    assert_eq!(run_shift(&[vec![1.0]], &[vec![1.0], vec![2.0]], 0.5, 0.95), None);
}

#[test]
fn runs_that_a_step_of_the_clock_makes_equal_are_not_surer_than_it() {
    let side = |median: f64| vec![vec![median - 10.0, median, median, median + 10.0]; 3];
    let same = RunRatio::of(&side(500.0), &side(500.0), 0.5).unwrap();
    assert_eq!(same.p_value(), 1.0);
    let step = RunRatio::of(&side(500.0), &side(510.0), 0.5).unwrap();
    assert!(step.interval(0.95).covers(1.0) && step.p_value() > 0.9, "{step:?}");
    let far = RunRatio::of(&side(500.0), &side(600.0), 0.5).unwrap();
    assert!(!far.interval(0.95).covers(1.0) && far.p_value() < 0.01, "{far:?}");
}
