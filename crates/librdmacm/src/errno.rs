//! How failures are told: by `errno`, and in words to whoever asked for them.

use core::ffi::c_int;
use std::io::Write as _;

/// A failed call: an error number, which the caller gets with -1 or null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub c_int);

/// The result of what a call does.
pub type CallResult<T> = Result<T, Errno>;

/// Says in words why something failed; printed if `RDMALAB_DEBUG` is 1, because a library is
/// silent otherwise.
pub fn failed(errno: c_int, call: &str, why: impl FnOnce() -> String) -> Errno {
    if std::env::var_os("RDMALAB_DEBUG").is_some_and(|value| value == "1") {
        say(call, &why());
    }
    Errno(errno)
}

/// Standard error may be closed; that is no reason to panic in a C program.
fn say(call: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "rdmalab: {call}: {why}");
}

/// The same for what this library does not do at all: said once also to who did not ask, since the
/// error number alone lookups like a mistake of the program.
pub fn unsupported(call: &str, why: &str) -> Errno {
    static SAID: std::sync::Once = std::sync::Once::new();
    SAID.call_once(|| say(call, why));
    Errno(libc::EOPNOTSUPP)
}

/// The answer of a call that says 0, or -1 and `errno`.
pub fn answer(result: CallResult<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(Errno(errno)) => {
            rdmalab_abi::inline::set_errno(errno);
            -1
        }
    }
}

/// The error number of an operating system's error.
pub fn errno_of(error: &std::io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}

/// The `errno` that a call has just left behind.
pub fn last_errno() -> Errno {
    errno_of(&std::io::Error::last_os_error())
}

/// The result of a verb that answers an error number.
pub fn verb(ret: c_int) -> CallResult<()> {
    match ret {
        0 => Ok(()),
        errno if errno > 0 => Err(Errno(errno)),
        _ => Err(last_errno()),
    }
}
