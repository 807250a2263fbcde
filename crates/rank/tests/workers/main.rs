//! Groups of real processes: this test program starts itself as the worker.

mod alone;
mod clocks;
mod faults;
mod jobs;
mod joined;
mod orphans;
mod remote;
mod vanish;
mod work;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rdmalab_rank::process::{RankSpec, WorkerCommand, WorkerGroup, WorkerGroupError};
use rdmalab_testing::WaitLimit;

/// Marks worker processes.
const MARK: &str = "RDMALAB_TEST_RANK";
/// Marks launcher processes; its value is a file to write to.
const LAUNCHER: &str = "RDMALAB_TEST_LAUNCHER";
/// Marks the process whose network is removed.
const VANISH: &str = "RDMALAB_TEST_VANISH";
/// A limit that only a hang reaches.
const LONG: Duration = Duration::from_secs(60);

/// The worker process. It does nothing when run as a test.
#[test]
fn worker_process() {
    if std::env::var_os(MARK).is_some() {
        joined::worker();
        let stream = rdmalab_rank::process::connection().unwrap();
        rdmalab_rank::process::serve_both(None, stream, work::run, work::alone).unwrap();
        std::process::exit(0);
    }
    // Checked second, because workers inherit these variables from their launcher.
    if std::env::var_os(VANISH).is_some() {
        vanish::isolated();
    }
    if let Some(file) = std::env::var_os(LAUNCHER) {
        orphans::launcher(Path::new(&file));
    }
}

fn command() -> WorkerCommand {
    let args = ["--exact", "worker_process", "--nocapture", "--test-threads=1"];
    let mut command = WorkerCommand::this_program(args).unwrap();
    command.envs.push((MARK.into(), "1".into()));
    command
}

fn local(count: usize) -> WorkerGroup {
    WorkerGroup::start(&vec![RankSpec::local(command()); count]).unwrap()
}

/// Runs the same job on all ranks.
fn run(
    workers: &mut WorkerGroup,
    job: &str,
    patience: Duration,
) -> Result<Vec<String>, WorkerGroupError> {
    let jobs = vec![job; workers.infos().count()];
    run_each(workers, &jobs, patience)
}

fn run_each(
    workers: &mut WorkerGroup,
    jobs: &[&str],
    patience: Duration,
) -> Result<Vec<String>, WorkerGroupError> {
    let jobs: Vec<Vec<u8>> = jobs.iter().map(|j| j.as_bytes().to_vec()).collect();
    let results = workers.run(&jobs, patience, &AtomicBool::new(false), |_| {})?;
    Ok(results.into_iter().map(|r| String::from_utf8(r).unwrap()).collect())
}

/// Waits until `is_so` returns true; fails with `what` if it never does.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let found = WaitLimit::of(LONG).until(|| is_so().then_some(()));
    assert!(found.is_some(), "waited for: {what}");
}

/// Whether the process exists and is no zombie.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    let state = stat.ok().and_then(|s| s.rsplit_once(')').map(|(_, rest)| rest.to_owned()));
    state.is_some_and(|s| !s.trim_start().starts_with(['Z', 'X']))
}

fn send_signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}
