//! The examples that the book lists run and do what the book says. The Python example that reads a
//! record is tested beside the records (`record/tests/pandas.rs`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rdmalab_testing::{Process, example};
use rdmalab_testkit::programs::{self, Ended};

const LIMIT: Duration = Duration::from_secs(60);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs a program on our library and returns what it printed.
fn run(program: &Path, arguments: &[&str], variables: &[(String, String)]) -> Ended {
    let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    let _turn = programs::turn();
    let ended = programs::start(program, &arguments, variables).end_by(Instant::now() + LIMIT);
    assert!(ended.succeeded(), "{}", ended.report());
    ended
}

fn rdmalab() -> Vec<(String, String)> {
    vec![("RDMALAB".to_owned(), programs::rdmalab().display().to_string())]
}

#[test]
fn a_verbs_program_writes_and_sends() {
    let ended = run(&example("loopback"), &[], &[]);
    let lines = "WRITE: b has \"written\"\nSEND: b received \"a message\"\n";
    assert_eq!(ended.stdout, lines, "{}", ended.report());
}

#[test]
fn a_connection_is_made_by_rdma_cm() {
    let ended = run(&example("rdma_cm"), &[], &[]);
    assert_eq!(ended.stdout, "the server received \"hello\"\n", "{}", ended.report());
}

#[test]
fn a_capture_is_read() {
    let capture = root().join("crates/trace/tests/data/read_lat.pcap");
    let program = example("read_capture");
    let ended = run(&program, &[capture.to_str().expect("a path in UTF-8")], &[]);
    let says = |what: &str| assert!(ended.stdout.contains(what), "{what}: {}", ended.report());
    says("answers after");
    says(" packets, 0 of them repeated");
}

/// The example's program contains all of `rdmalab`. Its experiment works like the others: in help,
/// plans, sweeps and records, and in the report that a plain `rdmalab` makes of the record.
#[test]
fn an_experiment_of_ones_own_is_run_and_reported() {
    let program = example("own_experiment");
    let says = |program: &Path, arguments: &str, expected: &[&str]| {
        let words: Vec<&str> = arguments.split_whitespace().collect();
        let ended = run(program, &words, &[]);
        for what in expected {
            assert!(ended.stdout.contains(what), "{what}: {}", ended.report());
        }
    };
    says(&program, "run --help", &["create_qp", "Creating and destroying a queue pair", "oneway"]);
    says(&program, "run create_qp --help", &["--max-inline <BYTES>", "[default: 0]"]);
    let sweep = "--tx-depth 16,256 --max-inline 0,64 --messages 50";
    says(&program, &format!("run create_qp {sweep} --plan"), &["4 points"]);
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let record = scratch.path().to_str().expect("a path in UTF-8");
    says(&program, &format!("run create_qp {sweep} --out {record}"), &["create", "destroy"]);
    says(programs::rdmalab(), &format!("report {record}"), &["create_qp", "256"]);
    // A plain rdmalab has no such experiment, neither to run nor to serve.
    let unknown = programs::start(programs::rdmalab(), &["run".into(), "create_qp".into()], &[]);
    let unknown = unknown.end_by(Instant::now() + LIMIT);
    assert_eq!(unknown.status.and_then(|status| status.code()), Some(2), "{}", unknown.report());
}

/// A lost request is retransmitted, and the program does not notice.
#[test]
fn a_fault_is_survived_and_seen_in_the_capture() {
    let program = example("loopback");
    let program = program.to_str().expect("a path in UTF-8");
    let ended = run(&root().join("examples/fault.sh"), &[program], &rdmalab());
    for what in ["SEND: b received \"a message\"", "repeated"] {
        assert!(ended.stdout.contains(what), "{what}: {}", ended.report());
    }
}

#[test]
fn a_program_in_python_sends() {
    // Debian's packages are seen by Debian's Python only.
    let python = Path::new("/usr/bin/python3");
    if !Path::new("/usr/lib/python3/dist-packages/pyverbs").is_dir() {
        return programs::skipped("examples/python", "python3-pyverbs is not installed");
    }
    let program = root().join("examples/python/loopback.py");
    let ended = run(python, &[program.to_str().expect("a path in UTF-8")], &[]);
    assert_eq!(ended.stdout, "soft0 received 'a message'\n", "{}", ended.report());
}

/// Cargo starts the tests of the crate by `rdmalab exec`, as its configuration says.
#[test]
fn the_tests_of_a_crate_run_on_the_soft_device() {
    if programs::find("ibv_devices").is_none() {
        return programs::skipped("examples/rust", "ibverbs-utils is not installed");
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for file in ["Cargo.toml", ".cargo/config.toml", "tests/devices.rs"] {
        let to = scratch.path().join(file);
        std::fs::create_dir_all(to.parent().expect("a directory")).expect("a directory");
        std::fs::copy(root().join("examples/rust").join(file), to).expect("a copy");
    }
    let directory = programs::rdmalab().parent().expect("a directory");
    let path = std::env::var("PATH").expect("a path for programs");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--offline"]).current_dir(scratch.path());
    // Settings of the outer cargo would come before those of the crate.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO_")) {
        cargo.env_remove(name);
    }
    cargo.env_remove("RUSTFLAGS").env("XDG_RUNTIME_DIR", scratch.path());
    cargo.env("PATH", format!("{}:{path}", directory.display()));
    let _turn = programs::turn();
    let ended = Process::start(&mut cargo).end_by(Instant::now() + LIMIT);
    let is_tested = ended.stdout.contains("finds_the_soft_device ... ok");
    assert!(ended.code == Some(0) && is_tested, "{ended:?}");
}

#[test]
fn a_c_program_is_built_with_its_makefile_and_runs() {
    const HEADER: &str = "/usr/include/infiniband/verbs.h";
    let Some(make) = programs::find("make") else {
        return programs::skipped("examples/c", "make is not installed");
    };
    if !Path::new(HEADER).exists() || programs::find("cc").is_none() {
        return programs::skipped("examples/c", "no libibverbs-dev, or no C compiler");
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for file in ["Makefile", "loopback.c"] {
        let from = root().join("examples/c").join(file);
        std::fs::copy(from, scratch.path().join(file)).expect("a copy");
    }
    let dir = scratch.path().to_str().expect("a path in UTF-8");
    let ended = run(&make, &["-C", dir, "CFLAGS=-O1 -Wall -Wextra -Werror", "run"], &rdmalab());
    assert!(ended.stdout.contains("received \"a message\"\n"), "{}", ended.report());
}
