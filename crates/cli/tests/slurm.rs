//! Ranks that a real `srun` starts. The cluster is one node: ordinary processes of this test with
//! their own ports, keys and directories. Needs root, as slurmd does.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Ended, Process, said, signal};
use rdmalab_testing::{find, free_port, skipped};
use serde_json::Value;
use tempfile::TempDir;

/// A cluster; dropping this ends its processes.
struct Slurm {
    config: PathBuf,
    _running: Vec<Process>,
    _directory: TempDir,
}

impl Slurm {
    /// `None`, with a message, if it is not installed.
    fn start(test: &str) -> Option<Self> {
        let names = ["munged", "slurmctld", "slurmd", "srun", "sinfo"];
        if let Some(missing) = names.iter().find(|name| find(name).is_none()) {
            skipped(test, format!("no {missing} (Debian: slurm-wlm, munge)"));
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            skipped(test, "slurmd needs root");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let config = at("slurm.conf");
        std::fs::write(&config, text(directory.path())).unwrap();
        std::fs::write(at("key"), "not a secret, and long enough for munge: 0123456789").unwrap();
        private(&at("key"));
        let word = |option: &str, name: &str| format!("--{option}={}", at(name).display());
        let start = |name: &str, words: &[String]| {
            let mut command = Command::new(find(name).expect("it was there"));
            Process::start(command.args(words).env("SLURM_CONF", &config))
        };
        let munge = [
            "--foreground".to_owned(),
            "--force".to_owned(),
            word("key-file", "key"),
            word("socket", "socket"),
            word("pid-file", "munged.pid"),
            word("log-file", "munged.log"),
            word("seed-file", "munged.seed"),
        ];
        let mut running = vec![start("munged", &munge)];
        let socket = at("socket");
        running[0].brings("socket of munge", || socket.exists().then_some(()));
        running.push(start("slurmctld", &["-D".to_owned()]));
        running.push(start("slurmd", &["-D".to_owned()]));
        let mut slurm = Self { config, _running: running, _directory: directory };
        slurm.wait_until_idle();
        Some(slurm)
    }

    fn wait_until_idle(&mut self) {
        let mut command = self.command("sinfo");
        command.args(["--noheader", "--format", "%t"]);
        let slurmctld = &mut self._running[1];
        slurmctld
            .brings("idle node", || (said(&mut command).stdout.trim() == "idle").then_some(()));
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(find(name).expect("it was there"));
        command.env("SLURM_CONF", &self.config);
        command
    }

    fn srun(&self, ranks: usize, words: &[&str]) -> Command {
        self.srun_on("soft0", ranks, words)
    }

    fn srun_on(&self, device: &str, ranks: usize, words: &[&str]) -> Command {
        let mut command = self.command("srun");
        command.args(["--ntasks", &ranks.to_string()]);
        command.arg(assert_cmd::cargo::cargo_bin("rdmalab")).args(words);
        command.args(["--warm-up", "0", "--no-record", "--device", device]);
        command
    }
}

/// The configuration of a cluster that is this machine.
fn text(directory: &Path) -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name = name.split('.').next().unwrap_or("localhost");
    let at = |file: &str| directory.join(file).display().to_string();
    let (control, node) = (free_port(), free_port());
    [
        "ClusterName=test".to_owned(),
        format!("SlurmctldHost={name}(127.0.0.1)"),
        format!("SlurmctldPort={control}"),
        format!("SlurmdPort={node}"),
        "AuthType=auth/munge".to_owned(),
        "CredType=cred/munge".to_owned(),
        format!("AuthInfo=socket={}", at("socket")),
        "SlurmUser=root".to_owned(),
        format!("StateSaveLocation={}", at("state")),
        format!("SlurmdSpoolDir={}", at("spool")),
        format!("SlurmctldPidFile={}", at("slurmctld.pid")),
        format!("SlurmdPidFile={}", at("slurmd.pid")),
        format!("SlurmctldLogFile={}", at("slurmctld.log")),
        format!("SlurmdLogFile={}", at("slurmd.log")),
        "ProctrackType=proctrack/linuxproc".to_owned(),
        "TaskPlugin=task/none".to_owned(),
        "SelectType=select/cons_tres".to_owned(),
        "SelectTypeParameters=CR_CPU".to_owned(),
        // More CPUs than the machine may have; no test here measures time.
        "SlurmdParameters=config_overrides".to_owned(),
        format!("NodeName={name} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN"),
        "PartitionName=all Nodes=ALL Default=YES State=UP".to_owned(),
        String::new(),
    ]
    .join("\n")
}

/// Makes a file readable by its owner only, as munge demands for its key.
fn private(file: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
}

fn assert_measured(found: &Ended) {
    assert_eq!(found.code, Some(0), "{found:?}");
    let value: Value = serde_json::from_str(&found.stdout).expect("one JSON document");
    assert_eq!(value["points"].as_array().expect("points").len(), 1, "{found:?}");
}

#[test]
fn srun_starts_the_ranks_and_ends_them() {
    let Some(slurm) = Slurm::start("srun_starts_the_ranks_and_ends_them") else { return };
    let ping = ["run", "ping", "--messages", "60", "--format", "json"];
    assert_measured(&said(&mut slurm.srun(2, &ping)));
    // Started as one task, it starts the ranks itself.
    assert_measured(&said(&mut slurm.srun(1, &ping)));
    let found = said(&mut slurm.srun(3, &ping));
    assert!(found.stderr.contains("rdmalab: srun: ping needs exactly 2 ranks, not 3"), "{found:?}");

    // Processes share simulated points, however many ranks each point has.
    let sweep = ["run", "ping", "--messages", "60", "--format", "json", "--size", "1..4*2"];
    let found = said(&mut slurm.srun_on("sim:ideal", 3, &sweep));
    assert_eq!(found.code, Some(0), "{found:?}");
    let value: Value = serde_json::from_str(&found.stdout).expect("one JSON document");
    assert_eq!(value["points"].as_array().expect("points").len(), 3, "{found:?}");
    assert!(found.stderr.contains("points simulated: 1 by process 0 on "), "{found:?}");

    let endless = ["run", "ping", "--messages", "3M", "--pause", "200us"];
    let mut running = Process::start(&mut slurm.srun(2, &endless));
    let rank = running.within("rank 1 at work", |child| {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        let cluster = slurm.config.to_str().expect("a name");
        let found = common::processes("--pause", &[cluster, "SLURM_PROCID=1"]);
        found.into_iter().find(|pid| common::is_busy(*pid))
    });
    signal("-KILL", rank);
    let found = running.end();
    assert_ne!(found.code, Some(0), "{found:?}");
    assert!(found.stderr.contains("rank 1 on "), "{found:?}");
}
