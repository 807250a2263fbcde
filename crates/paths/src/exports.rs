//! The functions of the C library that this library replaces.
//!
//! Variadic functions (`open`) are defined with all their arguments: Linux on x86-64 and aarch64
//! passes them in the same registers. An argument that the caller leaves out is not looked at.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr;

use libc::{DIR, FILE, mode_t, size_t, ssize_t};

use crate::place::{self, Kind, Room};
use crate::real::{Real, set_errno};

/// Calls `call` with the path that replaces `path`, and its kind; `no` if the path is too long.
///
/// # Safety
/// `path` is null or a C string.
#[inline]
pub(crate) unsafe fn sent<T>(
    path: *const c_char,
    no: T,
    call: impl FnOnce(*const c_char, Kind) -> T,
) -> T {
    // SAFETY: the caller's contract.
    match unsafe { place::kind(path) } {
        Kind::Other => call(path, Kind::Other),
        // SAFETY: the caller's contract.
        kind => unsafe { send(path, kind, no, call) },
    }
}

/// The rare case of [`sent`], which needs a large buffer on the stack.
///
/// # Safety
/// `path` is a C string.
#[cold]
#[inline(never)]
unsafe fn send<T>(
    path: *const c_char,
    kind: Kind,
    no: T,
    call: impl FnOnce(*const c_char, Kind) -> T,
) -> T {
    let mut room = Room::new();
    // SAFETY: the caller's contract.
    match unsafe { place::translate(path, &mut room) } {
        None => call(path, Kind::Other),
        Some(Ok(())) => call(room.path().as_ptr(), kind),
        Some(Err(errno)) => {
            set_errno(errno);
            no
        }
    }
}

/// Declares functions that replace the C library's: name, arguments, which argument is the path,
/// and what a failure returns. `|KIND| ARGUMENT = VALUE` changes an argument before the call.
macro_rules! fronts {
    ($(
        fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty, $path:ident, or $no:expr
            $(, |$kind:ident| $change:ident = $value:expr)?;
    )*) => {
        /// The C library's functions.
        #[allow(non_upper_case_globals)]
        pub(crate) mod behind {
            use crate::exports::*;
            $(
                pub(crate) static $name: Real<unsafe extern "C" fn($($type),*) -> $ret> =
                    Real::new(concat!(stringify!($name), "\0"));
            )*
        }

        /// Looks up the C library's functions.
        pub(crate) fn find_all() {
            $( behind::$name.find(); )*
        }

        $(
            #[doc = concat!("`", stringify!($name), "` of the C library, on our paths too.")]
            ///
            /// # Safety
            /// As for the C library's function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> $ret {
                let Some(real) = behind::$name.get() else { return $no };
                // SAFETY: the caller's contract.
                unsafe {
                    sent($path, $no, |$path, _kind| {
                        $(
                            let $kind = _kind;
                            let $change = $value;
                        )?
                        // SAFETY: the caller's contract; the path is a C string like the caller's.
                        real($($arg),*)
                    })
                }
            }
        )*
    };
}

/// The flags of `open`, which must follow the link that the tree has for a device.
fn open_flags(kind: Kind, flags: c_int) -> c_int {
    if kind == Kind::Device { flags & !libc::O_NOFOLLOW } else { flags }
}

/// The flags of `fstatat` and the like, which must follow the link that the tree has for a device.
fn at_flags(kind: Kind, flags: c_int) -> c_int {
    if kind == Kind::Device { flags & !libc::AT_SYMLINK_NOFOLLOW } else { flags }
}

pub(crate) type Stat = libc::stat;
/// The filter or the order of `scandir`, which is only passed on.
type Callback = *mut c_void;

fronts! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, path, or -1,
        |kind| flags = open_flags(kind, flags);
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, path, or -1,
        |kind| flags = open_flags(kind, flags);
    fn __open_2(path: *const c_char, flags: c_int) -> c_int, path, or -1,
        |kind| flags = open_flags(kind, flags);
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int, path, or -1,
        |kind| flags = open_flags(kind, flags);
    fn openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, path, or -1,
        |kind| flags = open_flags(kind, flags);
    fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, path, or -1,
        |kind| flags = open_flags(kind, flags);
    fn __openat_2(at: c_int, path: *const c_char, flags: c_int) -> c_int, path, or -1,
        |kind| flags = open_flags(kind, flags);
    fn __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int, path, or -1,
        |kind| flags = open_flags(kind, flags);
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE, path, or ptr::null_mut();
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE, path, or ptr::null_mut();
    fn freopen(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE, path,
        or ptr::null_mut();
    fn freopen64(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE, path,
        or ptr::null_mut();

    fn stat(path: *const c_char, data: *mut Stat) -> c_int, path, or -1;
    fn stat64(path: *const c_char, data: *mut Stat) -> c_int, path, or -1;
    fn fstatat(at: c_int, path: *const c_char, data: *mut Stat, flags: c_int) -> c_int, path,
        or -1, |kind| flags = at_flags(kind, flags);
    fn fstatat64(at: c_int, path: *const c_char, data: *mut Stat, flags: c_int) -> c_int, path,
        or -1, |kind| flags = at_flags(kind, flags);
    fn statx(at: c_int, path: *const c_char, flags: c_int, mask: c_uint, data: *mut libc::statx)
        -> c_int, path, or -1, |kind| flags = at_flags(kind, flags);
    fn __xstat(version: c_int, path: *const c_char, data: *mut Stat) -> c_int, path, or -1;
    fn __xstat64(version: c_int, path: *const c_char, data: *mut Stat) -> c_int, path, or -1;
    fn __fxstatat(version: c_int, at: c_int, path: *const c_char, data: *mut Stat, flags: c_int)
        -> c_int, path, or -1, |kind| flags = at_flags(kind, flags);
    fn __fxstatat64(version: c_int, at: c_int, path: *const c_char, data: *mut Stat, flags: c_int)
        -> c_int, path, or -1, |kind| flags = at_flags(kind, flags);

    fn access(path: *const c_char, mode: c_int) -> c_int, path, or -1;
    fn euidaccess(path: *const c_char, mode: c_int) -> c_int, path, or -1;
    fn eaccess(path: *const c_char, mode: c_int) -> c_int, path, or -1;
    fn faccessat(at: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int, path, or -1,
        |kind| flags = at_flags(kind, flags);

    fn getxattr(path: *const c_char, name: *const c_char, to: *mut c_void, size: size_t)
        -> ssize_t, path, or -1;
    fn listxattr(path: *const c_char, to: *mut c_char, size: size_t) -> ssize_t, path, or -1;

    fn opendir(path: *const c_char) -> *mut DIR, path, or ptr::null_mut();
    fn scandir(path: *const c_char, list: *mut c_void, filter: Callback, order: Callback) -> c_int,
        path, or -1;
    fn scandir64(path: *const c_char, list: *mut c_void, filter: Callback, order: Callback)
        -> c_int, path, or -1;
    fn chdir(path: *const c_char) -> c_int, path, or -1;
}
