//! The simulator: adapters and a fabric in virtual time.
//!
//! A [`Simulation`] has one adapter for each rank. The adapters are a [`Backend`] for `provider`,
//! so that an experiment sees verbs as usual; the ranks are coroutines ([`SimRank`]). Both share
//! one virtual clock. The protocol is the engine's, driven as by every other driver. This crate
//! adds what happens *when*: the cost of each call for the processor, and the time that each part
//! of an adapter and of the fabric takes.
//!
//! ```text
//! post_send: processor -> MMIO (BlueFlame or doorbell) -> [WQE read] -> send engine
//!   -> [payload read] -> link -> [switch -> link] -> receive engine -> [receive WQE read]
//!   -> payload write -> completion write -> poll or event
//! ```
//!
//! All times are parameters of a [`Profile`]; a part whose parameters are 0 takes no time. Nothing
//! depends on a real clock, an address or a hash: the same input gives the same results.
//!
//! One thread runs a simulation; several simulations may run on several threads.
//!
//! [`Backend`]: rdmalab_engine::backend::Backend

mod adapter;
mod backend;
mod booking;
mod buffers;
mod bus;
mod capture;
mod channel;
mod channel_wait;
mod complete;
mod completion;
mod component;
mod context_cache;
mod control;
mod device;
mod dma;
mod env;
mod event;
mod exchange;
mod fabric;
mod faults;
mod hooks;
mod idle_calls;
mod ids;
mod in_flight;
mod kernel;
mod line;
mod lock_table;
mod locks;
mod looks;
mod memory;
mod node_paging;
mod noise;
mod note;
#[cfg(test)]
mod one_by_one;
mod os_thread;
mod packets;
mod paging;
mod parameters;
mod profile;
mod rank;
mod raw_loops;
mod rc_timers;
mod receive;
mod receive_wqe;
mod round_robin;
mod send;
mod sending;
mod shared;
mod simulation;
mod span;
mod task;
mod threads;
mod time;
mod timeline;
mod transfer;
mod turns;
mod way;
mod work_queue;

pub use backend::SimBackend;
pub use capture::{CaptureFile, capture_head};
pub use component::Component;
pub use fabric::{LinkValues, link_values};
pub use packets::Bytes;
pub use parameters::{Parameter, Parameters};
pub use profile::{Entry, Mark, Profile, ProfileError, SHIPPED, find, name_of_device};
pub use rank::SimRank;
pub use raw_loops::RawLoop;
pub use simulation::{Report, Simulation};
pub use time::{Ps, Rate};
pub use timeline::{Breakdown, Step};
