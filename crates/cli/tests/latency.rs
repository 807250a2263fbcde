//! `--hold-dma-latency` of the commands that measure: they hold the kernel's limit while they
//! measure and the record says so. If the kernel refuses the request, they measure nothing.

mod common;

use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Ended, Process, rdmalab, said};
use rdmalab_record::Record;
use rdmalab_testing::skipped;

const FILE: &str = "/dev/cpu_dma_latency";
const US: i32 = 17;

const STUDY: &str = "key = 'own'\ntitle = 'T'\nsource = 'S'\nhardware = 'H'\nrepeat = 1\n\
    [[figure]]\nkey = 'f'\ntitle = 'F'\n[[figure.sweep]]\n\
    run = 'ping --op send,write --size 8 --messages 400 --warm-up 0'\n";

/// The three commands, with the directories for their output.
fn commands(home: &Path) -> [Command; 3] {
    let own = home.join("studies/own");
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("plan.toml"), STUDY).unwrap();
    let mut study = rdmalab(&["study", "own", "--device", "soft0", "--studies"]);
    study.arg(home.join("studies")).arg("--out").arg(home.join("study"));
    let mut advise = rdmalab(&["advise", "--ask", "opcode", "--quick", "--device", "soft0"]);
    advise.arg("--out").arg(home.join("advise"));
    let bench = rdmalab(&["bench", "self", "--only", "SEND 32 B", "--rounds", "1", "--json"]);
    let mut all = [study, advise, bench];
    for command in &mut all {
        command.args(["--hold-dma-latency", &US.to_string()]);
    }
    all
}

/// The limit that the kernel keeps now: the least of all requests.
fn kept_us() -> Option<i32> {
    let mut bytes = [0; 4];
    fs::File::open(FILE).ok()?.read_exact(&mut bytes).ok()?;
    Some(i32::from_ne_bytes(bytes))
}

/// Runs a command, and returns the least limit that the kernel kept meanwhile.
fn watched(command: &mut Command) -> (Ended, i32) {
    let mut running = Process::start(command);
    let mut least = i32::MAX;
    running.within("its end", |child| {
        least = least.min(kept_us().unwrap_or(least));
        child.try_wait().unwrap()
    });
    (running.end(), least)
}

#[test]
fn a_wish_is_kept_while_it_measures() {
    let home = tempfile::tempdir().unwrap();
    let name = "a_wish_is_kept_while_it_measures";
    if let Err(error) = OpenOptions::new().write(true).open(FILE) {
        return skipped(name, format!("{FILE}: {error}"));
    }
    if kept_us().is_none_or(|before| before <= US) {
        return skipped(name, "somebody else asks for as little");
    }
    for mut command in commands(home.path()) {
        let (said, least) = watched(&mut command);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(least, US, "{said:?}");
        assert!(kept_us().unwrap() > US, "it is given back: {said:?}");
        if said.stdout.starts_with('{') {
            let json: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
            assert_eq!(json["conditions"]["held_dma_latency_us"], US, "{json:#}");
        }
    }
    for command in ["study", "advise"] {
        let records = records(&home.path().join(command));
        assert!(!records.is_empty(), "{command}");
        for record in records {
            assert_eq!(record.header.held_dma_latency_us, Some(US as u32), "{command}");
        }
    }
}

/// The records of the only run below a directory.
fn records(out: &Path) -> Vec<Record> {
    let run = fs::read_dir(out).unwrap().next().expect("a run").unwrap().path();
    let all = fs::read_dir(run).unwrap().map(|entry| entry.unwrap().path());
    all.filter_map(|dir| Record::open(&dir).ok()).collect()
}

/// The command in a mount namespace where a file that refuses writes covers the kernel's file.
fn without_room(command: &Command) -> Command {
    let mut other = Command::new("unshare");
    let script = format!("mount --bind /dev/full {FILE} && exec \"$0\" \"$@\"");
    other.args(["--mount", "sh", "-c", &script]).arg(command.get_program());
    other.args(command.get_args()).stdin(Stdio::null());
    other
}

#[test]
fn where_the_wish_is_refused_nothing_is_measured() {
    let home = tempfile::tempdir().unwrap();
    let may = OpenOptions::new().write(true).open(FILE).is_ok();
    let works = || said(without_room(&Command::new("true")).stdin(Stdio::null())).code == Some(0);
    if may && !works() {
        let reason = "the kernel takes the wish, and no other file can be laid over its own";
        return skipped("where_the_wish_is_refused_nothing_is_measured", reason);
    }
    for command in commands(home.path()) {
        let mut command = if may { without_room(&command) } else { command };
        let said = said(&mut command);
        assert_eq!(said.code, Some(1), "{said:?}");
        let begin = format!("rdmalab: --hold-dma-latency {US}: {FILE}: ");
        let line = said.stderr.lines().find(|line| line.starts_with(&begin));
        assert!(line.is_some_and(|line| line.contains("; ")), "and what to do: {said:?}");
        assert!(!said.stdout.contains('{'), "no results: {said:?}");
    }
    for command in ["study", "advise"] {
        assert!(!home.path().join(command).exists(), "{command} left something");
    }
}
