//! `rdmalab gateway signal`: computed samples on standard output.

use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use rdmalab_gateway::node::wall_time;
use rdmalab_sample::{
    FormatOptions, Generator, Kind, Pool, Shape, Signal, Value, Waveform, time_ns,
};

use super::samples::{FORMAT_HELP, Writer, format_options};
use crate::failure::{Outcome, run as failed, usage};

/// Print samples of computed signals
///
/// A sample for each tick of a rate, in real time unless --no-realtime is given. Ctrl-C ends it.
#[derive(Args, Clone, Debug)]
pub struct SignalArgs {
    /// The shape; with mixed, each value has another one
    #[arg(value_name = "TYPE", value_parser = shapes())]
    shape: Shape,
    /// Values of a sample
    #[arg(short, long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=512))]
    values: u16,
    /// Samples a second
    #[arg(short, long, value_name = "HZ", default_value_t = 10.0)]
    rate: f64,
    /// Samples in all; without it there is no end
    #[arg(short, long, value_name = "N")]
    limit: Option<u64>,
    #[arg(short, long, value_name = "FMT", default_value = "villas.human", help = FORMAT_HELP,
        value_parser = format_options)]
    format: FormatOptions,
    /// Do not wait between samples; their times are those of the ticks
    #[arg(short, long)]
    no_realtime: bool,
    /// Periods a second
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 1.0)]
    frequency: f64,
    /// The factor of the shape
    #[arg(short, long, value_name = "X", default_value_t = 1.0, allow_negative_numbers = true)]
    amplitude: f64,
    /// What is added
    #[arg(short, long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    offset: f64,
    /// The standard deviation of the steps of random signals
    #[arg(short = 'D', long, value_name = "X", default_value_t = 0.2)]
    stddev: f64,
    /// Where in its period a signal starts, in radians
    #[arg(short, long, value_name = "RAD", default_value_t = 0.0, allow_negative_numbers = true)]
    phase: f64,
    /// The seed of random signals
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

fn shapes() -> impl TypedValueParser<Value = Shape> {
    PossibleValuesParser::new(Shape::NAMES).try_map(|name| serde_json::from_value(name.into()))
}

/// Prints samples until the limit, or until nobody reads them.
pub fn run(args: &SignalArgs) -> Outcome {
    if !(args.rate.is_finite() && args.rate > 0.0) {
        return Err(usage(format!("--rate {}: samples a second are more than 0", args.rate)));
    }
    let format = without_offset(args.format.clone()).build();
    let format = format.map_err(|why| usage(format!("--format: {why}")))?;
    let signals = Signal::numbered(args.values.into(), Kind::Float);
    let waveform = Waveform {
        signal: args.shape,
        frequency: args.frequency,
        amplitude: args.amplitude,
        offset: args.offset,
        stddev: args.stddev,
        phase: args.phase,
        ..Waveform::default()
    };
    let generator = |index| Generator::new(waveform, index, args.seed);
    let mut generators: Vec<Generator> = (0..signals.len()).map(generator).collect();
    let mut writer = Writer::new(format.as_ref(), &signals);
    let mut pool = Pool::new(1, signals.len());
    let mut handle = pool.take().expect("a new pool has its sample");
    let (start, begun) = (wall_time(), Instant::now());
    for tick in 0..args.limit.unwrap_or(u64::MAX) {
        let time_ns = time_ns(tick, args.rate);
        if !args.no_realtime {
            let due = begun + Duration::from_nanos(time_ns);
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let origin = if args.no_realtime { start.plus_ns(time_ns.into()) } else { wall_time() };
        let mut sample = pool.get_mut(&mut handle);
        sample.clear();
        sample.set_sequence(tick);
        sample.set_origin(origin);
        for generator in &mut generators {
            let value = generator.value(tick, time_ns, args.rate);
            // There is room for one value of each generator.
            let _ = sample.push(Value::from_float(value));
        }
        if !writer.write(&[pool.get(&handle)]).map_err(failed)? {
            break;
        }
    }
    pool.give(handle);
    Ok(())
}

/// The format without the offset of the arrival: computed samples have not arrived.
fn without_offset(mut format: FormatOptions) -> FormatOptions {
    match &mut format {
        FormatOptions::VillasHuman(options) => options.offset = false,
        FormatOptions::Csv(options) | FormatOptions::Tsv(options) => options.offset = false,
        _ => {}
    }
    format
}
