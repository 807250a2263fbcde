//! Which paths are redirected, and to which files.

use core::ffi::{CStr, c_char, c_int};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The environment variable that names the tree.
pub(crate) const VARIABLE: &CStr = c"RDMALAB_PATHS";

/// The longest path that the kernel takes, with its final zero.
pub(crate) const LONGEST: usize = libc::PATH_MAX as usize;

/// The kind of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Any other path: it is not changed.
    Other,
    /// A device file. The tree has a link to `/dev/null`, which programs must not see as a link.
    Device,
    /// A file of sysfs.
    Sysfs,
}

/// The redirected paths: prefix, whether its last component may have more characters, and kind.
const PLACES: [(&[u8], bool, Kind); 3] = [
    (b"/sys/class/infiniband", true, Kind::Sysfs),
    (b"/dev/infiniband", false, Kind::Device),
    (b"/sys/class/misc/rdma_cm", false, Kind::Sysfs),
];

/// The kind of a path, its prefix of [`PLACES`], and the rest of the path.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn find(path: *const c_char) -> Option<(Kind, &'static [u8], *const c_char)> {
    if path.is_null() {
        return None;
    }
    PLACES.iter().find_map(|&(start, may_go_on, kind)| {
        // SAFETY: the caller's contract.
        let rest = unsafe { behind(path, start)? };
        // SAFETY: inside the string, or its final zero.
        let next = unsafe { rest.read() } as u8;
        (may_go_on || next == 0 || next == b'/').then_some((kind, start, rest))
    })
}

/// The kind of a path.
///
/// # Safety
/// `path` is null or a C string.
#[inline]
pub(crate) unsafe fn kind(path: *const c_char) -> Kind {
    // SAFETY: the caller's contract.
    unsafe { find(path) }.map_or(Kind::Other, |(kind, ..)| kind)
}

/// What follows `start` in a path; slashes may be repeated.
///
/// # Safety
/// `path` is a C string.
#[inline]
unsafe fn behind(mut path: *const c_char, start: &[u8]) -> Option<*const c_char> {
    for &expected in start {
        // SAFETY: up to here every byte was one of `start`, so none was the final zero.
        if unsafe { path.read() } as u8 != expected {
            return None;
        }
        // SAFETY: not the final zero, so one more byte belongs to the string.
        path = unsafe { path.add(1) };
        // SAFETY: as above; a slash is not the final zero either.
        while expected == b'/' && unsafe { path.read() } as u8 == b'/' {
            // SAFETY: as above.
            path = unsafe { path.add(1) };
        }
    }
    Some(path)
}

/// A buffer for a path.
pub(crate) struct Room([u8; LONGEST]);

impl Room {
    pub(crate) const fn new() -> Room {
        Room([0; LONGEST])
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut c_char {
        self.0.as_mut_ptr().cast()
    }

    pub(crate) fn path(&self) -> &CStr {
        // The last byte is never written by us, nor by the C library given this length.
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }

    /// Writes the parts one after another, and a zero; `ENAMETOOLONG` if they do not fit.
    fn write(&mut self, parts: [&[u8]; 3]) -> Result<(), c_int> {
        let mut at = 0;
        for part in parts {
            let end = at + part.len();
            // One byte stays for the zero.
            if end >= LONGEST {
                return Err(libc::ENAMETOOLONG);
            }
            let room = self.0.get_mut(at..end).ok_or(libc::ENAMETOOLONG)?;
            room.copy_from_slice(part);
            at = end;
        }
        self.0.get_mut(at).map(|zero| *zero = 0).ok_or(libc::ENAMETOOLONG)
    }
}

/// The path of the tree, after its first use; never freed.
static TREE: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());

