//! `rdmalab trace` on a capture of the kernel's rxe.

use assert_cmd::Command;

fn trace(arguments: &[&str]) -> std::process::Output {
    let mut command = Command::cargo_bin("rdmalab").unwrap();
    command.arg("trace").args(arguments).output().unwrap()
}

fn capture(name: &str) -> String {
    format!("{}/../trace/tests/data/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_connection_is_shown_from_its_request_to_its_end() {
    let output = trace(&[&capture("rping.pcap"), "--limit", "0"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for expected in ["CM REQ", "CM DREP", "A = 10.77.0.3 QP 0x2c", "READ response only", "after "] {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
}

#[test]
fn a_queue_pair_chooses_and_a_limit_says_what_it_hides() {
    let output = trace(&[&capture("rping.pcap"), "--qp", "0x2c", "--limit", "2"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("CM REQ") && text.contains("58 more packets"), "{text}");
    let output = trace(&[&capture("rping.pcap"), "--qp", "77"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--qp 0x4d"));
}

#[test]
fn what_is_no_capture_is_a_wrong_call() {
    for file in [concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), "/does/not/exist"] {
        let output = trace(&[file]);
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(file) && said.lines().count() == 1, "{said}");
    }
}
