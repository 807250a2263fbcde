//! Files that options name for output. They are checked before anything runs.

use std::path::Path;

use rustix::fs::{Access, access};

use crate::failure::{Outcome, run as failed, usage};

/// Checks that the output file of an option can be written.
///
/// # Errors
/// A usage error: why it cannot be written, and what to do.
pub fn check(option: &str, file: &Path) -> Outcome {
    let wrong = |why: String| Err(usage(format!("{option} {}: {why}", file.display())));
    if file.is_dir() {
        return wrong("it is a directory: name a file in it".to_owned());
    }
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    if !parent.is_dir() {
        let shown = parent.display();
        return wrong(format!("there is no directory {shown}: make it, or name another place"));
    }
    let written = if file.exists() { file } else { parent };
    match access(written, Access::WRITE_OK) {
        Ok(()) => Ok(()),
        Err(error) => wrong(format!("{}: {error}: name another place", written.display())),
    }
}

/// Makes the directory of an option if it does not exist.
///
/// # Errors
/// A usage error: why it cannot be made.
pub fn directory(option: &str, directory: &Path) -> Outcome {
    std::fs::create_dir_all(directory)
        .map_err(|e| usage(format!("{option} {}: {e}; name another place", directory.display())))
}

/// Writes a file that was checked, and prints its path.
///
/// # Errors
/// A failed run, for example because the disk is full.
pub fn write(option: &str, file: &Path, text: impl AsRef<[u8]>) -> Outcome {
    std::fs::write(file, text).map_err(|e| failed(format!("{option} {}: {e}", file.display())))?;
    outln!("{}", file.display());
    Ok(())
}
