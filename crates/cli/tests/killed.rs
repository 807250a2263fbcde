//! A run that is killed leaves a record of the points that had ended, and the record says so.

mod common;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use common::{Ended, Process, processes, rdmalab, said, signal};
use rdmalab_record::Record;
use rdmalab_testing::free_port;
use serde_json::Value;

fn report(dir: &Path, more: &[&str]) -> Ended {
    said(rdmalab(&["report"]).arg(dir).args(more))
}

/// What lies in a directory, by name.
fn names(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    found.sort();
    found
}

#[test]
fn a_killed_run_loses_the_running_point_only() {
    let out = tempfile::tempdir().unwrap();
    let place = out.path().to_str().unwrap();
    // Each point takes a tenth of a second, and sleeps most of that time.
    let words = "ping --size 8,64 --poll event --pause 1ms --messages 100 --runs 1 --repeat 100";
    let mut run = rdmalab(&["run"]);
    run.args(words.split(' ')).args(["--device", "soft0", "--out", place]);
    let mut running = Process::start(&mut run);
    running.within("two finished points", |_| {
        let dir = names(out.path()).into_iter().find(|dir| dir.join("record.json").is_file())?;
        let lines = fs::read_to_string(dir.join("points.jsonl")).ok()?.lines().count();
        (lines >= 2).then_some(())
    });
    let ranks = fs::read_to_string(format!("/proc/{0}/task/{0}/children", running.id())).unwrap();
    let ranks: Vec<u32> = ranks.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(ranks.len(), 2);
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    let [dir] = <[PathBuf; 1]>::try_from(names(out.path())).expect("the record and nothing else");
    running.within("the end of both ranks", |_| {
        let alive = processes("worker", &[]);
        (!ranks.iter().any(|pid| alive.contains(pid))).then_some(())
    });
    let record = Record::open(&dir).unwrap();
    let kept = record.points.len();
    assert!(kept >= 2 && record.unfinished_points() > 0, "{kept} points, killed too late");
    assert!(record.points.iter().all(|point| point.cut_short.is_none()));
    let missing = format!("{} of 200 planned points are missing", 200 - kept);
    let shown = report(&dir, &[]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stdout.contains(&missing), "{shown:?}");

    // As if killed while it was writing: an incomplete line, and a partial samples file.
    let mut points = File::options().append(true).open(dir.join("points.jsonl")).unwrap();
    points.write_all(b"{\"number\": 7, \"order").unwrap();
    fs::write(dir.join("samples/000007-round_trip_ns.npy.partial"), b"\x93NUMPY").unwrap();
    let torn = report(&dir, &["--format", "json"]);
    assert_eq!(torn.code, Some(0), "{torn:?}");
    let document: Value = serde_json::from_str(&torn.stdout).unwrap();
    assert_eq!(document["points"].as_array().unwrap().len(), kept);
    let warnings = document["warnings"].to_string();
    assert!(warnings.contains(&missing) && warnings.contains("is incomplete"), "{warnings}");
    let page = out.path().join("page.html");
    let written = report(&dir, &["--html", page.to_str().unwrap()]);
    assert_eq!(written.code, Some(0), "{written:?}");
    assert!(fs::read_to_string(page).unwrap().contains("is incomplete"));
    a_disk_that_lost_the_end_of_some_samples(&dir);
}

/// Exactly one line reports it in each output format.
fn a_disk_that_lost_the_end_of_some_samples(dir: &Path) {
    let cut = "samples/000000-round_trip_ns.npy";
    let samples = File::options().write(true).open(dir.join(cut)).unwrap();
    samples.set_len(samples.metadata().unwrap().len() - 12).unwrap();
    let page = dir.join("again.html");
    let page = page.to_str().unwrap();
    for (form, in_stdout) in [
        (&[][..], true),
        (&["--format", "json"], true),
        (&["--format", "markdown"], true),
        (&["--format", "csv"], false),
        (&["--format", "perftest"], false),
        (&["--html", page], false),
    ] {
        let shown = report(dir, form);
        assert_eq!(shown.code, Some(0), "{form:?}: {shown:?}");
        let place = if in_stdout { &shown.stdout } else { &shown.stderr };
        let flat = place.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [cut, "8788 bytes for 1100 samples", "summaries are still there"] {
            assert!(flat.contains(part), "{form:?}: no {part:?} in {shown:?}");
        }
        let lines = shown.stderr.lines().filter(|line| line.contains("damaged")).count();
        assert_eq!(lines, usize::from(!in_stdout), "{form:?}: {shown:?}");
    }
    assert!(fs::read_to_string(page).unwrap().contains(cut));
    a_disk_that_lost_a_point(dir);
}

/// A point that cannot be read was measured. The exit code says that it is missing.
fn a_disk_that_lost_a_point(dir: &Path) {
    let unfinished = Record::open(dir).unwrap().unfinished_points();
    let points = File::options().write(true).open(dir.join("points.jsonl")).unwrap();
    (&points).write_all(b"x").unwrap();
    assert_eq!(Record::open(dir).unwrap().unfinished_points(), unfinished);
    let shown = report(dir, &[]);
    assert_eq!(shown.code, Some(1), "{shown:?}");
    let warning = "line 1 of points.jsonl was left out";
    assert!(shown.stdout.contains("round trip") && shown.stdout.contains(warning), "{shown:?}");
    assert!(shown.stderr.contains("1 of ") && shown.stderr.contains("cannot be read"), "{shown:?}");
}

