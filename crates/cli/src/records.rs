//! Directories of records: where they are made, and how their records are opened.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rdmalab_record::Record;
use tempfile::TempDir;

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

/// The directory of the records of a command that measures several sweeps.
pub struct RecordsDir {
    /// Where it is.
    pub path: PathBuf,
    /// Removed when dropped.
    temporary: Option<TempDir>,
}

impl RecordsDir {
    /// A directory below `out` whose name begins with `prefix`, or a temporary one.
    ///
    /// # Errors
    /// Why it cannot be made.
    pub fn new(out: Option<&Path>, is_temporary: bool, prefix: &str) -> Outcome<Self> {
        if is_temporary {
            let temporary = tempfile::tempdir().map_err(|e| {
                failed(format!("cannot make a directory for temporary records: {e}"))
            })?;
            return Ok(Self { path: temporary.path().to_owned(), temporary: Some(temporary) });
        }
        let utc = rdmalab_record::utc(SystemTime::now());
        let hint = "choose another directory with --out DIR, or --no-record";
        let path = new_directory(out.unwrap_or(Path::new(RECORDS)), prefix, &utc, hint)?;
        Ok(Self { path, temporary: None })
    }

    /// Tells where the records are, if they are kept, and which command reads them again.
    pub fn announce(&self, command: &str) {
        if self.temporary.is_none() {
            errln!("kept in {0} (`rdmalab {command} {0}` reads it again)", self.path.display());
        }
    }
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
