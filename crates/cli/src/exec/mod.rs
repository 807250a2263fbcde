//! `rdmalab exec`: runs an unmodified program on the soft device.

mod elf;
pub mod paths;
mod program;
pub mod runtime;
mod tree;

use std::os::unix::process::CommandExt;

use clap::Args;

use crate::failure::{Failure, Outcome};
use program::ProgramArgs;

/// Run a program on the soft device, unmodified
///
/// The program and its children load our libibverbs.so.1 instead of the system's. No process of
/// ours stays behind. Exits with the program's status (128 + n after signal n); 125 when rdmalab
/// itself failed, 126 when the program cannot be run, 127 when it was not found.
#[derive(Args, Clone, Debug)]
pub struct ExecArgs {
    /// The program, and the device that it finds.
    #[command(flatten)]
    pub how: ProgramArgs,
}

/// Replaces this process by the program. Returns only if that fails.
pub fn run(args: &ExecArgs) -> Outcome {
    let has_device = program::check_device(&args.how.link);
    let (file, mut command) = program::prepare(&args.how, has_device)?;
    let error = command.exec();
    let (code, hint) = match error.kind() {
        std::io::ErrorKind::NotFound => (program::NOT_THERE, " (is its interpreter missing?)"),
        _ => (program::CANNOT, ""),
    };
    Err(Failure::Code(code, format!("exec: {}: {error}{hint}", file.display())))
}
