//! The border that no panic crosses, as in `rdmalab-libibverbs`.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body`; if it panics, sets `errno` to `EIO` and answers `failed`.
pub fn guard<T>(failed: T, body: impl FnOnce() -> T) -> T {
    // Nothing of the closure is looked at again after a panic, so nothing broken can be seen.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        rdmalab_abi::inline::set_errno(libc::EIO);
        failed
    })
}

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
