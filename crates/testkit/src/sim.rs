//! A deterministic world of simulated devices, to test the engine against its contract.
//!
//! Each [`Device`] has memory, keys, an optional shared receive queue and queue pairs; a [`Link`]
//! carries trains between them and loses, repeats, delays, reorders and splits them as its seed
//! says, or as `--faults` would ([`FaultInjector`]); [`World`] drives the engine as a soft adapter
//! does, with the same driver, in virtual nanoseconds.

mod device;
mod drive;
mod injector;
mod link;
mod memory;
mod pair;
mod world;

pub use device::{Device, DeviceEnv, PD, Received, Sent, SimQp};
pub use injector::{FaultInjector, SentPacket, address_of};
pub use link::{Faults, Link, TrainData, cut};
pub use memory::Memory;
pub use pair::{LEFT, Pair, PairConfig, RIGHT, blank, datagram_to};
pub use world::{At, Knobs, LIMITS, World};
