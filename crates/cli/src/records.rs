//! Directories of records: where they are made, and which records are in them.

use std::path::{Path, PathBuf};

use rdmalab_record::Record;

use crate::failure::{Outcome, run as failed, usage};

/// Where directories of records are made unless `--out` names another place.
pub const RECORDS: &str = "rdmalab-records";
/// Directories of one name that may be made within a second.
const MAX_NAMES: u32 = 1000;

/// Makes a directory `prefix` + `YYYYMMDDTHHMMSSZ` below `parent`, with a number behind it where
/// that name is taken. `utc` is the time as records write it.
///
/// # Errors
/// Why none can be made, with `hint` for what to do.
pub fn new_directory(parent: &Path, prefix: &str, utc: &str, hint: &str) -> Outcome<PathBuf> {
    let refused = |e| usage(format!("--out {}: {e}; {hint}", parent.display()));
    std::fs::create_dir_all(parent).map_err(refused)?;
    let time: String = utc.chars().filter(|c| !"-:".contains(*c)).collect();
    let base = format!("{prefix}{}Z", time.split('.').next().unwrap_or_default());
    for n in 1..=MAX_NAMES {
        let dir = parent.join(if n == 1 { base.clone() } else { format!("{base}-{n}") });
        match std::fs::create_dir(&dir) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(refused(e)),
            Ok(()) => return Ok(dir),
        }
    }
    let parent = parent.display();
    Err(failed(format!("{parent}: it already has {MAX_NAMES} directories named {base}")))
}

/// Opens the record in a directory, or the records of the directories in it in the order of their
/// names.
///
/// # Errors
/// When there is none, or one of them cannot be read.
pub fn open_below(dir: &Path) -> Outcome<Vec<Record>> {
    let is_record = |dir: &Path| dir.join("record.json").is_file();
    let entries = match std::fs::read_dir(dir) {
        _ if is_record(dir) => None,
        // An unreadable directory is not an empty one.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return Err(usage(format!("cannot read {}: {error}", dir.display())));
        }
        other => other.ok(),
    };
    let entries = entries.into_iter().flatten();
    let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.retain(|path| is_record(path));
    found.sort();
    // `Record::open` explains what a killed run left.
    let is_unfinished = dir.extension().is_some_and(|end| end == "begun");
    if found.is_empty() && dir.is_dir() && !is_record(dir) && !is_unfinished {
        return Err(usage(format!(
            "{} has no record: name directories that `rdmalab run` or `rdmalab advise` made, or a \
             directory that contains such directories",
            dir.display()
        )));
    }
    if found.is_empty() {
        found.push(dir.to_owned());
    }
    found.iter().map(|path| Record::open(path).map_err(usage)).collect()
}

/// Prints a warning for each damage of the records, for forms that do not show damage.
pub fn warn_of_damage(records: &[Record]) {
    for record in records {
        for what in &record.damage {
            errln!("warning: {}: {what}", record.dir.display());
        }
    }
}
