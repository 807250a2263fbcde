//! `rdmalab calibrate`: fits a profile of the simulator to measurements.

mod args;
mod data;
mod measure;
mod model;
mod result;
mod scale;
mod show;
mod write;

use std::cell::RefCell;

use rdmalab_measure::text::count_of;
use rdmalab_rank::process::LaunchEnv;
use rdmalab_sim::{Parameter, Parameters, Profile, name_of_device};

use crate::failure::{Outcome, run as failed, usage};
use crate::files;
use crate::interrupt::Interrupt;
use crate::simulated::{Spent, warn_of_debug_build};
use crate::suggestion::did_you_mean;
pub use args::CalibrateArgs;
use data::Data;
use model::{MAX_STEPS, Model};
use result::Calibrated;

/// Measures or reads, fits, prints and writes.
pub fn run(args: &CalibrateArgs) -> Outcome {
    if let Some(launch) = LaunchEnv::discover().map_err(usage)? {
        let by = launch.by;
        return Err(usage(format!(
            "{by} started {} processes, but calibrate runs as one process: start it without {by}; \
             `rdmalab run` under {by} makes records for it",
            launch.size
        )));
    }
    files::check("--output", &args.output)?;
    if args.output.exists() && !args.force {
        let shown = args.output.display();
        return Err(usage(format!(
            "--output {shown}: it exists: name another file, or add --force"
        )));
    }
    let base = base(&args.profile)?;
    let named = named(&args.fit)?;
    let (records, sources) = match &args.device {
        Some(device) => measure::measured(args, device)?,
        None => (data::opened(&args.records)?, measure::names(&args.records)),
    };
    let data = Data::of(&records, sources)?;
    let interrupt = Interrupt::catch();
    warn_of_debug_build();
    let spent = RefCell::new(Spent::begin());
    let mut model = Model { base: &base, data, interrupt: &interrupt, spent };
    model.check()?;
    let found = search(&model, named)?;
    let profile = write::profile(&model, &found, args);
    match args.format.is_json() {
        true => show::json(&model, &found, args),
        false => show::tables(&model, &found),
    }
    errln!("{}", model.spent.borrow().text());
    write::file(args, &profile)?;
    if found.fit.is_converged {
        return Ok(());
    }
    Err(failed(format!(
        "the search has not converged after {} steps: {} has the best values found so far",
        found.fit.steps,
        args.output.display()
    )))
}

/// The profile that the search begins with.
fn base(name: &str) -> Outcome<Profile> {
    let name = name_of_device(name).unwrap_or(name);
    rdmalab_sim::find(name).map_err(|error| usage(format!("--profile {error}")))
}

/// The parameters of `--fit`; none if it was not given.
fn named(names: &[String]) -> Outcome<Vec<&'static Parameter>> {
    let one = |name: &String| {
        let wrong = |why: String| usage(format!("--fit {name}: {why}"));
        let Some(found) = Parameters::ALL.iter().find(|parameter| parameter.name == *name) else {
            let all = Parameters::ALL.iter().map(|parameter| parameter.name);
            let near = did_you_mean(name, all);
            return Err(wrong(format!("the model has no such parameter{near}")));
        };
        match found.is_whole {
            true => Err(wrong(
                "only times and rates can be fitted, not whole numbers and switches: leave it out"
                    .to_owned(),
            )),
            false => Ok(found),
        }
    };
    names.iter().map(one).collect()
}

/// Fits the parameters that were named, or those on which some point depends.
fn search(model: &Model<'_>, named: Vec<&'static Parameter>) -> Outcome<Calibrated> {
    let (all, is_named) = match named.is_empty() {
        true => (scale::all().collect::<Vec<_>>(), false),
        false => (named, true),
    };
    // Derivatives at the base tell on which parameters points depend.
    let first = model.fit(&all, 0)?;
    let worth: Vec<f64> =
        all.iter().zip(&first.values).map(|(p, v)| scale::worth(p, *v, *v)).collect();
    let mut known = first.knowledge(&worth);
    if is_named {
        // Whoever names a parameter wants it, also if its value in the base says little.
        known.weak.clear();
    }
    let names = |of: &[usize]| of.iter().map(|i| all[*i]).collect::<Vec<_>>();
    let (idle, weak) = (names(&known.idle), names(&known.weak));
    let is_used = |parameter: &&Parameter| {
        !idle.iter().chain(&weak).any(|other| other.name == parameter.name)
    };
    let used: Vec<&Parameter> = all.iter().copied().filter(|p| is_used(p)).collect();
    if used.is_empty() {
        let asked = if is_named { " in --fit" } else { "" };
        return Err(usage(format!(
            "no point depends on the parameters{asked}, so they cannot be fitted: add other points"
        )));
    }
    errln!(
        "fitting {} to {}",
        count_of(used.len(), "parameter"),
        count_of(model.data.wanted.len(), "value")
    );
    let fit = model.fit(&used, MAX_STEPS)?;
    // Parameters of parts that the base does not have need not be named.
    let is_there = |parameter: &&Parameter| {
        is_named || model.base.parameters.get(parameter.name).is_some_and(|v| v > parameter.min)
    };
    let there = |of: Vec<&'static Parameter>| of.into_iter().filter(is_there).collect();
    Calibrated::of(model, used, fit, (there(idle), there(weak)), first.residuals)
}
