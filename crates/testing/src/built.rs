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

/// The packages of our shared objects, as `crates/cli/build.rs` builds them.
const LIBRARIES: [&str; 5] = [
    "rdmalab-libibverbs",
    "rdmalab-paths",
    "rdmalab-signals",
    "rdmalab-memory",
    "rdmalab-librdmacm",
];

/// Builds our shared objects in the profile of the running test, and returns the path of the one
/// with this file name. Cargo does not build a shared object for the tests of a package that is
/// nothing else, nor for the tests of packages that depend on it. The target directory is that of
/// `crates/cli/build.rs`: whoever comes first builds them for both, unless the two have different
/// settings of cargo in their environment.
///
/// # Panics
/// When they cannot be built.
pub fn library(file: &str) -> PathBuf {
    let mut cargo = cargo();
    cargo.args(LIBRARIES.map(|package| format!("--package={package}")));
    if let Some(directory) = profile_directory() {
        cargo.arg("--target-dir").arg(directory.join("libraries"));
    }
    built(&mut cargo, &format!("/{file}"))
}

/// Builds the binary `rdmalab`, as [`example`] builds an example.
///
/// # Panics
/// When it cannot be built.
pub fn rdmalab() -> PathBuf {
    built(cargo().args(["--bin", "rdmalab"]), "/rdmalab")
}

/// Builds an example in the profile of the running test and returns its path. For the whole
/// workspace, because then cargo chooses the features of dependencies as for `cargo test`, and
/// compiles nothing twice.
///
/// # Panics
/// When it cannot be built.
pub fn example(name: &str) -> PathBuf {
    built(cargo().args(["--example", name]), &format!("/examples/{name}"))
}

/// A build in the profile of the running test. By the time tests run, cargo has released its lock.
fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--message-format", "json", "--profile", &profile()]);
    cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    cargo
}

/// The path of the file with this ending. Nothing is done if it is up to date.
fn built(cargo: &mut Command, ending: &str) -> PathBuf {
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8_lossy(&output.stdout);
    // Of the messages in JSON only this one file name matters, and it has no escapes in it.
    let file = messages.split('"').rfind(|word| word.ends_with(ending));
    PathBuf::from(file.expect("cargo names what it built"))
}

/// The directory of the running test's profile: cargo puts tests into its `deps`.
fn profile_directory() -> Option<PathBuf> {
    let exe = std::env::current_exe().expect("the test has a path");
    let deps = exe.parent().filter(|directory| directory.ends_with("deps"))?;
    deps.parent().map(PathBuf::from)
}

/// The name of the running test's profile.
fn profile() -> String {
    let directory = profile_directory();
    match directory.as_deref().and_then(Path::file_name).and_then(|name| name.to_str()) {
        None | Some("debug") => "dev".to_owned(),
        Some(name) => name.to_owned(),
    }
}
