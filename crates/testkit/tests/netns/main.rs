//! Hosts that share only a network: Debian's programs on our `libibverbs.so.1` with
//! `RDMALAB_INTERFACE`, in network namespaces. A switch with veth pairs connects these. Interface
//! counters prove that packets crossed.
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
