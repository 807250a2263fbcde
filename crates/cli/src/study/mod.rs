//! `rdmalab study`: repeats a published study on a device here.

mod application;
mod args;
mod budget;
mod conditions;
mod dir;
mod host_cost;
mod host_time;
mod kept;
mod parts;
mod probe;
mod program;
pub mod report;
mod results;
#[cfg(test)]
mod selects;
mod shorten;
mod show;
mod simulated_program;
#[cfg(test)]
mod slides;

use std::path::Path;
use std::time::{Duration, Instant};

use rdmalab_experiments::{Limits, sweep};
use rdmalab_record::Record;
use rdmalab_report::OtherCondition;
use rdmalab_study::{Study, evaluate_model};

use crate::failure::{Failure, Outcome, run as failed, usage};
use crate::interrupt::Interrupt;
use crate::latency::LatencyArgs;
use crate::run::args::PartOf;
use crate::run::ends::Ends;
use crate::run::session;
use crate::run::{Ended, run_points};
use crate::suggestion::did_you_mean;
pub use args::StudyArgs;
use dir::{Request, StudyDir};
use parts::{Part, What};
use results::{PAGE, beside, find, measured, studies, write_page};

/// Intended duration of a study with `--quick`, in seconds.
const QUICK_S: f64 = 120.0;

/// Lists the studies, shows a plan, or measures one.
pub fn run(args: &StudyArgs) -> Outcome {
    let Some(key) = &args.key else {
        show::list(&studies(args.studies.as_deref())?);
        return Ok(());
    };
    let (args, profiles) = &simulated(key, args)?;
    let resumed = match &args.resume {
        Some(dir) => Some(StudyDir::to_resume(key, dir.as_deref(), args.out.as_deref())?),
        None => None,
    };
    if let Some(dir) = &resumed {
        dir.request.check_same(args)?;
    }
    let request =
        resumed.as_ref().map_or_else(|| Request::of(key, args, profiles), |d| d.request.clone());
    let study = find(key, studies(request.studies.as_deref())?)?;
    for figure in &request.figures {
        if study.plan.figure(figure).is_none() {
            let keys: Vec<&str> = study.plan.figures.iter().map(|f| f.key.as_str()).collect();
            let meant = did_you_mean(figure, keys.iter().copied());
            let what = format!("{key} has no such figure; it has {}", keys.join(", "));
            return Err(usage(format!("--figure {figure}: {what}{meant}")));
        }
    }
    let others = beside(&study, &args.beside, request.condition.as_ref())?;
    let ends = launched(&request)?;
    let mut parts = parts::of_request(&study.plan, &request);
    if let Some((ranks, by)) = ends.as_ref().and_then(Ends::launched) {
        leave_unfit(key, &mut parts, ranks, by)?;
    }
    // What is wrong with the words of a call, each process that mpirun or srun started has said.
    // What is wrong with the device, rank 0 finds, and the others wait for it in vain.
    if let Some(followed) = ends.as_ref().and_then(Ends::follow) {
        return followed;
    }
    let limits = limits_of(&request)?;
    find_own_limits(&mut parts, &request)?;
    parts.iter_mut().for_each(|part| part.leave_impossible(&limits));
    let interrupt = Interrupt::catch();
    if let Some(ends) = &ends {
        let team = session::gather(&interrupt, ends, None)?;
        parts.iter_mut().for_each(|part| part.team = Some(team.clone()));
    }
    probe::all(&mut parts, &request, &limits, &interrupt)?;
    host_time::all(&mut parts, &request, &limits, &interrupt)?;
    if let Some(time) = args.max_time {
        budget::fit(&mut parts, time, &limits);
    }
    show::plan(&study, &parts, &request, &limits);
    let all_s: f64 = parts.iter().map(|part| part.size(Some(&limits)).expected_s).sum();
    if request.quick && args.max_time.is_none() && all_s > QUICK_S {
        outln!("this exceeds the time that --quick aims at; --max-time 2m measures less\n");
    }
    if args.plan {
        return Ok(());
    }
    if !parts.iter().any(|part| part.what.is_measured()) {
        return Err(usage(format!("{key}: no part of this study can be measured here")));
    }
    // The limit is kept during all parts, and set before a directory is made.
    let _hold = LatencyArgs { hold_dma_latency: request.hold_dma_latency }.hold()?;
    let dir = match resumed {
        Some(dir) => dir,
        None => StudyDir::new(request, args.out.as_deref())?,
    };
    let failures = measure(&mut parts, &dir, &limits, args.max_time, &interrupt);
    conclude(&study, &parts, &dir, failures, &others)
}

/// The arguments with `--device sim` replaced by the simulated adapter that the study's plan names,
/// and the profiles of all its simulations; none if the plan does not choose the device.
///
/// # Errors
/// There is no such study, or its plan names none.
fn simulated(key: &str, args: &StudyArgs) -> Outcome<(StudyArgs, Vec<String>)> {
    let (mut args, mut profiles) = (args.clone(), Vec::new());
    if args.device.as_deref() == Some("sim") {
        let study = find(key, studies(args.studies.as_deref())?)?;
        profiles = study.plan.profiles();
        let profile = profiles.first().ok_or_else(|| {
            usage(format!(
                "--device sim: there is no simulated adapter for the hardware of {key} ({}): name \
                 another one, such as sim:ideal",
                study.plan.hardware
            ))
        })?;
        args.device = Some(format!("sim:{profile}"));
    }
    Ok((args, profiles))
}

