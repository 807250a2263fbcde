//! Points of simulated devices, and studies, divided among processes that mpirun or srun starts:
//! with Debian's Open MPI, and with the environment that Slurm's manual describes.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Ended, Process, is_busy, only, processes, rdmalab, said, signal};
use rdmalab_testing::{find, skipped};
use serde_json::Value;

/// A sweep of eight points.
const SWEEP: [&str; 10] = [
    "run",
    "oneway",
    "--device",
    "sim:connectx4",
    "--size",
    "1..128*2",
    "--messages",
    "300",
    "--runs",
    "2",
];

/// A sweep of short points and of endless ones; the first one is short.
const LONG: [&str; 8] =
    ["run", "ping", "--device", "sim:ideal", "--size", "1..64*2", "--messages", "300,30M"];

/// A figure of a study.
const LONGER: &str = "--max-sge 1,4,8,16 --size 128 --messages 300000";
const STUDY: [&str; 6] = ["study", "mordkovich2013", "--device", "sim", "--figure", "max-sge"];

/// A process as srun would start it.
fn task(job: &str, rank: usize, size: usize, words: &[&str]) -> Command {
    let mut command = rdmalab(words);
    command.envs([
        ("SLURM_PROCID", &*rank.to_string()),
        ("SLURM_STEP_NUM_TASKS", &size.to_string()),
        ("SLURM_STEP_NUM_NODES", "1"),
        ("SLURM_JOB_ID", &format!("{job}-{}", std::process::id())),
        ("SLURM_STEP_ID", "0"),
    ]);
    command
}

/// So many processes as srun would start them, by rank.
fn tasks(job: &str, size: usize, words: &[&str]) -> Vec<Process> {
    (0..size).map(|rank| Process::start(&mut task(job, rank, size, words))).collect()
}

/// Waits for the end of all; only rank 0 may have printed something.
fn ends(running: Vec<Process>) -> Ended {
    let mut all = running.into_iter().map(Process::end).collect::<Vec<_>>().into_iter();
    let first = all.next().unwrap();
    for other in all {
        assert_eq!((other.code, other.stdout.as_str()), (Some(0), ""), "{other:?} {first:?}");
    }
    first
}

/// How many points each process has simulated, as rank 0 tells.
fn shares(ended: &Ended) -> Vec<usize> {
    let line = ended.stderr.lines().find_map(|line| line.strip_prefix("points simulated: "));
    let line = line.unwrap_or_else(|| panic!("{}", ended.report()));
    line.split(", ").map(|one| one.split(' ').next().unwrap().parse().unwrap()).collect()
}

/// The points of a record as they are in its file, without the times of day.
fn points(directory: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(directory.join("points.jsonl")).unwrap_or_default();
    let point = |line: &str| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        let all = value.as_object_mut().unwrap();
        assert!(all.remove("started_utc").is_some() && all.remove("elapsed_s").is_some());
        value
    };
    text.lines().map(point).collect()
}

/// Asserts that two records have the same points, samples included.
fn assert_same(one: &Path, other: &Path) {
    assert_eq!(points(one), points(other));
    let samples = |record: &Path| {
        let all = record.join("samples").read_dir().unwrap().map(|entry| entry.unwrap().path());
        let mut all: Vec<_> = all.map(|file| (file.file_name().map(Into::into), file)).collect();
        all.sort();
        let read = |(name, file): (Option<PathBuf>, PathBuf)| (name, std::fs::read(file).unwrap());
        all.into_iter().map(read).collect::<Vec<_>>()
    };
    assert_eq!(samples(one), samples(other));
}

#[test]
fn processes_share_the_points_and_one_record_comes_out() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| {
        let path = directory.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path
    };
    let (alone, led, others) = (at("alone"), at("led"), at("others"));
    for place in [&alone, &led] {
        // Only rank 0 finds the file of the profile.
        std::fs::copy("../../profiles/sim/connectx4.toml", place.join("mine.toml")).unwrap();
    }
    let mut sweep = SWEEP;
    sweep[3] = "sim:./mine.toml";
    let alone_said = said(rdmalab(&sweep).current_dir(&alone));
    let place = |rank| if rank == 0 { &led } else { &others };
    let start = |rank| Process::start(task("points", rank, 4, &sweep).current_dir(place(rank)));
    let four = ends((0..4).map(start).collect());
    assert!(alone_said.succeeded() && four.succeeded(), "{}{}", alone_said.report(), four.report());
    assert_eq!(alone_said.stdout, four.stdout);
    let record = |place: &Path| only(&place.join("rdmalab-records"));
    assert_same(&record(&alone), &record(&led));
    let shares = shares(&four);
    assert_eq!((shares.len(), shares.iter().sum::<usize>()), (4, 8), "{shares:?}");
    assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
}

#[test]
fn rounds_of_until_are_shared_too() {
    let sweep = [&SWEEP[..], &["--no-record", "--until", "median+-1%"]].concat();
    let (alone, three) = (said(&mut rdmalab(&sweep)), ends(tasks("until", 3, &sweep)));
    assert!(alone.succeeded() && three.succeeded(), "{}{}", alone.report(), three.report());
    assert_eq!(alone.stdout, three.stdout);
    // Five runs of each point.
    assert_eq!(shares(&three).iter().sum::<usize>(), 40);
}

#[test]
fn mpirun_divides_the_points() {
    let Some(mpirun) = find("mpirun") else {
        return skipped("mpirun_divides_the_points", "no mpirun (Debian: openmpi-bin)");
    };
    let sweep = [&SWEEP[..], &["--no-record", "--format", "json"]].concat();
    let mut command = Command::new(mpirun);
    command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "3"]);
    command.arg(assert_cmd::cargo::cargo_bin("rdmalab"));
    let three = said(command.args(&sweep));
    assert!(three.succeeded(), "{}", three.report());
    let points = |ended: &Ended| {
        let value: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
        value["points"].as_array().expect("points").len()
    };
    assert_eq!((points(&three), shares(&three).iter().sum()), (8, 8_usize));
}

