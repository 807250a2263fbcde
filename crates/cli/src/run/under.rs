//! `rdmalab run EXPERIMENT --under NAME=COMMAND`: the same points under several conditions, in
//! turns, and what differs between the conditions.

use std::path::Path;

use rdmalab_experiments::{Point, shuffle};
use rdmalab_record::Record;
use rdmalab_report::compare::{Comparison, Options, Side};

use super::args::{HowArgs, PartOf, RunArgs};
use super::condition::Condition;
use crate::failure::{Outcome, run as failed, usage};
use crate::format::Format;
use crate::interrupt::Interrupt;
use crate::records::RecordsDir;

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

/// Measures points into the place that the options name, until a signal comes.
type Measure<'a> = &'a dyn Fn(Vec<Point>, &HowArgs, &Interrupt) -> Outcome;

/// Measures the points under each condition, `--repeat` times in turns, and compares the first
/// condition with each of the others.
///
/// # Errors
/// A command failed, or a measurement ended early. What was measured is compared nevertheless.
pub fn run(args: &RunArgs, points: &[Point], measure: Measure) -> Outcome {
    let conditions = &args.how.under;
    let dir = RecordsDir::new(args.how.out.as_deref(), args.how.no_record, "rdmalab-conditions-")?;
    let mut sides: Sides = vec![Vec::new(); conditions.len()];
    let ended = turns(args, points, measure, (&dir.path, &mut sides));
    // The directory is kept if there is something in it.
    if sides.iter().all(Vec::is_empty) && std::fs::remove_dir(&dir.path).is_ok() {
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

fn turns(
    args: &RunArgs,
    points: &[Point],
    measure: Measure,
    (dir, sides): (&Path, &mut Sides),
) -> Outcome {
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
        measure(points.to_vec(), &how, &interrupt)?;
        sides[turn.point].push(Record::open(&dir).map_err(failed)?);
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
