//! The bare limits of this machine: how fast a cache line, a copy, a system call or a datagram is
//! without our code. Our own numbers are given as ratios to these limits, so that a ratio means the
//! same on another machine.
//!
//! Each limit is a [`Limit`]: one short run (some milliseconds) gives one number, the median over
//! its batches, so that a preemption does not decide it. [`interleave`] takes turns, A, B, A, B, so
//! that what drifts (clock rates, neighbours) hits all of them, and keeps the runs in order: those
//! of two limits are pairs for [`crate::stats::paired_ratio`].
//!
//! Where two ends share one CPU, spinning ends yield after each look; the number is then that of
//! the scheduler, and still ends.

pub mod cpu;
pub mod datagrams;
pub mod handoff;
mod limit;
pub mod memcpy;
mod peer;
pub mod skew;
pub mod spsc;
pub mod syscall;
pub mod udp;
pub mod vmwrite;

pub use cpu::{Pin, SpinHint, available_cores, one_cpu, pin_to, two_cores};
pub use handoff::{Handoff, Lines};
pub use limit::{Limit, Spread, Unsupported, interleave, measure};
pub use memcpy::Memcpy;
pub use peer::Peers;
pub use skew::{Skew, core_skew};
pub use spsc::{Slots, Spsc};
pub use syscall::NullSyscall;
pub use udp::{UdpPingPong, Waiting};
pub use vmwrite::VmWrite;

#[cfg(test)]
mod tests;
