//! The border that no panic crosses.
//!
//! The callers are C programs: an unwinding panic would end them. What is behind the border is
//! allowed to unwind, and is left in a state that says "failed".

use core::ffi::c_int;
use rdmalab_abi::inline::set_errno;
use rdmalab_softnic::NoCancel;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body`; if it panics, sets `errno` to `EIO` and answers `failed`. The thread is not
/// cancelled meanwhile, which would unwind as well, and end the process here.
pub fn guard<T>(failed: T, body: impl FnOnce() -> T) -> T {
    let _calm = NoCancel::new();
    // Nothing of the closure is looked at again after a panic, so nothing broken can be seen.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        set_errno(PANICKED);
        failed
    })
}

/// The error number of a call that panicked.
pub const PANICKED: c_int = libc::EIO;

/// Declares exported functions: `fn name(arguments) -> type, or what a panic answers, via
/// function;`. The name gets our prefix, under which the version directives find it.
macro_rules! export {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?,
        or $failed:expr, via $target:path;)*) => {$(
        $(#[$meta])*
        #[unsafe(export_name = concat!("__rdmalab_", stringify!($name)))]
        unsafe extern "C" fn $name($($arg: $ty),*) $(-> $ret)? {
            // SAFETY: the arguments are the caller's, who promises what the manual page of this
            // function asks for; the target has the same contract.
            $crate::guard::guard($failed, || unsafe { $target($($arg),*) })
        }
    )*};
}

/// Declares exported functions that ask nothing of their caller.
macro_rules! export_safe {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?,
        or $failed:expr, via $target:path;)*) => {$(
        $(#[$meta])*
        #[unsafe(export_name = concat!("__rdmalab_", stringify!($name)))]
        extern "C" fn $name($($arg: $ty),*) $(-> $ret)? {
            $crate::guard::guard($failed, || $target($($arg),*))
        }
    )*};
}

/// Declares exported functions that threads may be cancelled in, which unwinds through them:
/// nothing is caught here, and the targets keep their panics to themselves.
macro_rules! export_cancellable {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty,
        via $target:path;)*) => {$(
        $(#[$meta])*
        #[unsafe(export_name = concat!("__rdmalab_", stringify!($name)))]
        unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: the arguments are the caller's, who promises what the manual page of this
            // function asks for; the target has the same contract.
            unsafe { $target($($arg),*) }
        }
    )*};
}
