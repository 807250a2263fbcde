//! The list of the commands. Each command's module owns its options and its help.

use clap::{Parser, Subcommand};

use crate::advise::AdviseArgs;
use crate::bench::BenchCommand;
use crate::calibrate::CalibrateArgs;
use crate::compare::CompareArgs;
use crate::devices::DevicesArgs;
use crate::diagnose::DiagnoseArgs;
use crate::doctor::DoctorArgs;
use crate::env::EnvArgs;
use crate::exec::ExecArgs;
use crate::gateway::GatewayArgs;
use crate::goal::GoalArgs;
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
/// Without a command, rdmalab gives a short tour: two processes exchange messages on a device,
/// tables and a histogram show the results, and pages with plots are written. The bare limits of
/// this machine follow.
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
Exit codes: 0 success; 1 the run failed, or an expectation did not hold; 2 usage error.
Environment variables: `rdmalab man environment`.
A soft device measures this host, never an adapter.";

/// The commands, in the order of `--help`.
#[derive(Debug, Subcommand)]
pub enum Command {
    Devices(DevicesArgs),
    /// Run an experiment: on this machine, or together with other ones
    ///
    /// Measures all combinations of the options' values in random order, keeps a record, and prints
    /// the results. Ctrl-C ends the run and keeps what was measured; a second Ctrl-C ends it at
    /// once.
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
    Calibrate(CalibrateArgs),
    Goal(GoalArgs),
    Gateway(GatewayArgs),
    Doctor(DoctorArgs),
    #[command(flatten)]
    Perftest(PerftestArgs),
    Bench(BenchCommand),
    Exec(ExecArgs),
    Trace(TraceArgs),
    Diagnose(DiagnoseArgs),
    /// List the processes that use the soft device on this host
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
