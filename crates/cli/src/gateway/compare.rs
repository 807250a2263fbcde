//! `rdmalab gateway compare`: whether files have the same samples.

use std::fs::File;
use std::path::{Path, PathBuf};

use clap::Args;
use rdmalab_sample::{
    CompareOptions, Format, FormatOptions, Handle, Pool, SampleRef, Signal, compare,
};

use super::samples::{FORMAT_HELP, ReadResult, Reader, format_options, signals};
use crate::failure::{Failure, Outcome};

/// The exit code of files that cannot be compared, as of VILLASnode's compare.
const CANNOT: u8 = 255;

/// Compare the samples of files with those of the first one
///
/// Prints the first difference. Exit codes are those of VILLASnode's compare: 0 equal; 1 one file
/// is longer; 2 sequence numbers, 3 times of origin, 4 numbers of values or 5 values differ; 255
/// other errors, also if a part is known in one file only. A time differs if it is later by more
/// than --epsilon seconds; an earlier one does not. What is no number equals everything.
#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// The files
    #[arg(value_name = "FILE", required = true, num_args = 2..)]
    files: Vec<PathBuf>,
    /// By how much numbers, and times in seconds, may differ
    #[arg(short, long, value_name = "EPS", default_value_t = 1e-6)]
    epsilon: f64,
    /// Do not compare values
    #[arg(short = 'v', long)]
    ignore_values: bool,
    /// Do not compare times
    #[arg(short = 'T', long)]
    ignore_timestamps: bool,
    /// Do not compare sequence numbers
    #[arg(short = 's', long)]
    ignore_sequence: bool,
    #[arg(short, long, value_name = "FMT", default_value = "villas.human", help = FORMAT_HELP,
        value_parser = format_options)]
    format: FormatOptions,
    /// The types of the values: f float, i integer, b boolean, c complex, each with a number
    #[arg(short, long, value_name = "TYPES", default_value = "64f")]
    types: String,
}

/// Samples of a file: pools, and what was taken from each.
type Samples = Vec<(Pool, Vec<Handle>)>;

/// Compares the files.
pub fn run(args: &CompareArgs) -> Outcome {
    let cannot = |why: String| Failure::Code(CANNOT, why);
    let format = args.format.clone().build().map_err(|why| cannot(format!("--format: {why}")))?;
    let signals = signals(&args.types).map_err(|why| cannot(format!("--types: {why}")))?;
    let read = |path: &PathBuf| samples(path, format.as_ref(), &signals).map_err(cannot);
    let files: Vec<Samples> = args.files.iter().map(read).collect::<Outcome<_>>()?;
    let streams: Vec<Vec<SampleRef<'_>>> = files
        .iter()
        .map(|file| {
            file.iter().flat_map(|(pool, all)| all.iter().map(move |h| pool.get(h))).collect()
        })
        .collect();
    let streams: Vec<&[SampleRef<'_>]> = streams.iter().map(Vec::as_slice).collect();
    let options = CompareOptions {
        epsilon: args.epsilon,
        values: !args.ignore_values,
        timestamps: !args.ignore_timestamps,
        sequence: !args.ignore_sequence,
    };
    compare(&signals, &streams, options).map_err(|difference| {
        outln!("{difference}");
        Failure::Code(difference.exit_code(), "the files differ".to_owned())
    })
}

fn samples(path: &Path, format: &dyn Format, signals: &[Signal]) -> Result<Samples, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let file = File::open(path).map_err(|why| wrong(&why))?;
    let mut reader = Reader::new(file, format, signals);
    let mut all = Samples::new();
    loop {
        let mut handles = Vec::new();
        let found = reader.read(&mut handles).map_err(|why| wrong(&why))?;
        if !handles.is_empty() {
            all.push((reader.take_pool(), handles));
        }
        match found {
            ReadResult::More => {}
            ReadResult::End => return Ok(all),
            ReadResult::Wrong(what) => return Err(wrong(&what)),
        }
    }
}
