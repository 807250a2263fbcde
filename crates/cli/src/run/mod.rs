//! `rdmalab run EXPERIMENT [HOST]`: measures points, keeps a record, and prints tables.

pub mod args;
pub mod condition;
mod cores;
pub mod ends;
pub mod hooks;
mod hw_counters;
pub mod job;
pub mod keep;
mod load;
pub mod plan;
pub mod probe;
mod progress;
pub mod session;
mod starved;
pub mod under;
pub mod until;

use std::collections::VecDeque;
use std::time::{Instant, SystemTime};

use rdmalab_experiments::{Experiment, Limits, Point, Turn, sweep};
use rdmalab_measure::Clock;

use crate::failure::{Failure, Outcome, run as failed, usage};
use crate::format::Format;
use crate::interrupt::Interrupt;
use crate::simulated;
use args::{HowArgs, RunArgs};
use ends::Ends;
use keep::Keep;
use plan::Plan;
use progress::Progress;
use session::Session;

/// How a run ended, after its results were printed.
pub enum Ended {
    /// All points are measured.
    Whole,
    /// Some points are not measured; with the reason.
    CutShort(Failure),
}

impl Ended {
    /// Fails with the reason why points are not measured.
    fn whole(self) -> Outcome {
        match self {
            Self::Whole => Ok(()),
            Self::CutShort(failure) => Err(failure),
        }
    }
}

/// Measures, keeps and prints.
pub fn run(args: &RunArgs) -> Outcome {
    // Options are checked before anything is started.
    let ends = Ends::of(args.experiment, &args.how)?;
    let options = simulated::ablated(&args.how.device(), &args.sweep)?;
    let points = sweep(args.experiment, &options).map_err(usage)?;
    if args.how.until.is_none() {
        crate::expect::foresee(&args.how.expect, &points, args.how.repeat)?;
    }
    if !args.how.under.is_empty() {
        under::check(&args.how, ends.launched())?;
        if !args.how.plan {
            return under::run(args, &points, &|points, how, interrupt| {
                run_points_unless(interrupt, args.experiment, points, how, false, &|_, _| ())?
                    .whole()
            });
        }
    }
    // If the call is wrong, each process that mpirun or srun started has said so.
    if let Some(followed) = ends.follow_unless(args.how.plan) {
        return followed;
    }
    if args.how.plan {
        return show_plan(args, &points, ends.count());
    }
    run_points(args.experiment, points, &args.how, false, &|_, _| ())?.whole()
}

fn show_plan(args: &RunArgs, points: &[Point], ranks: usize) -> Outcome {
    let device = args.how.device();
    args.how.link.take_device().map_err(usage)?;
    if let Some(profile) = simulated::profile(&device)? {
        simulated::check(profile, points)?;
    }
    let found = crate::soft::find(&device)?;
    args.how.link.check(&found).map_err(usage)?;
    let context = found.open().map_err(failed)?;
    let limits = Limits::query(&context, points[0].common.port).map_err(failed)?;
    let plan = Plan::of(args.experiment, points.to_vec(), &args.how, (ranks, &[limits]))?;
    match args.how.format {
        Format::Json => plan::json(&plan, &device),
        _ => plan::print(&plan, &device, &args.how.link.given()),
    }
    Ok(())
}

/// Measures points, keeps them, and prints them; `before` is called with the device and the first
/// point once both ends are up.
///
/// # Errors
/// The reason why nothing was measured.
pub fn run_points(
    experiment: Experiment,
    points: Vec<Point>,
    how: &HowArgs,
    gbits: bool,
    before: &dyn Fn(&str, &Point),
) -> Outcome<Ended> {
    run_points_unless(&Interrupt::catch(), experiment, points, how, gbits, before)
}

/// As [`run_points`], until a signal comes.
fn run_points_unless(
    interrupt: &Interrupt,
    experiment: Experiment,
    points: Vec<Point>,
    how: &HowArgs,
    gbits: bool,
    before: &dyn Fn(&str, &Point),
) -> Outcome<Ended> {
    let device = how.device();
    let ends = Ends::of(experiment, how)?;
    ends.check(&device)?;
    let mut session = Session::open(interrupt, &device, &ends)?;
    let limits = session.limits(points[0].common.port)?;
    let Some(ours) = limits.first() else { return Err(failed("no rank knows the device")) };
    session.check(&points, how.wanted())?;
    let points = load::spread(points, &limits, &mut session)?;
    let plan = Plan::of(experiment, points, how, (ends.count(), &limits))?;
    before(&device, &plan.points[0]);
    let clock = Clock::new();
    let hold = how.latency.hold()?;
    let mut keep = Keep::new(&plan, how, ours, &clock)?;
    let failure = measure(&plan, &mut session, &mut keep, interrupt).err();
    let spent = session.simulated();
    for line in spent.iter().flatten().filter(|_| how.part.is_none()) {
        errln!("{line}");
    }
    let steps = session.print_timeline(how.format == Format::Table);
    drop((session, hold));
    let kept = keep.keep_capture(&ends.captures());
    let shown = show(&mut keep, how, gbits).and(steps).and(kept);
    if how.part.is_none() {
        keep.remove_if_empty();
        notes(&plan, &keep, &clock, (how.format, spent.is_some()));
    }
    for file in ends.captures() {
        errln!("captured in {} (rdmalab trace FILE)", file.display());
    }
    if let Some(failure) = failure {
        let failure = failure.then(shown);
        // A part of a study prints no results here.
        let (points, at) = match how.part {
            None => (keep.points(), "is above"),
            Some(_) => (keep.saved(), "is kept"),
        };
        return Ok(Ended::CutShort(with_rest(failure, points, (plan.turns.len(), at))));
    }
    shown?;
    if !how.expect.is_empty() {
        crate::expect::check(&how.expect, &keep.read()?)?;
    }
    Ok(Ended::Whole)
}

