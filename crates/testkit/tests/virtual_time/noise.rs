//! Noise: it comes from its parameters and from the seed, and from nothing else.

use rdmalab_experiments::Experiment;
use rdmalab_measure::Quantity;
use rdmalab_sim::{Profile, find};

use crate::lab::outcome;

/// The round trips of a run, ns.
fn trips(profile: &Profile, seed: &str) -> Vec<f64> {
    // Without acknowledgements, which would be delayed too.
    let options = [("messages", "2000"), ("warm-up", "10"), ("transport", "uc"), ("seed", seed)];
    let found = outcome(profile, 2, Experiment::PING, &options);
    let series = found.series.iter().find(|series| series.quantity == Quantity::RoundTrip);
    series.unwrap().counted().collect()
}

fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

fn with(changes: &[(&str, f64)]) -> Profile {
    let mut profile = find("connectx4").unwrap();
    changes.iter().for_each(|(name, value)| profile.set(name, *value).unwrap());
    profile
}

#[test]
fn jitter_has_its_mean_and_the_shape_of_its_distribution() {
    let calm = trips(&with(&[]), "1");
    let noisy = trips(&with(&[("jitter_ns", 300.0)]), "1");
    // Two messages a round trip.
    let added = mean(&noisy) - mean(&calm);
    // A poll that finds nothing may end up to its time later, at each end.
    assert!((added - 605.0).abs() < 35.0, "{added} ns on average");
    let variance = noisy.iter().map(|trip| (trip - mean(&noisy)).powi(2)).sum::<f64>();
    let deviation = (variance / noisy.len() as f64).sqrt();
    assert!((deviation - 300.0 * 2f64.sqrt()).abs() < 40.0, "{deviation} ns");
    let least = |trips: &[f64]| trips.iter().copied().fold(f64::MAX, f64::min);
    assert!(least(&noisy) >= least(&calm) - 20.0, "noise makes nothing faster");
}

#[test]
fn interrupts_make_some_messages_slow() {
    let model = with(&[("interrupts_per_s", 10_000.0), ("interrupt_ns", 5_000.0)]);
    let trips = trips(&model, "1");
    let slow = trips.iter().filter(|trip| **trip > 4_000.0).count() as f64;
    // Each of the two processors is interrupted once in 100 us, and works or waits for the other
    // during a round trip of 1.85 us: the longer it takes, the more.
    let expected = mean(&trips) / 100_000.0 * 2.0 * trips.len() as f64;
    assert!((0.75..1.25).contains(&(slow / expected)), "{slow} slow ones of {expected}");
    assert!(trips.iter().all(|trip| *trip < 20_000.0));
}

#[test]
fn the_seed_decides_and_only_where_there_is_noise() {
    let noisy = with(&[("jitter_ns", 300.0), ("interrupts_per_s", 1000.0), ("interrupt_ns", 2e3)]);
    assert_eq!(trips(&noisy, "1"), trips(&noisy, "1"));
    assert_ne!(trips(&noisy, "1"), trips(&noisy, "2"));
    let calm = with(&[]);
    assert_eq!(trips(&calm, "1"), trips(&calm, "2"));
    // A part that is switched on does not change what another one draws: the least round trip of
    // jitter alone is that with interrupts, which hit others.
    let jitter = trips(&with(&[("jitter_ns", 300.0)]), "1");
    let same = jitter.iter().zip(&trips(&noisy, "1")).filter(|(a, b)| a == b).count();
    assert!(same > jitter.len() / 4, "{same} of {} are the same", jitter.len());
}
