//! Experiments that run in real time only, since they have threads, sockets or timers of their own:
//! those of [`rdmalab_experiments`] also run in virtual time. A program adds them to its list, as
//! it adds its own ones.

#![forbid(unsafe_code)]

mod gateway;

use rdmalab_experiments::Runner;
use rdmalab_rank::process::ProcessRank;

/// The experiments of this crate.
#[must_use]
pub fn experiments() -> Vec<Runner<ProcessRank>> {
    vec![Runner::of::<gateway::Gateway>()]
}