/// Adds the findings to the record, and prints the record.
fn show(keep: &mut Keep, how: &HowArgs, gbits: bool) -> Outcome {
    if keep.points() == 0 {
        return Ok(());
    }
    keep.conclude()?;
    match how.part {
        None => crate::print::record(&keep.read()?, how.format, gbits),
        Some(_) => Ok(()),
    }
}

/// Measures the points in their order; each is kept as soon as it is finished.
///
/// # Errors
/// The reason why the run ended early.
pub fn measure(
    plan: &Plan,
    session: &mut Session,
    keep: &mut Keep,
    interrupt: &Interrupt,
) -> Outcome {
    let mut progress = Progress::new(plan);
    let mut until = plan.until();
    let mut turns: VecDeque<Turn> = match &mut until {
        None => plan.turns.iter().copied().collect(),
        Some(until) => until.next_round().into(),
    };
    let ahead = |turns: &VecDeque<Turn>, keep: &Keep, first: usize| {
        let to_come = turns.iter().enumerate().filter(|(at, _)| !keep.has(first + at));
        to_come.map(|(_, turn)| turn_point(plan, *turn)).collect()
    };
    session.begin(|| ahead(&turns, keep, 0));
    for order in 0.. {
        let Some(turn) = turns.pop_front() else { break };
        if keep.has(order) {
            continue;
        }
        let point = &plan.points[turn.point];
        progress.begin(point, order, &described(plan, point));
        let (started, began) = (SystemTime::now(), Instant::now());
        let repeated = turn_point(plan, turn);
        let found = session.measure(&repeated, &mut |event| progress.event(event));
        let when = (started, began.elapsed());
        let (measured, failure) = match found {
            Ok(measured) => (Some(measured), None),
            Err(cut) => (cut.partial, Some(cut.failure)),
        };
        let mut failure = failure;
        if let Some(mut measured) = measured {
            if let Some(failure) = &failure {
                measured.cut_short.get_or_insert_with(|| failure.to_string());
            }
            if failure.is_none() && interrupt.is_set() {
                failure = Some(failed("interrupted"));
            }
            if failure.is_none() {
                failure = measured.cut_short.as_ref().map(failed);
            }
            if !measured.series.is_empty() || !measured.figures.is_empty() {
                let kept = keep.add(point, (order, turn.repetition), when, &measured);
                failure = match failure {
                    Some(failure) => Some(failure.then(kept)),
                    None => kept.err(),
                };
            }
            if let Some(until) = &mut until {
                until.add(turn.point, &measured);
            }
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        progress.end();
        if let Some(until) = until.as_mut().filter(|_| turns.is_empty()) {
            turns = until.next_round().into();
            session.begin(|| ahead(&turns, keep, order + 1));
        }
    }
    if let Some(shortfall) = until.and_then(|until| until.shortfall()) {
        progress.print_line(&shortfall);
    }
    Ok(())
}

/// The point of a turn.
fn turn_point(plan: &Plan, turn: Turn) -> Point {
    plan.points[turn.point].clone().repeated(turn.repetition)
}

/// A point, described by the options that vary.
fn described(plan: &Plan, point: &Point) -> String {
    let mut words = vec![plan.experiment.to_string()];
    for name in plan.varying() {
        if let Some(value) = point.get(name) {
            words.push(format!("--{name} {value}"));
        }
    }
    words.join(" ")
}

/// Prints notes below the results, for people only.
fn notes(plan: &Plan, keep: &Keep, clock: &Clock, (format, is_simulated): (Format, bool)) {
    let mut lines = Vec::new();
    // The other forms show the impossible points among the results.
    let is_shown = keep.points() > 0 && !matches!(format, Format::Csv | Format::Perftest);
    for (_, reason) in plan.impossible.iter().filter(|_| !is_shown) {
        lines.push(format!("left out: {reason}"));
    }
    if format == Format::Table && !is_simulated {
        lines.push(crate::harness::cost(clock));
    }
    if let Some(directory) = keep.directory() {
        lines.push(format!("kept in {} (rdmalab report DIR)", directory.display()));
    }
    for line in lines {
        errln!("{line}");
    }
}

/// The failure, with a note on the results that exist nevertheless.
fn with_rest(failure: Failure, points: u64, (planned, at): (usize, &str)) -> Failure {
    match failure {
        Failure::Run(reason) if points > 0 => Failure::Run(format!(
            "{reason} (what was measured of {points} of {planned} points {at})"
        )),
        other => other,
    }
}
