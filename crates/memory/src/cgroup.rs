//! The limit of memory that control groups set for this process. The first allocation asks, so
//! nothing here allocates, and files are read by system calls.

use core::ffi::CStr;

/// Bytes that are read of a file, and of the longest path.
const TEXT_BYTES: usize = 4096;

/// The smallest limit in bytes of the process's memory cgroup and its ancestors; `None` without
/// one.
pub(crate) fn limit() -> Option<usize> {
    limit_of(c"/proc/self/cgroup", b"/sys/fs/cgroup")
}

/// As [`limit`], where `membership` is the list of the process's cgroups (cgroups(7)), and the
/// hierarchies are mounted in `mount` as systemd mounts them.
///
/// In a container the list may name a cgroup of the host that is not mounted here. The files of the
/// container's own cgroup are then at the top, which is an ancestor.
fn limit_of(membership: &CStr, mount: &[u8]) -> Option<usize> {
    let mut text = [0; TEXT_BYTES];
    let of_line = |line: &[u8]| {
        let mut fields = line.splitn(3, |byte| *byte == b':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        if controllers.split(|byte| *byte == b',').any(|name| name == b"memory") {
            return least(&[mount, b"/memory"], path, b"/memory.limit_in_bytes");
        }
        // Version 2 names no controllers.
        let version_2 = |place: &[&[u8]]| least(place, path, b"/memory.max");
        let is_2 = controllers.is_empty();
        is_2.then(|| smaller(version_2(&[mount]), version_2(&[mount, b"/unified"])))?
    };
    read(membership, &mut text)?.split(|byte| *byte == b'\n').filter_map(of_line).min()
}

/// The smallest number in `file` of the cgroup `path` and its ancestors.
fn least(mount: &[&[u8]], path: &[u8], file: &[u8]) -> Option<usize> {
    let mut group = path.strip_suffix(b"/").unwrap_or(path);
    let mut found = None;
    loop {
        found = smaller(found, number(mount, group, file));
        let Some(end) = group.iter().rposition(|byte| *byte == b'/') else { return found };
        group = &group[..end];
    }
}

fn smaller(one: Option<usize>, other: Option<usize>) -> Option<usize> {
    one.into_iter().chain(other).min()
}

/// The number in a file; `None` if there is no such file, or another word in it (`max`).
fn number(mount: &[&[u8]], group: &[u8], file: &[u8]) -> Option<usize> {
    let (mut path, mut end) = ([0; TEXT_BYTES], 0);
    for part in mount.iter().copied().chain([group, file]) {
        path.get_mut(end..end + part.len())?.copy_from_slice(part);
        end += part.len();
    }
    let mut text = [0; 32];
    let text = read(CStr::from_bytes_until_nul(&path).ok()?, &mut text)?;
    core::str::from_utf8(text).ok()?.trim_ascii_end().parse().ok()
}

/// The beginning of a file. Keeps `errno`, and is no cancellation point, as `malloc` is none.
fn read<'a>(path: &CStr, text: &'a mut [u8]) -> Option<&'a [u8]> {
    // SAFETY: a C string, room for the text, and the thread's own variable.
    let count = unsafe {
        let errno = *libc::__errno_location();
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags);
        let count = libc::syscall(libc::SYS_read, fd, text.as_mut_ptr(), text.len());
        libc::syscall(libc::SYS_close, fd);
        *libc::__errno_location() = errno;
        count
    };
    text.get(..usize::try_from(count).ok()?)
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    /// The limit of a process with these memberships, where these files are mounted.
    fn limit_with(membership: &str, files: &[(&str, &str)]) -> Option<usize> {
        let home = std::env::temp_dir().join(format!("rdmalab-cgroup-{}", std::process::id()));
        fs::create_dir_all(&home).unwrap();
        for (path, text) in files {
            let path = home.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let list = home.join("list");
        fs::write(&list, membership).unwrap();
        let list = CString::new(list.as_os_str().as_bytes()).unwrap();
        let found = limit_of(&list, home.as_os_str().as_bytes());
        fs::remove_dir_all(&home).unwrap();
        found
    }

    #[test]
    fn the_smallest_limit_of_the_cgroup_and_its_ancestors_holds() {
        let (max, file) = ("max\n", "a/b/memory.max");
        assert_eq!(limit_with("0::/a/b\n", &[(file, "4096\n"), ("a/memory.max", max)]), Some(4096));
        assert_eq!(limit_with("0::/a/b\n", &[(file, max), ("a/memory.max", "8\n")]), Some(8));
        assert_eq!(limit_with("0::/a/b\n", &[(file, "9"), ("a/memory.max", "8")]), Some(8));
        assert_eq!(limit_with("0::/a/b\n", &[(file, max)]), None);
        // In a container: the path of the host does not exist.
        assert_eq!(limit_with("0::/host/it\n", &[("memory.max", "5\n")]), Some(5));
        assert_eq!(limit_with("0::/\n", &[("memory.max", "6\n")]), Some(6));

        let first = "9:name=systemd:/\n4:cpu,memory:/a/b\n0::/a\n";
        let files = [
            ("memory/a/b/memory.limit_in_bytes", "7000\n"),
            ("memory/a/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(limit_with(first, &files), Some(7000));
        // A dozen hierarchies of a container have such paths.
        let others: String =
            (4..16).map(|n| format!("{n}:cpu{n}:/{}\n", "x".repeat(200))).collect();
        assert_eq!(limit_with(&format!("{others}3:memory:/a/b\n"), &files), Some(7000));
        let both = [&files[..], &[("unified/a/memory.max", "50\n")]].concat();
        assert_eq!(limit_with(first, &both), Some(50));
        assert_eq!(limit_with("4:cpu:/a/b\nnonsense\n", &files), None);
        assert_eq!(limit_of(c"/nowhere", b"/nowhere"), None);
        let long = format!("0::/{}\n", "x".repeat(1 << 16));
        assert_eq!(limit_with(&long, &[]), None);
    }
}
