//! Synthetic runs with and without a known best way. Seeds are fixed, so failures are reproducible.

use rdmalab_random::Random;

use super::*;

/// Random numbers for runs as on a busy machine.
struct Runs(Random);

impl Runs {
    fn next(&mut self) -> f64 {
        self.0.unit()
    }

    /// Nearly normal and bounded: the sum of twelve uniform numbers.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.next()).sum::<f64>() - 6.0
    }

    /// The disturbance of a run on a busy machine, as a factor: mostly small, sometimes large.
    fn disturbance(&mut self) -> f64 {
        let burst = if self.next() < 0.1 { 1.0 + 3.0 * self.next() } else { 1.0 };
        (1.0 + 0.01 * self.normal().abs()) * burst
    }
}

const TIMES: Rules = Rules { confidence: CONFIDENCE, zone: ZONE, more_is_better: false };
const RATES: Rules = Rules { more_is_better: true, ..TIMES };

/// Runs of ways with these true times; in each round all ways are slower by a factor up to `drift`.
fn runs(random: &mut Runs, truth: &[f64], rounds: usize, drift: f64) -> Vec<Candidate> {
    let mut found: Vec<Candidate> = truth
        .iter()
        .enumerate()
        .map(|(i, _)| Candidate { name: i.to_string(), values: Vec::new() })
        .collect();
    for _ in 0..rounds {
        let together = 1.0 + drift * random.next();
        for (candidate, truth) in found.iter_mut().zip(truth) {
            candidate.values.push(truth * together * random.disturbance());
        }
    }
    found
}

/// The tries with equal ways in which a best way was named, and in which any way was called worse.
fn false_claims(seed: u64, ways: usize, rounds: usize, drift: f64) -> (usize, usize) {
    let mut random = Runs(Random::new(seed));
    let (mut best, mut worse) = (0, 0);
    for _ in 0..TRIES {
        let found = decide(&runs(&mut random, &vec![1000.0; ways], rounds, drift), &TIMES);
        let found = found.unwrap();
        best += usize::from(found.outcome == Outcome::Best);
        worse += usize::from(!found.worse().is_empty());
    }
    (best, worse)
}

const TRIES: usize = 2000;

#[test]
fn equal_ways_have_no_best_more_often_than_the_certainty_allows() {
    // The limit is 5 % of the tries, plus three standard deviations of that number.
    let allowed = 0.05 * TRIES as f64;
    let limit = (allowed + 3.0 * (allowed * 0.95).sqrt()) as usize;
    for (seed, ways, rounds, drift) in
        [(1, 2, 8, 0.0), (2, 3, 8, 0.0), (3, 5, 8, 0.0), (4, 2, 15, 0.2), (5, 5, 15, 0.2)]
    {
        let (best, worse) = false_claims(seed, ways, rounds, drift);
        assert!(best <= limit, "seed {seed}, {ways} ways: a best one in {best} of {TRIES}");
        assert!(worse <= limit, "seed {seed}, {ways} ways: a worse one in {worse} of {TRIES}");
    }
}

#[test]
fn the_best_is_found_with_its_effect() {
    // If too many runs are disturbed there is no result, but a wrong way is never named.
    let (mut told, mut covered) = (0, 0);
    for seed in 100..300 {
        let found = runs(&mut Runs(Random::new(seed)), &[1300.0, 1000.0, 1600.0], 15, 0.05);
        let found = decide(&found, &TIMES).unwrap();
        if found.outcome == Outcome::Best {
            assert_eq!((found.leader, found.worse()), (1, vec![0, 2]), "seed {seed}: {found:?}");
            let effect = found.effects[0].unwrap();
            covered += usize::from(effect.ratio.interval.unwrap().covers(1.3));
            told += 1;
        }
    }
    assert!(told >= 180 && covered >= told * 95 / 100, "{told} told, {covered} covered");
}

