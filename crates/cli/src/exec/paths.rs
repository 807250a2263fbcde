//! Files that programs look for without calling libibverbs: the preloaded library
//! `librdmalab-paths.so`, and the directory tree with which it answers. And the list of all
//! preloaded libraries.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::ValueEnum;

use crate::exec::runtime::{self, MEMORY, Object, PATHS, SIGNALS, Source};
use crate::exec::tree::Tree;
use crate::failure::{Outcome, run as failed};

/// Tells the library the path of the tree; a user sets it to [`OFF`].
const VARIABLE: &str = "RDMALAB_PATHS";
/// With [`OFF`], the library for signal handlers is not preloaded.
const SIGNALS_VARIABLE: &str = "RDMALAB_SIGNALS";
/// The value with which a library is not preloaded.
const OFF: &str = "off";
/// How UCX learns that memory is unmapped.
const UCX_HOOKS: &str = "UCX_MEM_MMAP_HOOK_MODE";
/// The hidden command that makes the tree.
pub const COMMAND: &str = "tree";

/// Where large buffers of the program are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Memory {
    /// In its own memory: a WRITE or READ of a peer is a system call
    Private,
    /// Experimental, the book lists its limits. In memory that peers can map: a WRITE or READ of a
    /// peer is a plain copy
    Shared,
}

impl Memory {
    /// The word of the option.
    pub fn word(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Shared => "shared",
        }
    }
}

/// Preloads our libraries into a program, after those in `list`, and tells `librdmalab-paths.so`
/// the path of the tree.
///
/// Most programs do not look for these files, so a failure only prints one line, and no line
/// without `says`: then the reason is already known.
///
/// # Errors
/// The library for shared memory was asked for, and cannot be preloaded.
pub fn put_in_front(
    program: &mut Command,
    libraries: &Path,
    mut list: Vec<PathBuf>,
    memory: Memory,
    says: bool,
) -> Result<(), String> {
    if memory == Memory::Shared {
        list.push(placed(&MEMORY, libraries)?);
        // UCX would overwrite the library's functions with system calls of its own.
        if std::env::var_os(UCX_HOOKS).is_none() {
            program.env(UCX_HOOKS, "none");
        }
    }
    // Programs without handlers for faults do not need this library, and others run without it,
    // with slower copies.
    if std::env::var_os(SIGNALS_VARIABLE).is_none_or(|value| value != OFF) {
        list.extend(placed(&SIGNALS, libraries));
    }
    if std::env::var_os(VARIABLE).is_none_or(|value| value != OFF) {
        match placed(&PATHS, libraries).and_then(|library| Ok((library, tree(program)?))) {
            Ok((library, tree)) => {
                list.push(library);
                program.env(VARIABLE, tree);
            }
            Err(_) if !says => {}
            Err(reason) => errln!(
                "rdmalab: exec: the program will not find /sys/class/infiniband, which some look \
                 for: {reason} ({VARIABLE}={OFF} disables this)"
            ),
        }
    }
    if !list.is_empty() {
        let first = list.iter().map(|path| path.as_os_str()).collect::<Vec<_>>();
        let first = first.join(OsStr::new(":"));
        program.env("LD_PRELOAD", runtime::in_front(Path::new(&first), "LD_PRELOAD"));
    }
    Ok(())
}

/// Makes the file of a library that can be preloaded, and returns its path.
fn placed(object: &Object, libraries: &Path) -> Result<PathBuf, String> {
    let library = libraries.join(object.soname);
    // The dynamic linker separates names by both characters, and has no quoting.
    if library.as_os_str().as_bytes().iter().any(|byte| b" :".contains(byte)) {
        let shown = library.display();
        return Err(format!("{shown} contains a blank or a colon: set TMPDIR or XDG_RUNTIME_DIR"));
    }
    let source = runtime::find(object)?;
    // `libraries` may be on a noexec file system if the verbs library in it is only a link.
    if matches!(source, Source::Inside { .. }) && !runtime::is_executable(libraries) {
        let shown = libraries.display();
        return Err(format!("{shown} is mounted noexec: set TMPDIR or XDG_RUNTIME_DIR"));
    }
    runtime::put(&source, &library)?;
    Ok(library)
}

/// Makes the tree in a child process: opening the devices makes a process a part of the soft
/// device, and this process is about to become the program. The child has the program's
/// environment.
fn tree(program: &Command) -> Result<PathBuf, String> {
    let us = std::env::current_exe()
        .map_err(|error| format!("cannot find the path of this program: {error}"))?;
    let mut maker = Command::new(us);
    maker.arg(COMMAND).stdin(Stdio::null());
    for (name, value) in program.get_envs() {
        if let Some(value) = value.filter(|_| name != "LD_LIBRARY_PATH") {
            maker.env(name, value);
        }
    }
    // The child opens devices and sends nothing; the capture file belongs to the program.
    for name in ["LD_PRELOAD", "RDMALAB_CAPTURE", "RDMALAB_FAULTS", "RDMALAB_COUNTERS"] {
        maker.env_remove(name);
    }
    let output = maker.output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let line = said.lines().last().unwrap_or("it printed no reason");
        return Err(line.trim_start_matches("rdmalab: ").to_owned());
    }
    let path = output.stdout.strip_suffix(b"\n").unwrap_or(&output.stdout);
    Ok(PathBuf::from(OsStr::from_bytes(path)))
}

/// `rdmalab tree`: makes the tree if it does not exist, and prints its path.
pub fn run() -> Outcome {
    let made = Tree::of_devices().and_then(|tree| {
        runtime::tree(&format!("paths-{:016x}", tree.fingerprint()), |root| tree.write(root))
    });
    let path = made.map_err(failed)?;
    // The path is written as bytes, since it need not be UTF-8.
    use std::io::Write as _;
    let mut line = path.into_os_string().into_encoded_bytes();
    line.push(b'\n');
    std::io::stdout().write_all(&line).map_err(|error| failed(error.to_string()))
}
