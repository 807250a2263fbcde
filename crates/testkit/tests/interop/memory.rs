//! Programs whose large buffers are memory that peers can map (`rdmalab exec --memory shared`).

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use rdmalab_testkit::compiled::compile;
use rdmalab_testkit::programs::{self, Ended, Process};

use crate::case::{Case, LIMIT, check_pairs};

/// What the library prints with `RDMALAB_DEBUG=1` when it maps a buffer of its peer.
const IS_MAPPED: &str = "memory of a peer is mapped here";
/// What the preload library prints when it leaves memory private.
const STAYS_PRIVATE: &str = "stays private";

/// Operations on the peer's buffers, which perftest aligns to pages.
const ONE_SIDED: [&str; 7] = [
    "ib_write_lat -n 500",
    "ib_write_bw -n 500",
    "ib_write_bw -n 100 -s 1048576",
    "ib_write_bw -n 500 -q 4",
    "ib_read_lat -n 500",
    "ib_read_bw -n 100 -s 1048576",
    "ib_atomic_lat -n 500",
];

/// Runs a program under `exec --memory shared`.
fn start(program: &str, arguments: &[&str]) -> Ended {
    let mut all = vec!["exec", "--memory", "shared", "--", program];
    all.extend(arguments);
    let all: Vec<String> = all.into_iter().map(str::to_owned).collect();
    let directory = env!("CARGO_TARGET_TMPDIR").to_owned();
    let variables = [("XDG_RUNTIME_DIR".to_owned(), directory)];
    let _turn = programs::turn();
    programs::start(programs::rdmalab(), &all, &variables).end_by(Instant::now() + LIMIT)
}

#[test]
fn memory_means_what_it_means_without_us() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let Some(program) = compile(scratch.path(), &["memory_functions.c"], &["-lpthread"]) else {
        return;
    };
    let alone = Process::start(&mut Command::new(&program)).end_by(Instant::now() + LIMIT);
    assert!(alone.succeeded() && alone.stdout.ends_with("all passed\n"), "{}", alone.report());
    let program = program.display().to_string();
    let shared = start(&program, &[]);
    assert!(shared.succeeded() && shared.stdout == alone.stdout, "{}", shared.report());
    // Limits leave less shared memory, or none. The rest is private.
    for (limit, is_short) in [("-v 4000000", false), ("-f 100000", false), ("-f 1000", true)] {
        let line = format!("ulimit {limit} && exec {program}");
        let ended = start("sh", &["-c", &line]);
        assert!(ended.succeeded() && ended.stdout == alone.stdout, "{}", ended.report());
        assert!(ended.stderr.contains(STAYS_PRIVATE) || !is_short, "{}", ended.report());
    }
}

fn judge(_: &Case, client: &Ended) -> Result<(), String> {
    match client.stderr.contains(IS_MAPPED) {
        true => Ok(()),
        false => Err("no buffer of the peer was mapped".to_owned()),
    }
}

#[test]
fn buffers_of_perftest_are_mapped_by_their_peers() {
    let library = programs::memory_library().display();
    let lines = ONE_SIDED.map(|line| format!("LD_PRELOAD={library} {line}"));
    check_pairs(&[&lines.join("\n")], false, judge);
}

#[test]
fn python_and_java_run_with_shared_memory() {
    let script = "import mmap, multiprocessing as mp, subprocess
def f(x): return len(bytes(x))
a = bytearray(10**7); m = mmap.mmap(-1, 1 << 20)
with mp.get_context('fork').Pool(3) as pool: print(pool.map(f, [10**6] * 4))
print(subprocess.check_output(['echo', 'hello']), m[5], len(a),
      open('/proc/self/maps').read().count('rdmalab-memory') > 0)";
    if programs::find("python3").is_some() {
        let ended = start("python3", &["-c", script]);
        let expected = "[1000000, 1000000, 1000000, 1000000]\nb'hello\\n' 0 10000000 True\n";
        assert!(ended.succeeded() && ended.stdout == expected, "{}", ended.report());
    } else {
        programs::skipped("memory::python", "no python3 is installed");
    }
    let Some(java) = programs::find("java") else {
        return programs::skipped("memory::java", "no java is installed");
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/memory/Buffers.java");
    let ended = start(&java.display().to_string(), &[&source.display().to_string()]);
    assert!(ended.succeeded() && ended.stdout == "7 0\n", "{}", ended.report());
}