#[test]
fn a_study_is_divided_and_goes_on_after_a_process_died() {
    let directory = tempfile::tempdir().unwrap();
    let out = |name: &str| directory.path().join(name).display().to_string();
    let (alone, three) = (out("alone"), out("three"));
    // Points that take long enough for a process to be killed at one.
    let studies = out("studies");
    let messages = ("--max-sge 1,2,3,4,7,8,15,16 --size 128 --messages 10000", LONGER);
    common::own_study("mordkovich2013", Path::new(&studies), &[messages]);
    let study = [&STUDY[..], &["--studies", &studies]].concat();
    let first = said(rdmalab(&study).args(["--out", &alone]));
    assert!(first.succeeded(), "{}", first.report());

    let study = [&study[..], &["--out", &three]].concat();
    let mut running = tasks("dies", 3, &study);
    let victim = running[2].id();
    running[0].within("rank 2 at work", |_| is_busy(victim).then_some(()));
    signal("-KILL", victim);
    running.remove(2).end();
    let ended = ends(running);
    assert_eq!(ended.code, Some(1), "{}", ended.report());
    let why = "max-sge: rank 2 on ";
    assert!(ended.stderr.contains(why) && ended.stderr.contains("--resume"), "{}", ended.report());

    let ended = ends(tasks("resumes", 3, &[&study[..], &["--resume"]].concat()));
    assert!(ended.succeeded(), "{}", ended.report());
    let part = |name: &str| only(&directory.path().join(name)).join("max-sge");
    let [mut one, mut other] = ["alone", "three"].map(|name| points(&part(name)));
    for points in [&mut one, &mut other] {
        points.retain(|point| point["cut_short"].is_null());
        points.sort_by_key(|point| point["order_index"].as_u64());
    }
    assert_eq!((one.len(), other.len()), (12, 12));
    let series = |points: &[Value]| {
        points.iter().map(|point| point["series"][0]["mean_ns"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(series(&one), series(&other));
}

#[test]
fn a_signal_keeps_what_was_measured_and_ends_all() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().display().to_string();
    let mut running = tasks("signal", 2, &[&LONG[..], &["--out", &out]].concat());
    let other = running[1].id();
    let kept = || {
        let mut records = directory.path().read_dir().unwrap();
        records.any(|one| !points(&one.unwrap().path()).is_empty()).then_some(())
    };
    running[0]
        .within("a point that is kept, and rank 1 at work", |_| kept().filter(|()| is_busy(other)));
    signal("-INT", running[0].id());
    let ended = ends(running);
    assert_eq!(ended.code, Some(1), "{}", ended.report());
    assert!(ended.stderr.contains("interrupted (what was measured of "), "{}", ended.report());
    assert!(!points(&only(directory.path())).is_empty());
}

#[test]
fn nobody_stays_when_rank_0_is_killed() {
    let mark = format!("RDMALAB_TEST_MARK=divided-{}", std::process::id());
    let (name, value) = mark.split_once('=').unwrap();
    let words = [&LONG[..], &["--no-record"]].concat();
    let start = |rank| Process::start(task("killed", rank, 2, &words).env(name, value));
    let mut running: Vec<Process> = (0..2).map(start).collect();
    let other = running[1].id();
    running[0].within("rank 1 at work", |_| is_busy(other).then_some(()));
    signal("-KILL", running[0].id());
    running.drain(..).for_each(|process| drop(process.end()));
    let mut gone = Process::start(&mut Command::new("true"));
    gone.within("the end of all", |_| processes("", &[&mark]).is_empty().then_some(()));
}

#[test]
fn a_wrong_call_ends_each_process_at_once() {
    let wrong: [(&[&str], &str); 3] = [
        (&["run", "ping", "--device", "sim:ideal", "--size", "x"], "--size"),
        (&["run", "ping", "--device", "sim:ideal", "--ranks", "3"], "2 ranks, not 3"),
        (&["study", "mordkovich2013", "--device", "soft0"], "start 2 or 5"),
    ];
    for (words, expected) in wrong {
        for rank in [0, 2] {
            let ended = said(&mut task("wrong", rank, 3, words));
            assert_eq!(ended.code, Some(2), "{}", ended.report());
            assert!(ended.stderr.contains(expected), "{}", ended.report());
        }
    }
    // A plan needs no other process.
    let plan = ["run", "ping", "--device", "sim:ideal", "--plan"];
    for rank in [0, 1] {
        let ended = said(&mut task("plan", rank, 2, &plan));
        assert_eq!((ended.code, ended.stdout.is_empty()), (Some(0), rank > 0), "{ended:?}");
    }
}

#[test]
fn a_study_on_a_device_leaves_out_what_takes_other_ranks() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().display().to_string();
    let study = ["study", "mordkovich2013", "--device", "soft0", "--quick", "--figure"];
    let more = ["clusterperf,max-sge", "--max-time", "4s", "--out", &out];
    let ended = ends(tasks("device", 2, &[&study[..], &more].concat()));
    assert!(ended.succeeded(), "{}", ended.report());
    let left = "clusterperf.read-3: it needs 5 ranks, but srun started 2";
    assert!(ended.stdout.contains(left), "{}", ended.report());
    let study = only(directory.path());
    assert_eq!(points(&study.join("max-sge")).len(), 8);
    assert_eq!(points(&study.join("clusterperf.read")).len(), 6);
    assert!(!study.join("clusterperf.read-3").exists());
}
