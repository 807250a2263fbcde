//! Finds rdmalab's shared objects, and makes directories in which they have the system's names.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};

/// The name that programs ask for.
pub const SONAME: &str = "libibverbs.so.1";

/// The name for linking. NCCL and others open it first, and would get the system's library by it.
const DEVELOPMENT: &str = "libibverbs.so";

/// A shared object of rdmalab.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// The name that programs ask for.
    pub soname: &'static str,
    /// Its file name in Cargo's output.
    built: &'static str,
    /// The package that it is built from.
    package: &'static str,
}

/// The verbs.
pub const VERBS: Object =
    Object { soname: SONAME, built: "libibverbs.so", package: "rdmalab-libibverbs" };
/// The connection manager. Only programs that use rdma_cm need it.
pub const CM: Object =
    Object { soname: "librdmacm.so.1", built: "librdmacm.so", package: "rdmalab-librdmacm" };
/// The preloaded library that answers for the files of a kernel driver.
pub const PATHS: Object = Object {
    soname: "librdmalab-paths.so",
    built: "librdmalab_paths.so",
    package: "rdmalab-paths",
};
/// The preloaded library that lets our fault handler stay in front of the program's.
pub const SIGNALS: Object = Object {
    soname: "librdmalab-signals.so",
    built: "librdmalab_signals.so",
    package: "rdmalab-signals",
};

/// The preloaded library that gives the program memory which peers can map.
pub const MEMORY: Object = Object {
    soname: "librdmalab-memory.so",
    built: "librdmalab_memory.so",
    package: "rdmalab-memory",
};

/// Number of builds whose libraries are kept. Developers make many builds, of some megabytes each.
const BUILDS: usize = 8;

/// A shared object inside this binary.
struct Embedded {
    soname: &'static str,
    /// Hash of the bytes; identifies the build.
    fingerprint: u64,
    bytes: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// Where a shared object of rdmalab is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// Bytes in this binary that were not written to a file yet.
    Inside {
        /// Identifies the build.
        fingerprint: u64,
        /// The file's content.
        bytes: &'static [u8],
    },
}

/// Finds the verbs library: in `RDMALAB_LIBDIR` if set; otherwise a file with the same contents as
/// the embedded one, beside this binary or in `../lib/rdmalab`, where packages install it;
/// otherwise the one in this binary. A binary without an embedded library uses any file that it
/// finds, also in `deps`, where Cargo leaves it.
///
/// # Errors
/// The library was not found; the error lists the directories, and says how to build it.
pub fn library() -> Result<Source, String> {
    find(&VERBS)
}

/// Finds a shared object in the same way as [`library`].
///
/// # Errors
/// As [`library`].
pub fn find(object: &Object) -> Result<Source, String> {
    let embedded = EMBEDDED.iter().find(|library| library.soname == object.soname);
    if let Some(directory) = std::env::var_os("RDMALAB_LIBDIR") {
        let named = in_any(object, &[PathBuf::from(directory)], |_| true);
        // The directory may contain the verbs library only.
        if named.is_ok() || object.soname == SONAME {
            return named;
        }
    }
    let program = std::env::current_exe();
    let Some(embedded) = embedded else {
        let beside = directory_of(
            &program.map_err(|e| format!("cannot find the path of this program: {e}"))?,
        );
        let places = [beside.clone(), beside.join("deps"), installed(&beside)];
        return in_any(object, &places, |_| true);
    };
    // Without /proc the path of this program is unknown; then only the embedded library is used.
    let beside = program.map(|program| directory_of(&program));
    let places = beside.map_or(Vec::new(), |beside| vec![installed(&beside), beside]);
    let is_same = |path: &Path| has_content(path, embedded.bytes);
    Ok(in_any(object, &places, is_same)
        .unwrap_or(Source::Inside { fingerprint: embedded.fingerprint, bytes: embedded.bytes }))
}

fn directory_of(program: &Path) -> PathBuf {
    program.parent().unwrap_or(Path::new("/")).to_owned()
}

/// Where packages put the library.
fn installed(beside: &Path) -> PathBuf {
    beside.join("../lib/rdmalab")
}

/// The first file of that name in these directories for which `is_wanted` returns true.
fn in_any(
    object: &Object,
    directories: &[PathBuf],
    is_wanted: impl Fn(&Path) -> bool,
) -> Result<Source, String> {
    let Object { soname, built, package } = object;
    let candidates = directories.iter().flat_map(|d| [d.join(soname), d.join(built)]);
    for candidate in candidates {
        if candidate.is_file() && is_wanted(&candidate) {
            let path = candidate.canonicalize();
            return path.map(Source::File).map_err(|e| format!("{}: {e}", candidate.display()));
        }
    }
    let places: Vec<String> = directories.iter().map(|d| d.display().to_string()).collect();
    Err(format!(
        "our {built} was not found in {}: build it with `cargo build --release -p {package}`, or \
         name its directory in RDMALAB_LIBDIR",
        places.join(", ")
    ))
}

