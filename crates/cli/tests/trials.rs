//! `rdmalab exec --repeat`: trials take turns, failures are kept, every process is ended and
//! counted, and an interrupt loses nothing.

mod common;

use std::path::{Path, PathBuf};

use common::{Ended, Process, processes, rdmalab, said, signal};
use rdmalab_experiments::shuffle;
use rdmalab_measure::Quantity;
use rdmalab_record::{Point, Record};
use rdmalab_testing::{free_port, skipped};

/// The trials of a shell's command; records go below `out`.
fn trials(out: &Path, options: &[&str], script: &str) -> Ended {
    let mut command = rdmalab(&["exec", "--out"]);
    said(command.arg(out).args(options).args(["--", "sh", "-c", script]))
}

/// The records of the only call that kept some below `out`, in the order of the conditions.
fn records(out: &Path) -> Vec<Record> {
    let below = |dir: &Path| -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> =
            std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
        all.sort();
        all
    };
    let calls = below(out);
    assert_eq!(calls.len(), 1, "{calls:?}");
    below(&calls[0]).iter().map(|dir| Record::open(dir).unwrap()).collect()
}

fn counted(points: &[Point], name: &str) -> Vec<u64> {
    points.iter().map(|point| point.count(name).unwrap_or(0)).collect()
}

#[test]
fn conditions_take_turns_and_failures_are_kept() {
    let home = tempfile::tempdir().unwrap();
    // Fails if the trial before it left something in the directory for temporary files.
    let script = "test ! -e \"$TMPDIR/mark\" || exit 9; touch \"$TMPDIR/mark\"; \
                  test \"$UCX_IB_REG_METHODS$MODE\" != odpbad || { echo oh no >&2; exit 3; }";
    let options = ["--repeat", "6", "--vary", "odp=off,on", "--vary", "env:MODE=good,bad"];
    let ended = trials(home.path(), &[&options[..], &["--seed", "4"]].concat(), script);
    assert_eq!(ended.code, Some(1), "{}", ended.report());
    assert!(ended.stderr.contains("6 of 24 trials failed"), "{}", ended.stderr);
    let records = records(home.path());
    assert_eq!(records.len(), 4);
    let names: Vec<&str> = records.iter().filter_map(|r| r.header.condition.as_deref()).collect();
    let expected = ["good", "bad"].map(|mode| ["off", "on"].map(|odp| (odp, mode)));
    for (odp, mode) in expected.concat() {
        assert!(names.contains(&&*format!("odp={odp} env:MODE={mode}")), "{names:?}");
    }
    // The order is that of the seed, and every round has every condition.
    for (order, turn) in shuffle(4, 6, 4).iter().enumerate() {
        let found = &records[turn.point].points[turn.repetition];
        assert_eq!((found.order_index, found.repetition), (order as u64, turn.repetition as u32));
        assert!(found.figure(Quantity::ExecutionTime).unwrap() > 0.0);
    }
    for record in &records {
        let is_bad = record.header.condition.as_deref() == Some("odp=on env:MODE=bad");
        let reason = is_bad.then_some("exit status 3: oh no");
        let found: Vec<_> = record.points.iter().map(|p| p.cut_short.as_deref()).collect();
        assert_eq!(found, [reason; 6], "{:?}", record.header.condition);
    }
    let table = &ended.stdout;
    assert!(table.contains("6 trials failed, and no time of them is above"), "{table}");
    assert!(table.contains("no verdict"), "all trials of a condition failed: {table}");
    assert!(table.matches("verdict\n").count() >= 2, "the others are compared: {table}");
}

