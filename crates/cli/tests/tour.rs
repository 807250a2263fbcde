//! The tour, `bench self` and `ps` with two real processes on the soft device. Nothing here says
//! how fast it is.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn rdmalab(arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("rdmalab"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn json(arguments: &[&str]) -> Value {
    let output = rdmalab(arguments).output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

#[test]
fn every_transport_delivers_every_message_of_every_size() {
    let value = json(&["--samples", "300", "--size", "8,300,4096", "--json"]);
    let points = value["points"].as_array().expect("points");
    assert_eq!(points.len(), 9, "{value}");
    for point in points {
        let latency = &point["latency"];
        for quantity in ["one_way", "round_trip"] {
            let summary = &latency[quantity];
            assert_eq!(summary["samples"], 300, "{point}");
            assert!(summary["max_ns"].as_u64() >= summary["median_ns"].as_u64(), "{point}");
            assert!(summary["max_index"].as_u64().unwrap() < 300, "{point}");
            // 3 samples beyond the 99th percentile are too few to show it.
            assert_eq!(summary["p99_ns"], Value::Null, "{point}");
        }
        assert_eq!(
            (&point["flood"]["messages"], &point["flood"]["lost"]),
            (&1200.into(), &0.into())
        );
    }
    assert_eq!(value["conditions"]["kind"], "soft");
    assert_eq!(value["conditions"]["memory"], "memfd-backed");
    assert!(!value["limits"].as_array().unwrap().is_empty());
}

#[test]
fn long_messages_and_addressing_by_gid_work() {
    let sizes = ["--samples", "40", "--size", "64K,1M", "--transport", "rc,uc", "--json"];
    let value = json(&[&sizes[..], &["--gid-index", "1"]].concat());
    let points = value["points"].as_array().unwrap();
    assert_eq!(points.len(), 4);
    assert!(points.iter().all(|point| point["latency"]["round_trip"]["samples"] == 40));
}

#[test]
fn the_table_says_what_the_numbers_are() {
    let output = rdmalab(&["--samples", "2000", "--size", "32"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    for part in [
        "this host's, not an adapter's",
        "one-way",
        "round trip",
        "RTT/2",
        "p99",
        "warm-up",
        "Bare limits of this machine",
        "hand-off",
        "per stamp",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert!(!text.contains('\u{1b}'), "colours in a pipe");
}

#[test]
fn bench_self_reports_and_never_fails_on_speed() {
    let value = json(&["bench", "self", "--rounds", "2", "--json"]);
    let rows = value["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 10);
    for row in rows {
        let measured = row["ours_runs"].as_array().unwrap().len();
        // Without the right to write into other processes two rows cannot be measured.
        assert!(measured == 2 || row["missing"].is_string(), "{row}");
        assert!(!row["beside"].is_null() && row["budget"].is_object(), "{row}");
    }
}

#[test]
fn one_cpu_is_enough_and_says_so() {
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(assert_cmd::cargo::cargo_bin("rdmalab"));
    command.args(["--samples", "100", "--size", "32"]).stdin(Stdio::null());
    let output = match command.output() {
        Ok(output) if !String::from_utf8_lossy(&output.stderr).contains("affinity") => output,
        _ => {
            use std::io::Write;
            let line = b"SKIPPED one_cpu_is_enough_and_says_so: no taskset, or no CPU 0\n";
            std::io::stderr().write_all(line).unwrap();
            return;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("WARNING: one CPU"), "{text}");
}

/// Ends the process when dropped, also when a test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// A tour that lasts until something happens to it.
    fn endless(transport: &str) -> Self {
        let mut command = rdmalab(&["--samples", "100000000", "--size", "64", "--transport"]);
        command.arg(transport).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command.spawn().expect("it starts"))
    }

    fn within<T>(&mut self, what: &str, mut look: impl FnMut(&mut Child) -> Option<T>) -> T {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(120) {
            if let Some(found) = look(&mut self.0) {
                return found;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("waited in vain for {what}");
    }

    /// Its workers, once both run.
    fn workers(&mut self) -> [u32; 2] {
        let path = format!("/proc/{0}/task/{0}/children", self.0.id());
        self.within("two workers", |_| {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let pids: Vec<u32> = text.split_whitespace().filter_map(|p| p.parse().ok()).collect();
            <[u32; 2]>::try_from(pids).ok().filter(|pids| pids.iter().all(|pid| is_busy(*pid)))
        })
    }

    /// How it ends, and what it said.
    fn end(mut self) -> (Option<i32>, String, String) {
        let status = self.within("the end", |child| child.try_wait().expect("our own child"));
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.0.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        (status.code(), stdout, stderr)
    }
}

/// Whether a worker has computed for some time: then it measures.
fn is_busy(pid: u32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = text.rsplit(')').next().unwrap_or("");
    let ticks = after_name.split_whitespace().nth(11).and_then(|t| t.parse::<u64>().ok());
    ticks.is_some_and(|ticks| ticks > 30)
}

fn signal(name: &str, pid: u32) {
    let status = Command::new("kill").args([name, &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn ctrl_c_prints_what_was_measured() {
    let mut tour = Running::endless("rc");
    let workers = tour.workers();
    signal("-INT", tour.0.id());
    let (code, stdout, stderr) = tour.end();
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("interrupted"), "{stderr}");
    assert!(stdout.contains("one-way") && stdout.contains("RC"), "{stdout}");
    assert!(workers.iter().all(|pid| !is_busy(*pid)), "a worker stays");
}

#[test]
fn the_death_of_a_peer_is_told_with_its_likely_causes() {
    for (transport, dies) in [("rc", 1), ("rc", 0), ("ud", 1)] {
        let mut tour = Running::endless(transport);
        let workers = tour.workers();
        signal("-KILL", workers[dies]);
        let (code, stdout, stderr) = tour.end();
        assert_eq!(code, Some(1), "{stderr}");
        assert!(stderr.contains("ended by signal 9"), "{stderr}");
        if (transport, dies) == ("rc", 1) {
            assert!(stderr.contains("IBV_WC_RETRY_EXC_ERR"), "{stderr}");
            assert!(stdout.contains("one-way"), "what was measured is printed: {stdout}");
        }
    }
}

#[test]
fn ps_names_the_processes_on_the_device() {
    let mut tour = Running::endless("rc");
    let workers = tour.workers();
    let output = rdmalab(&["ps"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for pid in workers {
        let named = text.lines().any(|l| l.contains(&pid.to_string()) && l.contains("worker"));
        assert!(named, "no {pid} in {text}");
    }
}
