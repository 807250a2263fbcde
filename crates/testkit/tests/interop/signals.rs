//! Programs with handlers for SIGSEGV and SIGBUS, under `rdmalab exec`: their handlers see what
//! they see without us, and our handler still catches the faults of our copies.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use rdmalab_testkit::compiled::compile;
use rdmalab_testkit::programs::{self, Ended, Process};

use crate::case::LIMIT;
use crate::ucx::{is_in_front, start};

/// The sources of the programs in other languages.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/handlers").join(name)
}

/// Runs a program under `exec`, and tells whether our handler was in front of the program's.
pub(crate) fn run(program: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> (Ended, bool) {
    // Also where the whole suite runs without the preload library.
    let mut all = vec![("RDMALAB_SIGNALS".to_owned(), "on".to_owned())];
    all.extend(variables.iter().map(|(name, value)| (name.to_string(), value.to_string())));
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    let _turn = programs::turn();
    let ended = start(program, &arguments, &all).end_by(Instant::now() + LIMIT);
    let is_in_front = is_in_front(&ended);
    (ended, is_in_front)
}

/// Runs a program without us.
fn run_alone(program: &Path, arguments: &[&str]) -> Ended {
    let mut command = Command::new(program);
    command.args(arguments);
    Process::start(&mut command).end_by(Instant::now() + LIMIT)
}

/// `unmapped_copy.c` as a shared library, with these other sources and options.
pub(crate) fn library(scratch: &Path, more: &[&str]) -> Option<PathBuf> {
    let options = [&["-shared", "-fPIC"], more, &["-libverbs"]].concat();
    compile(scratch, &["unmapped_copy.c"], &options)
}

#[test]
fn a_program_with_handlers_sees_what_it_sees_without_us() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let sources = ["signal_handlers.c", "unmapped_copy.c"];
    let Some(program) = compile(scratch.path(), &sources, &["-libverbs", "-lpthread"]) else {
        return;
    };
    let alone = run_alone(&program, &["plain"]);
    assert!(alone.succeeded() && alone.stdout.ends_with("all passed\n"), "{}", alone.report());
    for lane in ["on", "off"] {
        // At the end the program sets a handler that we do not see.
        let (ended, in_front) = run(&program, &["device"], &[("RDMALAB_LANE", lane)]);
        assert!(ended.succeeded() && !in_front, "{}", ended.report());
        assert_eq!(ended.stdout, alone.stdout);
    }
    // Without the preload library the program's handlers stay alone.
    let variables = [("RDMALAB_SIGNALS", "off"), ("SIGNALS_NOT_PRELOADED", "1")];
    let (ended, _) = run(&program, &["device"], &variables);
    assert!(ended.succeeded(), "{}", ended.report());
}

#[test]
fn handlers_survive_libraries_forks_and_executions_and_crashes_dump_core() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let sources = ["signal_torture.c", "unmapped_copy.c"];
    let libraries = ["-libverbs", "-lpthread"];
    let Some(program) = compile(scratch.path(), &sources, &libraries) else { return };
    let options = ["-shared", "-fPIC"];
    let Some(library) = compile(scratch.path(), &["signal_library.c"], &options) else { return };
    let library = library.display().to_string();
    let alone = run_alone(&program, &[&library]);
    assert!(alone.succeeded() && alone.stdout.ends_with("all passed\n"), "{}", alone.report());
    if let Some(reason) = alone.stderr.lines().next() {
        programs::skipped("signals::core", reason);
    }
    let memory = programs::memory_library().display().to_string();
    for variables in [&[][..], &[("RDMALAB_LANE", "off")], &[("LD_PRELOAD", &memory)]] {
        let (ended, in_front) = run(&program, &[&library, "device"], variables);
        assert!(ended.succeeded() && in_front, "{}", ended.report());
        assert_eq!(ended.stdout, alone.stdout, "{variables:?}");
    }
}

#[test]
fn ucx_handles_signals_and_copies_stay_fast() {
    let Some(program) = programs::find("ucx_perftest") else {
        return programs::skipped("signals::ucx", "ucx_perftest is not installed");
    };
    for (switch, expected) in [("on", true), ("off", false)] {
        // UCX sets its handlers when it is loaded. Alone, it registers memory with the device and
        // sends to itself.
        let arguments = ["-t", "ucp_put_lat", "-l", "-n", "100", "-w", "10"];
        let variables =
            [("RDMALAB_SIGNALS", switch), ("UCX_TLS", "rc_v"), ("UCX_NET_DEVICES", "soft0:1")];
        let (ended, in_front) = run(&program, &arguments, &variables);
        assert!(ended.succeeded() && in_front == expected, "{}", ended.report());
    }
}

#[test]
fn go_turns_nil_pointers_into_panics() {
    let Some(go) = programs::find("go") else {
        return programs::skipped("signals::go", "no go is installed");
    };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let c_sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/c");
    for name in ["unmapped_copy.c", "unmapped_copy.h"] {
        std::fs::copy(c_sources.join(name), scratch.path().join(name)).expect("a copy");
    }
    std::fs::copy(source("handlers.go"), scratch.path().join("handlers.go")).expect("a copy");
    std::fs::write(scratch.path().join("go.mod"), "module handlers\n\ngo 1.18\n").expect("a file");
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        return programs::skipped("signals::go", "libibverbs-dev is not installed");
    }
    let built = Command::new(go)
        .args(["build", "-o", "handlers", "."])
        .current_dir(scratch.path())
        .output()
        .expect("go runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let (ended, in_front) = run(&scratch.path().join("handlers"), &[], &[]);
    // With cgo, Go calls the C library's `sigaction`.
    let passed = ended.succeeded() && ended.stdout == "all passed\n";
    assert!(passed && in_front, "{}", ended.report());
}

#[test]
fn pythons_fault_handler_reports_the_crash() {
    let Some(python) = programs::find("python3") else {
        return programs::skipped("signals::python", "no python3 is installed");
    };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let Some(library) = library(scratch.path(), &[]) else { return };
    let script = source("handlers.py").display().to_string();
    let alone = run_alone(&python, &[&script]);
    let library = library.display().to_string();
    let (ended, in_front) = run(&python, &[&script, &library], &[]);
    for ended in [&alone, &ended] {
        let reported = ended.stderr.contains("Fatal Python error: Segmentation fault");
        assert!(reported && ended.stdout == "before the crash\n", "{}", ended.report());
    }
    assert!(in_front && ended.status == alone.status, "{}", ended.report());
}
