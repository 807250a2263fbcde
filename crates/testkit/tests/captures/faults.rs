//! Runs with faults injected.

use std::path::Path;

use rdmalab_trace::conversation::Note;

use super::{Directory, pair};

/// Both ends have faults, and get the right data. Chances apply to requests only: when the last
/// acknowledgement of a pingpong is lost, its peer exits before the requester can retransmit.
#[test]
fn disturbed_runs_arrive() {
    let sends = [
        "drop 2% of request",
        "drop nth 3,9,20,31 of response",
        "duplicate 5%; reorder 2 5% of request; corrupt 1% of request",
    ];
    let slow = ["delay 30us jitter 300us 20%", "rate 300Mbit", "drop nth 3; drop nth 5,17 of ack"];
    let mut lines: Vec<(&str, &str)> = Vec::new();
    for faults in sends.into_iter().chain(slow) {
        lines.push(("ibv_rc_pingpong -c -n 100", faults));
    }
    lines.push(("ibv_srq_pingpong -c -n 100", "drop 1% of request; duplicate 3%"));
    lines.push(("ib_read_bw -n 100 -s 20000", "drop 2%"));
    lines.push(("ib_write_bw -n 100 -s 20000", "seed=5; drop 2%; reorder 3 2%"));
    lines.push(("ib_atomic_bw -n 100", "drop 2%; duplicate 5%"));
    lines.push(("ibv_uc_pingpong -c -n 50", "delay 100us"));
    lines.push(("ibv_ud_pingpong -c -n 50", "delay 100us; rate 1Gbit"));
    for (line, faults) in lines {
        let variables = [("RDMALAB_FAULTS", faults)];
        let Some((server, client)) = pair(line, &variables, &variables) else { continue };
        let reports = format!("{line} under {faults}\n{}{}", server.report(), client.report());
        assert!(server.succeeded() && client.succeeded(), "{reports}");
        assert!(!reports.contains("invalid data"), "{reports}");
        let met = reports
            .lines()
            .any(|line| line.contains("rdmalab: fault \"") && !line.contains(" met 0 packets"));
        assert!(met, "no rule met a packet: {reports}");
    }
}

/// A packet is lost: the sender's capture has it twice with the reason, the receiver's has a gap.
/// (No gap if the sender lost its processor after that packet and repeated it before the next one.)
#[test]
fn captures_show_what_a_fault_did() {
    let why = "the sender repeated the packet before it sent the next";
    let gaps = rdmalab_testing::again_while(why, gaps_of_a_lost_packet, |gaps| *gaps == Some(0));
    assert_ne!(gaps, Some(0), "no gap");
}

/// Counts the gaps in the receiver's capture; `None` if the programs are not installed.
fn gaps_of_a_lost_packet() -> Option<usize> {
    let directory = Directory::new("faults");
    let (sent, received) = (directory.file("sent.pcapng"), directory.file("received.pcapng"));
    let client = [("RDMALAB_CAPTURE", sent.as_str()), ("RDMALAB_FAULTS", "drop nth 6 of send")];
    let server = [("RDMALAB_CAPTURE", received.as_str())];
    let (server, client) = pair("ibv_rc_pingpong -c -n 20", &server, &client)?;
    assert!(server.succeeded() && client.succeeded(), "{}{}", server.report(), client.report());
    let trace = |file: &str| rdmalab_trace::read(Path::new(file)).expect("a capture");
    let (sent, received) = (trace(&sent), trace(&received));
    let (sent, received) = (&sent.conversations[0], &received.conversations[0]);
    assert!(sent.rows_with(|note| matches!(note, Note::Repeated { .. })) > 0);
    let said = |note: &Note| *note == Note::Comment("fault: drop nth 6 of send".to_owned());
    assert_eq!(sent.rows_with(said), 1);
    assert_eq!(sent.rows_with(|note| matches!(note, Note::Gap { .. })), 0);
    Some(received.rows_with(|note| matches!(note, Note::Gap { psns: 1 })))
}

/// A delay in each direction is visible in the latency.
#[test]
fn a_delay_is_as_long_as_it_says() {
    let faults = [("RDMALAB_FAULTS", "delay 200us of request")];
    let Some((server, client)) = pair("ib_send_lat -n 200 -s 64", &faults, &faults) else {
        return;
    };
    assert!(server.succeeded() && client.succeeded(), "{}{}", server.report(), client.report());
    let row = client.stdout.lines().find(|line| line.trim_start().starts_with("64 "));
    let row = row.unwrap_or_else(|| panic!("{}", client.report()));
    // Bytes, iterations, minimum, maximum, typical. Times are half a round trip, in us.
    let fields: Vec<f64> = row.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let (least_us, typical_us) = (fields[2], fields[4]);
    println!("delay of 200 us: least {least_us} us, typical {typical_us} us");
    assert!(least_us >= 200.0, "{row}");
}

/// A partition longer than all retries ends the connection with an error, and the program ends.
#[test]
fn a_partition_ends_in_an_error() {
    let faults = [("RDMALAB_FAULTS", "partition 0s..1000s")];
    let Some((_, client)) = pair("ibv_rc_pingpong -n 20", &faults, &faults) else { return };
    assert!(!client.succeeded());
    assert!(client.stderr.contains("transport retry counter exceeded"), "{}", client.report());
}
