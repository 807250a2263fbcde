//! Random misuse by programs, rings and networks, from seeds; `fuzz/fuzz_targets/engine_ops.rs`
//! plays the same with a fuzzer's bytes.

use std::panic::catch_unwind;

use rdmalab_random::Random;
use rdmalab_testing::{regressions, seeds};
use rdmalab_testkit::hostile;

/// How many seeds to play without `RDMALAB_SEEDS`.
const SEEDS: u64 = 100_000;

/// Seeds that once found a bug.
const REGRESSIONS: &[u64] = &[67_112];

fn play(seed: u64) {
    let mut random = Random::new(seed);
    let length = random.between(200, 4000) as usize;
    let bytes = random.bytes(length);
    if catch_unwind(|| hostile::play(&bytes)).is_err() {
        panic!("seed {seed}");
    }
}

#[test]
fn nothing_panics_and_nothing_is_granted_beyond_what_was_given() {
    regressions(REGRESSIONS).chain(seeds(SEEDS)).for_each(play);
}