#[test]
fn a_drift_of_all_hides_nothing() {
    // Rounds differ by up to 50 %, ways by 10 %.
    let told = (300..400).filter(|seed| {
        let mut random = Runs(Random::new(*seed));
        let mut found = runs(&mut random, &[1100.0, 1000.0], 15, 0.5);
        // Within a round the noise is that of a quiet machine.
        for i in 0..15 {
            let shared = 1.0 + 0.5 * random.next();
            for (candidate, truth) in found.iter_mut().zip([1100.0, 1000.0]) {
                candidate.values[i] = truth * shared * (1.0 + 0.01 * random.next());
            }
        }
        let found = decide(&found, &TIMES).unwrap();
        found.outcome == Outcome::Best && found.leader == 1
    });
    assert_eq!(told.count(), 100);
}

#[test]
fn intervals_cover_the_true_effect() {
    let mut random = Runs(Random::new(7));
    let missed = (0..TRIES)
        .filter(|_| {
            let found = decide(&runs(&mut random, &[1000.0, 1100.0], 8, 0.0), &TIMES).unwrap();
            let (other, truth) = if found.leader == 0 { (1, 1.1) } else { (0, 1.0 / 1.1) };
            let interval = found.effects[other].unwrap().ratio.interval.unwrap();
            !interval.covers(truth)
        })
        .count();
    assert!(missed <= 130, "{missed} of {TRIES} missed");
}

#[test]
fn rates_are_better_when_they_are_more() {
    let mut random = Runs(Random::new(9));
    let found = decide(&runs(&mut random, &[1e6, 2e6], 8, 0.0), &RATES).unwrap();
    assert_eq!((found.leader, found.outcome), (1, Outcome::Best));
    assert!(found.effects[0].unwrap().ratio.value < 0.7);
}

#[test]
fn what_does_not_matter_is_no_difference_and_what_is_not_known_is_said() {
    let of = |values: &[f64]| Candidate { name: String::new(), values: values.to_vec() };
    let even: Vec<f64> = (0..10).map(|i| 1000.0 + f64::from(i)).collect();
    let odd: Vec<f64> = even.iter().map(|v| v * 1.01).collect();
    // One per cent more is certain, but does not matter.
    let found = decide(&[of(&even), of(&odd)], &TIMES).unwrap();
    assert_eq!((found.outcome, found.alike()), (Outcome::Alike, vec![0, 1]));
    let wide: Vec<f64> = (0..10).map(|i| 900.0 + 30.0 * f64::from(i)).collect();
    let found = decide(&[of(&even), of(&wide)], &TIMES).unwrap();
    assert_eq!((found.outcome, found.unknown()), (Outcome::Open, vec![1]));
    // A way that takes twice as long is worse, although another comparison is undecided.
    let twice: Vec<f64> = even.iter().map(|v| v * 2.0).collect();
    let found = decide(&[of(&twice), of(&wide), of(&even)], &TIMES).unwrap();
    assert_eq!((found.leader, found.worse(), found.unknown()), (2, vec![0], vec![1]));
}

#[test]
fn few_runs_decide_nothing_however_far_apart() {
    let of = |values: &[f64]| Candidate { name: String::new(), values: values.to_vec() };
    let found = decide(&[of(&[1.0, 1.1, 1.2]), of(&[9.0, 9.1, 9.2])], &TIMES).unwrap();
    assert_eq!((found.outcome, found.runs, found.runs_needed), (Outcome::Open, 3, 4));
    let found = decide(&[of(&[1.0, 1.1, 1.2, 1.3]), of(&[9.0, 9.1, 9.2, 9.3])], &TIMES).unwrap();
    assert_eq!(found.outcome, Outcome::Best);
    // The smallest p-value is 1 / C(2n, n) on each side; each pair gets its share of the 5 %.
    assert_eq!([1, 2, 3, 5, 8].map(|ways| runs_needed(ways, CONFIDENCE)), [4, 4, 5, 6, 7]);
}

#[test]
fn nothing_sound_decides_nothing() {
    let of = |values: &[f64]| Candidate { name: String::new(), values: values.to_vec() };
    assert_eq!(decide(&[], &TIMES), None);
    for wrong in [vec![], vec![1.0], vec![1.0, 0.0], vec![1.0, f64::NAN], vec![1.0, -1.0]] {
        assert_eq!(decide(&[of(&[1.0, 2.0]), of(&wrong)], &TIMES), None, "{wrong:?}");
    }
    let alone = decide(&[of(&[1.0, 2.0])], &TIMES).unwrap();
    assert_eq!((alone.outcome, alone.alike()), (Outcome::Best, vec![0]));
}
