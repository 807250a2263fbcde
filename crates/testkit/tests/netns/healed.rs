//! Packets between hosts are lost for a time. Afterwards they are retransmitted.

use std::time::Instant;

use rdmalab_testing::beside_each_other;
use rdmalab_testkit::programs::{self, Ended};

use crate::lab::{LIMIT, Lab};

/// Times count from the opening of the client's device, before anything is sent. The pair takes
/// about three seconds, because each of its messages is delayed. Each disturbance ends before all
/// retries are used up, which takes 1.6 s.
const RULES: [&str; 3] = [
    "delay 1ms of send; partition 600ms..1200ms",
    "delay 1ms of send; drop of send 500ms..1s",
    "delay 1ms of send; corrupt 30% of request 400ms..1500ms",
];

/// Runs a server on host 1 and its client, with fault rules, on host 2.
fn pair(lab: &Lab, faults: &str) -> [Ended; 2] {
    let port = programs::free_port();
    let line = format!("ibv_rc_pingpong -c -n 3000 -s 256 -g 1 -p {port}");
    let mut server = lab.start(1, &line);
    let until = Instant::now() + LIMIT;
    assert!(server.wait_until_it_listens(port), "{}", server.end_by(Instant::now()).report());
    let client = lab.start_with(2, &format!("{line} 10.91.0.1"), &[("RDMALAB_FAULTS", faults)]);
    [client.end_by(until), server.end_by(until)]
}

/// Whether the last rule of the client met a packet.
fn has_met(client: &Ended) -> bool {
    let mut rules = client.stderr.lines().filter(|line| line.contains("rdmalab: fault \""));
    rules.next_back().is_some_and(|line| !line.contains(" met 0 packets"))
}

#[test]
fn what_ends_is_over() {
    beside_each_other(RULES, |faults| {
        let test = "what_ends_is_over";
        let Some(lab) = Lab::of_waiting(test, 1500, &["ibv_rc_pingpong"]) else { return };
        // A busy machine may have sent nothing in that time.
        let ends = programs::again_while(
            programs::SPOILED,
            || pair(&lab, faults),
            |ends| !has_met(&ends[0]),
        );
        for ended in &ends {
            assert!(ended.succeeded(), "{faults}: {}", ended.report());
        }
        assert!(has_met(&ends[0]), "{faults}: {}", ends[0].report());
    });
}