fn has_content(path: &Path, bytes: &[u8]) -> bool {
    let long = path.metadata().is_ok_and(|data| data.len() == bytes.len() as u64);
    long && std::fs::read(path).is_ok_and(|found| found == bytes)
}

/// Directories of this user in which libraries for programs can be stored, best first.
fn places() -> Vec<PathBuf> {
    let own = rustix::process::geteuid().as_raw();
    let usable = |directory: &PathBuf| {
        directory.is_absolute() && directory.metadata().is_ok_and(|d| d.is_dir() && d.uid() == own)
    };
    let of_variable = |name| std::env::var_os(name).map(PathBuf::from).filter(usable);
    let run = of_variable("XDG_RUNTIME_DIR").map(|directory| directory.join("rdmalab"));
    let temporary = std::env::temp_dir().join(format!("rdmalab-{own}"));
    let cache = of_variable("XDG_CACHE_HOME")
        .or_else(|| of_variable("HOME").map(|home| home.join(".cache")).filter(usable))
        .map(|directory| directory.join("rdmalab"));
    run.into_iter().chain([temporary]).chain(cache).collect()
}

/// Whether libraries in a directory can be mapped for execution.
pub fn is_executable(directory: &Path) -> bool {
    statvfs(directory).is_ok_and(|fs| !fs.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

/// Makes a private directory with the library under the system's name, and returns its path. Each
/// build of the library has its own directory, so that builds do not disturb each other; a second
/// call for the same build returns the same directory.
///
/// # Errors
/// It cannot be made, or another user owns a directory of that name.
pub fn prepare(library: &Source) -> Result<PathBuf, String> {
    let places = places();
    // A symbolic link also works in a directory that is mounted noexec.
    let fits = |place: &&PathBuf| {
        matches!(library, Source::File(_)) || place.parent().is_some_and(is_executable)
    };
    let Some(place) = places.iter().find(fits) else {
        let shown: Vec<String> = places.iter().map(|p| p.display().to_string()).collect();
        return Err(format!(
            "none of {} can hold a library (missing, or mounted noexec): set TMPDIR, or install \
             the library with `rdmalab env --dir DIR` and name DIR in RDMALAB_LIBDIR",
            shown.join(", ")
        ));
    };
    prepare_in(place, library)
}

fn prepare_in(top: &Path, library: &Source) -> Result<PathBuf, String> {
    private(top)?;
    let fingerprint = match library {
        Source::File(path) => of_path(path),
        Source::Inside { fingerprint, .. } => *fingerprint,
    };
    let directory = top.join(format!("lib-{fingerprint:016x}"));
    private(&directory)?;
    if put(library, &directory.join(SONAME))? {
        forget_old(top, &directory);
    }
    put(&Source::File(PathBuf::from(SONAME)), &directory.join(DEVELOPMENT))?;
    Ok(directory)
}

/// The path of a shared object of rdmalab; an embedded one is written to a file.
///
/// # Errors
/// It was not found, or cannot be written.
pub fn as_file(object: &Object) -> Result<PathBuf, String> {
    match find(object)? {
        Source::File(path) => Ok(path),
        inside @ Source::Inside { .. } => {
            let file = prepare(&library()?)?.join(object.soname);
            put(&inside, &file)?;
            Ok(file)
        }
    }
}

/// Removes the libraries of all but the newest builds. Running programs keep the files that they
/// have open; a build that is used again is written again.
fn forget_old(top: &Path, newest: &Path) {
    let age = |path: &Path| path.join(SONAME).symlink_metadata().and_then(|data| data.modified());
    let entries = std::fs::read_dir(top).into_iter().flatten().flatten();
    let is_of_build = |path: &PathBuf| {
        path != newest
            && path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"lib-"))
    };
    let mut builds: Vec<PathBuf> = entries.map(|e| e.path()).filter(is_of_build).collect();
    builds.sort_by_key(|path| std::cmp::Reverse(age(path).ok()));
    for old in builds.iter().skip(BUILDS - 1) {
        // Another process may be removing it at the same time.
        let _ = std::fs::remove_dir_all(old);
    }
}

