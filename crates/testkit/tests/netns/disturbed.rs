//! Our own captures and faults between hosts.

use std::path::Path;
use std::time::Instant;

use rdmalab_testkit::programs::{self, Ended};
use rdmalab_trace::Trace;
use rdmalab_trace::conversation::Note;
use rdmalab_trace::packet::Icrc;

use crate::lab::{GRACE, LIMIT, Lab};

/// Runs a server on host 1 and its client on host 2. Both are captured, and the client has fault
/// rules. Runs again if other load disturbed perftest.
fn pair(lab: &Lab, line: &str, files: [&str; 2], faults: &str) -> (Ended, Ended) {
    let is_disturbed = |(server, client): &(Ended, Ended)| {
        programs::is_disturbed(server) || programs::is_disturbed(client)
    };
    programs::again_while(programs::SPOILED, || pair_once(lab, line, files, faults), is_disturbed)
}

fn pair_once(lab: &Lab, line: &str, files: [&str; 2], faults: &str) -> (Ended, Ended) {
    for file in files {
        // The previous attempt may have left a capture.
        let _ = std::fs::remove_file(file);
    }
    let (port, until) = (programs::free_port(), Instant::now() + LIMIT);
    let call = format!("{line} -p {port}");
    let mut server = lab.start_with(1, &call, &[("RDMALAB_CAPTURE", files[0])]);
    assert!(server.wait_until_it_listens(port), "{}", server.end_by(Instant::now()).report());
    let variables = [("RDMALAB_CAPTURE", files[1]), ("RDMALAB_FAULTS", faults)];
    let client = lab.start_with(2, &format!("{call} 10.91.0.1"), &variables).end_by(until);
    // A server whose client failed may wait for ever.
    let patience = if client.succeeded() { until } else { Instant::now() + GRACE };
    (server.end_by(patience), client)
}

fn rows_with(trace: &Trace, is: impl Fn(&Note) -> bool + Copy) -> usize {
    trace.conversations.iter().map(|conversation| conversation.rows_with(is)).sum()
}

/// Packets with a wrong invariant CRC.
fn bad(trace: &Trace) -> usize {
    let rows = trace.conversations.iter().flat_map(|conversation| &conversation.rows);
    rows.filter(|row| row.packet.icrc != Icrc::Good).count()
}

#[test]
fn captures_and_faults_between_hosts() {
    let test = "captures_and_faults_between_hosts";
    let names = ["ibv_rc_pingpong", "ibv_ud_pingpong"];
    let Some(lab) = Lab::of_programs(test, 1500, &names) else { return };
    let directory = std::env::temp_dir().join(format!("rdmalab-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    for (number, (line, faults, damaged)) in [
        ("ibv_rc_pingpong -c -n 60", "", false),
        ("ibv_ud_pingpong -c -n 60", "", false),
        ("ibv_rc_pingpong -c -n 60", "drop nth 6 of send; delay 100us of ack", false),
        ("ibv_rc_pingpong -c -n 60", "duplicate 5% of request; reorder nth 9,30 of send", false),
        ("ibv_rc_pingpong -c -n 60", "corrupt nth 9 of send; rate 200Mbit", true),
    ]
    .into_iter()
    .enumerate()
    {
        for gid in [1, 2] {
            let name = |end| directory.join(format!("{number}-{gid}-{end}.pcapng"));
            let (received, sent) = (name("server"), name("client"));
            let files = [&received, &sent].map(|file| file.to_str().expect("a name"));
            let (server, client) = pair(&lab, &format!("{line} -g {gid}"), files, faults);
            let reports = format!("{faults}\n{}{}", server.report(), client.report());
            assert!(server.succeeded() && client.succeeded(), "{reports}");
            for capture in [&received, &sent].into_iter().filter(|_| !damaged) {
                let Some(strange) = programs::tshark(capture, "_ws.malformed || !infiniband")
                else {
                    programs::skipped("captures between hosts with tshark", "not installed");
                    continue;
                };
                assert!(strange.is_empty(), "{line}: {:?}", &strange[..strange.len().min(3)]);
            }
            let read = |file: &Path| rdmalab_trace::read(file).expect("a capture");
            let (received, sent) = (read(&received), read(&sent));
            assert!(sent.tally.frames > 100 && received.tally.frames > 100, "{reports}");
            assert_eq!(bad(&sent), usize::from(damaged), "{reports}");
            assert!(bad(&received) <= usize::from(damaged), "{reports}");
            let said = rows_with(&sent, |note| matches!(note, Note::Comment(_)));
            assert_eq!(said > 0, !faults.is_empty(), "{reports}");
            if faults.contains("drop") || damaged {
                let repeated = rows_with(&sent, |note| matches!(note, Note::Repeated { .. }));
                assert!(repeated > 0, "{reports}");
            }
        }
    }
    std::fs::remove_dir_all(&directory).expect("the directory");
}

/// A rule for `gathered` payloads spares inline payloads, and the other way round.
#[test]
fn faults_tell_where_a_payload_came_from() {
    let test = "faults_tell_where_a_payload_came_from";
    let Some(lab) = Lab::of_programs(test, 1500, &["ib_send_lat"]) else { return };
    let directory = tempfile::tempdir().expect("a scratch directory");
    for (number, (inline_bytes, selector, hits)) in
        [(0, "gathered", true), (64, "gathered", false), (64, "inline", true), (0, "inline", false)]
            .into_iter()
            .enumerate()
    {
        let name = |end| directory.path().join(format!("{number}-{end}.pcapng"));
        let (received, sent) = (name("server"), name("client"));
        let files = [&received, &sent].map(|file| file.to_str().expect("a name"));
        let line = format!("ib_send_lat -x 1 -n 60 -s 64 -I {inline_bytes}");
        let faults = format!("drop nth 6 of send {selector}");
        let (server, client) = pair(&lab, &line, files, &faults);
        let reports = format!("{faults}\n{}{}", server.report(), client.report());
        assert!(server.succeeded() && client.succeeded(), "{reports}");
        let trace = rdmalab_trace::read(&sent).expect("a capture");
        let dropped = rows_with(&trace, |note| matches!(note, Note::Comment(_)));
        let repeated = rows_with(&trace, |note| matches!(note, Note::Repeated { .. }));
        assert_eq!(dropped > 0, hits, "{reports}");
        assert!(repeated > 0 || !hits, "{reports}");
    }
}
