//! The C ABI of libibverbs in Rust.
//!
//! Layouts and constants follow rdma-core 44 (Debian 12). Three structures have grown since and
//! have their newest size here, because code that *allocates* them must allocate the newest:
//! [`verbs_context`] (new slots are added in front), [`ibv_qp_ex`] and [`ibv_port_attr`]. Every
//! offset and size is asserted at compile time; a test compares all of them, and every constant,
//! with the system's header if it is installed.
//!
//! Names keep their C spelling, and enumerations are plain integers: a value that comes from C
//! may be any bit pattern.
//!
//! * [`types`], [`consts`]: the layouts and the numbers, all re-exported here.
//! * [`inline`]: the `static inline` functions of the header, as functions over raw pointers.
//! * [`loader`]: [`VerbsTable`], the exported functions, from a shared library or written by hand.
//! * [`manager`]: [`CmTable`], the exported functions of the connection manager.
#![allow(non_camel_case_types, non_snake_case)]

#[macro_use]
pub mod layout;
pub mod consts;
mod errno;
pub mod inline;
pub mod loader;
pub mod manager;
pub mod types;

pub use consts::*;
pub use layout::CLayout;
pub use loader::{LoadError, VerbsTable};
pub use manager::{CmLoan, CmTable, MadPort};
pub use types::*;
