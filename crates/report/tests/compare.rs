//! Records that differ by what the test put there, and those that do not.

use std::time::{Duration, SystemTime};

use rdmalab_measure::stats::Verdict;
use rdmalab_measure::{Outcome, Quantity};
use rdmalab_record::{Device, DeviceKind, Environment, Header, Object, PointId, Record, Writer};
use rdmalab_report::compare::{Comparison, Options, Side};
use serde_json::{Value, json};
use tempfile::TempDir;

/// What a made-up record is like.
struct Made {
    seed: u64,
    op: &'static str,
    sizes: &'static [u64],
    runs: u32,
    n: usize,
    /// Slower by so much from 512 bytes on.
    factor: f64,
    kind: DeviceKind,
}

const USUAL: Made = Made {
    seed: 1,
    op: "send",
    sizes: &[8, 512],
    runs: 1,
    n: 2000,
    factor: 1.0,
    kind: DeviceKind::Soft,
};

impl Made {
    fn record(&self) -> (TempDir, Record) {
        let dir = tempfile::tempdir().unwrap();
        let device = Device { name: "soft0".to_owned(), kind: self.kind };
        let header = Header::new("ping", vec!["rdmalab".to_owned()], device);
        let environment =
            Environment { kernel: Some("6.1.0".to_owned()), ..Environment::default() };
        let mut writer = Writer::create_at(&dir.path().join("r"), header, &environment).unwrap();
        let mut state = self.seed;
        // SplitMix64 (Steele, Lea and Flood 2014).
        let mut uniform = move || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            (((z ^ (z >> 31)) >> 12) as f64 + 0.5) / (1u64 << 52) as f64
        };
        for repetition in 0..self.runs {
            for (order, size) in self.sizes.iter().rev().enumerate() {
                let factor = if *size >= 512 { self.factor } else { 1.0 };
                let floor = 500.0 + *size as f64 / 10.0;
                let mut outcome = Outcome::default();
                let samples = (0..self.n).map(|_| factor * floor * (1.0 - 0.1 * uniform().ln()));
                outcome.push_series(Quantity::RoundTrip, "", 10, samples.collect());
                outcome.push_figure(Quantity::Rate, "", (1e9 + 1e7 * uniform()) / floor / factor);
                let id = PointId {
                    parameters: parameters(self.op, *size),
                    repetition,
                    order_index: order as u64,
                    started: SystemTime::now(),
                    elapsed: Duration::from_millis(1),
                };
                writer.append(&id, &outcome).unwrap();
            }
        }
        let record = Record::open(writer.dir()).unwrap();
        (dir, record)
    }
}

fn parameters(op: &str, size: u64) -> Object {
    json!({ "op": op, "size_bytes": size, "messages": 2000 }).as_object().unwrap().clone()
}

fn compared(a: &Made, b: &Made, options: &Options) -> Result<Comparison, String> {
    let (_keep_a, a) = a.record();
    let (_keep_b, b) = b.record();
    let side = |name, record| Side { name, records: std::slice::from_ref(record) };
    Comparison::of(side("old", &a), side("new", &b), options)
}

fn verdicts(comparison: &Comparison) -> Vec<Verdict> {
    comparison.verdicts().collect()
}

