//! The files that captures go to.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::path::{Path as FilePath, PathBuf};

/// The file name of a process that is not the first: with its process ID before the suffix.
fn numbered(path: &FilePath, pid: u32) -> PathBuf {
    let mut name = path.file_stem().map_or_else(OsString::new, OsStr::to_owned);
    name.push(format!("-{pid}"));
    if let Some(suffix) = path.extension() {
        name.push(".");
        name.push(suffix);
    }
    path.with_file_name(name)
}

/// Creates the file, under another name if another process has created it already.
pub(super) fn create(path: &FilePath) -> std::io::Result<(File, PathBuf)> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let path = numbered(path, std::process::id());
            Ok((File::create(&path)?, path))
        }
        made => Ok((made?, path.to_owned())),
    }
}

pub(super) fn lock(file: &File) -> bool {
    // SAFETY: a descriptor that the file keeps open.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// Makes room for a capture at `path`: removes an older capture, unless a process still writes it.
///
/// # Errors
/// Another kind of file is there, or nothing can be written there: one line.
pub fn make_room_for_capture(path: &FilePath) -> Result<(), String> {
    let shown = path.display();
    let failed = |error: std::io::Error| format!("{shown}: {error}");
    // A device or a pipe must be neither removed nor waited for.
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(format!("{shown} is no regular file: name another one"));
    }
    match OpenOptions::new().read(true).open(path) {
        Ok(mut old) => {
            let mut magic = [0; 4];
            let empty = old.metadata().map_err(failed)?.len() == 0;
            let is_capture = std::io::Read::read_exact(&mut old, &mut magic).is_ok()
                && magic == [0x0a, 0x0d, 0x0d, 0x0a];
            if !empty && !is_capture {
                return Err(format!(
                    "{shown} is there and is no pcapng capture: name another file, or remove it"
                ));
            }
            if lock(&old) { std::fs::remove_file(path).map_err(failed) } else { Ok(()) }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // Report now, before the program runs, that the file cannot be created.
            File::create(path).map_err(failed)?;
            std::fs::remove_file(path).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_processes_have_their_number_before_the_suffix() {
        let name = |path: &str| numbered(FilePath::new(path), 7).display().to_string();
        assert_eq!(name("/tmp/a.b.pcapng"), "/tmp/a.b-7.pcapng");
        assert_eq!(name("plain"), "plain-7");
    }
}
