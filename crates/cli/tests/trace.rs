//! `rdmalab trace` on a capture of the kernel's rxe, and on one of ours.

use assert_cmd::Command;
use rdmalab_trace::show::{opcode, syndrome};

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

/// The points of a run use different queue pairs between the same addresses, one after the other.
/// Only the PSNs show which two directions belong together.
#[test]
fn each_point_of_a_run_is_a_conversation_of_its_two_ends() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("run.pcapng");
    let mut run = Command::cargo_bin("rdmalab").unwrap();
    run.args(["run", "ping", "--device", "soft0", "--op", "send,write", "--size", "32,64,5000"]);
    run.args(["--messages", "50", "--warm-up", "0", "--no-record", "--capture"]).arg(&file);
    run.assert().success();
    let output = trace(&[file.to_str().unwrap(), "--summary"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let heads: Vec<&str> = text.lines().filter(|line| line.starts_with("conversation")).collect();
    assert_eq!(heads.len(), 6, "{text}");
    for head in heads {
        let qpns = head.split("QP 0x").skip(1).map(|rest| {
            let digits: String = rest.chars().take_while(char::is_ascii_hexdigit).collect();
            u32::from_str_radix(&digits, 16).unwrap()
        });
        // The upper ten bits identify the process.
        let processes: Vec<u32> = qpns.map(|qpn| qpn >> 14).collect();
        assert!(matches!(processes.as_slice(), [a, b] if a != b), "{text}");
    }
}

/// The workflows that fukuoka2021 draws: which packet is sent when, for one operation with a fault
/// at either end, and for several READs. A packet is told by its kind and its place among the PSNs.
#[test]
fn a_workflow_is_a_trace_of_a_captured_trial() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("odp.pcapng");
    let workflow = |words: &str| {
        let mut run = Command::cargo_bin("rdmalab").unwrap();
        run.args("run odp --device sim:connectx4 --runs 1 --timeout 1 --no-record".split(' '));
        run.args(words.split(' ')).arg("--capture").arg(&file).assert().success();
        let trace = rdmalab_trace::read(&file).unwrap();
        let [conversation] = &trace.conversations[..] else { panic!("{words}: {trace:?}") };
        let first = conversation.rows[0].packet.headers.bth.psn;
        let packets = conversation.rows.iter().map(|row| {
            let (opcode, syndrome) = (opcode(row.packet.headers.bth.opcode), syndrome(&row.packet));
            let name = if opcode == "ACK" { syndrome } else { opcode };
            let name = name.split(',').next().unwrap_or_default().trim_end_matches(" only");
            format!("{name} {}", row.packet.headers.bth.psn.distance_from(first))
        });
        packets.collect::<Vec<_>>().join(", ")
    };
    for (words, packets) in [
        ("--fault client --operations 1", "READ 0, READ response 0, READ 0, READ response 0"),
        (
            "--fault server --operations 1",
            "READ 0, RNR NAK 0, READ response 0, READ 0, READ response 0",
        ),
        ("--fault client --operations 1 --op write", "WRITE 0, ACK 0"),
        ("--fault server --operations 1 --op write", "WRITE 0, RNR NAK 0, WRITE 0, ACK 0"),
        ("--fault client --operations 1 --op send", "SEND 0, ACK 0"),
        ("--fault server --operations 1 --op send", "SEND 0, RNR NAK 0, SEND 0, ACK 0"),
        // The second READ is lost, and only the time-out reveals it.
        (
            "--fault server --operations 2 --interval 2ms",
            "READ 0, RNR NAK 0, READ response 0, READ 0, READ 1, READ response 0, READ 1, \
             READ response 1",
        ),
        // The third one reveals it.
        (
            "--fault server --operations 3 --interval 4ms",
            "READ 0, RNR NAK 0, READ response 0, READ 0, READ 1, READ response 0, READ 2, NAK 1, \
             READ 1, READ 2, READ response 1, READ response 2",
        ),
    ] {
        assert_eq!(workflow(words), packets, "{words}");
    }
}

/// The page of the record draws what the capture of its run has.
#[test]
fn the_page_of_a_captured_run_has_its_packets() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    let mut run = Command::cargo_bin("rdmalab").unwrap();
    run.args("run odp --device sim:connectx4 --fault client --interval 550us --runs 1".split(' '));
    run.args(["--operations", "2", "--timeout", "1", "--out"]).arg(path("records"));
    run.arg("--capture").arg(path("odp.pcapng")).assert().success();
    let mut report = Command::cargo_bin("rdmalab").unwrap();
    report.arg("report").arg(path("records")).arg("--html").arg(path("odp.html"));
    report.assert().success();
    let page = std::fs::read_to_string(path("odp.html")).unwrap();
    for (expected, times) in [
        ("<h2>Packets</h2>", 1),
        (">READ response 0</text>", 2),
        // The first response, at the requester; the READ that was lost.
        (">page fault</text>", 1),
        (">no answer</text>", 1),
        (">536 ms later</text>", 1),
    ] {
        assert_eq!(page.matches(expected).count(), times, "{expected}");
    }
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

#[test]
fn a_run_says_if_its_capture_is_too_long_for_its_record() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("run.pcapng");
    for (messages, is_told) in [("2", false), ("200", true)] {
        let mut run = Command::cargo_bin("rdmalab").unwrap();
        run.args(
            "run ping --device sim:ideal --size 4096 --runs 1 --warm-up 0 --messages".split(' '),
        );
        run.arg(messages).arg("--out").arg(home.path().join("records"));
        let output = run.arg("--capture").arg(&file).output().unwrap();
        assert!(output.status.success());
        let said = String::from_utf8(output.stderr).unwrap();
        let line = format!("{} is longer than the 256 KiB that a record keeps", file.display());
        assert_eq!(said.contains(&line), is_told, "{said}");
    }
}
