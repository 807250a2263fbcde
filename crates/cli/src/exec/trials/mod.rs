//! `rdmalab exec --repeat N`: a program many times, under several conditions in turns, and what its
//! times and counters say.

mod counters;
pub mod keep;
mod process;
mod text;
pub mod vary;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::Args;
use rdmalab_experiments::{Turn, shuffle};
use rdmalab_measure::quantity::fmt_ns;
use rdmalab_record::Record;

use crate::exec::program::{OURS, ProgramArgs, check_device, prepare};
use crate::failure::{Failure, Outcome, run as failed, usage};
use crate::interrupt::Interrupt;
use crate::link::LinkArgs;
use crate::records::RecordsDir;
use crate::values;
use keep::Keep;
pub use process::{NoTrial, Supervisor};
use process::{Termination, Trial};
use vary::{Condition, Variation};

/// Most trials of a call.
const MAX_TRIALS: usize = 100_000;
/// How long a trial may take without `--timeout`.
pub const TIMEOUT: Duration = Duration::from_secs(600);
/// The beginning of the name of a trial's runtime directory.
const HOME: &str = "rdmalab-trial-";

/// Options about trials. All need `--repeat`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Trials")]
pub struct TrialArgs {
    /// Run the program N times under each condition, each time in a fresh directory for temporary
    /// files, and compare the times. It reads nothing, and the last line that it prints is shown
    /// only if it fails
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeat: Option<u32>,
    /// What differs between the conditions: profile, faults, personality or memory, as the option;
    /// odp=on,off, which sets UCX_IB_REG_METHODS to odp or direct; or env:VARIABLE (an empty value
    /// removes it). All combinations are conditions; `|` separates values that have commas
    #[arg(long, value_name = "NAME=A,B", value_parser = vary::variation, requires = "repeat")]
    pub vary: Vec<Variation>,
    /// A trial that takes longer is ended with all its processes, and has failed [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = values::time, requires = "repeat")]
    pub timeout: Option<Duration>,
    /// For the order of the conditions in each round [default: 1]
    #[arg(long, value_name = "N", requires = "repeat")]
    pub seed: Option<u64>,
    /// Where the directory of the records is made [default: rdmalab-records]
    #[arg(long, value_name = "DIR", requires = "repeat")]
    pub out: Option<PathBuf>,
    /// Keep no record
    #[arg(long, requires = "repeat", conflicts_with = "out")]
    pub no_record: bool,
}

impl TrialArgs {
    /// Whether the program is to run many times.
    pub fn are_wanted(&self) -> bool {
        self.repeat.is_some()
    }

    fn repetitions(&self) -> u32 {
        self.repeat.unwrap_or(1)
    }

    fn seed(&self) -> u64 {
        self.seed.unwrap_or(1)
    }
}

/// A condition, with all that its trials need.
struct Arm {
    condition: Condition,
    command: Command,
    keep: Keep,
}

/// Runs all trials, and prints what they say.
///
/// # Errors
/// A usage error before any trial; a trial failed, the user interrupted, or a record cannot be
/// written: what was measured is printed first.
pub fn run(args: &ProgramArgs, trials: &TrialArgs) -> Outcome {
    if args.link.capture.is_some() {
        return Err(usage(
            "--capture with --repeat: each trial would overwrite the previous capture: leave one \
             of the two options out",
        ));
    }
    let prepared = prepared(args, &trials.vary)?;
    let n = prepared.len();
    let count = n * trials.repetitions() as usize;
    if count > MAX_TRIALS {
        return Err(usage(format!(
            "--repeat: {count} trials of {n} conditions; the limit is {MAX_TRIALS}: choose fewer"
        )));
    }
    let turns = shuffle(n, trials.repetitions() as usize, trials.seed());
    let interrupt = Interrupt::catch();
    let dir = RecordsDir::new(trials.out.as_deref(), trials.no_record, "rdmalab-trials-")?;
    let plan = (trials.repetitions(), trials.seed());
    let mut arms = Vec::new();
    for (number, (condition, args, command)) in (1..).zip(prepared) {
        let keep = Keep::new(&dir.path, (number, &condition), &args, plan)?;
        arms.push(Arm { condition, command, keep });
    }
    let limit = trials.timeout.unwrap_or(TIMEOUT);
    let supervisor = Supervisor::new(limit, interrupt);
    let supervisor = supervisor.map_err(|e| failed(format!("exec: {e}")))?;
    let (done, failure) = measure(&mut arms, &turns, &supervisor);
    if done == 0 {
        // Nothing was measured, so there is nothing to keep.
        let _ = std::fs::remove_dir_all(&dir.path);
        return failure.map_or(Ok(()), Err);
    }
    let records = arms.iter().map(|arm| arm.keep.read()).collect::<Outcome<Vec<Record>>>()?;
    out!("{}", text::all(&records, &turns[..done], trials.seed()));
    if !trials.no_record {
        errln!("kept in {0} (`rdmalab report {0}/*` shows each trial)", dir.path.display());
    }
    drop(dir);
    outcome(&records, (done, turns.len()), failure)
}

