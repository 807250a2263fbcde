//! Any bytes as a datagram from the network, with a right invariant CRC half of the time: nothing
//! panics, nothing damaged is taken, and what is taken becomes a train that is the same packet when
//! it is sent again. What trains do to a queue pair is `engine_ops`' business.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    rdmalab_testkit::fuzz::link_receive(bytes);
});
