//! Functions about symbolic links and real paths. Each device file of the tree is a symbolic link.
//! Programs must see neither these links nor the paths of the tree.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

use libc::{size_t, ssize_t};

use crate::exports::{Stat, behind, sent};
use crate::place::{self, Kind, LONGEST, Room};
use crate::real::{Real, set_errno};

/// Declares functions that do not follow links, each with the function that does.
macro_rules! of_links {
    ($(
        fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty, $path:ident, through $other:ident;
    )*) => {
        /// The C library's functions.
        #[allow(non_upper_case_globals)]
        mod behind_links {
            use crate::links::*;
            $(
                pub(super) static $name: Real<unsafe extern "C" fn($($type),*) -> $ret> =
                    Real::new(concat!(stringify!($name), "\0"));
            )*
        }

        fn find_these() {
            $( behind_links::$name.find(); )*
        }

        $(
            #[doc = concat!("`", stringify!($name), "` of the C library, on our paths too.")]
            ///
            /// # Safety
            /// As for the C library's function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> $ret {
                let Some(real) = behind_links::$name.get() else { return -1 };
                // SAFETY: the caller's contract, for either function.
                unsafe {
                    sent($path, -1, |$path, kind| match behind::$other.get() {
                        Some(through) if kind == Kind::Device => through($($arg),*),
                        _ => real($($arg),*),
                    })
                }
            }
        )*
    };
}

of_links! {
    fn lstat(path: *const c_char, data: *mut Stat) -> c_int, path, through stat;
    fn lstat64(path: *const c_char, data: *mut Stat) -> c_int, path, through stat64;
    fn __lxstat(version: c_int, path: *const c_char, data: *mut Stat) -> c_int, path,
        through __xstat;
    fn __lxstat64(version: c_int, path: *const c_char, data: *mut Stat) -> c_int, path,
        through __xstat64;
    fn lgetxattr(path: *const c_char, name: *const c_char, to: *mut c_void, size: size_t)
        -> ssize_t, path, through getxattr;
    fn llistxattr(path: *const c_char, to: *mut c_char, size: size_t) -> ssize_t, path,
        through listxattr;
}

type ReadLink = unsafe extern "C" fn(*const c_char, *mut c_char, size_t) -> ssize_t;
type ReadLinkChecked = unsafe extern "C" fn(*const c_char, *mut c_char, size_t, size_t) -> ssize_t;
type ReadLinkAt = unsafe extern "C" fn(c_int, *const c_char, *mut c_char, size_t) -> ssize_t;
type ReadLinkAtChecked =
    unsafe extern "C" fn(c_int, *const c_char, *mut c_char, size_t, size_t) -> ssize_t;
type RealPath = unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut c_char;
type RealPathChecked = unsafe extern "C" fn(*const c_char, *mut c_char, size_t) -> *mut c_char;

static READLINK: Real<ReadLink> = Real::new("readlink\0");
static READLINK_CHECKED: Real<ReadLinkChecked> = Real::new("__readlink_chk\0");
static READLINKAT: Real<ReadLinkAt> = Real::new("readlinkat\0");
static READLINKAT_CHECKED: Real<ReadLinkAtChecked> = Real::new("__readlinkat_chk\0");
static REALPATH: Real<RealPath> = Real::new("realpath\0");
static REALPATH_CHECKED: Real<RealPathChecked> = Real::new("__realpath_chk\0");

/// Looks up the C library's functions.
pub(crate) fn find_all() {
    find_these();
    READLINK.find();
    READLINK_CHECKED.find();
    READLINKAT.find();
    READLINKAT_CHECKED.find();
    REALPATH.find();
    REALPATH_CHECKED.find();
}

/// Reads a link of the tree by `call`; fails for a device, which is no link.
///
/// # Safety
/// As for `call` with this path.
unsafe fn link(path: *const c_char, call: impl FnOnce(*const c_char) -> ssize_t) -> ssize_t {
    // SAFETY: the caller's contract.
    unsafe {
        sent(path, -1, |path, kind| match kind {
            Kind::Device => not_a_link(path),
            Kind::Other | Kind::Sysfs => call(path),
        })
    }
}

/// The result of `readlink` for a device or the directory of devices: `EINVAL` if it exists.
fn not_a_link(path: *const c_char) -> ssize_t {
    // SAFETY: a C string; only checks that the file exists.
    let is_there = behind::access.get().is_some_and(|real| unsafe { real(path, libc::F_OK) } == 0);
    if is_there {
        set_errno(libc::EINVAL);
    }
    -1
}

