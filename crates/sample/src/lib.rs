//! Samples of signals, as real-time simulators exchange them: a sequence number, the time of their
//! origin, and a value for each signal.
//!
//! This crate is pure: it opens nothing, reads no clock and starts no thread. Time and random
//! numbers are arguments.
//!
//! - [`Signal`], [`Kind`], [`Value`]: what a sample holds.
//! - [`Timestamp`], [`Flags`]: when it was made, and which of its parts are known.
//! - [`Pool`]: memory for a fixed number of samples, allocated once. A [`Handle`] owns one of them;
//!   [`SampleRef`] and [`SampleMut`] look into it.
#![forbid(unsafe_code)]

mod flags;
mod pool;
mod sample;
mod signal;
mod timestamp;
mod value;

pub use flags::Flags;
pub use pool::{Handle, Pool, PoolError, Storage};
pub use sample::{META_BYTES, SampleMut, SampleRef, record_bytes};
pub use signal::{Kind, Signal, UnknownKind};
pub use timestamp::Timestamp;
pub use value::{Complex, Value};
