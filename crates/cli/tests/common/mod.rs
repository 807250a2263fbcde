//! Code that several tests of the command share: to run it, and to keep it running until an event.
#![allow(dead_code)] // Each test uses a part.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub use rdmalab_testing::{Ended, Process};
use tempfile::TempDir;

pub fn rdmalab(arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("rdmalab"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// The only entry of a directory.
pub fn only(directory: &Path) -> PathBuf {
    let entries = directory.read_dir().unwrap();
    let found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

/// Runs `rdmalab study` to its end; records go to `out`.
pub fn study(out: &TempDir, arguments: &[&str]) -> Ended {
    let mut command = rdmalab(&["study"]);
    command.args(arguments).arg("--out").arg(out.path());
    said(&mut command)
}

/// Runs a command to its end.
pub fn said(command: &mut Command) -> Ended {
    Ended::of(command)
}

/// A run that lasts until the test ends it.
pub fn endless(transport: &str, more: &[&str]) -> Process {
    let mut command = rdmalab(&["run", "ping", "--messages", "3M", "--warm-up", "0"]);
    command.args(["--pause", "200us"]);
    Process::start(command.args(["--transport", transport]).args(more))
}

/// The workers of a run, in no order, once both measure.
pub fn workers(run: &mut Process) -> [u32; 2] {
    let path = format!("/proc/{0}/task/{0}/children", run.id());
    run.within("two workers", |_| {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let mut pids: Vec<u32> = text.split_whitespace().filter_map(|p| p.parse().ok()).collect();
        pids.sort_unstable();
        <[u32; 2]>::try_from(pids).ok().filter(|pids| pids.iter().all(|pid| is_busy(*pid)))
    })
}

/// Whether a worker has used processor time for a while, which means that it measures.
pub fn is_busy(pid: u32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = text.rsplit(')').next().unwrap_or("");
    let ticks = after_name.split_whitespace().nth(11).and_then(|t| t.parse::<u64>().ok());
    ticks.is_some_and(|ticks| ticks > 50)
}

/// Sends a signal, named as for `kill`. Small systems lack the program `kill` itself.
pub fn signal(name: &str, pid: u32) {
    use rustix::process::{Pid, Signal, kill_process};
    let signal = match name {
        "-INT" => Signal::INT,
        "-HUP" => Signal::HUP,
        "-KILL" => Signal::KILL,
        "-STOP" => Signal::STOP,
        "-TERM" => Signal::TERM,
        other => panic!("{other}?"),
    };
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

/// Processes with this text in their command line, and all these variables in their environment.
pub fn processes(word: &str, variables: &[&str]) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has = |pid: u32, file: &str, text: &str| {
        let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        text.is_empty() || String::from_utf8_lossy(&bytes).contains(text)
    };
    let is_one = |pid: &u32| {
        has(*pid, "cmdline", word) && variables.iter().all(|text| has(*pid, "environ", text))
    };
    pids.filter(is_one).collect()
}

/// Copies a shipped study into a directory of studies, with changes of its texts.
pub fn own_study(key: &str, studies: &Path, changes: &[(&str, &str)]) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies").join(key);
    let to = studies.join(key);
    std::fs::create_dir_all(&to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let text = changes.iter().fold(text, |text, (old, new)| text.replace(old, new));
        std::fs::write(to.join(path.file_name().unwrap()), text).unwrap();
    }
}
