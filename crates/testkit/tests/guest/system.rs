//! The experiments on the kernel's own device, through the system's libibverbs.

use crate::boot;
use crate::guest::Guest;
use rdmalab_testkit::programs::{again_while, rdmalab};

/// Facts that both ranks found or agreed on: the MTU that fits an Ethernet frame, and the first GID
/// with a routable address.
const FACTS: [&str; 5] = [
    "\"placement\": \"adapter\"",
    "\"link_layer\": \"Ethernet\"",
    "\"gid\": \"::ffff:10.91.0.2\"",
    "\"mtu_bytes\": \"1024\"",
    "\"inline_granted_bytes\": \"",
];

#[test]
fn the_kernels_device_is_found_and_measured() {
    let Some(mut guest) = boot("system") else { return };
    std::fs::copy(rdmalab(), guest.share().join("rdmalab")).expect("the guest's share");
    let devices = guest.run("/host/rdmalab devices").expect();
    assert!(devices.contains("rxe0"), "{devices}");
    let counts = "--messages 100 --runs 1 --warm-up 10";
    // No option sets GID, MTU or inline size.
    for what in [
        "ping --transport rc --size 8,1000",
        "ping --transport uc,ud --size 8,1000",
        "ping --op write,write_imm,read --size 64,5000",
        "oneway --transport rc --size 32,1000",
        "oneway --transport ud --size 32,1000",
        "blast --op send,write,read --size 4096 --buffers 8",
    ] {
        let result = measured(&mut guest, &format!("{what} {counts}"));
        for fact in FACTS {
            assert!(result.contains(fact), "no {fact} after {what}:\n{result}");
        }
    }
    for what in [
        "fan --ranks 3 --transport rc --size 64",
        "fan --ranks 3 --transport ud --size 64",
        "fan --ranks 3 --transport ud --to group --size 64",
        "recvq --rx-depth 8",
        "rpc --ranks 3 --size 100",
        "overhead",
        "mr --size 4K,64K",
    ] {
        measured(&mut guest, &format!("{what} {counts}"));
    }
    measured(&mut guest, "connect --qps 4 --by plain,rdma_cm --runs 1");
    measured(&mut guest, "timeout --timeout 8 --messages 3 --runs 1");
}

/// The result of a run in which no message may be lost. An unreliable transport may lose a message
/// in the emulated machine; then the run is repeated.
fn measured(guest: &mut Guest, what: &str) -> String {
    let command = format!("/host/rdmalab run {what} --device rxe0 --format json --no-record");
    let is_lossless = |result: &String| {
        let none = |lost| result.split(lost).skip(1).all(|number: &str| number.starts_with('0'));
        ["\"lost_n\": ", "\"lost\": "].into_iter().all(none)
    };
    let may_lose = ["--transport uc", "--transport ud"].iter().any(|way| what.contains(way));
    let run = || guest.run(&command).expect();
    let result = again_while("a datagram was lost", run, |result| may_lose && !is_lossless(result));
    assert!(result.contains("\"device_kind\": \"system\""), "{command}:\n{result}");
    assert!(is_lossless(&result), "{command}:\n{result}");
    result
}
