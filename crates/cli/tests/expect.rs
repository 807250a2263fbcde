//! Expectations, conditions, runs until a value is known, and limits on idle states.

mod common;

use common::{Ended, rdmalab, said};
use serde_json::Value;

fn run(words: &[&str]) -> Ended {
    said(rdmalab(&["run", "ping", "--warm-up", "10"]).args(words))
}

#[test]
fn an_expectation_sets_the_exit_code_and_says_why() {
    let home = tempfile::tempdir().unwrap();
    let out = home.path().to_str().unwrap();
    // Nothing takes 100 seconds, and nothing a tenth of a nanosecond.
    let words = ["--messages", "200", "--expect", "median<100s", "--expect", "max<100s"];
    let fine = run(&[&words[..], &["--expect", "loss<=0%", "--out", out]].concat());
    assert_eq!(fine.code, Some(0), "{}", fine.stderr);
    assert!(fine.stderr.contains("median<100s: median of round trip is "), "{}", fine.stderr);
    assert!(fine.stderr.contains("95 % interval"), "{}", fine.stderr);
    assert!(fine.stderr.contains("the bound is 100 s: holds"), "{}", fine.stderr);
    let bad = run(&[
        "--messages",
        "200",
        "--size",
        "8,64",
        "--no-record",
        "--expect",
        "median<0.1ns",
        "--expect",
        "mean<100s",
    ]);
    assert_eq!(bad.code, Some(1), "{}", bad.stderr);
    assert_eq!(bad.stderr.matches("EXPECTED median<0.1ns").count(), 2, "{}", bad.stderr);
    assert!(bad.stderr.contains("2 of 4 expectations do not hold"), "{}", bad.stderr);
    // The same for a stored record, and for one side of a comparison.
    let record = std::fs::read_dir(home.path()).unwrap().next().unwrap().unwrap().path();
    let report = |more: &[&str]| said(rdmalab(&["report"]).arg(&record).args(more));
    assert_eq!(report(&["--expect", "median<100s"]).code, Some(0));
    assert_eq!(report(&["--expect", "median<0.1ns"]).code, Some(1));
    let unknown = report(&["--expect", "one-way median<1s"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("it has: round trip"), "{}", unknown.stderr);
    let rate = report(&["--expect", "offered rate>1/s"]);
    assert!(rate.code == Some(2) && rate.stderr.contains("it has: rate, 1 / RTT"), "{rate:?}");
    let both = said(rdmalab(&["compare"]).args([&record, &record]).args(["--expect", "p50>1s"]));
    assert_eq!(both.code, Some(1), "{}", both.stderr);
}

#[test]
fn what_the_samples_cannot_know_is_refused_before_anything_is_measured() {
    let few = run(&["--messages", "1000", "--no-record", "--expect", "p99.99<5us"]);
    assert_eq!(few.code, Some(2), "{}", few.stderr);
    assert!(few.stdout.is_empty(), "{}", few.stdout);
    assert!(few.stderr.contains("p99.99 needs 100 000 samples"), "{}", few.stderr);
    for (words, asked) in [
        (&["ping", "--op", "read"][..], "RTT/2 median<1s"),
        (&["mr"], "bandwidth>1GB/s"),
        (&["oneway", "--stamps", "recv"], "completion time median<1s"),
        (&["blast"], "round_trip_ns median<1s"),
    ] {
        let call = rdmalab(&["run"]).args(words).args(["--no-record", "--expect", asked]).output();
        let (call, name) = (call.unwrap(), words[0]);
        let error = String::from_utf8(call.stderr).unwrap();
        assert!(call.status.code() == Some(2) && call.stdout.is_empty(), "{words:?}: {error}");
        let said = format!("--expect '{asked}': {name} with these options measures no ");
        assert!(error.contains(&said) && error.contains("; there are: "), "{words:?}: {error}");
    }
    let odd = run(&["--expect", "p99=5us"]);
    assert!(odd.code == Some(2) && odd.stderr.contains("no < or >"), "{}", odd.stderr);
}

#[test]
fn runs_go_on_until_the_median_is_known() {
    let words = ["--messages", "100", "--no-record", "--format", "json", "--max-time", "20"];
    let found = run(&[&words[..], &["--until", "median±90%"]].concat());
    assert_eq!(found.code, Some(0), "{}", found.stderr);
    let value: Value = serde_json::from_str(&found.stdout).unwrap();
    let points = value["points"].as_array().unwrap().len();
    assert!(points >= 5, "{points}");
    // A millionth is never reached, so the time limit ends the run, and the output says so.
    let words = ["--messages", "100", "--no-record", "--max-time", "1", "--until"];
    let found = run(&[&words[..], &["median±0.0001%"]].concat());
    assert_eq!(found.code, Some(0), "{}", found.stderr);
    assert!(found.stderr.contains("--max-time 1 s has passed"), "{}", found.stderr);
    for wrong in [&["--until", "median"][..], &["--max-time", "5"]] {
        assert_eq!(run(wrong).code, Some(2), "{wrong:?}");
    }
}

#[test]
fn labels_and_held_idle_states_are_in_the_record() {
    let home = tempfile::tempdir().unwrap();
    let out = home.path().to_str().unwrap();
    let words = ["--messages", "50", "--out", out, "--condition", "quiet"];
    let held = run(&[&words[..], &["--hold-dma-latency", "0"]].concat());
    let may = std::fs::OpenOptions::new().write(true).open("/dev/cpu_dma_latency").is_ok();
    if may {
        assert_eq!(held.code, Some(0), "{}", held.stderr);
    } else {
        assert_eq!(held.code, Some(1), "{}", held.stderr);
        assert!(held.stderr.contains("/dev/cpu_dma_latency: "), "{}", held.stderr);
        assert_eq!(run(&words).code, Some(0));
    }
    let record = std::fs::read_dir(home.path()).unwrap().next().unwrap().unwrap().path();
    let header = std::fs::read_to_string(record.join("record.json")).unwrap();
    let header: Value = serde_json::from_str(&header).unwrap();
    assert_eq!(header["condition"], "quiet");
    assert_eq!(header["held_dma_latency_us"], if may { 0.into() } else { Value::Null });
}
