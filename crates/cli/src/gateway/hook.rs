//! `rdmalab gateway hook`: samples through one hook.

use std::io;

use clap::Args;
use clap::builder::PossibleValuesParser;
use rdmalab_gateway::node::wall_time;
use rdmalab_sample::{FormatOptions, Handle, Hook, HookOptions, Pool, Signal, Verdict};
use serde_json::{Map, Value};

use super::samples::{FORMAT_HELP, Reader, Writer, copy, format_options, signals};
use crate::failure::{Outcome, run as failed, usage};

/// Pass samples from standard input through a hook to standard output
#[derive(Args, Clone, Debug)]
pub struct HookArgs {
    /// The hook
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(HookOptions::NAMES))]
    name: String,
    /// An option of the hook, as ratio=10; the value is JSON, or else a string
    #[arg(short, long = "option", value_name = "KEY=VALUE", value_parser = option)]
    options: Vec<(String, Value)>,
    #[arg(short, long, value_name = "FMT", default_value = "villas.human", help = FORMAT_HELP,
        value_parser = format_options)]
    format: FormatOptions,
    /// The types of the values: f float, i integer, b boolean, c complex, each with a number
    #[arg(short, long, value_name = "TYPES", default_value = "64f")]
    types: String,
}

fn option(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text.split_once('=').ok_or("an option is KEY=VALUE")?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    Ok((key.to_owned(), value))
}

/// Passes all samples through the hook.
pub fn run(args: &HookArgs) -> Outcome {
    let format = args.format.clone().build().map_err(|why| usage(format!("--format: {why}")))?;
    let before: Vec<Signal> = signals(&args.types).map_err(|e| usage(format!("--types: {e}")))?;
    let mut behind = before.clone();
    let wrong = |why: &dyn std::fmt::Display| usage(format!("hook {}: {why}", args.name));
    let mut keys: Map<String, Value> = args.options.iter().cloned().collect();
    keys.insert("type".to_owned(), args.name.as_str().into());
    let options: HookOptions = serde_json::from_value(keys.into()).map_err(|why| wrong(&why))?;
    let mut hook = options.build(&mut behind).map_err(|why| wrong(&why))?;
    let room = before.len().max(behind.len());
    let mut reader = Reader::with_room(io::stdin().lock(), format.as_ref(), &before, room);
    let mut writer = Writer::new(format.as_ref(), &behind);
    let wrong = copy(&mut reader, &mut writer, |pool, handles| {
        let wrong = passed(hook.as_mut(), pool, handles);
        out!("{}", String::from_utf8_lossy(&hook.take_text(false)));
        wrong
    })?;
    out!("{}", String::from_utf8_lossy(&hook.take_text(true)));
    match wrong {
        0 => Ok(()),
        _ => Err(failed(format!("{wrong} samples could not be read or treated"))),
    }
}

/// Keeps the samples that pass. How many the hook could not treat.
fn passed(hook: &mut dyn Hook, pool: &mut Pool, handles: &mut Vec<Handle>) -> u64 {
    let mut wrong = 0;
    for mut handle in std::mem::take(handles) {
        let verdict = hook.process(&mut pool.get_mut(&mut handle), &wall_time);
        match verdict {
            Ok(Verdict::Pass) => handles.push(handle),
            Ok(Verdict::Drop) => pool.give(handle),
            Err(why) => {
                errln!("hook {}: {why}", hook.name());
                pool.give(handle);
                wrong += 1;
            }
        }
    }
    wrong
}
