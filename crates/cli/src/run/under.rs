//! `rdmalab run EXPERIMENT --under NAME=COMMAND`: the same points under several conditions, in
//! turns, and what differs between the conditions.

use std::os::fd::AsFd;
use std::process::Command;

use rdmalab_experiments::{Point, shuffle};
use rdmalab_record::Record;
use rdmalab_report::compare::{Comparison, Options, Side};

use super::args::{PartOf, RunArgs};
use super::{Ended, run_points};
use crate::failure::{Failure, Outcome, run as failed, usage};
use crate::format::Format;
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

/// Measures the points under each condition, `--repeat` times in turns, and compares the first
/// condition with each of the others.
///
/// # Errors
/// The conditions cannot be told apart, a command failed, or a measurement ended early.
pub fn run(args: &RunArgs, points: &[Point]) -> Outcome {
    let conditions = &args.how.under;
    let is_again = |(at, one): (usize, &Condition)| {
        conditions[..at].iter().any(|earlier| earlier.name == one.name)
    };
    if let Some((_, again)) = conditions.iter().enumerate().find(|(at, one)| is_again((*at, one))) {
        return Err(usage(format!("--under {}: give each condition its own name", again.name)));
    }
    if conditions.len() < 2 {
        return Err(usage("--under: one condition has nothing to be compared with: give two"));
    }
    let dir = RecordsDir::new(args.how.out.as_deref(), args.how.no_record, "rdmalab-conditions-")?;
    let turns = shuffle(conditions.len(), args.how.repeat as usize, points[0].common.seed);
    let mut sides: Vec<Vec<Record>> = vec![Vec::new(); conditions.len()];
    for (number, turn) in (1..).zip(&turns) {
        let condition = &conditions[turn.point];
        errln!("turn {number} of {}: {}", turns.len(), condition.name);
        condition.prepare()?;
        let mut how = args.how.clone();
        how.repeat = 1;
        how.condition = Some(condition.name.clone());
        let name = format!("{}-{}", condition.name, turn.repetition + 1);
        let part = PartOf { dir: dir.path.join(name), command: std::env::args().collect() };
        how.part = Some(part.clone());
        if let Ended::CutShort(failure) =
            run_points(args.experiment, points.to_vec(), &how, false, &|_, _| ())?
        {
            dir.announce("report");
            return Err(failure);
        }
        sides[turn.point].push(Record::open(&part.dir).map_err(failed)?);
    }
    let side = |at: usize| Side { name: &conditions[at].name, records: &sides[at] };
    for other in 1..conditions.len() {
        let found = Comparison::of(side(0), side(other), &Options::default()).map_err(usage)?;
        match args.how.format {
            Format::Json => outln!("{}", found.json()),
            _ => outln!("{}", found.text(false)),
        }
    }
    dir.announce("report");
    Ok(())
}

/// Why conditions cannot take turns here.
///
/// # Errors
/// The launcher, if mpirun or srun started this process together with others.
pub fn check(launcher: Option<(usize, &'static str)>) -> Result<(), Failure> {
    let refused = |(_, by)| usage(format!("--under starts the ranks of each turn: leave out {by}"));
    launcher.map_or(Ok(()), |launcher| Err(refused(launcher)))
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
