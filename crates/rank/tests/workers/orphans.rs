//! Launchers that are killed: their workers end, whatever they are doing.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use rdmalab_rank::process::{LaunchMethod, RankSpec, WorkerGroup};
use rdmalab_testing::Process;

use crate::remote::Serving;
use crate::{LAUNCHER, LONG, MARK, command, is_alive, send_signal, wait_until};

/// The address of a server that provides the launcher's second rank.
const SERVER: &str = "RDMALAB_TEST_SERVER";

/// A launcher: one rank spins through the rank's methods, one in its own loop, and two wait.
pub fn launcher(file: &Path) -> ! {
    let mut specs = vec![RankSpec::local(command()); 4];
    if let Some(address) = std::env::var_os(SERVER) {
        specs[1].place = LaunchMethod::Remote(address.into_string().unwrap());
    }
    let mut workers = WorkerGroup::start(&specs).unwrap();
    let pids: Vec<String> = workers.infos().map(|i| i.pid.to_string()).collect();
    let deaf = format!("deaf {}", file.with_extension("deaf").display());
    let jobs = ["spin", &deaf, "barrier", "sleep"].map(|j| j.as_bytes().to_vec());
    std::fs::write(file, pids.join(" ")).unwrap();
    let _ = workers.run(&jobs, LONG, &AtomicBool::new(false), |_| {});
    std::process::exit(1);
}

/// Workers of a launcher; dropping this kills those that are left.
struct Orphans(Vec<u32>);

impl Drop for Orphans {
    fn drop(&mut self) {
        for &pid in self.0.iter().filter(|&&p| is_alive(p)) {
            send_signal(pid, rustix::process::Signal::KILL);
        }
    }
}

fn kill_launcher_of(server: Option<String>) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pids");
    let this = command();
    let mut program = Command::new(&this.program);
    program.args(&this.args).env(LAUNCHER, &file).env_remove(MARK);
    program.envs(server.map(|s| (OsString::from(SERVER), s)));
    let mut launcher = Process::start(&mut program);
    let is_there = || file.with_extension("deaf").exists().then_some(());
    launcher.brings("work of all ranks", is_there);
    let pids = std::fs::read_to_string(&file).unwrap();
    let orphans = Orphans(pids.split(' ').map(|p| p.parse().unwrap()).collect());
    assert!(orphans.0.len() == 4 && orphans.0.iter().all(|&p| is_alive(p)));
    launcher.kill();
    wait_until("the workers' end", || !orphans.0.iter().any(|&p| is_alive(p)));
}

#[test]
fn workers_end_when_their_launcher_is_killed() {
    kill_launcher_of(None);
}

#[test]
fn a_servers_worker_ends_when_the_client_is_killed_and_the_server_stays() {
    let serving = Serving::start(16);
    for _ in 0..2 {
        kill_launcher_of(Some(serving.address()));
    }
    serving.check();
}