/// Returns the canonical path of a private directory of this name. If it does not exist, `fill`
/// fills a new one, which is then renamed, so that it appears with all its contents.
///
/// # Errors
/// It cannot be made, or another user owns a directory of that name.
pub fn tree(name: &str, fill: impl Fn(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
    let places = places();
    let is_usable = |place: &&PathBuf| place.parent().is_some_and(Path::is_dir);
    let top = places
        .iter()
        .find(is_usable)
        .ok_or("there is no directory for temporary files: set TMPDIR")?;
    private(top)?;
    let directory = top.join(name);
    if directory.symlink_metadata().is_err() {
        let fresh = top.join(format!("new-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&fresh);
        private(&fresh)?;
        let filled = fill(&fresh);
        let moved = filled.and_then(|()| {
            std::fs::rename(&fresh, &directory).map_err(|e| format!("{}: {e}", directory.display()))
        });
        if let Err(reason) = moved {
            let _ = std::fs::remove_dir_all(&fresh);
            // Another process may have made it meanwhile.
            if directory.symlink_metadata().is_err() {
                return Err(reason);
            }
        }
    }
    private(&directory)?;
    directory.canonicalize().map_err(|e| format!("{}: {e}", directory.display()))
}

/// Makes the library available under this name; returns false if it was there already.
///
/// # Errors
/// When it cannot be written.
pub fn put(library: &Source, name: &Path) -> Result<bool, String> {
    let is_there = match library {
        Source::File(path) => std::fs::read_link(name).is_ok_and(|target| target == *path),
        Source::Inside { bytes, .. } => {
            name.symlink_metadata().is_ok_and(|data| data.is_file()) && has_content(name, bytes)
        }
    };
    if is_there {
        return Ok(false);
    }
    // Renamed at the end: a program that starts meanwhile finds the old or the new library.
    let fresh = name.with_file_name(format!("new-{}", std::process::id()));
    let _ = std::fs::remove_file(&fresh);
    let made = match library {
        Source::File(path) => symlink(path, &fresh),
        Source::Inside { bytes, .. } => write_new(&fresh, bytes),
    };
    made.and_then(|()| std::fs::rename(&fresh, name)).map(|()| true).map_err(|error| {
        let _ = std::fs::remove_file(&fresh);
        format!("{}: {error}", name.display())
    })
}

/// Copies the library to this name permanently.
///
/// # Errors
/// When it cannot be read or written.
pub fn install(library: &Source, name: &Path) -> Result<(), String> {
    let read;
    let bytes = match library {
        Source::Inside { bytes, .. } => *bytes,
        Source::File(path) => {
            read = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
            &read
        }
    };
    if name.is_file() && has_content(name, bytes) {
        return Ok(());
    }
    let fresh = name.with_file_name(format!(".new-{}", std::process::id()));
    let _ = std::fs::remove_file(&fresh);
    write_new(&fresh, bytes).and_then(|()| std::fs::rename(&fresh, name)).map_err(|error| {
        let _ = std::fs::remove_file(&fresh);
        format!("{}: {error}", name.display())
    })
}

/// Writes a new executable file.
fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(path)?;
    file.write_all(bytes)
}

/// Makes a directory that only this user can write to, or checks that an existing one is such.
fn private(directory: &Path) -> Result<(), String> {
    match std::fs::DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(format!("{}: {error}", directory.display())),
    }
    let data = directory.symlink_metadata().map_err(|e| format!("{}: {e}", directory.display()))?;
    let is_ours = data.is_dir()
        && data.uid() == rustix::process::geteuid().as_raw()
        && data.mode() & 0o022 == 0;
    match is_ours {
        true => Ok(()),
        // Refused, since the files in it decide which code programs run.
        false => Err(format!(
            "{} is not a directory that only you can write to: remove it, or set XDG_RUNTIME_DIR",
            directory.display()
        )),
    }
}

/// A hash of a path (FNV-1a).
fn of_path(path: &Path) -> u64 {
    path.as_os_str().as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The directory in which `rdmalab env` installs the library by default.
pub fn home() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|d| d.is_absolute());
    let data = absolute("XDG_DATA_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/share")))?;
    Some(data.join("rdmalab/lib"))
}

/// The directories that `exec` made and that exist.
///
/// # Errors
/// Another user owns a directory of that name.
pub fn made() -> Result<Vec<PathBuf>, String> {
    // Two variables may name one directory.
    let there: BTreeSet<PathBuf> =
        places().into_iter().filter(|place| place.symlink_metadata().is_ok()).collect();
    there.into_iter().map(|place| private(&place).map(|()| place)).collect()
}

