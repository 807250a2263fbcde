//! `rdmalab ps` and `rdmalab clean`: the processes of the soft device, and the files left behind.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use rdmalab_measure::text::plural;
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
    /// Remove the files even if processes use them
    #[arg(long)]
    force: bool,
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
            None => ("?".to_owned(), "(of another user, or it has just ended)".to_owned()),
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
/// with `--all` also the library that `env` installed in its default directory. Refuses while a
/// process has one of them mapped, unless forced.
pub fn clean(args: &CleanArgs) -> Outcome {
    let live = list_live_slots().map_err(|e| failed(format!("/proc/net/unix: {e}")))?;
    let mut removed = runtime::made().map_err(failed)?;
    let home = if args.all { runtime::home() } else { None };
    let users = users(removed.iter().chain(&home));
    if !users.is_empty() && !args.force {
        let shown: Vec<String> =
            users.iter().map(|user| format!("  {} {}", user.pid, user.command)).collect();
        return Err(failed(format!(
            "clean: nothing was removed, because processes use the libraries:\n{}\nend them, or \
             use --force: they keep running, but programs that they start will not find the \
             libraries",
            shown.join("\n")
        )));
    }
    for directory in &removed {
        std::fs::remove_dir_all(directory)
            .map_err(|e| failed(format!("{}: {e}", directory.display())))?;
    }
    if args.all {
        removed.extend(runtime::remove_home().map_err(failed)?);
    }
    removed.iter().for_each(|path| outln!("removed {}", path.display()));
    if removed.is_empty() {
        outln!("there is nothing to remove");
    }
    if !live.is_empty() {
        outln!(
            "{} {} the soft device still (`rdmalab ps`); shared memory is removed when the last \
             process ends",
            live.len(),
            plural(live.len(), "process uses", "processes use")
        );
    }
    Ok(())
}

/// The processes that have a file below one of these directories mapped, as far as this user may
/// see them.
fn users<'a>(directories: impl Iterator<Item = &'a PathBuf>) -> Vec<Process> {
    // The kernel shows paths without symbolic links.
    let directories: Vec<PathBuf> =
        directories.filter_map(|directory| directory.canonicalize().ok()).collect();
    // A line ends with the file's inode and path. A process under another root directory may have
    // another file of that name.
    let is_below = |line: &str| {
        let Some(at) = line.find('/') else { return false };
        let (path, inode) = (Path::new(&line[at..]), line[..at].split_whitespace().last());
        directories.iter().any(|directory| path.starts_with(directory))
            && path.metadata().is_ok_and(|data| Some(&*data.ino().to_string()) == inode)
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let user = |entry: std::fs::DirEntry| {
        let pid = entry.file_name().to_string_lossy().parse().ok()?;
        let maps = std::fs::read_to_string(entry.path().join("maps")).ok()?;
        maps.lines().any(is_below).then(|| Process { pid, command: command(&entry.path()) })
    };
    entries.filter_map(user).collect()
}
