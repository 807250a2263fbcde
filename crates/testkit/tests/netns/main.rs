//! Hosts that share nothing but a network: Debian's programs in network namespaces that a switch
//! of veth pairs connects, on our `libibverbs.so.1` with `RDMALAB_INTERFACE`. Interface counters
//! prove that packets crossed.
//!
//! Needs root (for the namespaces, not for the device) and `ip`; skipped otherwise.

mod captured;
mod clocks;
mod connected;
mod disturbed;
mod healed;
mod lab;
mod local;
mod neighbours;
mod pairs;
mod sharing;
