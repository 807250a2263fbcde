//! qperf, whose server runs one test after the other until it is told to quit. `ver_*` checks every
//! value that an atomic returned.

use std::path::Path;
use std::time::Instant;

use rdmalab_testkit::programs::{self, Ended};

use crate::case::{LIMIT, is_full};

/// A second each. qperf ends a test by a signal, and its wait for a CQ event must then fail.
const SHORT: &str = "rc_lat rc_bw rc_rdma_read_lat rc_rdma_write_bw rc_compare_swap_mr \
    ver_rc_fetch_add uc_lat uc_rdma_write_bw ud_lat ud_bw";

/// Tests that connect by rdma_cm.
const CONNECTED: &str = "rc_lat rc_bw rc_rdma_read_lat rc_rdma_write_bw uc_lat ud_lat";

const LONG: &str = "rc_bi_bw rc_rdma_read_bw rc_rdma_write_lat rc_rdma_write_poll_lat \
    rc_fetch_add_mr ver_rc_compare_swap uc_bw uc_bi_bw uc_rdma_write_lat uc_rdma_write_poll_lat \
    ud_bi_bw";

/// Runs the client once.
fn client(path: &Path, port: u16, words: &str) -> Ended {
    let mut arguments = vec!["127.0.0.1".to_owned(), "-lp".to_owned(), port.to_string()];
    arguments.extend(words.split_whitespace().map(str::to_owned));
    programs::start(path, &arguments, &[]).end_by(Instant::now() + LIMIT)
}

/// Every `name = number unit` in the output.
fn results(output: &str) -> Vec<(String, f64)> {
    let lines = output.lines().filter_map(|line| line.split_once('='));
    let number = |text: &str| text.split_whitespace().next().and_then(|word| word.parse().ok());
    lines.filter_map(|(name, text)| Some((name.trim().to_owned(), number(text)?))).collect()
}

#[track_caller]
fn check(tests: &str, options: &str) {
    let Some(path) = programs::find("qperf") else {
        return programs::skipped("qperf", "not installed");
    };
    let _turn = programs::turn();
    let port = programs::free_port();
    let arguments = ["-lp".to_owned(), port.to_string()];
    let mut server = programs::start(&path, &arguments, &[]);
    assert!(server.wait_until_it_listens(port), "{}", server.end_by(Instant::now()).report());
    let mut failures = Vec::new();
    for test in tests.split_whitespace() {
        let ended = client(&path, port, &format!("{options} -t 1 -to 30 {test}"));
        let results = results(&ended.stdout);
        let is_sane = !results.is_empty() && results.iter().all(|(_, value)| *value > 0.0);
        if !ended.succeeded() || !is_sane {
            failures.push(ended.report());
        }
    }
    let farewell = client(&path, port, "quit");
    let server = server.end_by(Instant::now() + LIMIT);
    if !server.succeeded() {
        failures.push(farewell.report());
    }
    assert!(failures.is_empty(), "{}\n{}", failures.join("\n"), server.report());
}

#[test]
fn qperf_with_events() {
    check(SHORT, "");
}

#[test]
fn qperf_over_rdma_cm() {
    check(CONNECTED, "-cm 1");
}

#[test]
fn everything_that_qperf_offers() {
    if !is_full("everything_that_qperf_offers") {
        return;
    }
    check(LONG, "");
    check(&format!("{SHORT} {LONG}"), "-cp1");
    check(SHORT, "-i soft1:1");
}

#[test]
fn a_result_is_read() {
    let output = "rc_lat:\n    latency  =  9.15 us\n    send_bw  =   1 GB/sec\n";
    let expected = [("latency".to_owned(), 9.15), ("send_bw".to_owned(), 1.0)];
    assert_eq!(results(output), expected);
}
