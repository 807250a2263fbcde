//! `rdmalab gateway`: samples between real-time simulators, files and networks.

mod check;
mod compare;
mod convert;
mod hook;
mod metrics;
mod pipe;
mod run;
mod samples;
mod signal;

use clap::{Args, Subcommand};

use crate::failure::Outcome;

/// Carry samples between real-time simulators, files and networks
///
/// Reads the configuration files and the formats of VILLASnode.
#[derive(Args, Clone, Debug)]
pub struct GatewayArgs {
    #[command(subcommand)]
    what: GatewayCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum GatewayCommand {
    Run(run::RunArgs),
    Check(check::CheckArgs),
    Pipe(pipe::PipeArgs),
    Hook(hook::HookArgs),
    Signal(signal::SignalArgs),
    Convert(convert::ConvertArgs),
    Compare(compare::CompareArgs),
}

/// Does what the arguments say.
pub fn run(args: &GatewayArgs) -> Outcome {
    match &args.what {
        GatewayCommand::Run(args) => run::run(args),
        GatewayCommand::Check(args) => check::run(args),
        GatewayCommand::Pipe(args) => pipe::run(args),
        GatewayCommand::Hook(args) => hook::run(args),
        GatewayCommand::Signal(args) => signal::run(args),
        GatewayCommand::Convert(args) => convert::run(args),
        GatewayCommand::Compare(args) => compare::run(args),
    }
}
