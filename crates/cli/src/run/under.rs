//! `rdmalab run EXPERIMENT --under NAME=COMMAND`: the same points under several conditions, in
//! turns, and what differs between the conditions.

use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;

use rdmalab_experiments::{Point, shuffle};
use rdmalab_record::Record;
use rdmalab_report::compare::{Comparison, Options, Side};

use super::args::{HowArgs, PartOf, RunArgs};
use super::{Ended, run_points_unless};
use crate::failure::{Outcome, run as failed, usage};
use crate::format::Format;
use crate::interrupt::Interrupt;
use crate::records::RecordsDir;

/// A condition, and the command that makes the machine have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    name: String,
    command: String,
}

impl std::str::FromStr for Condition {
    type Err = String;

    /// `NAME=COMMAND`; the command may be empty.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, command) = text.split_once('=').unwrap_or_default();
        // The name is also that of directories.
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
            return Err("write NAME=COMMAND, as in performance='cpupower frequency-set -g \
                        performance'; a name has no slash, and does not begin with a dot"
                .to_owned());
        }
        Ok(Self { name: name.to_owned(), command: command.to_owned() })
    }
}

impl Condition {
    /// Runs the command. What it prints goes to standard error, since results go to standard
    /// output.
    fn prepare(&self) -> Outcome {
        let refused = |why: String| failed(format!("--under {}: {why}", self.name));
        let to = std::io::stderr().as_fd().try_clone_to_owned();
        let to = to.map_err(|error| refused(format!("standard error: {error}")))?;
        let ended = Command::new("sh").arg("-c").arg(&self.command).stdout(to).status();
        let ended = ended.map_err(|error| refused(format!("sh cannot be started: {error}")))?;
        match ended.success() {
            true => Ok(()),
            false => Err(refused(format!("`{}` failed: {ended}", self.command))),
        }
    }
}

/// Checks the conditions before anything is measured.
///
/// # Errors
/// They cannot be compared, or cannot take turns here, as under a launcher.
pub fn check(how: &HowArgs, launcher: Option<(usize, &'static str)>) -> Outcome {
    let conditions = &how.under;
    let names = |conditions: &[Condition], name: &str| conditions.iter().any(|c| c.name == name);
    let again = (1..conditions.len()).find(|at| names(&conditions[..*at], &conditions[*at].name));
    let why = match again {
        Some(at) => format!("{}: give each condition its own name", conditions[at].name),
        None if conditions.len() < 2 => {
            "one condition has nothing to be compared with: give two".to_owned()
        }
        None if how.repeat < 2 => {
            "one turn does not show how turns differ: give --repeat 5".to_owned()
        }
        None if !matches!(how.format, Format::Table | Format::Json) => {
            "the comparison has the forms table and json: choose one of them".to_owned()
        }
        None => match launcher {
            Some((_, by)) => format!("the ranks of each turn are started anew: leave out {by}"),
            None => return Ok(()),
        },
    };
    Err(usage(format!("--under: {why}")))
}

/// The records of each condition.
type Sides = Vec<Vec<Record>>;

/// Measures the points under each condition, `--repeat` times in turns, and compares the first
/// condition with each of the others.
///
/// # Errors
/// A command failed, or a measurement ended early. What was measured is compared nevertheless.
pub fn run(args: &RunArgs, points: &[Point]) -> Outcome {
    let conditions = &args.how.under;
    let dir = RecordsDir::new(args.how.out.as_deref(), args.how.no_record, "rdmalab-conditions-")?;
    let mut sides: Sides = vec![Vec::new(); conditions.len()];
    let ended = turns(args, points, &dir.path, &mut sides);
    if sides.iter().all(Vec::is_empty) {
        // Fails if there is something in it.
        let _ = std::fs::remove_dir(&dir.path);
        return ended;
    }
    let shown = compare(conditions, &sides, args.how.format);
    if !args.how.no_record {
        errln!("kept in {0} (`rdmalab report {0}` shows each turn)", dir.path.display());
    }
    match ended {
        Ok(()) => shown,
        Err(failure) => Err(failure.then(shown)),
    }
}

fn turns(args: &RunArgs, points: &[Point], dir: &Path, sides: &mut Sides) -> Outcome {
    let (conditions, interrupt) = (&args.how.under, Interrupt::catch());
    let command: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let turns = shuffle(conditions.len(), args.how.repeat as usize, points[0].common.seed);
    for (number, turn) in (1..).zip(&turns) {
        let condition = &conditions[turn.point];
        errln!("turn {number} of {}: {}", turns.len(), condition.name);
        condition.prepare()?;
        if interrupt.is_set() {
            return Err(failed("interrupted"));
        }
        let mut how = args.how.clone();
        (how.repeat, how.first_repetition) = (1, turn.repetition);
        how.condition = Some(condition.name.clone());
        let dir = dir.join(format!("{}-{}", condition.name, turn.repetition + 1));
        how.part = Some(PartOf { dir: dir.clone(), command: command.clone() });
        let points = points.to_vec();
        match run_points_unless(&interrupt, args.experiment, points, &how, false, &|_, _| ())? {
            Ended::Whole => sides[turn.point].push(Record::open(&dir).map_err(failed)?),
            Ended::CutShort(failure) => return Err(failure),
        }
    }
    Ok(())
}

/// Prints how the first condition differs from each of the others that was measured.
fn compare(conditions: &[Condition], sides: &Sides, format: Format) -> Outcome {
    let side = |at: usize| Side { name: &conditions[at].name, records: &sides[at] };
    let measured = |at: &usize| !sides[0].is_empty() && !sides[*at].is_empty();
    let found = (1..conditions.len())
        .filter(measured)
        .map(|other| Comparison::of(side(0), side(other), &Options::default()).map_err(usage))
        .collect::<Outcome<Vec<Comparison>>>()?;
    match format {
        Format::Json => {
            let all: Vec<String> = found.iter().map(Comparison::json).collect();
            out!("[{}]\n", all.join(","));
        }
        _ => found.iter().for_each(|one| out!("{}\n", one.text(false))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_has_a_name_and_a_command() {
        let of = |text: &str| text.parse::<Condition>().map(|one| (one.name, one.command));
        let own = |name: &str, command: &str| Ok((name.to_owned(), command.to_owned()));
        assert_eq!(of("quiet="), own("quiet", ""));
        assert_eq!(of("a=X=1 run"), own("a", "X=1 run"));
        for wrong in ["quiet", "=true", "../x=true", "a/b=true", ".=true"] {
            assert!(of(wrong).unwrap_err().starts_with("write NAME=COMMAND"), "{wrong}");
        }
    }

    #[test]
    fn a_command_that_fails_is_named() {
        let of = |text: &str| text.parse::<Condition>().unwrap().prepare();
        assert_eq!(of("a="), Ok(()));
        let said = of("b=exit 3").unwrap_err().to_string();
        assert_eq!(said, "--under b: `exit 3` failed: exit status: 3");
    }
}
