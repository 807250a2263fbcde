//! The real-time sample gateway, in the spirit of VILLASnode: nodes exchange samples with
//! simulators, files and networks, and paths carry samples between nodes.
//!
//! ```text
//! config ── plan ── run ─┬─ path (a thread each): sources ── mapping ── destinations
//!                       └─ nodes: signal, file, loopback, shmem, socket, infiniband, zeromq, ...
//! ```
//!
//! A configuration is checked as a whole ([`Plan::check`]) before anything is opened. Destinations
//! are opened before sources. [`Plan::run`] returns when all sources have ended and everything was
//! handed over, or some time after [`node::Stop`] was set.
#![forbid(unsafe_code)]

mod config;
mod counts;
mod decoder;
mod format;
mod hooks;
mod inherit;
mod keys;
mod live;
mod mapping;
pub mod node;
mod nodes;
mod path;
mod plan;
mod pubsub;
mod queue;
mod run;
mod sockets;
mod strftime;
mod summary;
pub mod timer;
mod writer;

pub use config::Gateway;
pub use live::Live;
pub use plan::Plan;
pub use summary::{PathReport, Summary};
