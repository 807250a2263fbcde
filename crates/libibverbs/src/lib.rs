//! The drop-in `libibverbs.so.1`.
//!
//! An unmodified program that loads this library instead of the system's sees the soft device. The
//! exported names and versions are exactly Debian's. `exports.txt` lists them; from it `build.rs`
//! makes the version directives and the functions that always fail. `exports.rs` declares all
//! others, and `dispatch.rs` forwards those that need a device.
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
