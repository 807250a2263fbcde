//! Random workloads between two queue pairs, and the oracles that judge them.
//!
//! A seed names a [`Scenario`]: transport, attributes, faults, and what each end sends. [`run`]
//! plays it in a [`crate::sim::World`] and panics where the engine breaks its contract:
//! - bytes delivered equal bytes sent; atomics execute once, whatever is repeated;
//! - each work request completes once and in order, each receive too;
//! - a send on RC completes only after the responder took it;
//! - an error is one that the scenario explains, and everything behind it is flushed;
//! - when the faults are over, every queue pair drains or is in ERR within bounded virtual time.

mod flow;
mod play;
mod scenario;

pub use flow::Transcript;
pub use play::{Player, run};
pub use scenario::{Op, Scenario, Trouble};
