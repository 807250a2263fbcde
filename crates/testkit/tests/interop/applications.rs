//! Applications of other projects, unmodified, under `rdmalab exec`: fio, iperf3 over rsockets,
//! MPICH, and the tests of a Rust crate.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rdmalab_testkit::programs::{self, Ended};

use crate::case::LIMIT;
use crate::ucx::{are_signals_interposed, is_in_front, start};

/// How long an MPI program may take on a busy machine.
const MPI_LIMIT: Duration = Duration::from_secs(300);

fn installed(name: &str) -> Option<std::path::PathBuf> {
    let path = programs::find(name);
    if path.is_none() {
        programs::skipped(name, "not installed");
    }
    path
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// fio's rdma engine reports the rejection of a client that came before the server listened, and
/// exits with 0: what the server counted decides.
///
/// fio connects with an RNR retry count of 0. A SEND that meets an empty receive queue ends its
/// sender, as fio's source says. So the SENDs are as many as the receives that fio posts first.
#[test]
fn fio_moves_data_by_write_and_send() {
    let Some(fio) = installed("fio") else { return };
    for (verb, size, moved) in [("write", "4m", "io=4096KiB"), ("send", "1m", "io=1024KiB")] {
        let _turn = programs::turn();
        let port = programs::free_port();
        let common = format!("--ioengine=rdma --port={port} --iodepth=16 --bs=64k --size={size}");
        let receiver = format!("--name=receiver {common} --rw=read");
        let mut server = start(&fio, &words(&receiver), &[]);
        programs::wait_until_bound(&mut server, port);
        let sender =
            format!("--name=sender {common} --hostname=127.0.0.1 --verb={verb} --rw=write");
        let until = Instant::now() + LIMIT;
        let client = start(&fio, &words(&sender), &[]).end_by(until);
        let server = server.end_by(until);
        let both = format!("{}{}", client.report(), server.report());
        assert!(client.succeeded() && server.succeeded(), "{verb}\n{both}");
        assert!(client.stdout.contains(moved), "{verb}\n{both}");
    }
}

/// Debian's preload library turns the sockets of a program into rsockets, which are our
/// `librdmacm.so.1`'s.
const RSOCKETS: &str = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so";

/// What an rsocket buffers at both ends, 128 KiB each, and iperf3's rounding.
const BUFFERED_MBYTES: f64 = 0.25 + 0.01;

#[test]
fn iperf3_runs_over_rsockets() {
    let Some(iperf) = installed("iperf3") else { return };
    if !Path::new(RSOCKETS).exists() {
        return programs::skipped("iperf3", "rsocket/librspreload.so of librdmacm1 is missing");
    }
    let _turn = programs::turn();
    let preload = [("LD_PRELOAD".to_owned(), RSOCKETS.to_owned())];
    let pair = || {
        let port = programs::free_port();
        let mut server = start(&iperf, &words(&format!("-s -1 -p {port}")), &preload);
        programs::wait_until_bound(&mut server, port);
        let client = start(&iperf, &words(&format!("-c 127.0.0.1 -p {port} -n 8M")), &preload);
        Some([server, client])
    };
    let Some(ends) = programs::connected(pair, LIMIT, LIMIT) else { return };
    assert!(ends.client.succeeded() && ends.server.succeeded(), "{}", ends.report());
    let moved = |side| mbytes(&ends.client.stdout, side).unwrap_or(0.0);
    // The client may send a block more than it was asked for before it stops. The server stops to
    // read when the client says so, and leaves what the buffers of the stream still hold.
    assert!(moved("sender") >= 8.0, "{}", ends.report());
    assert!(moved("receiver") >= moved("sender") - BUFFERED_MBYTES, "{}", ends.report());
    assert!(ends.server.stdout.contains("receiver"), "{}", ends.report());
}

/// The MBytes in the line of iperf3's table that ends with `side`.
fn mbytes(table: &str, side: &str) -> Option<f64> {
    let line = table.lines().find(|line| line.trim_end().ends_with(side))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let unit = words.iter().position(|word| *word == "MBytes")?;
    words.get(unit.checked_sub(1)?)?.parse().ok()
}

/// Debian's MPICH uses UCX. Open MPI may be installed beside it, so the names have suffixes.
#[test]
fn mpich_over_ucx() {
    let (Some(compiler), Some(launcher)) = (installed("mpicc.mpich"), installed("mpiexec.mpich"))
    else {
        return;
    };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = scratch.path().join("mpi");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/c/mpi.c");
    let mut compile = Command::new(compiler);
    compile.args(["-w", "-O1", "-o"]).arg(&program).arg(source);
    let built = Ended::of(&mut compile);
    assert!(built.succeeded(), "{}", built.report());
    for transports in ["self,rc_v", "self,ud_v"] {
        let variables = [("UCX_TLS", transports), ("UCX_NET_DEVICES", "soft0:1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let arguments = words(&format!("-n 2 {}", program.display()));
        let _turn = programs::turn();
        let ended = start(&launcher, &arguments, &variables).end_by(Instant::now() + MPI_LIMIT);
        let said_so = ended.stdout.lines().last() == Some("all passed");
        let is_in_front = is_in_front(&ended) || !are_signals_interposed(&variables);
        assert!(ended.succeeded() && said_so && is_in_front, "{transports}\n{}", ended.report());
    }
}

/// The version of the crate `sideway` whose tests run.
const SIDEWAY: &str = "0.4.3";
const SIDEWAY_TESTS: [&str; 5] =
    ["test_qp", "test_cq", "test_mr_and_cq", "test_post_send", "test_atomic"];

/// Rust programs find the verbs by the crate `sideway`, whose own tests use all kinds of requests.
/// They are built from the published source, which takes minutes.
#[test]
fn the_tests_of_sideway() {
    let name = "the tests of sideway";
    if std::env::var_os("RDMALAB_SIDEWAY").is_none() {
        return programs::skipped(name, "set RDMALAB_SIDEWAY=1 to build them (two minutes)");
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let Some(source) = published(scratch.path(), "sideway", SIDEWAY) else {
        return programs::skipped(name, "the crate cannot be had");
    };
    let mut build = Command::new("cargo");
    build.args(["test", "--no-run", "--message-format", "json", "--target-dir"]);
    build.arg(scratch.path().join("target")).current_dir(source);
    build.env("CARGO_PROFILE_DEV_DEBUG", "0");
    for test in SIDEWAY_TESTS {
        build.args(["--test", test]);
    }
    let built = Ended::of(&mut build);
    assert!(built.succeeded(), "{}", built.report());
    let programs_built = built.stdout.lines().filter_map(|line| {
        let (_, rest) = line.split_once("\"executable\":\"")?;
        rest.split('"').next()
    });
    let mut count = 0;
    for program in programs_built {
        let _turn = programs::turn();
        let ended = start(Path::new(program), &[], &[]).end_by(Instant::now() + LIMIT);
        assert!(ended.succeeded(), "{}", ended.report());
        count += 1;
    }
    assert_eq!(count, SIDEWAY_TESTS.len(), "{}", built.stdout);
}

/// The source of a published crate in a directory that can be written to; `None` without a network.
fn published(scratch: &Path, name: &str, version: &str) -> Option<std::path::PathBuf> {
    let manifest = format!(
        "[package]\nname = \"fetch\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
         [dependencies]\n{name} = \"={version}\"\n"
    );
    std::fs::create_dir_all(scratch.join("fetch/src")).expect("a directory");
    std::fs::write(scratch.join("fetch/src/lib.rs"), "").expect("a file");
    std::fs::write(scratch.join("fetch/Cargo.toml"), manifest).expect("a file");
    let mut vendor = Command::new("cargo");
    vendor.args(["vendor", "--quiet", "--versioned-dirs"]).arg(scratch.join("vendor"));
    let fetched = Ended::of(vendor.current_dir(scratch.join("fetch")));
    fetched.succeeded().then(|| scratch.join(format!("vendor/{name}-{version}")))
}
