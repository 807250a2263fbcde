//! The workloads of the studies: each a small file, its parameters as data. An experiment touches
//! the world through `verbs` and [`rdmalab_rank::Rank`] only, so that it runs unchanged on
//! adapters, on the soft device and, later, in virtual time.
//!
//! A measurement is a [`Point`]; [`OPTIONS`] says what can be changed in it, [`sweep`] makes many
//! of few words, [`check`] says which of them cannot be, and [`run`] measures one.

#![forbid(unsafe_code)]

mod common;

mod blast;
mod connect;
mod fan;
mod mr;
mod oneway;
mod overhead;
mod ping;
mod recvq;
mod rpc;
mod timeout;

mod check;
mod options;
mod point;
mod quantities;
mod run;
mod sweep;

pub use check::{Impossible, MEMORY_MAX_BYTES, NUMBER_BYTES, SAMPLES_MAX, check, mtu_bytes};
pub use common::limits::Limits;
pub use common::pace::load_rates;
pub use connect::By;
pub use fan::options::{Cast, Direction, Sizes};
pub use fan::peers as fan_peers;
pub use options::{OPTIONS, Opt, OptionError, option};
pub use point::{
    Arrivals, Call, Experiment, Flow, Inline, Memory, Op, PauseBy, Point, Polling, Signal, StampOf,
    Stamps, Transport, Unsignalled,
};
pub use recvq::options::{Queue, RegionsBy, Return, ReturnWhen};
pub use run::run;
pub use sweep::{MAX_POINTS, SweepError, Turn, shuffle, sweep, sweep_from};
pub use timeout::Absent;
