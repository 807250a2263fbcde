//! `rdmalab study`: a published study again, on the device at hand.

pub mod again;
mod parts;
mod place;
mod probe;
mod program;
#[cfg(test)]
mod selects;
mod show;
pub mod trim;

use std::path::Path;
use std::time::{Duration, Instant};

use rdmalab_experiments::{Limits, sweep};
use rdmalab_rank::process::World;
use rdmalab_record::Record;
use rdmalab_report::OtherCondition;
use rdmalab_study::{Evaluation, Study, SweepState, evaluate};

use crate::args::StudyArgs;
use crate::failure::{Failure, Outcome, run as failed, usage};
use crate::findings::filled;
use crate::interrupt::Interrupt;
use crate::latency::LatencyArgs;
use crate::near::hint;
use crate::run::args::PartOf;
use crate::run::plan::duration;
use crate::run::{Ended, run_points};
use parts::{Part, What};
use place::{Asked, Place};

/// A plan may take so many times as long as was asked for before that is said.
const SLACK: f64 = 1.1;
/// What a study is meant to take with `--quick`, in seconds.
const QUICK_S: f64 = 120.0;
/// The page, in the study's directory.
const PAGE: &str = "report.html";

/// Lists the studies, shows a plan, or measures one.
pub fn run(args: &StudyArgs) -> Outcome {
    let Some(key) = &args.key else {
        show::list(&studies(args.studies.as_deref())?);
        return Ok(());
    };
    if let Some(world) = World::discover().map_err(usage)? {
        return refused(key, &world);
    }
    let place = match &args.resume {
        Some(dir) => Some(Place::begun(key, dir.as_deref(), args.out.as_deref())?),
        None => None,
    };
    if let Some(place) = &place {
        place.asked.agrees(args)?;
    }
    let asked = place.as_ref().map_or_else(|| Asked::of(key, args), |p| p.asked.clone());
    let study = find(key, studies(asked.studies.as_deref())?)?;
    for figure in &asked.figures {
        if study.plan.figure(figure).is_none() {
            let keys: Vec<&str> = study.plan.figures.iter().map(|f| f.key.as_str()).collect();
            let near = hint(figure, keys.iter().copied());
            let what = format!("{key} has no such figure; it has {}", keys.join(", "));
            return Err(usage(format!("--figure {figure}: {what}{near}")));
        }
    }
    let others = beside(&study, &args.beside, asked.condition.as_ref())?;
    let limits = limits(&asked)?;
    let mut parts = parts::of(&study.plan, &asked.figures, asked.quick);
    if !asked.hosts.is_empty() {
        parts.iter_mut().for_each(Part::leave_programs);
    }
    parts.iter_mut().for_each(|part| part.leave_impossible(&limits));
    let interrupt = Interrupt::catch();
    probe::all(&mut parts, &asked, &limits, &interrupt)?;
    if let Some(time) = args.max_time {
        cut(&mut parts, time, &limits);
    }
    show::plan(&study, &parts, &asked, &limits);
    let all_s: f64 = parts.iter().map(|part| part.size(Some(&limits)).expected_s).sum();
    if asked.quick && args.max_time.is_none() && all_s > QUICK_S {
        outln!("that is more than --quick is meant to take: --max-time 2m measures less of it\n");
    }
    if args.plan {
        return Ok(());
    }
    if !parts.iter().any(|part| matches!(part.what, What::Experiment(..) | What::Program(_))) {
        return Err(usage(format!("{key}: nothing of it can be measured here")));
    }
    // In the way of one part it is in the way of all; nothing is begun then.
    let _hold = LatencyArgs { hold_dma_latency: asked.hold_dma_latency }.hold()?;
    let place = match place {
        Some(place) => place,
        None => Place::new(asked, args.out.as_deref())?,
    };
    let failures = measure(&mut parts, &place, &limits, args.max_time, &interrupt);
    conclude(&study, &parts, &place, failures, &others)
}

/// Each sweep takes its own number of ranks, and mpirun starts one number of them: a sentence of
/// rank 0, for all.
fn refused(key: &str, world: &World) -> Outcome {
    let by = world.by;
    match world.rank {
        0 => Err(usage(format!(
            "{by} started {} processes, and a study starts the ranks of each sweep itself: run it \
             without {by}, with --hosts A,B for ranks of other hosts; or give {by} one of the \
             sweeps that `rdmalab study {key} --plan` shows, as {by} -np N rdmalab run ...",
            world.size
        ))),
        _ => Ok(()),
    }
}