#[test]
fn a_killed_server_takes_its_worker_along_and_its_client_says_so() {
    let out = tempfile::tempdir().unwrap();
    let port = free_port().to_string();
    let address = format!("127.0.0.1:{port}");
    let mut server = Process::start(rdmalab(&["serve", "--bind", &address]).env("OF", &port));
    server.listens_on(port.parse().unwrap());
    let workers = || processes("worker", &[&format!("OF={port}")]);
    let words = "ping --poll event --pause 1ms --messages 100 --warm-up 0 --runs 1 --repeat 10000";
    let mut client = rdmalab(&["run"]);
    client.args(words.split(' ')).args(["--device", "soft0", "--out"]).arg(out.path());
    let mut client = Process::start(client.arg(&address));
    client.within("two finished points", |_| {
        let dir = names(out.path()).into_iter().find(|dir| dir.join("record.json").is_file())?;
        let lines = fs::read_to_string(dir.join("points.jsonl")).ok()?.lines().count();
        (lines >= 2).then_some(())
    });
    assert_eq!(workers().len(), 1);
    signal("-KILL", server.id());
    server.child.wait().unwrap();
    // Neither the client nor the server waits for the 10000 runs to end.
    let ended = client.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("lost the server that started it"), "{ended:?}");
    assert!(ended.stderr.contains("rank 1"), "{ended:?}");
    server.within("the end of the worker", |_| workers().is_empty().then_some(()));
    let [dir] = <[PathBuf; 1]>::try_from(names(out.path())).expect("the record and nothing else");
    assert!(Record::open(&dir).unwrap().points.len() >= 2);
    assert!(ended.stderr.contains("kept"), "{ended:?}");
}

#[test]
fn what_a_run_leaves_that_was_killed_at_its_begin_is_explained_and_removed() {
    let out = tempfile::tempdir().unwrap();
    let begun = |name: &str, age: Duration| {
        let dir = out.path().join(name);
        fs::create_dir_all(dir.join("samples")).unwrap();
        fs::write(dir.join("environment.json"), "{}").unwrap();
        File::open(&dir).unwrap().set_modified(SystemTime::now() - age).unwrap();
        dir
    };
    let hour = Duration::from_secs(3600);
    let left = begun("rdmalab-ping-20260102T030405Z.begun", hour);
    // One that was made just now, one whose program holds the lock, and one with an unknown file.
    let young = begun("rdmalab-ping-20260102T030406Z.begun", Duration::ZERO);
    let held = begun("rdmalab-ping-20260102T030407Z.begun", hour);
    let holder = File::open(&held).unwrap();
    holder.lock().unwrap();
    let foreign = begun("rdmalab-ping-20260102T030408Z.begun", hour);
    fs::write(foreign.join("thesis.tex"), "").unwrap();
    File::open(&foreign).unwrap().set_modified(SystemTime::now() - hour).unwrap();

    let explained = report(&left, &[]);
    assert_eq!(explained.code, Some(2), "{explained:?}");
    assert!(explained.stderr.contains("a run was killed while it made this"), "{explained:?}");
    assert!(explained.stderr.contains("remove it"), "{explained:?}");
    let words = ["--messages", "10", "--warm-up", "0", "--runs", "1", "--device", "soft0"];
    let next = said(rdmalab(&["run", "ping", "--out"]).arg(out.path()).args(words));
    assert_eq!(next.code, Some(0), "{next:?}");
    assert!(
        next.stderr.contains(&format!("removed {}, which a killed run", left.display())),
        "{next:?}"
    );
    assert_eq!(next.stderr.matches("removed ").count(), 1, "{next:?}");
    let there = names(out.path());
    assert!([&young, &held, &foreign].iter().all(|dir| there.contains(dir)), "{there:?}");
    assert_eq!(there.len(), 4, "{there:?}");
}

/// A limit on the size of files stands for a full disk. The ignored signal makes writes fail.
#[test]
fn what_does_not_fit_on_the_disk_is_still_shown() {
    let out = tempfile::tempdir().unwrap();
    let script = r#"trap "" XFSZ; ulimit -f 8; exec "$@""#;
    let run = |messages: &str| {
        let program = rdmalab(&[]);
        let words = ["run", "ping", "--device", "sim:ideal", "--size", "8,64"];
        let mut command = std::process::Command::new("/bin/sh");
        command.args(["-c", script, "sh"]).arg(program.get_program()).args(words);
        command.args(["--warm-up", "0", "--messages", messages, "--out"]).arg(out.path());
        said(&mut command)
    };
    // 160 KB of samples do not fit into 4 KiB: no point can be kept.
    let none = run("20000");
    assert_eq!(none.code, Some(1), "{none:?}");
    assert!(none.stdout.contains("round trip") && none.stdout.contains("20 000"), "{none:?}");
    assert!(none.stderr.contains("0 finished points are kept there"), "{none:?}");
    assert!(none.stderr.contains("what was measured of 1 of 2 points is above"), "{none:?}");
    assert!(!none.stderr.contains("kept in"), "{none:?}");
    assert!(names(out.path()).is_empty(), "{:?}", names(out.path()));
}
