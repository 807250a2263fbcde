//! Directories of records: where they are made, and how their records are opened.

use std::path::{Path, PathBuf};

use rdmalab_record::Record;

use crate::failure::{Outcome, run as failed, usage};

/// The default directory for records, without `--out`.
pub const RECORDS: &str = "rdmalab-records";
/// Most directories of one name that can be made within a second.
const MAX_NAMES: u32 = 1000;

/// Makes a directory `prefix` + `YYYYMMDDTHHMMSSZ` below `parent`, with a number behind it if that
/// name is taken. `utc` is the time as in records.
///
/// # Errors
/// Why no directory can be made, with `hint` for what to do.
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

/// Opens the record in a directory, or the records in its subdirectories, sorted by name.
///
/// # Errors
/// There is no record, or one of them cannot be read.
pub fn open_below(dir: &Path) -> Outcome<Vec<Record>> {
    let is_record = |dir: &Path| dir.join("record.json").is_file();
    let entries = match std::fs::read_dir(dir) {
        _ if is_record(dir) => None,
        // A directory that cannot be read is not treated as empty.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return Err(usage(format!("cannot read {}: {error}", dir.display())));
        }
        other => other.ok(),
    };
    let entries = entries.into_iter().flatten();
    let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.retain(|path| is_record(path));
    found.sort();
    // `Record::open` reports the state of a record that a killed run left.
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

/// Prints a warning for each damage of the records, for output forms that do not show damage.
pub fn warn_of_damage(records: &[Record]) {
    for record in records {
        for what in &record.damage {
            errln!("warning: {}: {what}", record.dir.display());
        }
    }
}
