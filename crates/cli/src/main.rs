//! `rdmalab`, the one binary: it composes the other crates and decides nothing about the protocol.
//!
//! ```text
//! main ── tour, bench ── pair ── two `rdmalab worker` processes ── verbs ── a device
//!      ── devices, exec, env, ps, man, trace
//! ```

/// Prints to standard output. Whoever reads it may stop (`rdmalab | head`): no reason to panic.
macro_rules! out {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = write!(std::io::stdout(), $($text)*);
    }};
}

/// The same, with the end of a line.
macro_rules! outln {
    () => { out!("\n") };
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

mod args;
mod bench;
mod devices;
mod env;
mod exec;
mod failure;
mod interrupt;
mod man;
mod pair;
mod protocol;
mod ps;
mod soft;
mod table;
mod tour;
mod trace;
mod worker;

use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

use args::{Bench, Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        None => tour::run(&cli.tour),
        Some(Command::Devices(args)) => devices::run(&args),
        Some(Command::Bench { what: Bench::Own(args) }) => bench::run(&args),
        Some(Command::Exec(args)) => exec::run(&args),
        Some(Command::Trace(args)) => trace::run(&args),
        Some(Command::Ps) => ps::list(),
        Some(Command::Clean { all }) => ps::clean(all),
        Some(Command::Env(args)) => env::run(&args),
        Some(Command::Man(args)) => man::run(&args),
        Some(Command::Completions(args)) => man::completions(&args),
        Some(Command::Worker) => worker::run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Standard error may be closed; the exit code says it too.
            let _ = writeln!(std::io::stderr(), "rdmalab: {failure}");
            failure.exit_code()
        }
    }
}