/// The processes that mpirun or srun started; `None` if the study starts its own.
fn launched(request: &Request) -> Outcome<Option<Ends>> {
    match request.hosts.is_empty() {
        true => Ends::of_study(&request.device, &request.link(), request.cores.clone()),
        false => Ok(None),
    }
}

/// Leaves out the parts that take another number of ranks than mpirun or srun started.
///
/// # Errors
/// These are all parts that could be measured here.
fn leave_unfit(key: &str, parts: &mut [Part], ranks: usize, by: &str) -> Outcome {
    let mut needed: Vec<usize> = parts.iter().filter_map(Part::ranks).collect();
    needed.sort_unstable();
    needed.dedup();
    parts.iter_mut().for_each(|part| part.leave_unfit(ranks, by));
    if needed.is_empty() || parts.iter().any(|part| part.ranks().is_some()) {
        return Ok(());
    }
    let needed: Vec<String> = needed.iter().map(usize::to_string).collect();
    Err(usage(format!(
        "{by} started {ranks} ranks, but no sweep of {key} takes that many: start {}",
        needed.join(" or ")
    )))
}

fn limits_of(request: &Request) -> Outcome<Limits> {
    let link = request.link();
    link.take_device().map_err(usage)?;
    let device = crate::soft::find(&request.device)?;
    link.check(&device).map_err(usage)?;
    let mut limits = Limits::query(&device.open().map_err(failed)?, 1).map_err(failed)?;
    limits.profile = crate::soft::profile(&device).map(|it| (it.name.clone(), it.does()));
    if let Some(profile) = crate::simulated::profile(&request.device)? {
        limits.profile = Some((profile.name.clone(), crate::simulated::described(&profile)));
    }
    Ok(limits)
}

/// Finds the limits of the devices that parts have of their own.
fn find_own_limits(parts: &mut [Part], request: &Request) -> Outcome {
    for part in parts {
        if let Some(own) = part.conditions.own_request(request) {
            part.conditions.set_limits(limits_of(&own)?);
        }
    }
    Ok(())
}

/// Measures the parts one after the other; returns their failures.
fn measure(
    parts: &mut [Part],
    study_dir: &StudyDir,
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
        if !part.what.is_measured() {
            continue;
        }
        number += 1;
        let left_s: f64 = expected[i..].iter().sum();
        let dir = study_dir.path.join(part.name());
        if let Ok(record) = Record::open(&dir) {
            part.restore(&record.header.command);
        } else if let Some(time) = max_time {
            // If earlier parts took longer than expected, the remaining parts are shortened more.
            let left = time.saturating_sub(began.elapsed()).as_secs_f64();
            budget::shorten(part, left / pace.of(left_s).max(1e-9));
        }
        let line = part.line(&study_dir.request);
        show::begin((number, count), (part, &line), pace.of(expected[i]), pace.of(left_s));
        let start = Instant::now();
        let outcome = one(part, &dir, &study_dir.request, interrupt);
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

/// The ratio of actual to expected durations so far.
struct Pace {
    done_s: f64,
    took_s: f64,
}

impl Pace {
    fn of(&self, expected_s: f64) -> f64 {
        if self.done_s > 0.0 { expected_s * self.took_s / self.done_s } else { expected_s }
    }
}

/// Measures a part into its directory.
fn one(part: &Part, dir: &Path, request: &Request, interrupt: &Interrupt) -> Outcome {
    let command = part.command(request);
    match &part.what {
        What::Experiment(args, _) => {
            let points = sweep(args.experiment, &args.sweep).map_err(usage)?;
            let mut how = part.how(args, request);
            how.part = Some(PartOf { dir: dir.to_owned(), command });
            match run_points(args.experiment, points, &how, false, &|_, _| ())? {
                Ended::Whole => Ok(()),
                Ended::CutShort(failure) => Err(failure),
            }
        }
        What::Program(cases) => {
            let request = part.request(request);
            program::run((cases, part.repeat), dir, &command, &request, interrupt)
        }
        What::Application(trials) => {
            application::run((trials, part.repeat), dir, &command, request, interrupt)
        }
        What::Missing(_) | What::NotAsked => Ok(()),
    }
}

/// Evaluates the study's claims on the records, prints the verdicts and writes the page.
fn conclude(
    study: &Study,
    parts: &[Part],
    dir: &StudyDir,
    failures: Vec<Failure>,
    others: &[OtherCondition],
) -> Outcome {
    let parts = measured(parts, dir);
    let evaluation = evaluate_model(study, &parts, &dir.request.calibration(study));
    show::verdicts(study, &evaluation, &dir.request);
    write_page(&dir.path.join(PAGE), study, &parts, &evaluation, others)?;
    // A usage error precedes other failures; --resume would not help.
    let wrong = failures.iter().find(|failure| matches!(failure, Failure::Usage(_)));
    match wrong.or(failures.first()) {
        None => Ok(()),
        Some(Failure::Usage(line)) => Err(usage(line)),
        Some(first) => Err(Failure::Run(format!(
            "{first}{}; continue with --resume",
            match failures.len() {
                1 => String::new(),
                n => format!(" (and {} other parts failed)", n - 1),
            }
        ))),
    }
}
