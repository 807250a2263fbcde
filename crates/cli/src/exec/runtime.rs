//! Where our shared object lies, and the private directory in which it has the system's name.

use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// The name that programs ask for.
pub const SONAME: &str = "libibverbs.so.1";

/// Our shared object as Cargo names it.
const BUILT: &str = "libibverbs.so";

/// Finds our shared object: in `RDMALAB_LIBDIR` if set; else beside this binary, in its `deps`
/// (where Cargo leaves it), or in `../lib/rdmalab` (where it is installed).
///
/// # Errors
/// That it is nowhere, with where it was looked for and how to build it.
pub fn library() -> Result<PathBuf, String> {
    let directories = match std::env::var_os("RDMALAB_LIBDIR") {
        Some(directory) => vec![PathBuf::from(directory)],
        None => {
            let program = std::env::current_exe().map_err(|e| format!("where are we? {e}"))?;
            let beside = program.parent().unwrap_or(Path::new("/")).to_owned();
            vec![beside.clone(), beside.join("deps"), beside.join("../lib/rdmalab")]
        }
    };
    let candidates = directories.iter().flat_map(|d| [d.join(SONAME), d.join(BUILT)]);
    for candidate in candidates {
        if candidate.is_file() {
            return candidate.canonicalize().map_err(|e| format!("{}: {e}", candidate.display()));
        }
    }
    let places: Vec<String> = directories.iter().map(|d| d.display().to_string()).collect();
    Err(format!(
        "our {BUILT} is in none of {}: build it with `cargo build --release -p \
         rdmalab-libibverbs`, or name its directory in RDMALAB_LIBDIR",
        places.join(", ")
    ))
}

/// The directory of this user.
fn place() -> PathBuf {
    let own = rustix::process::geteuid().as_raw();
    let usable = |directory: &PathBuf| {
        directory.is_absolute() && directory.metadata().is_ok_and(|d| d.is_dir() && d.uid() == own)
    };
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(usable) {
        Some(directory) => directory.join("rdmalab"),
        None => std::env::temp_dir().join(format!("rdmalab-{own}")),
    }
}

/// Makes a private directory with our library under the system's name, and names it. Each build of
/// the library has its own, so that two do not disturb each other; made again and again it is the
/// same.
///
/// # Errors
/// When it cannot be made, or somebody else's is in its place.
pub fn prepare(library: &Path) -> Result<PathBuf, String> {
    prepare_in(&place(), library)
}

fn prepare_in(top: &Path, library: &Path) -> Result<PathBuf, String> {
    private(top)?;
    let directory = top.join(format!("lib-{:016x}", fingerprint(library)));
    private(&directory)?;
    let link = directory.join(SONAME);
    if std::fs::read_link(&link).is_ok_and(|target| target == library) {
        return Ok(directory);
    }
    // Under another name first: a program that starts meanwhile finds the link or its successor.
    let fresh = directory.join(format!("new-{}", std::process::id()));
    let failed = |e: std::io::Error| format!("{}: {e}", link.display());
    let _ = std::fs::remove_file(&fresh);
    symlink(library, &fresh).map_err(failed)?;
    std::fs::rename(&fresh, &link).map_err(failed)?;
    Ok(directory)
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
fn fingerprint(path: &Path) -> u64 {
    path.as_os_str().as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Removes the directory; `None` when there is none.
///
/// # Errors
/// When it cannot be removed.
pub fn remove() -> Result<Option<PathBuf>, String> {
    let place = place();
    if place.symlink_metadata().is_err() {
        return Ok(None);
    }
    private(&place)?;
    std::fs::remove_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))?;
    Ok(Some(place))
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
        let first = prepare_in(&top, &library).unwrap();
        assert_eq!(prepare_in(&top, &library), Ok(first.clone()));
        assert_eq!(std::fs::read_link(first.join(SONAME)).unwrap(), library);
        assert_eq!(top.metadata().unwrap().mode() & 0o777, 0o700);
        assert_eq!(std::fs::read_dir(&first).unwrap().count(), 1);
        let other = prepare_in(&top, &home.path().join("other.so")).unwrap();
        assert_ne!(first, other);
    }

    #[test]
    fn a_directory_that_others_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let top = home.path().join("top");
        std::fs::create_dir(&top).unwrap();
        std::fs::set_permissions(&top, std::fs::Permissions::from_mode(0o777)).unwrap();
        let refused = prepare_in(&top, Path::new("/x")).unwrap_err();
        assert!(refused.contains("yours alone"), "{refused}");
        let link = home.path().join("link");
        symlink(home.path(), &link).unwrap();
        assert!(prepare_in(&link, Path::new("/x")).is_err());
    }
}
