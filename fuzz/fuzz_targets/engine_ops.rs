//! Any sequence of verbs and of hostile trains against one queue pair: nothing panics, and nothing
//! is granted outside what was registered. `tests/simulate_hostile.rs` of the test kit plays the
//! same driver from seeds, where no fuzzer is at hand.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| rdmalab_testkit::hostile::play(bytes));
