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
    let tour = guest.run("/host/rdmalab -d rxe0 -n 300 --size 8,256 --json").expect();
    assert!(tour.contains("system"), "{tour}");
}
