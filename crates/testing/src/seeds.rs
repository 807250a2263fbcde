//! The seeds of randomised tests. `RDMALAB_SEEDS` says how many to play, `RDMALAB_SEED` which one
//! alone.

use std::num::NonZero;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// The seed that `RDMALAB_SEED` names: the test plays no other.
pub fn only_seed() -> Option<u64> {
    number("RDMALAB_SEED")
}

/// The seeds to play: as many as `RDMALAB_SEEDS` says, or else `usual`.
pub fn seeds(usual: u64) -> Range<u64> {
    seeds_each(usual, 1)
}

/// The same for a test whose seeds are slow: one for each `share` of those of `RDMALAB_SEEDS`.
pub fn seeds_each(usual: u64, share: u64) -> Range<u64> {
    let count = number("RDMALAB_SEEDS").map_or(usual, |count| count.div_ceil(share));
    only_or(0..count)
}

/// The same for a test whose seeds take seconds: `usual` times the number of `RDMALAB_SEEDS`, from
/// `first` on.
pub fn seeds_times(first: u64, usual: u64) -> Range<u64> {
    only_or(first..first + usual * number("RDMALAB_SEEDS").unwrap_or(1))
}

/// Plays seeds on all processors, each seed on one. A processor stops at its first seed that fails.
///
/// # Panics
/// When a seed fails.
pub fn play_each(seeds: impl Iterator<Item = u64> + Send, play: impl Fn(u64) + Sync) {
    let seeds = Mutex::new(seeds);
    let next = || seeds.lock().unwrap_or_else(PoisonError::into_inner).next();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(|| std::iter::from_fn(next).for_each(&play));
        }
    });
}

/// Seeds that once found a bug; none if `RDMALAB_SEED` names the only one to play.
pub fn regressions(seeds: &[u64]) -> impl Iterator<Item = u64> {
    let seeds = if only_seed().is_none() { seeds } else { &[] };
    seeds.iter().copied()
}

fn only_or(seeds: Range<u64>) -> Range<u64> {
    only_seed().map_or(seeds, |seed| seed..seed + 1)
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, but is {text:?}")))
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn each_seed_is_played_once_and_one_that_fails_fails_all() {
        let played = Mutex::new(Vec::new());
        let note = |seed| played.lock().unwrap().push(seed);
        play_each(3..300, note);
        let mut all = std::mem::take(&mut *played.lock().unwrap());
        all.sort_unstable();
        assert_eq!(all, (3..300).collect::<Vec<_>>());
        let fails = |seed| assert_ne!(seed, 17, "this seed fails");
        assert!(catch_unwind(AssertUnwindSafe(|| play_each(0..20, fails))).is_err());
    }
}
