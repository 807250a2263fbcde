//! Measures the points that the experiments have for it: few, and so that each part of a message's
//! way is in some of them and absent from others.

use std::path::PathBuf;

use rdmalab_experiments::{Experiment, sweep};
use rdmalab_record::Record;

use super::args::CalibrateArgs;
use crate::failure::{Failure, Outcome, usage};
use crate::records::{RecordsDir, open_below};
use crate::run::args::{PartOf, RunArgs};
use crate::run::{Ended, run_points};

/// The sweeps, each as behind `rdmalab run`.
fn plan() -> Vec<String> {
    let of = |experiment: Experiment| {
        let options = experiment.calibrates().iter();
        options.map(move |options| format!("{experiment} {options}").trim_end().to_owned())
    };
    Experiment::all().flat_map(of).collect()
}

/// The names of directories.
pub fn names(dirs: &[PathBuf]) -> Vec<String> {
    let name = |dir: &PathBuf| Some(dir.file_name()?.to_string_lossy().into_owned());
    dirs.iter().filter_map(name).collect()
}

/// Measures on a device, and returns the records, and the name of their directory if it is kept.
///
/// # Errors
/// What cannot be measured, and why.
pub fn measured(args: &CalibrateArgs, device: &str) -> Outcome<(Vec<Record>, Vec<String>)> {
    crate::soft::find(device)?;
    let dir = RecordsDir::new(args.out.as_deref(), args.no_record, "rdmalab-calibrate-")?;
    let repeat = args.repeat.to_string();
    let plan = plan();
    for (number, line) in plan.iter().enumerate() {
        errln!("[{}/{}] {line}", number + 1, plan.len());
        let how = ["--device", device, "--repeat", &repeat];
        let words: Vec<String> = line.split(' ').chain(how).map(str::to_owned).collect();
        let mut run = RunArgs::parse(words.clone()).map_err(usage)?;
        let points = sweep(run.experiment, &run.sweep).map_err(usage)?;
        let command = ["rdmalab", "run"].map(str::to_owned).into_iter().chain(words).collect();
        let part = format!("{:02}-{}", number + 1, run.experiment);
        run.how.part = Some(PartOf { dir: dir.path.join(part), command });
        match run_points(run.experiment, points, &run.how, false, &|_, _| ()) {
            Ok(Ended::Whole) => {}
            Ok(Ended::CutShort(failure)) => return Err(failure),
            // None of its points is possible on this device.
            Err(Failure::Usage(why)) => errln!("left out: {why}"),
            Err(failure) => return Err(failure),
        }
    }
    let records = open_below(&dir.path)?;
    dir.announce("calibrate");
    Ok((records, if args.no_record { Vec::new() } else { names(&[dir.path]) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sweeps_of_the_experiments_are_command_lines() {
        assert!(!plan().is_empty());
        for line in plan() {
            let words = line.split(' ').map(str::to_owned);
            let run = RunArgs::parse(words).unwrap_or_else(|why| panic!("{line}: {why}"));
            let points = sweep(run.experiment, &run.sweep).expect("a sweep");
            assert!(!points.is_empty(), "{line}");
        }
    }
}
