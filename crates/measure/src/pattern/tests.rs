use rdmalab_random::Random;

use super::*;

/// Normal: Box and Muller 1958.
fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    radius * (2.0 * std::f64::consts::PI * random.unit()).cos()
}

/// A shape of noise without memory.
type Noise = fn(&mut Random) -> f64;

const NOISES: [(&str, Noise); 5] = [
    ("normal", |r| normal(r)),
    ("long to the right", |r| (2.0 * normal(r)).exp()),
    ("without a mean", |r| 1.0 / (1e-9 + r.unit())),
    // As a clock that ticks in tens of ns shows them.
    ("in steps", |r| (normal(r) * 2.0).round() * 10.0),
    ("seldom anything", |r| if r.unit() < 0.02 { 1e6 } else { 1e3 }),
];

fn noise(n: usize, seed: u64, one: Noise) -> Vec<f64> {
    let mut random = Random::new(seed);
    (0..n).map(|_| one(&mut random)).collect()
}

/// Noise with a pattern: `heights[i % period]` is added.
fn with_pattern(
    n: usize,
    seed: u64,
    one: Noise,
    period: usize,
    peaks: &[(usize, f64)],
) -> Vec<f64> {
    let mut samples = noise(n, seed, one);
    for (i, sample) in samples.iter_mut().enumerate() {
        *sample += peaks.iter().filter(|(at, _)| i % period == *at).map(|p| p.1).sum::<f64>();
    }
    samples
}

/// Places of the peaks, in order.
fn places(pattern: &Pattern) -> Vec<usize> {
    let mut places: Vec<usize> = pattern.peaks.iter().map(|p| p.place).collect();
    places.sort_unstable();
    places
}

#[test]
fn in_white_noise_there_is_none_as_often_as_promised() {
    // With 5 % allowed, more than 16 % of 100 would come once in 10^5.
    const SERIES: u64 = 100;
    for (name, one) in NOISES {
        let found = (0..SERIES).filter(|seed| {
            let samples = noise(600, 1000 + seed, one);
            find_with(&samples, 0, 0.05).is_some()
        });
        let found = found.count();
        assert!(found <= 16, "{name}: {found} of {SERIES}");
    }
}

#[test]
fn the_chance_that_is_stated_is_neither_too_small_nor_idle() {
    // A false-alarm probability of 0.5 is a bound: it must hold, and not be out of reach either.
    let alarms = (0..200).filter(|s| find_with(&noise(200, *s, normal), 0, 0.5).is_some());
    let alarms = alarms.count();
    assert!((5..=130).contains(&alarms), "{alarms} of 200");
}

#[test]
fn noise_with_a_memory_is_no_pattern() {
    for (memory, most) in [(0.5, 4), (0.9, 4), (0.99, 4)] {
        let alarms = (0..40u64).filter(|seed| {
            let mut random = Random::new(77 + seed);
            let mut state = 0.0;
            let samples: Vec<f64> = (0..2000)
                .map(|_| {
                    state = memory * state + normal(&mut random);
                    state
                })
                .collect();
            find(&samples, 0).is_some()
        });
        let alarms = alarms.count();
        assert!(alarms <= most, "memory {memory}: {alarms} of 40");
    }
    // A level that changes now and then, as when a core slows down.
    let mut samples = noise(4000, 5, normal);
    samples[1234..2345].iter_mut().for_each(|s| *s += 5.0);
    assert_eq!(find(&samples, 0), None);
}

#[test]
fn a_peak_is_found_in_any_noise_at_several_heights() {
    for (n, period) in [(2000, 2), (2000, 3), (3000, 16), (4000, 31), (8000, 128)] {
        for height in [1.0, 3.0, 30.0] {
            // The lower the peak, the more repetitions it takes; 1 deviation needs about 80.
            if height < 3.0 && n / period < 100 {
                continue;
            }
            let at = period - 1;
            let samples = with_pattern(n, 3 + period as u64, normal, period, &[(at, height)]);
            let pattern = find(&samples, 0).unwrap_or_else(|| panic!("{period} {height}"));
            assert_eq!((pattern.period, places(&pattern)), (period, vec![at]), "{height}");
            let found = pattern.peaks[0].height;
            let off = 5.0 / ((n / period) as f64).sqrt();
            assert!((found - height).abs() < off, "{period}: {found} instead of {height}");
            assert!(pattern.base.abs() < off && pattern.false_alarm <= FALSE_ALARM);
        }
    }
}