#[test]
fn a_wrong_call_runs_nothing_and_keeps_nothing() {
    let home = tempfile::tempdir().unwrap();
    let mark = home.path().join("ran");
    let out = home.path().join("out");
    let script = format!("touch {}", mark.display());
    for (options, part) in [
        (&["--vary", "odp=on,off"][..], "--repeat"),
        (&["--repeat", "2", "--vary", "size=1,2"], "env:VARIABLE"),
        (&["--repeat", "2", "--vary", "odp=on", "--vary", "odp=off"], "twice"),
        (&["--repeat", "2", "--profile", "ideal", "--vary", "profile=ideal"], "twice"),
        (&["--repeat", "2", "--capture", "/dev/null"], "--capture"),
        (&["--repeat", "0"], "1..=10000"),
    ] {
        let ended = trials(&out, options, &script);
        assert_eq!(ended.code, Some(2), "{options:?}: {}", ended.report());
        assert!(ended.stderr.contains(part), "{options:?}: {}", ended.stderr);
    }
    let script = home.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, permissions).unwrap();
    for program in ["/no/such/program", "no-such-program", script.to_str().unwrap()] {
        let mut command = rdmalab(&["exec", "--repeat", "3", "--out"]);
        let ended = said(command.arg(&out).args(["--", program]));
        assert_eq!(ended.code, Some(2), "{program}: {}", ended.report());
    }
    assert!(!mark.exists(), "a trial ran");
    let kept = std::fs::read_dir(&out).map_or(0, Iterator::count);
    assert_eq!(kept, 0, "an empty record was kept");
}

#[test]
fn what_hangs_is_ended_with_all_its_processes() {
    let home = tempfile::tempdir().unwrap();
    let mark = format!("RDMALAB_TEST_TRIAL={}", home.path().display());
    // One child ignores SIGTERM, one is in a session of its own.
    let script = "trap '' TERM; sleep 97 & setsid sleep 98 & sleep 99";
    let mut command = rdmalab(&["exec", "--repeat", "2", "--timeout", "0.3s", "--out"]);
    command.env("RDMALAB_TEST_TRIAL", home.path());
    let ended = said(command.arg(home.path()).args(["--", "sh", "-c", script]));
    assert_eq!(ended.code, Some(1), "{}", ended.report());
    let points = &records(home.path())[0].points;
    assert_eq!(points.len(), 2);
    for point in points {
        assert_eq!(point.cut_short.as_deref(), Some("timed out after 0.3 s"));
        assert_eq!(point.figure(Quantity::ExecutionTime), Some(3e8));
    }
    assert_eq!(processes("sleep", &[&mark]), Vec::<u32>::new(), "they are still there");

    // A program that ends and leaves a process behind has not failed.
    let other = tempfile::tempdir().unwrap();
    let mut command = rdmalab(&["exec", "--repeat", "1", "--out"]);
    command.env("RDMALAB_TEST_TRIAL", home.path());
    let ended = said(command.arg(other.path()).args(["--", "sh", "-c", "setsid sleep 96 &"]));
    assert_eq!(ended.code, Some(0), "{}", ended.report());
    let points = &records(other.path())[0].points;
    assert_eq!(counted(points, "processes_left_behind"), [1]);
    assert_eq!(processes("sleep", &[&mark]), Vec::<u32>::new(), "it is still there");
}

/// A shell that becomes `rdmalab exec` has a job in the background, whose orphan comes to rdmalab
/// while a trial runs.
#[test]
fn a_job_of_the_shell_is_nobodys_trial() {
    let home = tempfile::tempdir().unwrap();
    let mark = format!("RDMALAB_TEST_JOB={}", home.path().display());
    let await_file = |name: &str| format!("while ! [ -e {name} ]; do sleep 0.01; done");
    let script =
        format!("({}; sleep 93 >/dev/null 2>&1 & touch orphan) & exec \"$@\"", await_file("began"));
    let trial = format!("touch began; {}; setsid sleep 92 &", await_file("orphan"));
    let program = rdmalab(&[]);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script, "sh"]).arg(program.get_program()).current_dir(home.path());
    command.env("RDMALAB_TEST_JOB", home.path());
    let ended =
        said(command.args(["exec", "--repeat", "1", "--out", "out", "--", "sh", "-c", &trial]));
    let left = processes("sleep\0", &[&mark]);
    left.iter().for_each(|process| signal("-KILL", *process));
    assert_eq!(ended.code, Some(0), "{}", ended.report());
    // That of the trial is gone, and that of the job is still there.
    assert_eq!(left.len(), 1, "{left:?}");
    let points = &records(&home.path().join("out"))[0].points;
    assert_eq!(counted(points, "processes_left_behind"), [1]);
}

