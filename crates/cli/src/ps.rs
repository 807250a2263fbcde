//! `rdmalab ps` and `rdmalab clean`: the processes of the soft device, and the files left behind.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Args;
use rdmalab_ring::control_socket::list_live_slots;

use crate::exec::runtime;
use crate::failure::{Outcome, run as failed};
use crate::table::Rows;

/// Remove files that rdmalab left behind
#[derive(Args, Debug)]
pub struct CleanArgs {
    /// Also remove the library that `env` installed in its default directory
    #[arg(long)]
    all: bool,
}

/// A process according to `/proc`.
struct Process {
    pid: u32,
    command: String,
}

/// Prints the processes that take part in the soft device.
pub fn list() -> Outcome {
    let slots = list_live_slots().map_err(|e| failed(format!("/proc/net/unix: {e}")))?;
    if slots.is_empty() {
        outln!("no process uses the soft device in this network namespace");
        return Ok(());
    }
    let holders = holders();
    let mut rows = Rows::new(&["slot", "uid", "version", "pid", "command"], 5);
    for slot in slots {
        let (pid, command) = match holders.get(&slot.inode) {
            Some(process) => (process.pid.to_string(), process.command.clone()),
            None => ("?".to_owned(), "(of another user, or just gone)".to_owned()),
        };
        let start = [slot.slot.to_string(), slot.uid.to_string(), slot.version.to_string()];
        rows.push(&[&start[..], &[pid, command]].concat());
    }
    out!("{}", rows.text());
    Ok(())
}

/// The process that has each socket open, for the sockets that this user may see.
fn holders() -> BTreeMap<u64, Process> {
    let mut found = BTreeMap::new();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for entry in entries {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
        for inode in sockets(&entry.path()) {
            found.insert(inode, Process { pid, command: command(&entry.path()) });
        }
    }
    found
}

fn sockets(process: &Path) -> Vec<u64> {
    let entries = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let target = |entry: std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    entries.filter_map(target).collect()
}

fn command(process: &Path) -> String {
    let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(|w| String::from_utf8_lossy(w).into_owned()).collect();
    if words.is_empty() { "?".to_owned() } else { words.join(" ") }
}

/// Removes the files left behind: the directories of `exec` (the device itself leaves none), and
/// with `--all` also the library that `env` installed in its default directory.
pub fn clean(args: &CleanArgs) -> Outcome {
    let live = list_live_slots().map_err(|e| failed(format!("/proc/net/unix: {e}")))?;
    let mut removed = runtime::remove().map_err(failed)?;
    if args.all {
        removed.extend(runtime::remove_home().map_err(failed)?);
    }
    removed.iter().for_each(|path| outln!("removed {}", path.display()));
    if removed.is_empty() {
        outln!("nothing is left over");
    }
    if !live.is_empty() {
        outln!(
            "{} process(es) use the soft device (`rdmalab ps`); what they share is removed when \
             they end",
            live.len()
        );
    }
    Ok(())
}