/// All conditions, each with its options and the command of its trials.
///
/// # Errors
/// The conditions contradict each other, or the program cannot be run: a usage error.
pub fn prepared(
    args: &ProgramArgs,
    vary: &[Variation],
) -> Outcome<Vec<(Condition, ProgramArgs, Command)>> {
    let conditions = vary::conditions(args, vary)?;
    // This process is under no profile; those of the trials were checked with the options.
    let has_device = check_device(&LinkArgs { profile: None, ..args.link.clone() });
    let one = |condition: Condition| -> Outcome<_> {
        let (args, variables) = condition.apply(args);
        let (_, mut command) = prepare(&args, has_device).map_err(before_any_trial)?;
        for (name, value) in variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        Ok((condition, args, command))
    };
    conditions.into_iter().map(one).collect()
}

/// A program that cannot be started makes the call wrong, since no trial was run.
fn before_any_trial(failure: Failure) -> Failure {
    match failure {
        Failure::Code(OURS, line) => Failure::Run(line),
        Failure::Code(_, line) => Failure::Usage(line),
        other => other,
    }
}

/// Runs the trials in their order; returns how many, and why not all of them.
fn measure(arms: &mut [Arm], turns: &[Turn], supervisor: &Supervisor) -> (usize, Option<Failure>) {
    for (order, turn) in turns.iter().enumerate() {
        if supervisor.interrupt.is_set() {
            return (order, Some(failed("interrupted")));
        }
        let arm = &mut arms[turn.point];
        let trial = match one(&mut arm.command, supervisor) {
            Ok(trial) if trial.end == Termination::Interrupted => {
                return (order, Some(failed("interrupted")));
            }
            Ok(trial) => trial,
            Err(NoTrial::Program(reason)) if order == 0 => return (order, Some(usage(reason))),
            Err(other) => return (order, Some(failed(other.reason()))),
        };
        let how = match keep::failure(&trial) {
            None => fmt_ns(trial.elapsed.as_nanos() as f64),
            Some(reason) => format!("failed: {reason}"),
        };
        errln!(
            "trial {} of {}: round {}, {}: {how}",
            order + 1,
            turns.len(),
            turn.repetition + 1,
            arm.condition.name()
        );
        if let Err(failure) = arm.keep.add(&trial, order, turn.repetition) {
            return (order, Some(failure));
        }
    }
    (turns.len(), None)
}

/// One trial in a runtime directory of its own, which is removed afterwards.
///
/// # Errors
/// It did not begin.
pub fn one(command: &mut Command, supervisor: &Supervisor) -> Result<Trial, NoTrial> {
    let home = tempfile::Builder::new().prefix(HOME).tempdir().map_err(NoTrial::here)?;
    supervisor.run(command, home.path())
}

/// The outcome of the command: failed trials fail it.
fn outcome(
    records: &[Record],
    (done, planned): (usize, usize),
    failure: Option<Failure>,
) -> Outcome {
    let points = records.iter().flat_map(|record| &record.points);
    let bad = points.filter(|point| !point.is_whole()).count();
    let failed_trials = match bad {
        0 => Ok(()),
        _ => Err(failed(format!("{bad} of {done} trials failed, and are kept"))),
    };
    match failure {
        None => failed_trials,
        Some(failure) => {
            let rest = format!("after {done} of {planned} trials, which are above");
            Err(match failure {
                Failure::Usage(line) => Failure::Usage(format!("{line} {rest}")),
                Failure::Run(line) => Failure::Run(format!("{line} {rest}")),
                Failure::Code(code, line) => Failure::Code(code, format!("{line} {rest}")),
            }
            .then(failed_trials))
        }
    }
}
