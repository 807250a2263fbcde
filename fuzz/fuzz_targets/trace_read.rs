//! Any bytes as the frames of a capture: nothing panics, each frame is counted once, and what is
//! said of one is a line without commands for a terminal.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    rdmalab_testkit::fuzz::trace_read(bytes);
});