#[test]
fn what_is_slower_is_found_where_it_is() {
    let slow = Made { seed: 2, factor: 1.1, ..USUAL };
    let found = compared(&USUAL, &slow, &Options::default()).unwrap();
    // One run a side: single numbers cannot tell, samples can.
    let expected =
        [Verdict::NoDifference, Verdict::Slower, Verdict::CannotTell, Verdict::CannotTell];
    assert_eq!(verdicts(&found), expected, "{}", found.text(true));
    assert_eq!(found.regressions(), 1);
    let text = found.text(false);
    for part in [
        "median of round trip, with 95 % intervals for all 4 comparisons together",
        "slower (beyond 5 %)",
        "no difference seen",
        "shift of the deciles of round trip",
        "1 run of a side: what differs from run to run is not in the certainty",
        "one number a run: measure with --repeat 5",
        "worse by more than 5 %: 1",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    assert!(text.lines().all(|line| line.len() <= 120), "{text}");
    // The other way round it is faster.
    let back = compared(&slow, &USUAL, &Options::default()).unwrap();
    assert_eq!(verdicts(&back)[1], Verdict::Faster);
    assert_eq!(back.regressions(), 0);
}

#[test]
fn what_matters_is_for_the_user_to_say() {
    let slow = Made { seed: 2, factor: 1.1, ..USUAL };
    let lax = Options { threshold: 0.2, ..Options::default() };
    let found = compared(&USUAL, &slow, &lax).unwrap();
    assert_eq!((verdicts(&found)[1], found.regressions()), (Verdict::Slower, 0));
    let only = Options { only: Some("rate".to_owned()), ..Options::default() };
    assert_eq!(compared(&USUAL, &slow, &only).unwrap().compared(), 2);
    let none = Options { only: Some("bandwidth".to_owned()), ..Options::default() };
    let error = compared(&USUAL, &slow, &none).unwrap_err();
    assert!(error.contains("whose name contains \"bandwidth\"") && error.contains("rate"));
    // A tail that the samples cannot know.
    let tail = Options { quantile: 0.9999, ..Options::default() };
    let found = compared(&USUAL, &slow, &tail).unwrap();
    assert!(verdicts(&found).iter().all(|v| *v == Verdict::CannotTell));
    assert!(found.text(false).contains("too few samples for this quantile"));
}

#[test]
fn runs_are_what_single_numbers_need() {
    let (usual, slow) = (
        Made { runs: 5, n: 300, ..USUAL },
        Made { runs: 5, n: 300, seed: 3, factor: 1.2, ..USUAL },
    );
    let found = compared(&usual, &slow, &Options::default()).unwrap();
    let expected = [Verdict::NoDifference, Verdict::Slower, Verdict::NoDifference, Verdict::Slower];
    assert_eq!(verdicts(&found), expected, "{}", found.text(true));
    let json: Value = serde_json::from_str(&found.json()).unwrap();
    assert_eq!((&json["regressions"], &json["comparisons"]), (&json!(2), &json!(4)));
    let row = &json["rows"][1];
    assert_eq!(row["a"]["independent_units"], json!({ "kind": "runs", "n": 5 }));
    assert_eq!(
        (&row["parameters"]["size_bytes"], &row["is_regression"]),
        (&json!(512), &json!(true))
    );
    assert!(row["ratio"]["low"].as_f64().unwrap() > 1.1, "{row}");
    assert!(row["cliffs_delta"]["value"].as_f64().unwrap() > 0.5, "{row}");
    assert!(row["p_value_corrected"].as_f64().unwrap() < 0.01, "{row}");
    assert_eq!(row["deciles"].as_array().unwrap().len(), 9);
    assert!(row["deciles"][0]["low_ns"].as_f64().unwrap() > 0.0, "{row}");
    assert!(!found.text(false).contains("what differs from run to run"));
}

#[test]
fn points_are_matched_by_what_varies() {
    let other = Made { op: "write", sizes: &[8, 64, 512], seed: 4, ..USUAL };
    let found = compared(&USUAL, &other, &Options::default()).unwrap();
    assert_eq!(found.compared(), 4);
    let text = found.text(false);
    assert!(text.contains("A | B differ in op send | write"), "{text}");
    assert!(text.contains("1 points of B have no partner"), "{text}");
    let json: Value = serde_json::from_str(&found.json()).unwrap();
    assert_eq!(json["matched_by"], json!(["size_bytes"]));
    let apart = Made { sizes: &[16, 32], ..USUAL };
    let error = compared(&USUAL, &apart, &Options::default()).unwrap_err();
    assert!(error.contains("matched by size_bytes") && !error.contains('\n'), "{error}");
    let adapter = Made { kind: DeviceKind::System, seed: 5, ..USUAL };
    let text = compared(&USUAL, &adapter, &Options::default()).unwrap().text(false);
    assert!(text.contains("A is a soft device and B a system one"), "{text}");
}
