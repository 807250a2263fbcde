//! Under the runner of `.cargo/config.toml` a test, and each program that it starts, finds the soft
//! device.

use std::process::Command;

#[test]
fn a_program_of_the_test_finds_the_soft_device() {
    let output = Command::new("ibv_devices").output().expect("apt install ibverbs-utils");
    let devices = String::from_utf8_lossy(&output.stdout);
    assert!(devices.contains("soft0"), "{devices}");
}
