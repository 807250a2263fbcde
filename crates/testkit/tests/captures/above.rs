//! UCX, and Open MPI above it, captured under `rdmalab exec`, send well-formed packets.

use std::path::Path;
use std::time::{Duration, Instant};

use rdmalab_testkit::compiled::compile_with;
use rdmalab_testkit::programs::{self, Process, tshark};

use super::{Directory, LIMIT, WRONG, is_well_formed};

/// The directory for the files of `exec`. It is private: no other `rdmalab clean` removes them.
const RUNTIME: &str = env!("CARGO_TARGET_TMPDIR");
/// How long an MPI program may take on a busy machine.
const MPI_LIMIT: Duration = Duration::from_secs(300);

/// A program under `rdmalab exec`, captured.
fn start(capture: &str, tls: &str, program: &Path, arguments: &str) -> Process {
    let mut all = ["exec", "--capture", capture, "--"].map(str::to_owned).to_vec();
    all.push(program.display().to_string());
    all.extend(arguments.split_whitespace().map(str::to_owned));
    let variables = [("UCX_TLS", tls), ("XDG_RUNTIME_DIR", RUNTIME)];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    programs::start(programs::rdmalab(), &all, &variables)
}

/// Checks each capture, and that at least one of them has a packet that matches `filter`.
fn judge(directory: &Directory, what: &str, filter: &str) {
    let captures = directory.captures();
    assert!(captures.len() >= 2, "{what}: one for each process: {captures:?}");
    let mut has_filtered = false;
    for capture in &captures {
        is_well_formed(capture, what);
        let Some(strange) = tshark(capture, WRONG) else {
            return programs::skipped(what, "tshark is not installed");
        };
        assert!(strange.is_empty(), "{what}: {:?}", &strange[..strange.len().min(3)]);
        has_filtered |= tshark(capture, filter).is_some_and(|shown| !shown.is_empty());
    }
    assert!(has_filtered, "{what}: no packet with {filter}");
}

#[test]
fn ucx_is_captured_well_formed() {
    let Some(program) = programs::find("ucx_perftest") else {
        return programs::skipped("captures of ucx_perftest", "not installed");
    };
    let _turn = programs::turn();
    for (tls, test, filter) in [
        ("rc_v", "-t tag_lat -s 3000", "infiniband.bth.opcode == 0x04"),
        ("rc_v", "-t ucp_put_bw -s 5000", "infiniband.bth.opcode == 0x06"),
        ("rc_v", "-x rc_verbs -d soft0:1 -t fadd", "infiniband.atomiceth"),
        ("ud_v", "-t tag_lat", "infiniband.deth"),
    ] {
        let directory = Directory::new("ucx");
        let capture = directory.file("a.pcapng");
        let port = programs::free_port();
        let arguments = format!("-p {port} -n 100 -w 10 {test}");
        let mut server = start(&capture, tls, &program, &arguments);
        // Started only now, because building our libraries may have taken a while.
        let until = Instant::now() + LIMIT;
        assert!(server.wait_until_it_listens(port), "{}", server.end_by(until).report());
        let client = start(&capture, tls, &program, &format!("{arguments} 127.0.0.1"));
        let (client, server) = (client.end_by(until), server.end_by(until));
        let reports = format!("{}{}", client.report(), server.report());
        assert!(client.succeeded() && server.succeeded(), "{reports}");
        judge(&directory, &format!("{tls} {test}"), filter);
    }
}

#[test]
fn open_mpi_is_captured_well_formed() {
    let Some(launcher) = programs::find("mpirun") else {
        return programs::skipped("captures of mpirun", "not installed");
    };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let Some(program) = compile_with("mpicc", scratch.path(), &["mpi.c"], &[]) else { return };
    let _turn = programs::turn();
    let directory = Directory::new("mpi");
    let arguments = format!(
        "-np 2 --allow-run-as-root --oversubscribe --timeout 280 --mca pml ucx --mca osc ucx \
         --mca btl ^openib {}",
        program.display()
    );
    let capture = directory.file("a.pcapng");
    let ended = start(&capture, "self,rc_v", &launcher, &arguments);
    let ended = ended.end_by(Instant::now() + MPI_LIMIT);
    let said_so = ended.stdout.lines().last() == Some("all passed");
    assert!(ended.succeeded() && said_so, "{}", ended.report());
    judge(&directory, "mpi.c over rc_v", "infiniband.reth");
}
