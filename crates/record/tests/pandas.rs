//! The book's example reads a record with the same results as this crate.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use rdmalab_measure::{Outcome, Quantity};
use rdmalab_record::{Device, DeviceKind, Environment, Header, PointId, Record, Writer};

fn skip(reason: &str) {
    rdmalab_testing::skipped("the_books_example_reads_a_record", reason);
}

/// A Python with pandas; Debian's may come after another one in the path.
fn python() -> Option<PathBuf> {
    let has_pandas = |python: &PathBuf| {
        let mut command = Command::new(python);
        command.args(["-c", "import pandas"]).stdin(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|s| s.success())
    };
    ["python3", "/usr/bin/python3"].map(PathBuf::from).into_iter().find(has_pandas)
}

#[test]
fn the_books_example_reads_a_record() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let Some(python) = python() else {
        return skip("no pandas: apt-get install python3-pandas");
    };
    let golden = agrees(&python, &root.join("tests/version-5"));
    assert!(golden.contains("size_bytes"), "what varies is named: {golden}");
    // Records of connections and time-outs have no sizes.
    let parent = tempfile::tempdir().unwrap();
    let device = Device { name: "d".to_owned(), kind: DeviceKind::Soft, profile: None };
    let header = Header::new("timeout", Vec::new(), device);
    let mut writer = Writer::create(parent.path(), header, &Environment::default()).unwrap();
    for code in [14_u64, 15] {
        let mut outcome = Outcome::default();
        let samples = (0..30).map(|i| code as f64 * 1e6 + f64::from(i)).collect();
        outcome.push_series(Quantity::Timeout, "T_o", 0, samples);
        let parameters = serde_json::json!({ "timeout": code, "device": "d" });
        let id = PointId {
            parameters: parameters.as_object().unwrap().clone(),
            repetition: 0,
            order_index: code,
            started: SystemTime::UNIX_EPOCH,
            elapsed: Duration::from_secs(1),
        };
        writer.append(&id, &outcome).unwrap();
    }
    let text = agrees(&python, writer.dir());
    let head: Vec<&str> = text.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["timeout", "quantity", "label", "n", "min_ns", "median_ns", "max_ns"]);
}

/// The table that the example prints for a record; its numbers must be equal to ours.
fn agrees(python: &Path, dir: &Path) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let example = root.join("../../examples/read_record.py");
    let out = Command::new(python).arg(example).arg(dir).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));

    let record = Record::open(dir).unwrap();
    let series: Vec<_> = record.points.iter().flat_map(|p| &p.series).collect();
    let rows: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(rows.len(), series.len(), "{text}");
    for (row, series) in rows.iter().zip(series) {
        // The last columns are n, minimum, median and maximum.
        let numbers: Vec<f64> =
            row.split_whitespace().rev().take(4).map(|w| w.parse().unwrap()).collect();
        let summary = &series.summary;
        let ours = [summary.max, summary.median(), summary.min, summary.n as f64];
        for (theirs, ours) in numbers.into_iter().zip(ours) {
            let is_same = theirs.is_nan() && ours.is_nan() || (theirs - ours).abs() < 1e-6;
            assert!(is_same, "{row}: {theirs} is {ours}");
        }
    }
    text.into_owned()
}

#[test]
fn the_book_shows_the_example_as_it_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let example = std::fs::read_to_string(root.join("examples/read_record.py")).unwrap();
    let (_, code) = example.split_once('\n').unwrap();
    let chapter = std::fs::read_to_string(root.join("docs/book/src/record.md")).unwrap();
    assert!(chapter.contains(&format!("```python\n{code}```")), "docs/book/src/record.md is old");
}
