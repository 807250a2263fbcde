//! The workloads of the studies, each in a folder: what it measures, its options as data, and how
//! it runs. `list.rs` lists them, `workload.rs` has the trait that each implements, and `common`
//! has the parts that they share. An experiment uses only `verbs` and [`rdmalab_rank::Rank`], so
//! that it runs unchanged on adapters, on the soft device and in virtual time.
//!
//! A measurement is a [`Point`]; [`options`] lists the options of a point, [`sweep`] makes many
//! points from a short text, [`check`] rejects a point that cannot be measured, and [`run`]
//! measures one.

#![forbid(unsafe_code)]

mod common;

mod blast;
mod connect;
mod fan;
mod mr;
mod odp;
mod oneway;
mod overhead;
mod ping;
mod recvq;
mod rpc;
mod timeout;

mod workload;

mod check;
mod duration;
mod experiment;
mod list;
mod options;
mod pair;
mod point;
mod run;
mod runner;
mod sweep;

pub use check::check;
pub use common::limits::Limits;
pub use common::model::{Link, Model};
pub use common::option::{Choice, Field, Opt, OptionError, within};
pub use common::options as shared;
pub use common::pace::load_rates;
pub use common::params::{
    Arrivals, Common, Flow, Inline, Memory, Op, PauseBy, Polling, Signal, Transport,
};
pub use common::rdma_cm::{ip_address, reaches};
pub use common::rules::{ATOMIC_BYTES, Fault, MEMORY_MAX_BYTES, NUMBER_BYTES, SAMPLES_MAX};
pub use common::words::no_such;
pub use experiment::Experiment;
pub use list::add;
pub use options::{option, options};
pub use pair::{Pair, PairSender};
pub use point::{Impossible, PlainPoint, Point};
pub use run::{run, run_in_process};
pub use runner::Runner;
pub use sweep::{MAX_POINTS, SweepError, Turn, shuffle, sweep, sweep_from};
pub use workload::{Places, ResultKind, ResultShape, Workload};