#[test]
fn a_full_disk_is_no_wrong_call() {
    let out = tempfile::tempdir().unwrap();
    let mut command = rdmalab(&["exec", "--repeat", "2", "--out"]);
    // Nobody can make a directory there.
    command.env("TMPDIR", "/proc/self").env("XDG_RUNTIME_DIR", out.path());
    command.arg(out.path().join("records")).args(["--", "true"]);
    let ended = said(&mut command);
    assert_eq!(ended.code, Some(1), "{}", ended.report());
    assert!(ended.stderr.contains("a trial cannot begin"), "{}", ended.stderr);
}

#[test]
fn an_interrupt_keeps_what_was_measured() {
    for name in ["-INT", "-HUP"] {
        interrupted_by(name);
    }
}

fn interrupted_by(name: &str) {
    let home = tempfile::tempdir().unwrap();
    let mut command = rdmalab(&["exec", "--repeat", "500", "--vary", "env:X=1,2", "--out"]);
    let script = "if [ -e \"$HOLD\" ]; then sleep 95; fi";
    let hold = home.path().join("hold");
    command.env("HOLD", &hold).arg(home.path().join("out")).args(["--", "sh", "-c", script]);
    let mut running = Process::start(&mut command);
    let out = home.path().join("out");
    let lines = || {
        let call = std::fs::read_dir(&out).ok()?.next()?.ok()?.path();
        let read = |name| std::fs::read_to_string(call.join(name).join("points.jsonl")).ok();
        Some((read("1-env-X=1")?.lines().count(), read("2-env-X=2")?.lines().count()))
    };
    running.brings("three rounds", || lines().filter(|(a, b)| *a > 2 && *b > 2));
    // From now on a trial is running whenever the signal comes.
    std::fs::write(&hold, "").unwrap();
    let mark = format!("HOLD={}", hold.display());
    running.brings("a trial that waits", || processes("sleep\0", &[&mark]).pop());
    signal(name, running.id());
    let ended = running.end();
    assert_eq!(ended.code, Some(1), "{}", ended.report());
    assert!(ended.stderr.contains("interrupted after"), "{}", ended.stderr);
    assert!(
        ended.stdout.contains("env:X=2") && ended.stdout.contains("median"),
        "{}",
        ended.stdout
    );
    assert_eq!(processes("sleep", &[&mark]), Vec::<u32>::new(), "the trial goes on");
    let points: Vec<Point> = records(&out).into_iter().flat_map(|r| r.points).collect();
    assert!(points.len() >= 6 && points.iter().all(Point::is_whole), "{points:?}");
}

#[test]
fn counters_are_summed_over_all_processes() {
    let home = tempfile::tempdir().unwrap();
    let program = assert_cmd::cargo::cargo_bin("rdmalab");
    // Two workers of 100 round trips, and the command itself, which asks for the device's limits.
    let run = "run ping --device soft0 --messages 100 --warm-up 0 --runs 1 --size 64 --no-record";
    let vary = "faults=|drop 5% of send";
    let mut command = rdmalab(&["exec", "--repeat", "2", "--vary", vary, "--out"]);
    command.arg(home.path()).arg("--").arg(&program).args(run.split(' '));
    let ended = said(&mut command);
    assert_eq!(ended.code, Some(0), "{}", ended.report());
    let [plain, lossy] = &records(home.path())[..] else { panic!("two conditions") };
    for point in plain.points.iter().chain(&lossy.points) {
        let count = |name| point.count(name).unwrap();
        assert!(count("processes") >= 2 && count("queue_pairs") >= 2, "{:?}", point.counts);
        assert!(count("messages") >= 200, "{:?}", point.counts);
        assert_eq!(point.warnings, Vec::<String>::new(), "each process left its last counters");
        assert_eq!(count("failed_requests"), 0, "{:?}", point.counts);
    }
    for point in &lossy.points {
        let count = |name| point.count(name).unwrap();
        let repeated = count("repeated_packets");
        assert!(count("disturbed_packets") > 0 && repeated > 0, "{:?}", point.counts);
    }
    assert!(ended.stdout.contains("repeated packets"), "{}", ended.stdout);

    let other = tempfile::tempdir().unwrap();
    let mut command = rdmalab(&["exec", "--repeat", "1", "--memory", "shared", "--out"]);
    command.arg(other.path()).arg("--").arg(&program).args(run.split(' '));
    let ended = said(&mut command);
    assert_eq!(ended.code, Some(0), "{}", ended.report());
    let point = |home: &Path| records(home)[0].points[0].clone();
    let (private, shared) = (point(home.path()), point(other.path()));
    assert_eq!([private.fact("memory"), shared.fact("memory")], [Some("private"), Some("shared")]);
    let buffers =
        |point: &Point| ["shared_buffers", "buffers_left_private"].map(|n| point.count(n));
    assert_eq!(buffers(&private), [None, None]);
    assert!(matches!(buffers(&shared), [Some(1..), Some(0)]), "{:?}", shared.counts);
    assert!(ended.stdout.contains("are shared memory") && ended.stdout.contains("shared buffers"));
}