/// `readlink` of the C library, on our paths too.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readlink(path: *const c_char, to: *mut c_char, size: size_t) -> ssize_t {
    let Some(real) = READLINK.get() else { return -1 };
    // SAFETY: the caller's contract.
    unsafe { link(path, |path| real(path, to, size)) }
}

/// `readlink` of fortified programs, which pass the true size of their buffer.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __readlink_chk(
    path: *const c_char,
    to: *mut c_char,
    size: size_t,
    true_size: size_t,
) -> ssize_t {
    let Some(real) = READLINK_CHECKED.get() else { return -1 };
    let call = |path| {
        // SAFETY: the caller's contract.
        unsafe { real(path, to, size, true_size) }
    };
    // SAFETY: the caller's contract.
    unsafe { link(path, call) }
}

/// `readlinkat` of the C library, on our paths too.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readlinkat(
    at: c_int,
    path: *const c_char,
    to: *mut c_char,
    size: size_t,
) -> ssize_t {
    let Some(real) = READLINKAT.get() else { return -1 };
    let call = |path| {
        // SAFETY: the caller's contract.
        unsafe { real(at, path, to, size) }
    };
    // SAFETY: the caller's contract.
    unsafe { link(path, call) }
}

/// `readlinkat` of fortified programs, which pass the true size of their buffer.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __readlinkat_chk(
    at: c_int,
    path: *const c_char,
    to: *mut c_char,
    size: size_t,
    true_size: size_t,
) -> ssize_t {
    let Some(real) = READLINKAT_CHECKED.get() else { return -1 };
    let call = |path| {
        // SAFETY: the caller's contract.
        unsafe { real(at, path, to, size, true_size) }
    };
    // SAFETY: the caller's contract.
    unsafe { link(path, call) }
}

/// The real path of one of our paths, as the program knows it. It is written to `to`, or if `to` is
/// null, to memory that the program frees.
///
/// # Safety
/// As for `realpath`, which `real` must be.
#[cold]
#[inline(never)]
unsafe fn real_name(path: *const c_char, to: *mut c_char, real: RealPath) -> *mut c_char {
    let mut found = Room::new();
    let into = found.as_mut_ptr();
    // SAFETY: the caller's contract, and room for the longest path there is.
    let (kind, name) = unsafe {
        sent(path, (Kind::Other, ptr::null_mut()), |path, kind| (kind, real(path, into)))
    };
    if name.is_null() {
        return ptr::null_mut();
    }
    let found = found.path();
    let shown = match place::public(found) {
        Some(public) => public,
        // A device's link leads out of the tree: return the path that the program gave.
        // SAFETY: the caller's contract.
        None if kind == Kind::Device => unsafe { CStr::from_ptr(path) },
        None => found,
    };
    if to.is_null() {
        // SAFETY: a C string.
        return unsafe { libc::strdup(shown.as_ptr()) };
    }
    let bytes = shown.to_bytes_with_nul();
    if bytes.len() > LONGEST {
        set_errno(libc::ENAMETOOLONG);
        return ptr::null_mut();
    }
    // SAFETY: the caller gives room for the longest path, and this is no longer.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr().cast(), to, bytes.len()) };
    to
}

/// `realpath` of the C library, on our paths too.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realpath(path: *const c_char, to: *mut c_char) -> *mut c_char {
    let Some(real) = REALPATH.get() else { return ptr::null_mut() };
    // SAFETY: the caller's contract.
    unsafe {
        match place::kind(path) {
            Kind::Other => real(path, to),
            _ => real_name(path, to, real),
        }
    }
}

/// `realpath` of fortified programs, which pass the true size of their buffer.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __realpath_chk(
    path: *const c_char,
    to: *mut c_char,
    true_size: size_t,
) -> *mut c_char {
    let Some(real) = REALPATH_CHECKED.get() else { return ptr::null_mut() };
    // SAFETY: the caller's contract. The C library's function reports a buffer that is too small.
    unsafe {
        match (place::kind(path), REALPATH.get()) {
            (Kind::Other, _) | (_, None) => real(path, to, true_size),
            _ if true_size < LONGEST => real(path, to, true_size),
            (_, Some(plain)) => real_name(path, to, plain),
        }
    }
}

/// `canonicalize_file_name` of the C library, on our paths too: `realpath` into new memory.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
    // SAFETY: the caller's contract.
    unsafe { realpath(path, ptr::null_mut()) }
}
