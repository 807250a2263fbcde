//! The experiments on the kernel's own device, through the system's libibverbs.

use std::path::PathBuf;
use std::process::Command;

use crate::boot;
use rdmalab_testkit::programs::turn;

/// Our binary, built as the test was.
fn binary() -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--package", "rdmalab", "--message-format", "json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8_lossy(&output.stdout);
    let binary = messages.split('"').rfind(|word| word.ends_with("/rdmalab"));
    PathBuf::from(binary.expect("cargo names the binary that it built"))
}

#[test]
fn the_kernels_device_is_found_and_measured() {
    let _turn = turn();
    let Some(mut guest) = boot("system", 1500) else { return };
    std::fs::copy(binary(), guest.share().join("rdmalab")).expect("the guest's share");
    let devices = guest.run("/host/rdmalab devices").expect();
    assert!(devices.contains("rxe0"), "{devices}");
    // Neither the GID, nor the MTU, nor what may go inline is asked for.
    for what in [
        "ping --transport rc,uc,ud --size 8,1000",
        "ping --op write,write_imm,read --size 64,5000",
        "oneway --transport rc,ud --size 32,1000",
        "blast --op send,write,read --size 4096 --buffers 8",
    ] {
        let counts = "--messages 100 --runs 1 --warm-up 10";
        let command =
            format!("/host/rdmalab run {what} {counts} --device rxe0 --format json --no-record");
        let result = guest.run(&command).expect();
        for expected in ["\"device_kind\"", "system", "adapter", "mtu_bytes"] {
            assert!(result.contains(expected), "no {expected} after {command}:\n{result}");
        }
    }
}
