//! The drop-in `libibverbs.so.1`.
//!
//! An unmodified program that finds this library instead of the system's sees the soft device.
//! The set of exported names and versions is exactly Debian's: `exports.txt` is the one table
//! of them, from which `build.rs` makes the version directives and the functions that only
//! fail. Everything else is listed in `exports.rs`; whatever needs a device goes through
//! `dispatch.rs`.
//!
//! No panic leaves this library: see `guard.rs`.

#[macro_use]
mod guard;

mod ah;
mod dispatch;
mod exports;
mod fork;
mod gid;
mod kernel_copy;
mod management;
mod rate;
mod stub;
mod sysfs;
mod text;
