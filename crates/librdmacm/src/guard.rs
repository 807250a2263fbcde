//! Catches panics before they reach the C program, as in `rdmalab-libibverbs`.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body`; if it panics, sets `errno` to `EIO` and returns `failed`.
pub fn guard<T>(failed: T, body: impl FnOnce() -> T) -> T {
    // What the closure captured is not used after a panic, so no broken state is seen.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        rdmalab_abi::inline::set_errno(libc::EIO);
        failed
    })
}

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
