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
//! - [`Format`]: samples as bytes and back, see [`FormatOptions`]. A decoder puts samples
//!   into a [`Sink`], such as a [`Collector`].
//! - [`Hook`]: what changes, drops or watches samples on their way; see [`HookOptions`].
//! - [`compare`]: whether streams of samples are equal.
//! - [`Generator`]: signals by their [`Waveform`].
#![forbid(unsafe_code)]

mod collector;
mod compare;
mod decimal;
mod flags;
mod format;
pub mod formats;
mod histogram;
mod hook;
pub mod hooks;
mod kind;
mod option_error;
mod pool;
mod sample;
mod scan;
mod signal;
mod timestamp;
mod value;
mod waveform;

pub use collector::Collector;
pub use compare::{CompareOptions, Difference, compare};
pub use flags::Flags;
pub use format::{DecodeError, EncodeError, Form, Format, Sink};
pub use formats::{FormatKey, FormatOptions};
pub use histogram::Histogram;
pub use hook::{Hook, HookError, Verdict};
pub use hooks::HookOptions;
pub use kind::{Kind, UnknownKind};
pub use option_error::OptionError;
pub use pool::{Handle, Pool, PoolError, Storage};
pub use sample::{META_BYTES, SampleMut, SampleRef, record_bytes};
pub use signal::Signal;
pub use timestamp::Timestamp;
pub use value::{Complex, Value};
pub use waveform::{Generator, Shape, Waveform, time_ns};
