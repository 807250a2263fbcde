//! `rdmalab gateway convert`: samples of one format as another one.

use std::io;

use clap::Args;
use rdmalab_sample::{FormatOptions, Signal};

use super::samples::{FORMAT_HELP, Reader, Writer, copy, format_options, signals};
use crate::failure::{Outcome, run as failed, usage};

/// Convert samples from standard input to standard output
///
/// Bytes that are no sample are told, and left out where the samples behind them can be found; the
/// exit code is 1 then.
#[derive(Args, Clone, Debug)]
pub struct ConvertArgs {
    /// The format of the input.
    #[arg(short, long, value_name = "FMT", default_value = "villas.human", help = FORMAT_HELP,
        value_parser = format_options)]
    input: FormatOptions,
    /// The format of the output.
    #[arg(short, long, value_name = "FMT", default_value = "villas.human", help = "The \
        format of the output, in the same way", value_parser = format_options)]
    output: FormatOptions,
    /// The types of the values: f float, i integer, b boolean, c complex, each with a number
    #[arg(short, long, value_name = "TYPES", default_value = "64f")]
    types: String,
}

/// Converts all samples.
pub fn run(args: &ConvertArgs) -> Outcome {
    let input = args.input.clone().build().map_err(|why| usage(format!("--input: {why}")))?;
    let output = args.output.clone().build().map_err(|why| usage(format!("--output: {why}")))?;
    let signals: Vec<Signal> = signals(&args.types).map_err(|e| usage(format!("--types: {e}")))?;
    let mut reader = Reader::new(io::stdin().lock(), input.as_ref(), &signals);
    let mut writer = Writer::new(output.as_ref(), &signals);
    let wrong = copy(&mut reader, &mut writer, |_, _| 0)?;
    match wrong {
        0 => Ok(()),
        _ => Err(failed(format!("input: {wrong} places cannot be read as samples"))),
    }
}
