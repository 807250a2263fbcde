//! Simulated devices in virtual time, to test the engine deterministically.
//!
//! Each [`Device`] has memory, keys, an optional shared receive queue and queue pairs. A [`Link`]
//! carries trains between the devices. It loses, repeats, delays, reorders and splits them at
//! random from its seed, or by the rules of `--faults` ([`FaultInjector`]). [`World`] drives the
//! engine with the same driver as the soft adapter, in virtual nanoseconds.

mod device;
mod drive;
mod injector;
mod link;
mod memory;
mod paging;
mod pair;
mod step;
mod world;

pub use device::{Device, DeviceEnv, PD, Received, Sent, SimQp};
pub use injector::{FaultInjector, SentPacket, address_of};
pub use link::{Faults, Link, cut};
pub use memory::Memory;
pub use paging::PagedMemory;
pub use pair::{LEFT, Pair, PairConfig, RIGHT, blank, datagram_to};
pub use step::TrainData;
pub(crate) use world::Deadlines;
pub use world::{At, Knobs, LIMITS, World};
