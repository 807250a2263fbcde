//! `--rate sweep`: one command measures the rate of a device, loads the device from far below to
//! above that rate, and finds the knee. A line with a known rate sets the knee.

mod common;

use std::time::Duration;

use common::{rdmalab, said};
use rdmalab_testing::{Budget, Watch, again_until};
use serde_json::Value;

/// A message of 4096 bytes makes frames of 4160 to 4180, with or without an IPv6 header.
const FRAME_BITS: f64 = 4170.0 * 8.0;
/// Two sweeps at least, and no further one after this time.
const PATIENCE: Budget = Budget { attempts: 2, time: Duration::from_secs(90) };
/// The rate of the line.
const LINE_MBIT: f64 = 133.0;

/// Runs a sweep; returns its knee in messages a second, and the finding.
fn knee() -> (f64, Value) {
    let faults = format!("rate {LINE_MBIT}Mbit of send");
    let how = ["--device", "soft0", "--no-record", "--format", "json", "--faults", &faults];
    let words = "oneway --rate sweep --arrivals constant --poll event --op send --size 4096 \
                 --messages 400 --warm-up 0 --runs 1";
    let swept = said(rdmalab(&["run"]).args(words.split_whitespace()).args(how));
    assert_eq!(swept.code, Some(0), "{swept:?}");
    assert!(swept.stderr.contains("--rate sweep: "), "{swept:?}");
    let document: Value = serde_json::from_str(&swept.stdout).expect("one JSON document");
    assert_eq!(document["points"].as_array().unwrap().len(), 12, "{document:#}");
    let findings = document["findings"].as_array().unwrap();
    let found = findings.iter().find(|f| f["name"] == "knee").expect("it is looked for");
    (found["value_per_s"].as_f64().unwrap_or(f64::NAN), found.clone())
}

/// With constant arrivals, no message waits while the line keeps up, and every message waits at
/// higher rates. So the knee is at the line's rate, between two measured rates, which are 10 to 20
/// % apart. They are multiples of a rate that was itself measured with an error of a few percent.
#[test]
fn a_sweep_of_rates_finds_the_knee_of_a_line() {
    let line = LINE_MBIT * 1e6 / FRAME_BITS;
    let near = 0.85 * line..1.25 * line;
    let mut found = Vec::new();
    // On a busy machine, messages may wait at a lower rate, too.
    let test = "a_sweep_of_rates_finds_the_knee_of_a_line";
    again_until(test, &Watch::begin(), PATIENCE, || {
        let (knee, finding) = knee();
        if near.contains(&knee) {
            assert!(finding["sentence"].as_str().unwrap().contains("the knee is"), "{finding:#}");
            return Ok(());
        }
        found.push(finding);
        Err(format!("no knee within {near:?} a second: {found:#?}"))
    });
}
