//! Any text as a configuration: nothing panics, and what is printed of a tree is read again as the
//! same tree.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    rdmalab_testkit::fuzz::config_read(bytes);
});
