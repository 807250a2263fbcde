//! The program `rdmalab`: it composes the other crates and contains nothing of the protocol. It is
//! a library, so that another program can add its own experiments: see [`main`].
//!
//! ```text
//! main ── tour, run, bench ── two `rdmalab worker` processes ── an experiment ── a device
//!      ── report ── a record
//!      ── advise ── measures as run does, or records ── answers
//!      ── calibrate ── measures as run does, or records ── a profile of the simulator
//!      ── devices, doctor, exec, env, ps, man, trace, diagnose
//! ```

/// Prints to standard output. A reader that stops early (`rdmalab | head`) causes no panic.
macro_rules! out {
    ($($text:tt)*) => { $crate::output::print(format_args!($($text)*)) };
}

/// Prints a line to standard output.
macro_rules! outln {
    () => { out!("\n") };
    ($($text:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints a line to standard error, which may be closed.
macro_rules! errln {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

mod advise;
mod args;
mod bench;
mod calibrate;
mod compare;
mod device_counts;
mod devices;
mod diagnose;
mod doctor;
mod env;
mod exec;
mod expect;
mod failure;
mod files;
mod foreign;
mod format;
mod gateway;
mod goal;
mod harness;
mod interrupt;
mod latency;
mod link;
mod man;
mod output;
mod perftest;
mod print;
mod profiles;
mod ps;
mod records;
mod report;
mod run;
mod serve;
mod simulated;
mod soft;
mod study;
mod suggestion;
mod table;
mod team;
mod tour;
mod trace;
mod values;
mod worker;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use rdmalab_experiments::Runner;
use rdmalab_rank::process::ProcessRank;

use args::{Cli, Command};

/// Adds the experiments that run in real time only, and those of the caller.
fn add_experiments(of_caller: Vec<Runner<ProcessRank>>) -> Result<(), String> {
    let mut added = rdmalab_realtime::experiments();
    added.extend(of_caller);
    added.iter().map(Runner::experiment).try_for_each(run::args::clashes)?;
    rdmalab_experiments::add(added)
}

/// Adds the experiments that run in real time only, for tests of this library.
#[cfg(test)]
fn know_experiments() {
    static ADDED: std::sync::Once = std::sync::Once::new();
    ADDED.call_once(|| add_experiments(Vec::new()).expect("they fit"));
}

/// Does what the command line says, with the experiments of rdmalab and those of the caller; how it
/// ended, for `main` to return. The program calls it first of all: it is also each rank of a run,
/// as `worker`.
///
/// If an added experiment clashes with another one, the exit code is 2.
#[must_use]
pub fn main(added: Vec<Runner<ProcessRank>>) -> ExitCode {
    if let Err(why) = add_experiments(added) {
        errln!("rdmalab: {why}");
        return ExitCode::from(2);
    }
    let cli = Cli::parse();
    let outcome = match cli.command {
        None => tour::run(&cli.tour),
        Some(Command::Devices(args)) => devices::run(&args),
        Some(Command::Run { what }) => run::run(&what),
        Some(Command::Serve(args)) => serve::run(&args),
        Some(Command::Study(args)) => study::run(&args),
        Some(Command::Report(args)) => report::run(&args),
        Some(Command::Compare(args)) => compare::run(&args),
        Some(Command::Advise(args)) => advise::run(&args),
        Some(Command::Calibrate(args)) => calibrate::run(&args),
        Some(Command::Goal(args)) => goal::run(&args),
        Some(Command::Gateway(args)) => gateway::run(&args),
        Some(Command::Doctor(args)) => doctor::run(&args),
        Some(Command::Perftest(args)) => perftest::run(&args),
        Some(Command::Bench(args)) => bench::run(&args),
        Some(Command::Exec(args)) => exec::run(&args),
        Some(Command::Trace(args)) => trace::run(&args),
        Some(Command::Diagnose(args)) => diagnose::run(&args),
        Some(Command::Ps) => ps::list(),
        Some(Command::Clean(args)) => ps::clean(&args),
        Some(Command::Env(args)) => env::run(&args),
        Some(Command::Man(args)) => man::run(&args, Cli::command()),
        Some(Command::Completions(args)) => man::completions(&args, Cli::command()),
        Some(Command::Tree) => exec::paths::run(),
        Some(Command::Worker(args)) => worker::run(&args),
    };
    // A failure of the command precedes an error of its output.
    let printed = output::finish().map_err(failure::run);
    match outcome.and(printed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Standard error may be closed; the exit code reports the failure too.
            errln!("rdmalab: {failure}");
            failure.exit_code()
        }
    }
}