fn studies(dir: Option<&Path>) -> Outcome<Vec<Study>> {
    match dir {
        Some(dir) => Study::read_all(dir),
        None => Study::shipped(),
    }
    .map_err(usage)
}

fn find(key: &str, studies: Vec<Study>) -> Outcome<Study> {
    let keys: Vec<String> = studies.iter().map(|study| study.plan.key.clone()).collect();
    studies.into_iter().find(|study| study.plan.key == key).ok_or_else(|| {
        let near = hint(key, keys.iter().map(String::as_str));
        usage(format!("there is no study {key:?}; there are {}{near}", keys.join(", ")))
    })
}

/// Cuts the parts to a time, each by the same share as far as it can be: what has to stay of one
/// is made up for by the others.
fn cut(parts: &mut [Part], time: Duration, limits: &Limits) {
    let expected_s = |parts: &[Part]| -> f64 {
        parts.iter().map(|part| part.size(Some(limits)).expected_s).sum()
    };
    let (time_s, all_s) = (time.as_secs_f64(), expected_s(parts));
    if time_s >= all_s {
        return;
    }
    let cut_by = |share: f64| -> Vec<Part> {
        let mut parts = parts.to_vec();
        parts.iter_mut().for_each(|part| trim_to(part, share));
        parts
    };
    let share = trim::share_for(time_s, |share| expected_s(&cut_by(share)));
    let cut = cut_by(share);
    parts.clone_from_slice(&cut);
    let least_s = expected_s(parts);
    if least_s > time_s * SLACK {
        errln!(
            "--max-time {}: the plan cannot be cut below {}: of each point a few messages remain \
             (with long pauses, 6), of programs the first and the last size; choose parts with \
             --figure",
            duration(time_s),
            duration(least_s)
        );
    }
}

fn limits(asked: &Asked) -> Outcome<Limits> {
    let link = asked.link();
    link.take_device().map_err(usage)?;
    let device = crate::soft::find(&asked.device)?;
    link.check(&device).map_err(usage)?;
    let mut limits = Limits::query(&device.open().map_err(failed)?, 1).map_err(failed)?;
    limits.profile = crate::soft::profile(&device).map(|it| (it.name.clone(), it.does()));
    Ok(limits)
}

/// Less of a part, where it is more than its share of the time.
fn trim_to(part: &mut Part, share: f64) {
    (part.words, part.repeat) = match &part.what {
        What::Experiment(_, points) => match points.first() {
            Some(point) => trim::trimmed(&part.words, part.repeat, point, share),
            None => return,
        },
        What::Program(cases) => program::trimmed(&part.words, part.repeat, cases, share),
        What::Missing(_) | What::NotAsked => return,
    };
    part.look_up();
}

/// Measures the parts one after the other; what failed, each with its reason.
fn measure(
    parts: &mut [Part],
    place: &Place,
    limits: &Limits,
    max_time: Option<Duration>,
    interrupt: &Interrupt,
) -> Vec<Failure> {
    let began = Instant::now();
    let expected: Vec<f64> = parts.iter().map(|p| p.size(Some(limits)).expected_s).collect();
    let mut failures = Vec::new();
    let mut pace = Pace { done_s: 0.0, took_s: 0.0 };
    let count = expected.iter().filter(|s| **s > 0.0).count();
    let mut number = 0;
    for (i, part) in parts.iter_mut().enumerate() {
        if !matches!(part.what, What::Experiment(..) | What::Program(_)) {
            continue;
        }
        number += 1;
        let left_s: f64 = expected[i..].iter().sum();
        let dir = place.dir.join(part.name());
        if let Ok(record) = Record::open(&dir) {
            part.adopt(&record.header.command);
        } else if let Some(time) = max_time {
            // What took longer so far than expected is made up for by what is left.
            let left = time.saturating_sub(began.elapsed()).as_secs_f64();
            trim_to(part, left / pace.of(left_s).max(1e-9));
        }
        show::begin((number, count), part, pace.of(expected[i]), pace.of(left_s));
        let start = Instant::now();
        let outcome = one(part, &dir, place, interrupt);
        pace.done_s += part.size(Some(limits)).expected_s;
        pace.took_s += start.elapsed().as_secs_f64();
        if let Err(failure) = outcome {
            errln!("rdmalab: {}: {failure}", part.name());
            failures.push(failure.of(&part.name()));
        }
        if interrupt.is_set() {
            break;
        }
    }
    failures
}

