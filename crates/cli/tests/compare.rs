//! `rdmalab compare` with real records: exit codes, conditions, and what it says.

mod common;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use common::{Ended, rdmalab, said};
use serde_json::Value;

/// One measurement at a time, because each has two ends that spin.
static ONE: Mutex<()> = Mutex::new(());

/// A short run; returns its record.
fn record(home: &Path, name: &str, arguments: &[&str]) -> PathBuf {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let out = home.join(name);
    let mut command = rdmalab(&["run", "ping", "--warm-up", "20", "--out"]);
    let run = said(command.arg(&out).args(arguments));
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    std::fs::read_dir(out).unwrap().next().unwrap().unwrap().path()
}

fn compare(records: &[&Path], more: &[&str]) -> Ended {
    said(rdmalab(&["compare"]).args(records).args(more))
}

#[test]
fn a_megabyte_after_eight_bytes_is_a_regression() {
    let home = tempfile::tempdir().unwrap();
    let short = ["--messages", "200", "--size", "8,64"];
    let fast = record(home.path(), "fast", &short);
    // A megabyte takes longer than 8 bytes on any machine.
    // Verdicts need repeated runs.
    let slow = record(home.path(), "slow", &["--messages", "200", "--size", "1M", "--repeat", "4"]);
    let found = compare(&[&fast, &slow], &[]);
    // Nothing to compare: the sizes of the first record are not those of the second.
    assert_eq!(found.code, Some(2), "{found:?}");
    assert_eq!(found.stderr.lines().count(), 1, "{}", found.stderr);
    assert!(found.stderr.contains("matched by size_bytes"), "{}", found.stderr);

    let small =
        record(home.path(), "small", &["--messages", "200", "--size", "8", "--repeat", "4"]);
    let found = compare(&[&small, &slow], &["--only", "round trip"]);
    assert_eq!(found.code, Some(1), "{found:?}");
    assert!(found.stdout.contains("differ in size 8 B | 1 MiB"), "{}", found.stdout);
    assert!(found.stdout.contains("slower (beyond 5 %)"), "{}", found.stdout);
    assert!(found.stderr.contains("is worse than"), "{}", found.stderr);
    let back = compare(&[&slow, &small], &["--only", "round trip", "--format", "json"]);
    assert_eq!(back.code, Some(0), "{}", back.stderr);
    let value: Value = serde_json::from_str(&back.stdout).unwrap();
    assert_eq!(
        (&value["rows"][0]["verdict"], &value["regressions"]),
        (&"faster".into(), &0.into())
    );
    // A slowdown within the threshold is no regression.
    let lax = compare(&[&small, &slow], &["--only", "round trip", "--threshold", "1000%"]);
    assert!(lax.code == Some(0) || lax.stdout.contains("beyond 1000 %"), "{lax:?}");
    let page = home.path().join("page.html");
    let html = ["--html", page.to_str().unwrap(), "--only", "round trip"];
    let written = compare(&[&small, &slow], &html);
    assert_eq!(written.code, Some(1), "the same verdict: {}", written.stderr);
    assert_eq!(written.stdout.trim(), page.display().to_string());
    assert!(std::fs::read_to_string(&page).unwrap().contains("and beyond the 5 % that matter"));
    let once = record(home.path(), "once", &["--messages", "200", "--size", "1M"]);
    let single = compare(&[&small, &once], &[]);
    assert_eq!(single.code, Some(0), "one run decides nothing: {}", single.stderr);
    assert!(single.stdout.contains("cannot tell"), "{}", single.stdout);
    assert!(single.stdout.contains("--repeat 5"), "{}", single.stdout);
    let same = compare(&[&small, &small], &[]);
    assert_eq!(same.code, Some(0), "{}", same.stdout);
    assert!(!same.stdout.contains("slower"), "{}", same.stdout);
}

#[test]
fn records_of_two_conditions_are_two_sides() {
    let home = tempfile::tempdir().unwrap();
    let run = |name: &str, condition: &str| {
        record(home.path(), name, &["--messages", "100", "--condition", condition])
    };
    let (a, b, c) = (run("a", "quiet"), run("b", "loaded"), run("c", "quiet"));
    let found = compare(&[&a, &b, &c], &["--format", "json", "--threshold", "1000"]);
    let value: Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!((&value["a"]["name"], &value["b"]["name"]), (&"quiet".into(), &"loaded".into()));
    assert_eq!(
        (&value["rows"][0]["a"]["runs"], &value["rows"][0]["b"]["runs"]),
        (&2.into(), &1.into())
    );
    let d = record(home.path(), "d", &["--messages", "100"]);
    let bare = compare(&[&a, &b, &d], &[]);
    assert_eq!(bare.code, Some(2));
    assert!(bare.stderr.contains("--condition NAME"), "{}", bare.stderr);
    let alike = compare(&[&a, &c, &a], &[]);
    assert_eq!(alike.code, Some(2));
    assert!(alike.stderr.contains("these records have 1: quiet"), "{}", alike.stderr);
}