#[test]
fn outliers_do_not_hide_it_and_do_not_make_it() {
    let rare: Noise = |r| if r.unit() < 0.01 { 1e7 * r.unit() } else { normal(r) };
    let samples = with_pattern(4000, 9, rare, 32, &[(30, 4.0), (31, 4.0)]);
    let pattern = find(&samples, 0).expect("a pattern");
    assert_eq!((pattern.period, places(&pattern)), (32, vec![30, 31]));
    assert!((pattern.peaks[0].height - 4.0).abs() < 1.0, "{:?}", pattern.peaks);
}

/// What the study reports of a receive queue of each depth, in us: the base, the period, and the
/// peaks. The noise is about that of its figures.
#[test]
fn the_patterns_of_the_study_come_out() {
    let cases: [(usize, &[(usize, f64)]); 4] = [
        (16, &[(13, 4.05), (14, 4.05), (15, 4.05)]),
        (32, &[(14, 0.68), (15, 0.68), (30, 1.23), (31, 1.23)]),
        (128, &[(126, 1.33), (127, 1.33)]),
        (256, &[(126, 1.35), (127, 1.35), (254, 2.35), (255, 2.35)]),
    ];
    let noise: Noise = |r| 3.15 + 0.05 * normal(r) + if r.unit() < 0.003 { 10.0 } else { 0.0 };
    for (period, peaks) in cases {
        let samples = with_pattern(10_000, period as u64, noise, period, peaks);
        let pattern = find(&samples, 0).expect("a pattern");
        let wanted: Vec<usize> = peaks.iter().map(|p| p.0).collect();
        assert_eq!((pattern.period, places(&pattern)), (period, wanted));
        assert!(pattern.false_alarm < 1e-50, "{}", pattern.false_alarm);
        assert!((pattern.base - 3.15).abs() < 0.02, "{}", pattern.base);
        for peak in &pattern.peaks {
            let height = peaks.iter().find(|p| p.0 == peak.place).expect("a peak").1;
            assert!((peak.height - height).abs() < 0.05, "{peak:?}");
        }
    }
}

#[test]
fn a_harmonic_is_not_taken_for_the_period() {
    // A weak difference between two halves makes the period twice as long; an equal one does not.
    for (second, period) in [(3.0, 24), (1.5, 48), (0.0, 48)] {
        let peaks = [(5, 3.0), (29, second)];
        for seed in 0..10 {
            let samples = with_pattern(6000, seed, normal, 48, &peaks);
            let pattern = find(&samples, 0).expect("a pattern");
            assert_eq!(pattern.period, period, "{second}, seed {seed}");
        }
    }
    // A wave has nothing but its period.
    let wave = |i: usize| (i as f64 * 2.0 * std::f64::consts::PI / 60.0).sin() * 2.0;
    for seed in 0..10 {
        let mut samples = noise(6000, seed, normal);
        samples.iter_mut().enumerate().for_each(|(i, s)| *s += wave(i));
        assert_eq!(find(&samples, 0).expect("a wave").period, 60, "seed {seed}");
    }
}

#[test]
fn places_count_from_the_first_index_and_gaps_stay_gaps() {
    let mut samples = with_pattern(4000, 4, normal, 20, &[(7, 6.0)]);
    let pattern = find(&samples[1003..], 1003).expect("a pattern");
    assert_eq!((pattern.period, places(&pattern)), (20, vec![7]));
    let mut random = Random::new(8);
    for sample in &mut samples {
        if random.unit() < 0.3 {
            *sample = f64::NAN;
        }
    }
    let pattern = find(&samples, 0).expect("a pattern");
    assert_eq!((pattern.period, places(&pattern)), (20, vec![7]));
}

#[test]
fn a_dip_is_below_zero_and_where_all_else_is_equal_it_is_clear() {
    let samples: Vec<f64> = (0..500).map(|i| if i % 10 == 4 { 1.0 } else { 2.0 }).collect();
    let pattern = find(&samples, 0).expect("a pattern");
    assert_eq!((pattern.period, places(&pattern), pattern.base), (10, vec![4], 2.0));
    assert!((pattern.peaks[0].height + 1.0).abs() < 1e-12);
}

#[test]
fn too_little_is_no_pattern() {
    assert_eq!(find(&[], 0), None);
    assert_eq!(find(&[f64::NAN; 100], 0), None);
    assert_eq!(find(&[1.0; 100], 0), None);
    let alternating: Vec<f64> = (0..15).map(|i| f64::from(i % 2)).collect();
    assert_eq!(find(&alternating, 0), None);
    let alternating: Vec<f64> = (0..200).map(|i| f64::from(i % 2)).collect();
    assert_eq!(find(&alternating, 0).expect("clear").period, 2);
}

