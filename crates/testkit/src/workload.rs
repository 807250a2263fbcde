//! Random workloads between two queue pairs, and the oracles that judge them.
//!
//! A seed determines a [`Scenario`]: transport, attributes, faults, and the requests of each end.
//! [`run`] plays it in a [`crate::sim::World`] and panics if the engine breaks its contract:
//! - bytes delivered equal bytes sent; each atomic executes once, even if its request is repeated;
//! - each work request and each receive completes once and in order;
//! - a send on RC completes only after the responder took it;
//! - an error is one that the scenario explains, and all later requests are flushed;
//! - after the faults end, each queue pair drains or is in ERR within bounded virtual time.

mod flow;
mod play;
mod scenario;

pub use flow::Transcript;
pub use play::{Player, run};
pub use scenario::{Op, Scenario, Trouble};
