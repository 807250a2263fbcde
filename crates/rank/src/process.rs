//! Ranks as processes.
//!
//! ```text
//!  launcher                                     worker (a process of its own)
//!    WorkerGroup ── socket pair ───────────────────────  serve ── ProcessRank ── the experiment
//!    WorkerGroup ── TCP ── Server, which starts a ─────  serve ── ...
//! RendezvousListener ── TCP, or a socket of this host ─────  join ─── ... (started by ssh, mpirun
//! or srun)
//! ```
//!
//! The launcher is the hub: jobs, exchanges and results go through it, and no worker knows the
//! address of another one. In each worker, one thread sleeps in `read` and sets a flag when there
//! is a reason to stop; the measuring threads poll the flag now and then.
//!
//! # What it costs
//!
//! Measured with `cargo run --release -p rdmalab-rank --example cost` on two virtual CPUs of an AMD
//! EPYC 9004 at 2.6 GHz, while other work ran beside it:
//!
//! * A barrier takes 75 to 95 us (median; 99 %: below 0.25 ms) between two processes, as much with
//!   TCP on one host, and 110 to 130 us between four. Ranks leave it some ten us apart, the time of
//!   a wake-up: it gives an order, but no common start time.
//! * A look of [`Rank::spin`](crate::Rank::spin) takes 1.01 to 1.02 times as long as one of a bare
//!   loop, where that takes 0.55 ns (a load and a countdown): the question whether to go on is
//!   asked once in 4096 looks. `spin_for`, which asks once in 256, adds 0.12 ns.

mod child;
mod clock_sync;
mod control;
mod frame;
mod handshake;
mod launch_env;
mod panics;
mod rank;
mod remote;
mod rendezvous;
mod server;
mod spec;
mod ssh;
mod stream;
mod worker;
mod worker_group;

pub use child::WorkerCommand;
pub use frame::FRAME_BYTES_MAX;
pub use handshake::{Claim, PROTOCOL, VERSION};
pub use launch_env::{LaunchEnv, TOKEN_VARIABLE};
pub use rank::{ProcessRank, UNMEASURED_SKEW_NS};
pub use remote::{DEFAULT_PORT, addresses, port};
pub use rendezvous::{RendezvousAddress, RendezvousListener, join, new_token};
pub use server::{SESSIONS_MAX, Server, ServerEvent};
pub use spec::{LaunchMethod, RankSpec};
pub use ssh::SshCommand;
pub use stream::Stream;
pub use worker::{connection, serve, serve_as, serve_both, serve_under};
pub use worker_group::{
    AloneEvent, Cause, RANKS_MAX, RankInfo, TeamEvent, WorkerGroup, WorkerGroupError,
};
