//! The list of the commands. Each command's module owns its options and its help.

use clap::{Parser, Subcommand};

use crate::advise::AdviseArgs;
use crate::bench::BenchCommand;
use crate::compare::CompareArgs;
use crate::devices::DevicesArgs;
use crate::doctor::DoctorArgs;
use crate::env::EnvArgs;
use crate::exec::ExecArgs;
use crate::man::{CompletionsArgs, ManArgs};
use crate::perftest::args::PerftestArgs;
use crate::ps::CleanArgs;
use crate::report::ReportArgs;
use crate::run::args::RunArgs;
use crate::serve::ServeArgs;
use crate::study::StudyArgs;
use crate::tour::TourArgs;
use crate::trace::TraceArgs;
use crate::worker::WorkerArgs;

/// A laboratory for RDMA performance.
///
/// Without a command: a short tour. Two processes on a device exchange messages; tables and a
/// histogram show what they measured, pages with plots are written, and the bare limits of this
/// machine stand below.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true, after_help = AFTER)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// What the tour measures.
    #[command(flatten)]
    pub tour: TourArgs,
}

const AFTER: &str = "\
Exit codes: 0 fine; 1 the run failed or an expectation did not hold; 2 the call was wrong.
Environment variables: `rdmalab man environment`.
Numbers of soft devices are this host's, never an adapter's.";

/// The commands, in the order of `--help`.
#[derive(Debug, Subcommand)]
pub enum Command {
    Devices(DevicesArgs),
    /// Measure: all ends on this machine, or with a server on another one
    ///
    /// Measures all combinations of the options' values in random order, keeps a record, and prints
    /// what came out. Ctrl-C ends it and keeps what was measured; a second one ends it at once.
    Run {
        /// Which experiment.
        #[command(subcommand)]
        what: RunArgs,
    },
    Serve(ServeArgs),
    Study(StudyArgs),
    Report(ReportArgs),
    Compare(CompareArgs),
    Advise(AdviseArgs),
    Doctor(DoctorArgs),
    #[command(flatten)]
    Perftest(PerftestArgs),
    Bench(BenchCommand),
    Exec(ExecArgs),
    Trace(TraceArgs),
    /// The processes that use the soft device on this host
    Ps,
    Clean(CleanArgs),
    Env(EnvArgs),
    Man(ManArgs),
    Completions(CompletionsArgs),
    /// Makes what `exec` shows of /sys/class/infiniband, and prints where it is.
    #[command(hide = true)]
    Tree,
    #[command(hide = true)]
    Worker(WorkerArgs),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
