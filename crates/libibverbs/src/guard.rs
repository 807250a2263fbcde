//! Catches panics before they reach the C program.
//!
//! A panic that unwinds into a C program would end it. Code behind `guard` may panic; the call then
//! fails with `EIO`.

use core::ffi::c_int;
use rdmalab_abi::inline::set_errno;
use rdmalab_softnic::NoCancel;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body`; if it panics, sets `errno` to `EIO` and returns `failed`. The thread cannot be
/// cancelled meanwhile: cancellation unwinds too, and would end the process here.
pub fn guard<T>(failed: T, body: impl FnOnce() -> T) -> T {
    let _calm = NoCancel::new();
    // What the closure captured is not used after a panic, so no broken state is seen.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        set_errno(PANICKED);
        failed
    })
}

/// The error number of a call that panicked.
pub const PANICKED: c_int = libc::EIO;

/// Declares exported functions: `fn name(arguments) -> type, or value after a panic, via
/// function;`. The version directives find a function by its prefix `__rdmalab_`.
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

/// Declares exported functions that are safe to call with any arguments.
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

/// Declares exported functions in which a thread may be cancelled. Cancellation unwinds through
/// them, so nothing is caught here. The targets catch their own panics.
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
