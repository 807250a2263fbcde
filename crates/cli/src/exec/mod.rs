//! `rdmalab exec`: runs an unmodified program on the soft device.

mod elf;
pub mod paths;
pub mod program;
pub mod runtime;
mod tree;
pub mod trials;

use std::os::unix::process::CommandExt;

use clap::Args;

use crate::failure::{Failure, Outcome};
use program::ProgramArgs;
use trials::TrialArgs;

/// Run a program on the soft device, unmodified
///
/// The program and its children load our libibverbs.so.1 instead of the system's. No process of
/// ours stays behind. Exits with the program's status (128 + n after signal n); 125 when rdmalab
/// itself failed, 126 when the program cannot be run, 127 when it was not found.
///
/// With --repeat the program runs many times, under each condition that --vary names, and its times
/// are compared. Then the exit code is 0, 1 if a trial failed, and 2 if the call was wrong or the
/// program cannot be run.
#[derive(Args, Clone, Debug)]
pub struct ExecArgs {
    /// The program, and the device that it finds.
    #[command(flatten)]
    pub how: ProgramArgs,
    /// How often it runs, and under which conditions.
    #[command(flatten)]
    pub trials: TrialArgs,
}

/// Replaces this process by the program, and returns only if that fails; or runs it many times.
pub fn run(args: &ExecArgs) -> Outcome {
    program::check_named(args.how.device.as_deref())?;
    if args.trials.are_wanted() {
        return trials::run(&args.how, &args.trials);
    }
    let has_device = program::check_device(&args.how.link);
    let (file, mut command) = program::prepare(&args.how, has_device)?;
    let error = command.exec();
    let (code, hint) = match error.kind() {
        std::io::ErrorKind::NotFound => (program::NOT_THERE, " (is its interpreter missing?)"),
        _ => (program::CANNOT, ""),
    };
    Err(Failure::Code(code, format!("exec: {}: {error}{hint}", file.display())))
}
