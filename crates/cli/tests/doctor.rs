//! `rdmalab doctor` as a command: forms, exit codes, and that it changes nothing.

mod common;

use common::{rdmalab, said};

#[test]
fn it_reads_and_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let governor = root.path().join("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    std::fs::create_dir_all(governor.parent().unwrap()).unwrap();
    std::fs::write(&governor, "powersave\n").unwrap();
    let doctor = |more: &[&str]| said(rdmalab(&["doctor", "--root"]).arg(root.path()).args(more));
    let text = doctor(&[]);
    assert_eq!(text.code, Some(0), "{}", text.stderr);
    assert!(text.stdout.starts_with("HURTS  governor"), "{}", text.stdout);
    let json = doctor(&["--format", "json"]);
    let value: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(value["hurts"], 1);
    let fix = doctor(&["--fix"]);
    assert!(fix.stdout.contains("echo performance"), "{}", fix.stdout);
    assert_eq!(std::fs::read_to_string(&governor).unwrap(), "powersave\n");
    let none = said(&mut rdmalab(&["doctor", "--root", "/dev/null"]));
    assert_eq!(none.code, Some(2), "{}", none.stderr);
    let here = said(&mut rdmalab(&["doctor"]));
    assert_eq!(here.code, Some(0), "{}", here.stderr);
    assert!(here.stdout.lines().count() > 10, "{}", here.stdout);
}
