//! Any bytes as samples in any format: nothing panics, and what was read keeps every bit.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/sample/tests/properties/hostile.rs"]
mod hostile;

fuzz_target!(|bytes: &[u8]| {
    hostile::decode(bytes);
});
