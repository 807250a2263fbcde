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
    runs: 4,
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
    let expected = [Verdict::NoDifference, Verdict::Slower, Verdict::NoDifference, Verdict::Slower];
    assert_eq!(verdicts(&found), expected, "{}", found.text(true));
    assert_eq!(found.regressions(), 2);
    let text = found.text(false);
    for part in [
        "median of round trip, with 95 % intervals for all 4 comparisons together",
        "slower (beyond 5 %)",
        "no difference seen",
        "shift of the deciles of round trip",
        "4 runs of a side: the intervals are as wide as so few runs allow",
        "worse by more than 5 %: 2",
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
    assert_eq!(verdicts(&found)[..2], [Verdict::CannotTell; 2], "{found:?}");
    assert!(found.text(false).contains("too few samples of a run for this quantile"));
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

#[test]
fn one_run_a_side_decides_nothing() {
    let usual = Made { runs: 1, ..USUAL };
    let slow = Made { runs: 1, seed: 2, factor: 3.0, ..USUAL };
    for (a, b) in [(&usual, &slow), (&USUAL, &slow), (&usual, &Made { runs: 5, ..slow })] {
        let found = compared(a, b, &Options::default()).unwrap();
        assert_eq!(verdicts(&found), [Verdict::CannotTell; 4], "{}", found.text(true));
        assert_eq!(found.regressions(), 0);
        let text = found.text(true).replace("\n         ", " ");
        assert!(text.contains("measure with --repeat 5"), "{text}");
        // What the run's own samples see is shown, in brackets, and marked as that.
        assert!(text.contains("(x 2.") && text.contains("within one run of a side"), "{text}");
        let json: Value = serde_json::from_str(&found.json()).unwrap();
        let row = &json["rows"][1];
        assert_eq!((&row["ratio"]["low"], &row["p_value_corrected"]), (&Value::Null, &Value::Null));
        assert_eq!(row["rests_on"], Value::Null);
        assert!(row["ratio_within_one_run"]["low"].as_f64().unwrap() > 2.0, "{row}");
        assert!(row["obstacle"].as_str().unwrap().contains("one run of a side"), "{row}");
        assert!(found.page().contains("it cannot be told") || found.page().contains("cannot tell"));
    }
}

#[test]
fn repeated_runs_decide_by_what_differs_between_them() {
    for runs in [2, 4, 7] {
        let usual = Made { runs, n: 400, ..USUAL };
        let slow = Made { runs, n: 400, seed: 3, factor: 3.0, ..USUAL };
        let only = Options { only: Some("round trip".to_owned()), ..Options::default() };
        let found = compared(&usual, &slow, &only).unwrap();
        assert_eq!(verdicts(&found)[1], Verdict::Slower, "{runs} runs: {}", found.text(true));
        let json: Value = serde_json::from_str(&found.json()).unwrap();
        assert_eq!(json["rows"][1]["rests_on"], "welch over runs");
    }
}

#[test]
fn a_page_says_verdicts_in_words_and_draws_them() {
    let slow = Made { seed: 2, factor: 1.1, ..USUAL };
    let page = compared(&USUAL, &slow, &Options::default()).unwrap().page();
    for part in [
        "<h1>new against old</h1>",
        "At size 512 B: new is slower than old: +",
        "and beyond the 5 % that matter.",
        "At size 8 B: no difference between old and new is seen, and none of 5 % is left possible",
        "Change at each point, with its interval",
        "Shift of the deciles at size 512 B",
        "numbers of this host, not of an adapter",
        "4 runs of a side",
    ] {
        assert!(page.contains(part), "no {part:?} in\n{page}");
    }
    // Two groups of two effects, and a shift with its band for each pair of samples.
    assert_eq!(page.matches("class='slack'").count(), 2);
    assert_eq!(page.matches("class='band'").count(), 2);
    assert!(!page.contains("<script") && !page.contains("http"));
    let ids: Vec<&str> = page.split(" id=").skip(1).map(|r| &r[1..8]).collect();
    let distinct: std::collections::BTreeSet<&&str> = ids.iter().collect();
    assert_eq!(ids.len(), distinct.len(), "{ids:?}");
}
