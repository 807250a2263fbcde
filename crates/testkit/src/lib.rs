//! Code that several tests share. No released program contains it.
//!
//! Other crates use this one as a dev-dependency only. The house rules (which crate may use which,
//! where `unsafe` may stand, how long a function may be) are tests in `tests/tidy/`, so that a
//! plain `cargo test` checks them; they need no code from here.
#![forbid(unsafe_code)]

pub mod compiled;
pub mod conformance;
pub mod fuzz;
pub mod hostile;
pub mod programs;
pub mod sim;
pub mod workload;
