//! `rdmalab gateway`: samples between real-time simulators, files and networks.

mod run;

use clap::{Args, Subcommand};

use crate::failure::Outcome;

/// Carry samples between real-time simulators, files and networks
///
/// Reads the configuration files of VILLASnode.
#[derive(Args, Clone, Debug)]
pub struct GatewayArgs {
    #[command(subcommand)]
    what: GatewayCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum GatewayCommand {
    Run(run::RunArgs),
}

/// Does what the arguments say.
pub fn run(args: &GatewayArgs) -> Outcome {
    match &args.what {
        GatewayCommand::Run(args) => run::run(args),
    }
}
