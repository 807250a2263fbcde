//! `rdmalab diagnose` on captures of the kernel's rxe, and on simulated runs with faults.

use std::path::Path;
use std::process::Output;

use assert_cmd::Command;

fn rdmalab(arguments: &[&str]) -> Output {
    Command::cargo_bin("rdmalab").unwrap().args(arguments).output().unwrap()
}

fn diagnose(arguments: &[&str]) -> Output {
    rdmalab(&[&["diagnose"], arguments].concat())
}

fn kernel(name: &str) -> String {
    format!("{}/../trace/tests/data/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The kinds that are found in captures, as JSON names them.
fn kinds(files: &[&str]) -> Vec<String> {
    let output = diagnose(&[files, &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap().iter();
    let mut kinds: Vec<String> =
        findings.map(|finding| finding["kind"].as_str().unwrap().to_owned()).collect();
    kinds.sort();
    kinds.dedup();
    kinds
}

/// A simulated run with a capture at both ends.
fn simulated(directory: &Path, arguments: &[&str], faults: &str) -> [String; 2] {
    let file = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let files = [file("run.pcapng"), file("run-rank1.pcapng")];
    let mut all = vec!["run"];
    all.extend(arguments);
    all.extend(["--device", "sim:connectx4", "--warm-up", "0", "--runs", "1", "--no-record"]);
    all.extend(["--capture", &files[0]]);
    if !faults.is_empty() {
        all.extend(["--faults", faults]);
    }
    let output = rdmalab(&all);
    assert!(output.status.success(), "{output:?}");
    files
}

#[test]
fn a_rejected_connection_is_explained_and_sets_the_exit_code_only_if_asked() {
    let file = kernel("rping_reject.pcap");
    let output = diagnose(&[&file]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for expected in ["connection rejected", "frame 2 (REJ)", "1 finding in 2 packets"] {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
    assert_eq!(diagnose(&[&file, "--expect", "none"]).status.code(), Some(1));
    let clean = kernel("rping.pcap");
    let output = diagnose(&[&clean, "--expect", "none"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("nothing wrong"), "{output:?}");
}

#[test]
fn what_is_no_capture_is_a_wrong_call() {
    for file in [concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), "/does/not/exist"] {
        let output = diagnose(&[file]);
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(file) && said.lines().count() == 1, "{said}");
    }
    assert_eq!(diagnose(&[]).status.code(), Some(2));
}

#[test]
fn a_page_needs_only_a_browser() {
    let home = tempfile::tempdir().unwrap();
    let page = home.path().join("page.html");
    let output = diagnose(&[&kernel("loss_rc_pingpong.pcap"), "--html", page.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<svg") && page.contains("Time-out"), "{page}");
}

#[test]
fn a_capture_that_is_cut_gives_what_it_has() {
    let home = tempfile::tempdir().unwrap();
    let cut = home.path().join("cut.pcap");
    let whole = std::fs::read(kernel("loss_rc_pingpong.pcap")).unwrap();
    std::fs::write(&cut, &whole[..whole.len() - 100]).unwrap();
    let output = diagnose(&[cut.to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("the capture is cut"), "{text}");
}

/// The quirk of damming is mechanism, not comment: READs of which the first meets a fault.
#[test]
fn damming_in_the_simulator_is_diagnosed_and_plain_loss_is_not() {
    let home = tempfile::tempdir().unwrap();
    let reads = ["blast", "--op", "read", "--size", "100", "--messages", "40"];
    let files = simulated(home.path(), &reads, "rnr-nak first nth 1 of read; damming");
    let found = kinds(&[&files[0], &files[1]]);
    assert!(found.contains(&"damming".to_owned()), "{found:?}");
    assert!(found.contains(&"server-fault".to_owned()), "{found:?}");
    let files = simulated(home.path(), &reads, "drop nth 5 of read");
    let found = kinds(&[&files[0], &files[1]]);
    assert!(!found.contains(&"damming".to_owned()), "{found:?}");
    assert!(found.iter().any(|kind| kind == "lost" || kind == "timeout"), "{found:?}");
}

/// Comments in a capture name the rules that disturbed packets. They are no evidence.
#[test]
fn other_comments_change_no_diagnosis() {
    let home = tempfile::tempdir().unwrap();
    let reads = ["blast", "--op", "read", "--size", "100", "--messages", "40"];
    let files = simulated(home.path(), &reads, "drop nth 5 of read");
    let found = || diagnose(&[&files[0], &files[1], "--json"]).stdout;
    let (before, mut changed) = (found(), 0);
    for file in &files {
        let mut bytes = std::fs::read(file).unwrap();
        while let Some(at) = bytes.windows(6).position(|part| part == b"fault:") {
            bytes[at..at + 6].copy_from_slice(b"no one");
            changed += 1;
        }
        std::fs::write(file, bytes).unwrap();
    }
    assert!(changed > 0, "no packet has a comment");
    let (before, after) = (String::from_utf8(before).unwrap(), String::from_utf8(found()).unwrap());
    assert!(before.contains("\"kind\""), "{before}");
    assert_eq!(after, before);
}

/// Page faults of a modelled adapter, and the READ that is lost while another waits.
#[test]
fn page_faults_and_damming_of_an_adapter_are_diagnosed() {
    let home = tempfile::tempdir().unwrap();
    let file = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let files = [file("odp.pcapng"), file("odp-rank1.pcapng")];
    let found = |device: &str, fault: &str, more: &[&str]| {
        let words = ["run", "odp", "--device", device, "--fault", fault, "--timeout", "1"];
        let out = ["--runs", "1", "--no-record", "--capture", &files[0]];
        let output = rdmalab(&[&words[..], more, &out[..]].concat());
        assert!(output.status.success(), "{output:?}");
        kinds(&[&files[0], &files[1]])
    };
    let one = ["--operations", "1"];
    assert_eq!(found("sim:connectx4", "server", &one), ["server-fault"]);
    assert_eq!(found("sim:connectx4", "client", &one), ["client-fault"]);
    assert_eq!(found("sim:connectx4", "none", &one), Vec::<String>::new());
    let four = found("sim:connectx4", "client", &["--operations", "4"]);
    assert!(four.contains(&"client-fault".to_owned()), "{four:?}");
    // The second READ is posted during the wait of the first.
    let two = ["--operations", "2", "--interval", "2ms"];
    assert_eq!(found("sim:connectx4", "server", &two), ["damming", "server-fault"]);
    assert_eq!(found("sim:connectx6", "server", &two), ["server-fault"]);
}

/// The page of a run marks each page fault that it draws, and counts those that it does not.
#[test]
fn the_page_of_a_run_marks_every_page_fault_that_it_draws() {
    let home = tempfile::tempdir().unwrap();
    let file = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    // Each WRITE meets a page of its own, and the next one is posted after it.
    let marked = |operations: &str| {
        let (out, capture, page) = (file(operations), file("odp.pcapng"), file("odp.html"));
        let words = "run odp --device sim:connectx4 --fault server --op write --interval 50ms";
        let mut all: Vec<&str> = words.split(' ').collect();
        all.extend(["--size", "4096", "--runs", "1", "--operations", operations]);
        all.extend(["--capture", &capture]);
        let run = rdmalab(&[&all[..], &["--out", &out]].concat());
        assert!(run.status.success(), "{run:?}");
        let record = std::fs::read_dir(&out).unwrap().next().unwrap().unwrap().path();
        let report = rdmalab(&["report", record.to_str().unwrap(), "--html", &page]);
        assert!(report.status.success(), "{report:?}");
        let text = std::fs::read_to_string(&page).unwrap();
        (text.matches("l5 5l-5 5l-5 -5z").count(), text)
    };
    let (count, text) = marked("9");
    assert_eq!(count, 9);
    assert!(!text.contains("not marked"), "all are");
    let (count, text) = marked("15");
    let rest = format!("; {} page faults not marked, ", 15 - count);
    assert!((9..15).contains(&count) && text.contains(&rest), "{count} of 15 are drawn");
}

/// Both ends' files have each packet: they count once.
#[test]
fn an_undisturbed_run_is_clean_at_either_end_and_at_both() {
    let home = tempfile::tempdir().unwrap();
    let sends = ["ping", "--op", "send", "--size", "64,8192", "--messages", "50"];
    let [one, other] = simulated(home.path(), &sends, "");
    for files in [&[one.as_str()][..], &[&other], &[&one, &other]] {
        assert_eq!(kinds(files), Vec::<String>::new(), "{files:?}");
    }
}
