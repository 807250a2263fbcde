//! Any bytes into every parser of the wire crate: no panic, and what a parser takes can be written
//! again and is then the same value.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    rdmalab_testkit::fuzz::wire_parse(bytes);
});
