//! The example of the book reads a record as we do.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rdmalab_record::Record;

fn skip(reason: &str) {
    let line = format!("SKIPPED the_books_example_reads_a_record: {reason}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// A Python that has pandas; Debian's may stand behind another one in the path.
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
    let golden = root.join("tests/version-4");
    let Some(python) = python() else {
        return skip("no pandas: apt-get install python3-pandas");
    };
    let example = root.join("../../examples/read_record.py");
    let out = Command::new(python).arg(example).arg(&golden).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));

    let record = Record::open(&golden).unwrap();
    let series: Vec<_> = record.points.iter().flat_map(|p| &p.series).collect();
    let rows: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(rows.len(), series.len(), "{text}");
    for (row, series) in rows.iter().zip(series) {
        // The last columns are n, the least, the median and the largest.
        let numbers: Vec<f64> =
            row.split_whitespace().rev().take(4).map(|w| w.parse().unwrap()).collect();
        let summary = &series.summary;
        let ours = [summary.max, summary.median(), summary.min, summary.n as f64];
        for (theirs, ours) in numbers.into_iter().zip(ours) {
            let is_same = theirs.is_nan() && ours.is_nan() || (theirs - ours).abs() < 1e-6;
            assert!(is_same, "{row}: {theirs} is {ours}");
        }
    }
}

#[test]
fn the_book_shows_the_example_as_it_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let example = std::fs::read_to_string(root.join("examples/read_record.py")).unwrap();
    let (_, code) = example.split_once('\n').unwrap();
    let chapter = std::fs::read_to_string(root.join("docs/book/src/record.md")).unwrap();
    assert!(chapter.contains(&format!("```python\n{code}```")), "docs/book/src/record.md is old");
}
