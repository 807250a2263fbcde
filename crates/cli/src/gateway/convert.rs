//! `rdmalab gateway convert`: samples of one format as another one.

use std::io;

use clap::Args;
use rdmalab_sample::{FormatOptions, SampleRef, Signal};

use super::samples::{FORMAT_HELP, Found, Reader, Writer, format_options, signals};
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
    let mut handles = Vec::new();
    let mut wrong = 0;
    loop {
        let found = reader.read(&mut handles).map_err(|why| failed(format!("input: {why}")))?;
        let samples: Vec<SampleRef<'_>> = handles.iter().map(|h| reader.pool.get(h)).collect();
        let is_read = writer.write(&samples).map_err(|why| failed(format!("output: {why}")))?;
        handles.drain(..).for_each(|handle| reader.pool.give(handle));
        match found {
            Found::More if is_read => {}
            Found::Wrong(what) if is_read => {
                errln!("input: {what}");
                wrong += 1;
            }
            _ => break,
        }
    }
    match wrong {
        0 => Ok(()),
        _ => Err(failed(format!("input: {wrong} places are no samples"))),
    }
}
