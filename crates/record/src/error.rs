//! Errors of records, each in one line that says what to do.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a record could not be written or read.
#[derive(Debug)]
pub enum Error {
    /// The directory could not be made.
    Create {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A point could not be added. The record is unchanged.
    Append {
        /// The record.
        dir: PathBuf,
        /// Number of points that it holds.
        kept: u64,
        /// The reason.
        source: io::Error,
    },
    /// A file could not be read.
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A directory that is no record, or a file with other contents.
    Foreign {
        /// The directory or file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A record of a version that this program does not know.
    Version {
        /// The record.
        dir: PathBuf,
        /// Its schema version.
        found: u64,
        /// The version of the program that wrote it, if it says.
        written_by: String,
    },
    /// A record that cannot be continued, since new lines would be of another version.
    Resume {
        /// The record.
        dir: PathBuf,
        /// Its schema version.
        found: u32,
        /// The version of the program that wrote it.
        written_by: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { dir, source } => {
                write!(f, "cannot start a record at {}: {source}", dir.display())?;
                f.write_str(match source.kind() {
                    io::ErrorKind::AlreadyExists => {
                        "; records are never overwritten: name a new directory"
                    }
                    _ => "; name a directory that can be written to",
                })
            }
            Self::Append { dir, kept, source } => {
                let points = if *kept == 1 { "point is" } else { "points are" };
                write!(
                    f,
                    "cannot add a point to {}: {source}; {kept} finished {points} kept there, \
                     the last one is not: free space or record to another file system",
                    dir.display()
                )
            }
            Self::Read { path, source } => write!(f, "cannot read {}: {source}", path.display()),
            Self::Foreign { path, what } => {
                write!(f, "{} is not part of a run record: {what}", path.display())
            }
            Self::Version { dir, found, written_by } => write!(
                f,
                "{} is a record of version {found}, written by rdmalab {written_by}; rdmalab {} \
                 reads versions {} to {}: use a newer rdmalab",
                dir.display(),
                env!("CARGO_PKG_VERSION"),
                crate::OLDEST_VERSION,
                crate::SCHEMA_VERSION
            ),
            Self::Resume { dir, found, written_by } => write!(
                f,
                "{} is a record of version {found}, and this rdmalab adds points of version {}, \
                 which readers of version {found} do not expect: finish the record with rdmalab \
                 {written_by}, which began it, or measure again in another directory; it can \
                 still be read",
                dir.display(),
                crate::SCHEMA_VERSION
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Create { source, .. }
            | Self::Append { source, .. }
            | Self::Read { source, .. } => Some(source),
            Self::Foreign { .. } | Self::Version { .. } | Self::Resume { .. } => None,
        }
    }
}