/// How long things take against what was expected.
struct Pace {
    done_s: f64,
    took_s: f64,
}

impl Pace {
    fn of(&self, expected_s: f64) -> f64 {
        if self.done_s > 0.0 { expected_s * self.took_s / self.done_s } else { expected_s }
    }
}

fn one(part: &Part, dir: &Path, place: &Place, interrupt: &Interrupt) -> Outcome {
    let asked = &place.asked;
    let command = part.command(asked);
    match &part.what {
        What::Experiment(args, _) => {
            let points = sweep(args.experiment, &args.sweep).map_err(usage)?;
            let mut how = part.how(args, asked);
            how.part = Some(PartOf { dir: dir.to_owned(), command });
            match run_points(args.experiment, points, &how, false, &|_, _| ())? {
                Ended::Whole => Ok(()),
                Ended::CutShort(failure) => Err(failure),
            }
        }
        What::Program(cases) => program::run((cases, part.repeat), dir, &command, asked, interrupt),
        What::Missing(_) | What::NotAsked => Ok(()),
    }
}

/// What there is of each part.
fn measured(parts: &[Part], place: &Place) -> Vec<rdmalab_study::SweepResult> {
    // A record that is there counts, also where its program is no longer installed.
    let state = |part: &Part| match (Record::open(&place.dir.join(part.name())), &part.what) {
        (_, What::NotAsked) => SweepState::NotAsked,
        (Ok(record), _) => SweepState::Measured(Box::new(filled(record))),
        (Err(_), What::Missing(why)) => SweepState::Missing(why.clone()),
        (Err(_), _) => SweepState::Missing("it was not measured: the run was ended before".into()),
    };
    parts
        .iter()
        .map(|part| rdmalab_study::SweepResult {
            figure: part.figure.clone(),
            sweep: part.sweep.clone(),
            line: part.shown_command(&place.asked),
            state: state(part),
        })
        .collect()
}

/// Other runs of a study, to be set beside this one.
///
/// # Errors
/// When a directory is none, or two of the runs have one name; `own` is this one's.
fn beside(
    study: &Study,
    dirs: &[std::path::PathBuf],
    own: Option<&String>,
) -> Outcome<Vec<OtherCondition>> {
    let one = |dir: &std::path::PathBuf| {
        let place = Place::of(&study.plan.key, dir, "--beside")?;
        let parts = measured(&again::begun(study, &place), &place);
        let name = dir.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = place.asked.condition.or(name).unwrap_or_else(|| dir.display().to_string());
        Ok(OtherCondition { name, evaluation: evaluate(study, &parts), parts })
    };
    let mut found = Vec::<OtherCondition>::new();
    for dir in dirs {
        let next = one(dir)?;
        // Under one name they would be taken for repetitions of each other.
        if own == Some(&next.name) || found.iter().any(|other| other.name == next.name) {
            return Err(usage(format!(
                "--beside {}: there are two runs called {:?}: give each a --condition of its own",
                dir.display(),
                next.name
            )));
        }
        found.push(next);
    }
    Ok(found)
}

/// Reads back what there is, holds the study against it, writes the page and says what came out.
fn conclude(
    study: &Study,
    parts: &[Part],
    place: &Place,
    failures: Vec<Failure>,
    others: &[OtherCondition],
) -> Outcome {
    let parts = measured(parts, place);
    let evaluation = evaluate(study, &parts);
    show::verdicts(&evaluation, &place.asked);
    write_page(&place.dir.join(PAGE), study, &parts, &evaluation, others)?;
    // A wrong call comes first, and does not go on by being repeated.
    let wrong = failures.iter().find(|failure| matches!(failure, Failure::Usage(_)));
    match wrong.or(failures.first()) {
        None => Ok(()),
        Some(Failure::Usage(line)) => Err(usage(line)),
        Some(first) => Err(Failure::Run(format!(
            "{first}{}; --resume goes on",
            match failures.len() {
                1 => String::new(),
                n => format!(" (and {} other parts failed)", n - 1),
            }
        ))),
    }
}

/// Writes the page, and says where.
fn write_page(
    page: &Path,
    study: &Study,
    parts: &[rdmalab_study::SweepResult],
    evaluation: &Evaluation,
    others: &[OtherCondition],
) -> Outcome {
    let text = rdmalab_report::study_page(study, parts, evaluation, others);
    std::fs::write(page, text).map_err(|e| failed(format!("{}: {e}", page.display())))?;
    outln!("\n{}", page.display());
    Ok(())
}
