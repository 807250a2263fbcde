//! Compiles the C programs in `tests/c` against the headers of rdma-core.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::programs;

const HEADER: &str = "/usr/include/infiniband/verbs.h";

/// Compiles a program into a directory and names it after the first source. Returns `None`, with a
/// SKIPPED line, if the compiler or the headers are missing.
///
/// # Panics
/// When the compiler reports an error.
pub fn compile(scratch: &Path, sources: &[&str], libraries: &[&str]) -> Option<PathBuf> {
    if !Path::new(HEADER).exists() {
        programs::skipped(sources[0], "libibverbs-dev is not installed");
        return None;
    }
    compile_with("cc", scratch, sources, libraries)
}

/// Like [`compile`], with the given compiler, for programs that need no header of rdma-core.
///
/// # Panics
/// When the compiler reports an error.
pub fn compile_with(
    compiler: &str,
    scratch: &Path,
    sources: &[&str],
    libraries: &[&str],
) -> Option<PathBuf> {
    let name = sources[0];
    let Some(compiler) = programs::find(compiler) else {
        programs::skipped(name, format!("{compiler} is not installed"));
        return None;
    };
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/c");
    // A source may be named by its whole path.
    let file = Path::new(name).file_name().expect("a source is a file");
    let program = scratch.join(file).with_extension("");
    let output = Command::new(compiler)
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .args(sources.iter().map(|source| dir.join(source)))
        .args(libraries)
        .output()
        .expect("the compiler runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}
