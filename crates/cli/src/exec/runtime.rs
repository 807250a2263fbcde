//! Finds our shared objects, and makes directories in which they have the system's names.

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};

/// The name that programs ask for.
pub const SONAME: &str = "libibverbs.so.1";

/// The name for linking, which NCCL and others open first, and would find the system's by.
const DEVELOPMENT: &str = "libibverbs.so";

/// A shared object of ours.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// The name that programs ask for.
    pub soname: &'static str,
    /// Its name as Cargo gives it.
    built: &'static str,
    /// The package that it is built from.
    package: &'static str,
}

/// The verbs.
pub const VERBS: Object =
    Object { soname: SONAME, built: "libibverbs.so", package: "rdmalab-libibverbs" };
/// The connection manager. Programs do without it as long as they ask for no connection.
pub const CM: Object =
    Object { soname: "librdmacm.so.1", built: "librdmacm.so", package: "rdmalab-librdmacm" };
/// What answers for the files of a kernel driver.
pub const PATHS: Object = Object {
    soname: "librdmalab-paths.so",
    built: "librdmalab_paths.so",
    package: "rdmalab-paths",
};

/// Builds whose libraries are kept for programs: a developer makes many, of some megabytes each.
const BUILDS: usize = 8;

/// A shared object inside this binary.
struct Embedded {
    soname: &'static str,
    /// Of the bytes; tells builds apart.
    fingerprint: u64,
    bytes: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// Our shared object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// Bytes in this binary, of which there is no file yet.
    Inside {
        /// Tells builds apart.
        fingerprint: u64,
        /// The file's content.
        bytes: &'static [u8],
    },
}

/// Finds our shared object: in `RDMALAB_LIBDIR` if set; else a file of the same build beside this
/// binary or in `../lib/rdmalab` (where it is installed); else in this binary. A binary that was
/// built without takes the file that it finds, also in `deps`, where Cargo leaves it.
///
/// # Errors
/// That it is nowhere, with where it was looked for and how to build it.
pub fn library() -> Result<Source, String> {
    find(&VERBS)
}

/// Finds a shared object of ours, as [`library`] does.
///
/// # Errors
/// As there.
pub fn find(object: &Object) -> Result<Source, String> {
    let embedded = EMBEDDED.iter().find(|library| library.soname == object.soname);
    if let Some(directory) = std::env::var_os("RDMALAB_LIBDIR") {
        let named = in_any(object, &[PathBuf::from(directory)], |_| true);
        // A directory may hold the verbs alone.
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
    // Without /proc the path of this program is unknown; the embedded library needs none.
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

/// The first file of that name in one of the directories that is wanted.
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
        "our {built} is in none of {}: build it with `cargo build --release -p {package}`, or \
         name its directory in RDMALAB_LIBDIR",
        places.join(", ")
    ))
}

fn has_content(path: &Path, bytes: &[u8]) -> bool {
    let long = path.metadata().is_ok_and(|data| data.len() == bytes.len() as u64);
    long && std::fs::read(path).is_ok_and(|found| found == bytes)
}

/// The directories of this user in which programs may be given a library, best first.
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

/// Makes a private directory with our library under the system's name, and names it. Each build of
/// the library has its own, so that two do not disturb each other; made again and again it is the
/// same.
///
/// # Errors
/// When it cannot be made, or a directory of another user has its name.
pub fn prepare(library: &Source) -> Result<PathBuf, String> {
    let places = places();
    // A link does not care where it lies.
    let fits = |place: &&PathBuf| {
        matches!(library, Source::File(_)) || place.parent().is_some_and(is_executable)
    };
    let Some(place) = places.iter().find(fits) else {
        let shown: Vec<String> = places.iter().map(|p| p.display().to_string()).collect();
        return Err(format!(
            "none of {} may hold a library (not there, or mounted noexec): set TMPDIR, or install \
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

/// A shared object of ours as a file.
///
/// # Errors
/// When it is nowhere, or cannot be written.
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

/// Removes the libraries of all but the newest builds. Programs that run keep what they have open;
/// a build that is used again is written again.
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
        // Another one may be just doing the same.
        let _ = std::fs::remove_dir_all(old);
    }
}

/// Has a directory of ours of this name filled, unless it is there, and names it as the kernel
/// would. It appears at once, with everything in it.
///
/// # Errors
/// When it cannot be made, or a directory of another user has its name.
pub fn tree(name: &str, fill: impl Fn(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
    let places = places();
    let is_usable = |place: &&PathBuf| place.parent().is_some_and(Path::is_dir);
    let top = places.iter().find(is_usable).ok_or("there is no directory for it: set TMPDIR")?;
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
            // Another may have been faster.
            if directory.symlink_metadata().is_err() {
                return Err(reason);
            }
        }
    }
    private(&directory)?;
    directory.canonicalize().map_err(|e| format!("{}: {e}", directory.display()))
}

/// Gives our library this name, unless it has it already; answers whether it was missing.
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
    // Under another name first: a program that starts meanwhile finds this one or its successor.
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

/// Copies our library to this name, for good.
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

/// Writes a file of bytes that are ours, to be a library.
fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(path)?;
    file.write_all(bytes)
}

/// Makes a directory that is ours alone, or sees that it is.
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
        // What lies there decides which code programs run.
        false => Err(format!(
            "{} is not a directory of yours alone: remove it, or set XDG_RUNTIME_DIR",
            directory.display()
        )),
    }
}

/// A number that tells paths apart (FNV-1a).
fn of_path(path: &Path) -> u64 {
    path.as_os_str().as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Where `rdmalab env` puts the library for good, unless told otherwise.
pub fn home() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|d| d.is_absolute());
    let data = absolute("XDG_DATA_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/share")))?;
    Some(data.join("rdmalab/lib"))
}

/// Removes what `exec` made; answers which directories that were.
///
/// # Errors
/// When one cannot be removed.
pub fn remove() -> Result<Vec<PathBuf>, String> {
    let mut removed = Vec::new();
    for place in places() {
        if place.symlink_metadata().is_err() {
            continue;
        }
        private(&place)?;
        std::fs::remove_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))?;
        removed.push(place);
    }
    Ok(removed)
}

/// Removes what `env` made in its usual place; `None` when there is nothing of it. Whatever else
/// lies there stays.
///
/// # Errors
/// When it cannot be removed.
pub fn remove_home() -> Result<Option<PathBuf>, String> {
    let Some(file) = home().map(|home| home.join(SONAME)) else { return Ok(None) };
    let _may_not_be_there = std::fs::remove_file(file.with_file_name(CM.soname));
    if file.symlink_metadata().is_err() {
        return Ok(None);
    }
    std::fs::remove_file(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    // The directories go if nothing else is in them.
    file.ancestors().skip(1).take(2).all(|directory| std::fs::remove_dir(directory).is_ok());
    Ok(Some(file))
}

/// A list variable with `first` in front of what it holds.
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
        // A link to the right bytes is a link to bytes that may change.
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
        assert!(refused.contains("yours alone"), "{refused}");
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
