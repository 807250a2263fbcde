//! The tour, `bench self` and `ps` with two real processes on the soft device. No test here checks
//! speed.

mod common;

use common::{endless, rdmalab, workers};
use rdmalab_testing::skipped;
use serde_json::Value;
use std::process::{Command, Stdio};

#[test]
fn the_tour_shows_each_experiment_the_limits_a_page_and_what_to_do_next() {
    let home = tempfile::tempdir().unwrap();
    let output = rdmalab(&["--quick", "--out"]).arg(home.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    for part in [
        "this host's, not an adapter's",
        "ping on soft0",
        "oneway on soft0",
        "blast on soft0",
        "round trip",
        "one-way",
        "completion time",
        "CPU, rank 1",
        "largest; bins",
        "Bare limits of this machine",
        "hand-off",
        "a stamp costs",
        "Next:",
        "rdmalab serve",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    // 500 messages do not support a p99. A table that would be too wide leaves its column out, and
    // a warning says the same.
    let says_unsupported = ["n too small", "too few samples for p99"];
    assert!(says_unsupported.iter().any(|part| text.contains(part)), "{text}");
    assert!(!text.contains('\u{1b}'), "colours in a pipe");
    let pages: Vec<&str> = text.lines().filter(|line| line.ends_with("report.html")).collect();
    assert_eq!(pages.len(), 4, "{text}");
    for page in pages {
        let html = std::fs::read_to_string(page.trim()).expect("the page that was named");
        assert!(html.contains("<svg") && html.contains("soft0"), "{page}");
        assert!(!html.contains("http://") || !html.contains("<script src"), "{page}: not alone");
    }
    // The commands that it suggests to repeat a step exist.
    for line in text.lines().filter_map(|line| line.strip_prefix("The same again: rdmalab ")) {
        let words = line.split("   ").next().unwrap().split(' ');
        let plan = rdmalab(&[]).args(words).arg("--plan").output().unwrap();
        assert!(plan.status.success(), "{line}: {}", String::from_utf8_lossy(&plan.stderr));
    }
}

#[test]
fn bench_self_reports_and_never_fails_on_speed() {
    let output = rdmalab(&["bench", "self", "--rounds", "2", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let value: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let rows = value["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 11);
    for row in rows {
        let measured = row["ours_runs"].as_array().unwrap().len();
        // Two rows cannot be measured without the right to write into other processes.
        assert!(measured == 2 || row["missing"].is_string(), "{row}");
        assert!(!row["beside"].is_null() && row["budget"].is_object(), "{row}");
    }
}

/// Rows over UDP and with captures are measured on request. The former may be missing, with a
/// reason, where network namespaces cannot be made.
#[test]
fn bench_self_measures_elsewhere_when_asked() {
    for (only, may_miss) in [("udp", true), ("captured", false)] {
        let words = ["bench", "self", "--rounds", "2", "--only", only, "--json"];
        let output = rdmalab(&words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let value: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
        let rows = value["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 3, "{only}");
        for row in rows {
            let [ours, limit] = ["ours_runs", "limit_runs"].map(|of| row[of].as_array().unwrap());
            if let (true, Some(why)) = (may_miss, row["missing"].as_str()) {
                skipped(&row["ours"].to_string(), why);
                continue;
            }
            assert!(ours.len() == 2 && limit.len() == 2, "{row}");
            let is_positive = |v: &Value| v.as_f64().is_some_and(|v| v > 0.0);
            assert!(ours.iter().chain(limit).all(is_positive), "{row}");
        }
    }
}

/// Programs that are not installed make rows that say so.
#[test]
fn bench_self_measures_programs_beside_ucx() {
    let words = ["bench", "self", "--peers", "--rounds", "1", "--json"];
    let output = rdmalab(&words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let value: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let rows = value["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 11);
    for row in rows {
        match row["missing"].as_str() {
            Some(why) if why.contains("is not installed") || why.contains("only root") => {
                skipped(&row["ours"].to_string(), why);
            }
            Some(why) => panic!("{}: {why}", row["ours"]),
            None => assert!(row["ours_runs"][0].as_f64() > Some(0.0), "{row}"),
        }
    }
}

/// The sender of a flood has to poll every credit. A credit left over in a round occupies a receive
/// in all later rounds, until a credit of the receiver finds none and both ends wait for ever.
#[test]
fn bench_self_leaves_no_credit_behind() {
    let rows = ["bench", "self", "--rounds", "6", "--only", "SEND 32 B, rate"];
    let output = rdmalab(&rows).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn one_cpu_is_enough() {
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(assert_cmd::cargo::cargo_bin("rdmalab"));
    command.args(["run", "ping", "--messages", "100", "--no-record"]).stdin(Stdio::null());
    let output = match command.output() {
        Ok(output) if !String::from_utf8_lossy(&output.stderr).contains("affinity") => output,
        _ => return skipped("one_cpu_is_enough", "no taskset, or no CPU 0"),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("round trip"), "{text}");
}

#[test]
fn ps_names_the_processes_on_the_device() {
    let mut run = endless("rc", &["--no-record"]);
    let workers = workers(&mut run);
    let output = rdmalab(&["ps"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for pid in workers {
        let named = text.lines().any(|l| l.contains(&pid.to_string()) && l.contains("worker"));
        assert!(named, "no {pid} in {text}");
    }
}
