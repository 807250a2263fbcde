//! Programs of the user as parts of a study: the applications that a figure is about. Each trial is
//! a run of the program under `rdmalab exec`.

use std::path::{Path, PathBuf};

use rdmalab_measure::Quantity;
use rdmalab_record::{Device, DeviceKind, Header, Object};
use rdmalab_study::SweepCommand;

use super::dir::Request;
use super::kept;
use crate::exec::paths::Memory;
use crate::exec::program::{ProgramArgs, profile_of};
use crate::exec::trials::vary::{self, Condition, Variation};
use crate::exec::trials::{self, Supervisor, keep};
use crate::failure::{Outcome, run as failed};
use crate::interrupt::Interrupt;

/// The word in a plan.
pub const NAME: &str = "application";
/// What a trial is taken to last, in seconds: nobody knows before.
pub const TRIAL_S: f64 = 10.0;
/// For the order of the trials.
const SEED: u64 = 1;

/// The trials of a part.
#[derive(Clone, Debug)]
pub struct Trials {
    vary: Vec<Variation>,
    /// Whether the packets of each trial are captured.
    pub is_captured: bool,
}

impl Trials {
    /// The trials of a sweep. Its options are those of `exec --vary`, and `--capture yes`.
    ///
    /// # Errors
    /// An option is unknown or has a wrong value.
    pub fn of(words: &SweepCommand) -> Result<Self, String> {
        let (captures, others): (Vec<_>, Vec<_>) =
            words.options.iter().partition(|(name, _)| name == "capture");
        if let Some((_, value)) = captures.iter().find(|(_, value)| value != "yes") {
            return Err(format!("--capture: the only value is yes, not {value:?}"));
        }
        let one = |(name, values): &(String, String)| vary::variation(&format!("{name}={values}"));
        let vary = others.into_iter().map(one).collect::<Result<_, _>>()?;
        let trials = Self { vary, is_captured: !captures.is_empty() };
        match trials.conditions() {
            n if trials.is_captured && n > 1 => Err(format!(
                "--capture with {n} conditions: the packets of a trial replace those of the one \
                 before: name one condition"
            )),
            _ => Ok(trials),
        }
    }

    /// How many conditions there are.
    pub fn conditions(&self) -> usize {
        self.vary.iter().map(Variation::count).product()
    }

    /// Their parameters with this program, as in a record.
    #[cfg(test)]
    pub fn parameters(&self, program: &str) -> Vec<Object> {
        let request = Request { program: Some(program.to_owned()), ..Request::default() };
        let conditions = vary::conditions(&arguments(&request), &self.vary).unwrap_or_default();
        conditions.iter().map(|one| parameters(program, one)).collect()
    }
}

/// The program of a request under `exec`.
fn arguments(request: &Request) -> ProgramArgs {
    let shell = ["sh", "-c"].into_iter().chain(request.program.as_deref());
    ProgramArgs {
        device: None,
        personality: None,
        memory: Memory::Private,
        link: request.link(),
        program: shell.map(Into::into).collect(),
    }
}

/// The parameters of a condition, as in a record.
fn parameters(program: &str, condition: &Condition) -> Object {
    let program = [("program".to_owned(), program.to_owned())];
    let all = program.into_iter().chain(condition.values.iter().cloned());
    all.map(|(name, value)| (name, value.into())).collect()
}

/// Whether the program can run.
///
/// # Errors
/// Why not, and what to do: one line.
pub fn check(trials: &Trials, request: &Request) -> Result<(), String> {
    if request.program.is_none() {
        let what = "it needs your build of the application";
        return Err(format!("{what}: --figure FIGURE --program COMMAND"));
    }
    if !request.hosts.is_empty() {
        return Err("the program starts its own processes: run the study without --hosts".into());
    }
    let conditions = vary::conditions(&arguments(request), &trials.vary);
    conditions.map(drop).map_err(|why| why.to_string())
}

/// Whether a file is named as captures of trials are: `packets.pcapng` or `packets-N.pcapng`.
fn is_capture(name: &str) -> bool {
    let number = name.strip_prefix("packets").and_then(|rest| rest.strip_suffix(".pcapng"));
    let is_number = |text: &str| text.strip_prefix('-').is_some_and(|n| n.parse::<u32>().is_ok());
    number.is_some_and(|number| number.is_empty() || is_number(number))
}

/// The file for the packets of a trial's first process; the others add their number. Removes what
/// an earlier trial left there: it is in no record, because the study was ended meanwhile.
fn fresh(captures: &Path) -> std::io::Result<PathBuf> {
    std::fs::create_dir_all(captures)?;
    for entry in std::fs::read_dir(captures)? {
        let entry = entry?;
        if is_capture(&entry.file_name().to_string_lossy()) && entry.file_type()?.is_file() {
            std::fs::remove_file(entry.path())?;
        }
    }
    // A process may change its directory.
    Ok(std::path::absolute(captures)?.join("packets.pcapng"))
}

/// Runs the trials that are not in the record yet. A trial that fails is kept without a time.
///
/// # Errors
/// When no trial succeeds, the record cannot be written, or on an interrupt.
pub fn run(
    (part, repeat): (&Trials, u32),
    dir: &Path,
    command: &[String],
    request: &Request,
    interrupt: &Interrupt,
) -> Outcome {
    let args = arguments(request);
    let captures = PathBuf::from([dir.as_os_str(), "-packets".as_ref()].join("".as_ref()));
    let mut arms = trials::prepared(&args, &part.vary)?;
    let supervisor = Supervisor::new(trials::TIMEOUT, interrupt.clone());
    let supervisor = supervisor.map_err(|e| failed(format!("study: {e}")))?;
    let profile = profile_of(&args.link).map(|profile| profile.name);
    let device = Device { profile, ..Device::new(&request.device, DeviceKind::Soft) };
    let mut header = Header::new(NAME, command.to_vec(), device);
    header.seed = SEED;
    header.condition.clone_from(&request.condition);
    let program = request.program.as_deref().unwrap_or_default();
    let of_each = arms.iter().map(|(condition, ..)| parameters(program, condition));
    let parameters: Vec<Object> = of_each.collect();
    let (mut succeeded, mut why_not) = (false, None);
    kept::each((&parameters, repeat), (dir, header), interrupt, |number| {
        let (condition, args, command) = &mut arms[number];
        if part.is_captured {
            let file = fresh(&captures).map_err(|why| format!("{}: {why}", captures.display()))?;
            command.env("RDMALAB_CAPTURE", file);
        }
        let trial = trials::one(command, &supervisor).map_err(trials::NoTrial::reason)?;
        if interrupt.is_set() {
            return Err("interrupted".to_owned());
        }
        let mut measured = keep::of_trial(&trial, args.memory);
        match &measured.cut_short {
            Some(why) => {
                errln!("rdmalab: {}: failed: {why}", condition.name());
                why_not = Some(why.clone());
            }
            None => {
                succeeded = true;
                let value = trial.elapsed.as_nanos() as f64;
                measured.push_series(Quantity::ExecutionTime, "", 0, vec![value]);
            }
        }
        Ok(measured)
    })?;
    match why_not.filter(|_| !succeeded) {
        Some(why) => Err(failed(format!("no trial of --program {program:?} succeeded: {why}"))),
        None => Ok(()),
    }
}
