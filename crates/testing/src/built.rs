//! Where programs and libraries are, installed ones and our own.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where distributions put programs.
const PROGRAM_DIRS: [&str; 5] = ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin"];

/// An installed program; `None` when there is none of this name.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = PROGRAM_DIRS.iter().map(PathBuf::from).chain(std::env::split_paths(&path));
    dirs.map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Builds a package of this workspace, in the profile of the running test, and returns the path of
/// its file with this ending. Cargo does not build a shared object for the tests of a package that
/// is nothing else, nor for the tests of packages that depend on it. By the time tests run, cargo
/// has released its lock; the build uses the same target directory, and does nothing if the file
/// is up to date.
///
/// # Panics
/// When it cannot be built.
pub fn built(package: &str, ending: &str) -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--package", package, "--message-format", "json"])
        .args(["--profile", &profile()])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8_lossy(&output.stdout);
    // Of the messages in JSON only this one file name matters, and it has no escapes in it.
    let file = messages.split('"').rfind(|word| word.ends_with(ending));
    PathBuf::from(file.expect("cargo names what it built"))
}

/// The profile of the running test: cargo puts tests into `PROFILE/deps`.
fn profile() -> String {
    let exe = std::env::current_exe().expect("the test has a path");
    let dir = exe.parent().filter(|dir| dir.ends_with("deps")).and_then(Path::parent);
    match dir.and_then(Path::file_name).and_then(|name| name.to_str()) {
        None | Some("debug") => "dev".to_owned(),
        Some(name) => name.to_owned(),
    }
}
