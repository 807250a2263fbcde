//! Reporting failures: by `errno`, and by a message if `RDMALAB_DEBUG` is 1.

use core::ffi::c_int;
use std::io::Write as _;
use std::sync::Once;

/// A failed call: an error number, which the caller gets with -1 or null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub c_int);

/// The result of a call.
pub type CallResult<T> = Result<T, Errno>;

/// Makes an error, and prints the reason if `RDMALAB_DEBUG` is 1.
pub fn failed(errno: c_int, call: &str, why: impl FnOnce() -> String) -> Errno {
    if std::env::var_os("RDMALAB_DEBUG").is_some_and(|value| value == "1") {
        print(call, &why());
    }
    Errno(errno)
}

/// Standard error may be closed; that is no reason to panic in a C program.
fn print(call: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "rdmalab: {call}: {why}");
}

/// The error of a call that this library does not support. The first one is printed always, because
/// the error number alone looks like a mistake of the program.
pub fn unsupported(call: &str, why: &str) -> Errno {
    static PRINTED: Once = Once::new();
    PRINTED.call_once(|| print(call, why));
    Errno(libc::EOPNOTSUPP)
}

/// The error of a call for a port that is taken. The first one is printed always, because `errno`
/// may be `EADDRNOTAVAIL`, as the kernel's is, and programs print that there is no such address.
pub fn port_taken(errno: c_int, call: &str, port: u16) -> Errno {
    static PRINTED: Once = Once::new();
    let why = || {
        format!("port {port} is taken on this host: end the program that has it, or take another")
    };
    if PRINTED.is_completed() {
        return failed(errno, call, why);
    }
    PRINTED.call_once(|| print(call, &why()));
    Errno(errno)
}

/// The return value of a C function: 0, or -1 and `errno`.
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

/// The result of a verb that returns an error number.
pub fn verb(ret: c_int) -> CallResult<()> {
    match ret {
        0 => Ok(()),
        errno if errno > 0 => Err(Errno(errno)),
        _ => Err(last_errno()),
    }
}