/// The path of the tree: the value of [`VARIABLE`] when the process started, because the program
/// may overwrite its environment. `None` if the variable is not set.
pub(crate) fn tree() -> Option<&'static CStr> {
    let mut tree = TREE.load(Ordering::Acquire);
    if tree.is_null() {
        // SAFETY: a C string. The dynamic linker makes the first call while the process starts,
        // when no thread changes the environment.
        let value = unsafe { libc::getenv(VARIABLE.as_ptr()) };
        if value.is_null() {
            return None;
        }
        // SAFETY: a C string, as `getenv` says.
        let copy = unsafe { libc::strdup(value) };
        match TREE.compare_exchange(tree, copy, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => tree = copy,
            Err(others) => {
                // SAFETY: our own copy, which no other thread has seen.
                unsafe { libc::free(copy.cast()) };
                tree = others;
            }
        }
    }
    // SAFETY: a C string that is never freed.
    (!tree.is_null()).then(|| unsafe { CStr::from_ptr(tree) })
}

/// Writes the path of the tree that replaces `path` to `room`; `None` if `path` is not redirected.
///
/// # Safety
/// `path` is null or a C string.
pub(crate) unsafe fn translate(path: *const c_char, room: &mut Room) -> Option<Result<(), c_int>> {
    // SAFETY: the caller's contract.
    let (_, start, rest) = unsafe { find(path)? };
    let tree = tree()?;
    // SAFETY: the end of a C string is a C string.
    let rest = unsafe { CStr::from_ptr(rest) };
    Some(room.write([tree.to_bytes(), start, rest.to_bytes()]))
}

/// The path that a program knows for a path of the tree; `None` for a path outside of the tree.
pub(crate) fn public(path: &CStr) -> Option<&CStr> {
    let inside = path.to_bytes_with_nul().strip_prefix(tree()?.to_bytes())?;
    inside.starts_with(b"/").then(|| CStr::from_bytes_with_nul(inside).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of(path: &CStr) -> Kind {
        // SAFETY: a C string.
        unsafe { kind(path.as_ptr()) }
    }

    #[test]
    fn only_these_paths_are_answered() {
        for path in [
            c"/sys/class/infiniband",
            c"/sys/class/infiniband/",
            c"/sys/class/infiniband/soft0/ports/1/state",
            c"/sys/class/infiniband_verbs/abi_version",
            c"/sys/class/infiniband_mad",
            c"//sys///class/infiniband",
            c"/sys/class/misc/rdma_cm/abi_version",
        ] {
            assert_eq!(kind_of(path), Kind::Sysfs, "{path:?}");
        }
        for path in [c"/dev/infiniband", c"/dev/infiniband/uverbs0", c"/dev//infiniband//rdma_cm"] {
            assert_eq!(kind_of(path), Kind::Device, "{path:?}");
        }
        for path in [
            c"",
            c"/",
            c"//",
            c"/d",
            c"/dev",
            c"/dev/",
            c"/dev/infiniban",
            c"/dev/infiniband2",
            c"dev/infiniband",
            c"/sys/class",
            c"/sys/class/net/lo",
            c"/sys/class/misc/rdma_cm2",
            c"/home/sys/class/infiniband",
        ] {
            assert_eq!(kind_of(path), Kind::Other, "{path:?}");
        }
        // SAFETY: null is allowed.
        assert_eq!(unsafe { kind(ptr::null()) }, Kind::Other);
    }

    #[test]
    fn a_room_holds_what_fits_and_refuses_what_does_not() {
        let mut room = Room::new();
        let long = [b'x'; LONGEST];
        assert_eq!(room.write([b"/a", b"/b", b"/c"]), Ok(()));
        assert_eq!(room.path(), c"/a/b/c");
        assert_eq!(room.write([&long[..LONGEST - 1], b"", b""]), Ok(()));
        assert_eq!(room.path().to_bytes().len(), LONGEST - 1);
        assert_eq!(room.write([&long[..LONGEST - 1], b"x", b""]), Err(libc::ENAMETOOLONG));
        assert_eq!(room.write([b"", &long, b""]), Err(libc::ENAMETOOLONG));
    }
}
