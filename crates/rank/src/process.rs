//! Ranks as processes.
//!
//! ```text
//!  launcher                                     worker (a process of its own)
//!    Team ── socket pair ───────────────────────  serve ── ProcessRank ── the experiment
//!    Team ── TCP ── Server, which starts a ─────  serve ── ...
//! ```
//!
//! The launcher is the hub: jobs, exchanges and results go through it, and no worker knows the
//! address of another one. In each worker a thread sleeps in `read` and sets a flag when there is a
//! reason to stop; the threads that measure look at the flag now and then.

mod control;
mod frame;
mod hello;
mod rank;
mod remote;
mod server;
mod stream;
mod team;
mod worker;

pub use frame::FRAME_BYTES_MAX;
pub use hello::{PROTOCOL, VERSION};
pub use rank::{ProcessRank, UNMEASURED_SKEW_NS};
pub use remote::{DEFAULT_PORT, addresses};
pub use server::{SESSIONS_MAX, Server, ServerEvent};
pub use stream::Stream;
pub use team::{Cause, Info, Place, RANKS_MAX, Spec, Team, TeamError, TeamEvent, WorkerCommand};
pub use worker::{connection, serve};
