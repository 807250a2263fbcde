//! Options of `rdmalab bench`.

use clap::{Args, Subcommand};

use crate::format::ListFormatArgs;
use crate::latency::LatencyArgs;

/// Measure rdmalab itself
#[derive(Args, Debug)]
pub struct BenchCommand {
    /// What of it.
    #[command(subcommand)]
    pub what: Bench,
}

/// What `bench` measures.
#[derive(Debug, Subcommand)]
pub enum Bench {
    #[command(name = "self")]
    Own(BenchArgs),
}

/// Compare the soft device with the bare limits of this machine, as ratios
///
/// Reports speed, and never fails on it. Three sets of rows take longer and have to be asked for:
/// `--only UDP` (two network namespaces, as root), `--only captured`, and `--peers`.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// Fewer rounds: wider intervals
    #[arg(long)]
    pub quick: bool,
    /// How it is printed.
    #[command(flatten)]
    pub list: ListFormatArgs,
    /// The device to measure
    #[arg(short, long, default_value = "soft0")]
    pub device: String,
    /// The two cores, as A,B [default: the first two that this process may use]
    #[arg(long, value_delimiter = ',', value_name = "A,B", num_args = 1)]
    pub cores: Vec<usize>,
    /// Only rows whose name contains this. Rows over UDP (as root) and with captures are measured
    /// with --only UDP and --only captured only
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Only rows of programs that users know: Debian's perftest and ucx_perftest on the device,
    /// beside UCX over shared memory of its own; and over UDP, as root, beside iperf3
    #[arg(long)]
    pub peers: bool,
    /// Rounds; more than --quick and the default give narrower intervals
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub rounds: Option<u64>,
    /// Idle states of the processors.
    #[command(flatten)]
    pub latency: LatencyArgs,
}