#[test]
fn a_wrong_call_is_told_in_a_line() {
    let home = tempfile::tempdir().unwrap();
    for (words, part) in [
        (&["compare", "one"][..], "2 values required"),
        (&["compare", "no", "where"], "no such directory"),
        (&["compare", "a", "b", "--at", "p101"], "not a quantile"),
        (&["compare", "a", "b", "--threshold=-3"], "not a percentage"),
    ] {
        let found = said(rdmalab(words).current_dir(home.path()));
        assert_eq!(found.code, Some(2), "{words:?}: {}", found.stderr);
        assert!(found.stderr.contains(part), "{words:?}: {}", found.stderr);
    }
}

#[test]
fn records_in_a_directory_are_named_before_they_are_shown() {
    let home = tempfile::tempdir().unwrap();
    for condition in ["quiet", "loaded"] {
        record(home.path(), "both", &["--messages", "100", "--condition", condition]);
    }
    let report = |arguments: &[&str]| {
        said(rdmalab(&["report"]).arg(home.path().join("both")).args(arguments))
    };
    let text = report(&[]);
    assert_eq!(text.code, Some(0), "{text:?}");
    assert!(text.stdout.starts_with("2 records\n"), "{}", text.stdout);
    let rows: Vec<&str> = text.stdout.lines().skip(1).take(3).collect();
    assert!(rows[0].contains("condition") && rows[0].contains("begun (UTC)"), "{rows:?}");
    assert!(rows[1].contains(" quiet ") && rows[2].contains(" loaded "), "{rows:?}");
    assert_eq!(text.stdout.matches("\nping on soft0").count(), 2, "{}", text.stdout);
    let markdown = report(&["--format", "markdown"]);
    assert!(markdown.stdout.starts_with("# 2 records\n\n|"), "{}", markdown.stdout);
    let json = report(&["--format", "json"]);
    assert_eq!(serde_json::Deserializer::from_str(&json.stdout).into_iter::<Value>().count(), 2);
    let none = said(rdmalab(&["report"]).arg(home.path()));
    assert_eq!(none.code, Some(2), "{none:?}");
    assert!(none.stderr.contains("has no record"), "{none:?}");
}

/// In virtual time, so that nothing but the commands decides.
#[test]
fn conditions_take_turns_and_are_compared() {
    let home = tempfile::tempdir().unwrap();
    let run = |conditions: &[&str]| {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut command = rdmalab(&["run", "ping", "--device", "sim:ideal", "--messages", "50"]);
        command.args(["--repeat", "3", "--out", "records"]).current_dir(home.path());
        said(command.args(conditions.iter().flat_map(|one| ["--under", one])))
    };
    let found = run(&["one=echo one >>turns", "two=echo said; echo two >>turns"]);
    assert_eq!(found.code, Some(0), "{}", found.stderr);
    assert!(found.stderr.contains("turn 6 of 6: "), "{}", found.stderr);
    assert!(!found.stdout.contains("said") && found.stderr.contains("said"), "{found:?}");
    let turns = std::fs::read_to_string(home.path().join("turns")).unwrap();
    let turns: Vec<&str> = turns.lines().collect();
    assert_eq!(turns.len(), 6);
    for round in turns.chunks(2) {
        assert!(round.contains(&"one") && round.contains(&"two"), "{turns:?}");
    }
    assert!(found.stdout.contains("A  one") && found.stdout.contains("B  two"), "{}", found.stdout);
    let dir = common::only(&home.path().join("records"));
    let records = rdmalab_record::Record::open(&dir.join("two-3")).unwrap();
    assert_eq!(records.header.condition.as_deref(), Some("two"));
    assert_eq!(dir.read_dir().unwrap().count(), 6);
    assert_eq!(records.points[0].repetition, 2, "each round draws anew");
    for (conditions, code, part) in [
        (&["one=true", "two=exit 7"][..], 1, "--under two: `exit 7` failed: exit status: 7"),
        (&["one=exit 3", "two=exit 4"], 1, "failed: exit status"),
        (&["one=true"], 2, "give two"),
        (&["one=true", "one=false"], 2, "its own name"),
        (&["one", "two=true"], 2, "write NAME=COMMAND"),
    ] {
        let wrong = run(conditions);
        assert_eq!(wrong.code, Some(code), "{}", wrong.stderr);
        assert!(wrong.stderr.contains(part), "{}", wrong.stderr);
    }
    // Where nothing was measured, nothing is left.
    let left = home.path().join("records").read_dir().unwrap().flatten();
    assert!(left.into_iter().all(|dir| dir.path().read_dir().unwrap().count() > 0));
}