#[test]
fn page_faults_are_counted_over_time() {
    let home = tempfile::tempdir().unwrap();
    let program = assert_cmd::cargo::cargo_bin("rdmalab");
    let run = "run odp --device soft0 --op write --operations 8 --size 4096 --runs 2 --no-record";
    let script = format!(
        "test $RDMALAB_PROFILE = ideal && fault=none || fault=both; {} {run} --fault $fault",
        program.display()
    );
    let options = ["--repeat", "1", "--vary", "profile=connectx4,ideal"];
    let ended = trials(home.path(), &options, &script);
    assert_eq!(ended.code, Some(0), "{}", ended.report());
    let [paging, ideal] = &records(home.path())[..] else { panic!("two conditions") };
    let point = &paging.points[0];
    let series = |name: &str| {
        let found = point.series.iter().find(|series| series.label == name);
        found.map(|series| paging.samples(series).unwrap())
    };
    let faults = series("page faults").expect("there were page faults");
    // A page of each operation at both ends, in two runs.
    assert_eq!(point.count("page_faults"), Some(32));
    assert_eq!(faults.iter().sum::<f64>(), 32.0, "{faults:?}");
    assert_eq!(series("page prefetches"), None);
    let interval_ns: f64 = point.fact("page_interval_ns").unwrap().parse().unwrap();
    // The trial began somewhere in the first interval. Regions are gone when it ends.
    let end_ns = point.elapsed_s * 1e9 + interval_ns;
    assert!((faults.len() as f64 - 1.0) * interval_ns < end_ns, "{end_ns}: {faults:?}");
    let report = said(rdmalab(&["report"]).arg(&paging.dir));
    assert_eq!(report.code, Some(0), "{}", report.report());
    assert!(report.stdout.contains("execution time"), "{}", report.stdout);
    for wrong in ["in an interval", "too few samples"] {
        assert!(!report.stdout.contains(wrong), "{wrong}: {}", report.stdout);
    }
    assert!(ended.stdout.contains("A  page faults since the start |"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("B  page faults since"), "{}", ended.stdout);
    let other = &ideal.points[0];
    assert!(other.series.is_empty() && other.fact("page_interval_ns").is_none(), "{other:?}");
}

#[test]
fn a_killed_process_is_counted_and_its_loss_named() {
    if !Path::new("/usr/bin/ibv_rc_pingpong").is_file() {
        return skipped("counters of a killed process", "no ibv_rc_pingpong (ibverbs-utils)");
    }
    let home = tempfile::tempdir().unwrap();
    // A server that waits for a client is killed once it has opened the device.
    let port = free_port();
    let script = format!(
        "ibv_rc_pingpong -d soft0 -p {port} & \
         until ls \"$RDMALAB_COUNTERS\" | grep -qv new; do sleep 0.01; done; kill -9 $!; wait $!"
    );
    let ended = trials(home.path(), &["--repeat", "1"], &script);
    assert_eq!(ended.code, Some(1), "{}", ended.report());
    let point = &records(home.path())[0].points[0];
    assert_eq!(point.fact("status"), Some("exit status 137"));
    assert_eq!(
        (point.count("processes"), point.count("processes_without_end")),
        (Some(1), Some(1))
    );
    assert!(point.warnings[0].contains("without leaving their last counters"), "{point:?}");
    assert!(ended.stdout.contains("warning: 1 trial has incomplete numbers"), "{}", ended.stdout);
}