/// A cause that strikes once in 16, far above all else, on a device that has a peak of its own once
/// in `own`, with pauses from elsewhere: 400 samples, as `recvq` has them.
fn struck(random: &mut Random, own: usize, pauses: usize) -> Vec<f64> {
    let place = (random.next_u64() % 16) as usize;
    let mut sample = |i: usize| {
        let noise = 2e3 * (0.3 * normal(random)).exp();
        let own = if i % own == 1 { 1.5e3 } else { 0.0 };
        noise + own + if i % 16 == place { 3e6 } else { 0.0 }
    };
    let mut samples: Vec<f64> = (0..400).map(&mut sample).collect();
    for _ in 0..pauses {
        let at = (random.next_u64() % 400) as usize;
        samples[at] = if at % 16 == place { 2e3 } else { 4e6 };
    }
    samples
}

/// Among the samples of one place of a period of 8 the strikes are one half: however high they are,
/// their ranks say no more than that.
#[test]
fn a_cause_is_not_taken_for_half_its_period() {
    const SERIES: usize = 200;
    for own in [1, 2, 3, 4, 8, 16] {
        for pauses in [0, 2, 4] {
            let mut random = Random::new(own as u64 * 100 + pauses as u64);
            let periods: Vec<usize> = (0..SERIES)
                .map(|_| find(&struck(&mut random, own, pauses), 0).map_or(0, |p| p.period))
                .collect();
            let of = |is_it: &dyn Fn(usize) -> bool| periods.iter().filter(|p| is_it(**p)).count();
            let right = of(&|found| found == 16);
            assert!(right >= SERIES * 97 / 100, "every {own}, {pauses} pauses: {right}");
            assert!(of(&|found| found > 16) <= 2, "every {own}, {pauses} pauses");
        }
    }
}

/// Two causes repeat together after the product of their periods, but one of them is much higher.
#[test]
fn the_higher_of_two_causes_has_its_own_period() {
    for (high, height, low) in [(16, 100e3, 32), (17, 20e3, 32), (16, 200e3, 10), (31, 9e3, 7)] {
        for seed in 0..10 {
            let mut samples = noise(20_000, seed, |r| 1.9e3 + 50.0 * normal(r));
            for (i, sample) in samples.iter_mut().enumerate() {
                *sample += if i % high == high - 1 { height } else { 0.0 };
                *sample += if i % low == 0 { 500.0 } else { 0.0 };
            }
            let pattern = find(&samples, 0).expect("a pattern");
            assert_eq!((pattern.period, pattern.peaks[0].place), (high, high - 1), "seed {seed}");
        }
    }
    // A few places of the long period are disturbed.
    let mut samples = with_pattern(20_000, 3, normal, 16, &[(15, 1000.0)]);
    samples.iter_mut().skip(40).step_by(512).for_each(|sample| *sample += 150.0);
    assert_eq!(find(&samples, 0).expect("a pattern").period, 16);
    // Of two that are alike, neither is enough.
    let samples = with_pattern(20_000, 1, normal, 24, &[(0, 9.0), (8, 9.0), (16, 9.0), (12, 9.0)]);
    assert_eq!(find(&samples, 0).expect("a pattern").period, 24);
}

/// What is left of a last period, and gaps at some places, make no longer period likelier: per
/// degree of freedom the squares are 1 on the average.
#[test]
fn what_is_ragged_says_no_more_than_its_divisor() {
    const SERIES: u64 = 200;
    /// Whether the sample at an index is missing.
    type Missing = fn(usize) -> bool;
    let ragged: [(&str, Missing, usize); 3] = [
        ("whole", |_| false, 1600),
        ("the last period", |_| false, 1799),
        ("gaps", |at| at % 200 < 100 && at % 1400 > 199, 2800),
    ];
    for (name, missing, n) in ragged {
        let (mut squares, mut freedom) = (0.0, 0.0);
        for seed in 0..SERIES {
            let mut samples = noise(n, 500 + seed, normal);
            (0..n).filter(|at| missing(*at)).for_each(|at| samples[at] = f64::NAN);
            let search = Search::new(&samples).expect("enough");
            let within = fold::scores_within(&samples, 100);
            let (scores, there) = search.whole(&within, 200);
            let folded = Folded::within(scores, there, 200, 100);
            squares += folded.squares;
            freedom += folded.freedom;
        }
        // 200 series of some 100 degrees each: the ratio is known within 1 %.
        let ratio = squares / freedom;
        assert!((0.95..1.05).contains(&ratio), "{name}: {ratio}");
    }
}
