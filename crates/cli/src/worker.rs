//! `rdmalab worker`: a rank of a measurement, started by another process of this program.

use clap::Args;

use crate::failure::{Outcome, run as failed};
use crate::run::job;

/// One end of a measurement; started by the others.
#[derive(Args, Debug)]
pub struct WorkerArgs {
    /// The device, whatever the launcher calls its own.
    #[arg(long)]
    device: Option<String>,
    /// The process of the server that started it, with which it ends.
    #[arg(long, value_name = "PID", conflicts_with = "join")]
    server: Option<u32>,
    /// Where the launcher waits, instead of standard input.
    #[arg(long, value_name = "HOST:PORT,...", requires = "rank", conflicts_with = "device")]
    join: Option<String>,
    /// Which rank it is there.
    #[arg(long, requires = "join")]
    rank: Option<usize>,
    /// Refuse devices that are not soft; with the option that asks for it.
    #[arg(long, value_name = "OPTION")]
    soft_only: Option<String>,
}

/// Performs jobs until its launcher ends.
pub fn run(args: &WorkerArgs) -> Outcome {
    let soft_only = args.soft_only.as_deref();
    match args.join.as_deref().zip(args.rank) {
        Some((addresses, rank)) => job::work_there(addresses, rank, soft_only),
        None => job::work(args.device.as_deref(), soft_only, args.server),
    }
    .map_err(failed)
}