/// Removes the library that `env` installed in its default directory; `None` if there is none.
/// Other files in the directory stay.
///
/// # Errors
/// The library cannot be removed.
pub fn remove_home() -> Result<Option<PathBuf>, String> {
    let Some(file) = home().map(|home| home.join(SONAME)) else { return Ok(None) };
    let _may_not_be_there = std::fs::remove_file(file.with_file_name(CM.soname));
    if file.symlink_metadata().is_err() {
        return Ok(None);
    }
    std::fs::remove_file(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    // The directories are removed only if they are empty.
    file.ancestors().skip(1).take(2).all(|directory| std::fs::remove_dir(directory).is_ok());
    Ok(Some(file))
}

/// The value of a list variable with `first` in front.
pub fn in_front(first: &Path, variable: &str) -> OsString {
    let mut value = first.as_os_str().to_owned();
    if let Some(rest) = std::env::var_os(variable).filter(|rest| !rest.is_empty()) {
        value.push(":");
        value.push(rest);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preparing_twice_is_preparing_once() {
        let home = tempfile::tempdir().unwrap();
        let top = home.path().join("top");
        let library = home.path().join("libibverbs.so");
        std::fs::write(&library, "x").unwrap();
        let source = Source::File(library.clone());
        let first = prepare_in(&top, &source).unwrap();
        assert_eq!(prepare_in(&top, &source), Ok(first.clone()));
        assert_eq!(std::fs::read_link(first.join(SONAME)).unwrap(), library);
        assert_eq!(top.metadata().unwrap().mode() & 0o777, 0o700);
        assert_eq!(std::fs::canonicalize(first.join(DEVELOPMENT)).unwrap(), library);
        assert_eq!(std::fs::read_dir(&first).unwrap().count(), 2);
        let other = prepare_in(&top, &Source::File(home.path().join("other.so"))).unwrap();
        assert_ne!(first, other);
    }

    #[test]
    fn bytes_become_a_file_and_a_spoilt_file_becomes_the_bytes_again() {
        let home = tempfile::tempdir().unwrap();
        let top = home.path().join("top");
        let inside = Source::Inside { fingerprint: 7, bytes: b"library" };
        let directory = prepare_in(&top, &inside).unwrap();
        let file = directory.join(SONAME);
        assert_eq!(std::fs::read(&file).unwrap(), b"library");
        let inode = || file.metadata().unwrap().ino();
        let before = inode();
        assert_eq!(prepare_in(&top, &inside), Ok(directory.clone()));
        assert_eq!(inode(), before, "written again though it was right");
        for wrong in [&b"libraRy"[..], b"lib", b""] {
            std::fs::write(&file, wrong).unwrap();
            prepare_in(&top, &inside).unwrap();
            assert_eq!(std::fs::read(&file).unwrap(), b"library");
        }
        // A link to the right bytes is replaced, since its target may change.
        std::fs::rename(&file, home.path().join("elsewhere")).unwrap();
        symlink(home.path().join("elsewhere"), &file).unwrap();
        prepare_in(&top, &inside).unwrap();
        assert!(file.symlink_metadata().unwrap().is_file());
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 2);
    }

    #[test]
    fn the_libraries_of_old_builds_go() {
        let home = tempfile::tempdir().unwrap();
        let top = home.path().join("top");
        let all: Vec<PathBuf> = (0..BUILDS as u64 + 3)
            .map(|fingerprint| {
                let inside = Source::Inside { fingerprint, bytes: b"library" };
                prepare_in(&top, &inside).unwrap()
            })
            .collect();
        assert_eq!(std::fs::read_dir(&top).unwrap().count(), BUILDS);
        assert!(all.last().unwrap().join(SONAME).is_file());
    }

    #[test]
    fn a_directory_that_others_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let top = home.path().join("top");
        std::fs::create_dir(&top).unwrap();
        std::fs::set_permissions(&top, std::fs::Permissions::from_mode(0o777)).unwrap();
        let x = Source::File(PathBuf::from("/x"));
        let refused = prepare_in(&top, &x).unwrap_err();
        assert!(refused.contains("only you can write to"), "{refused}");
        let link = home.path().join("link");
        symlink(home.path(), &link).unwrap();
        assert!(prepare_in(&link, &x).is_err());
    }

    #[test]
    fn a_list_keeps_what_it_had() {
        // PATH is set wherever tests run.
        let list = in_front(Path::new("/first"), "PATH");
        let list = list.to_string_lossy();
        assert!(list.starts_with("/first:") && list.len() > "/first:".len());
        assert_eq!(in_front(Path::new("/first"), "RDMALAB_NO_SUCH_VARIABLE"), "/first");
    }
}
