//! Measures the built-in points: few, and so that each part of a message's way is in some of them
//! and absent from others.

use std::path::PathBuf;

use rdmalab_experiments::sweep;
use rdmalab_record::Record;

use super::args::CalibrateArgs;
use crate::failure::{Failure, Outcome, usage};
use crate::records::{RecordsDir, open_below};
use crate::run::args::{PartOf, RunArgs};
use crate::run::{Ended, run_points};

/// The points, as behind `rdmalab run`.
const PLAN: [&str; 13] = [
    // What calls cost, alone and in lists; posts with inline data of one and of four pieces.
    "overhead --size 32 --list 1,16 --inline off,on --messages 1000",
    "overhead --size 256 --inline on --messages 1000",
    // Latency: inline or read over the bus, short and long.
    "ping --size 8,64,256 --inline off,on --messages 1000",
    "ping --size 1K,4K,16K,64K --inline off --messages 1000",
    // A target that looks at memory, and one that only answers.
    "ping --op write --size 8,4K --inline off --messages 1000",
    "ping --op read --size 8,4K,64K --messages 1000",
    // Events, and with a pause those of a processor that fell asleep.
    "ping --poll event --size 8 --messages 1000",
    "ping --poll event --size 8 --pause 500us --messages 100 --warm-up 10",
    // One-way times, and completions of short messages and of long ones.
    "oneway --size 8,4K --inline off --messages 100 --runs 5",
    // Rates.
    "blast --size 8 --inline off,on --list 1,16 --messages 2000 --runs 1",
    "blast --size 4K,64K --inline off --messages 2000 --runs 1",
    "mr --size 4K,64K,1M",
    "connect",
];

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
    for (number, line) in PLAN.iter().enumerate() {
        errln!("[{}/{}] {line}", number + 1, PLAN.len());
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
