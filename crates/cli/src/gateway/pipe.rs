//! `rdmalab gateway pipe`: a node of a configuration between standard input and standard output.

use std::path::Path;

use clap::Args;
use rdmalab_config::{ConfigError, Entry, Kind, Value, parse};
use rdmalab_gateway::Plan;
use rdmalab_sample::FormatOptions;
use serde_json::json;

use super::check::told;
use super::run::{DeviceArgs, carry, verdict};
use super::samples::{FORMAT_HELP, format_options};
use crate::failure::{Outcome, usage};

/// The nodes that stand for standard input and output.
const STDIN: &str = "pipe-stdin";
const STDOUT: &str = "pipe-stdout";

/// Send samples from standard input to a node, and print those that it receives
///
/// With --send-only it ends with its input, else when the node ends, or by Ctrl-C.
#[derive(Args, Clone, Debug)]
pub struct PipeArgs {
    /// The configuration
    #[arg(value_name = "FILE")]
    file: String,
    /// The name of the node in it
    #[arg(value_name = "NODE")]
    node: String,
    #[arg(short, long, value_name = "FMT", default_value = "villas.human", help = FORMAT_HELP,
        value_parser = format_options)]
    format: FormatOptions,
    /// The types of the values of the input: f float, i integer, b boolean, c complex, each with a
    /// number
    #[arg(short, long, value_name = "TYPES", default_value = "64f")]
    types: String,
    /// Only send
    #[arg(short, long)]
    send_only: bool,
    /// Only receive
    #[arg(short, long, conflicts_with = "send_only")]
    receive_only: bool,
    /// The device of infiniband nodes.
    #[command(flatten)]
    device: DeviceArgs,
}

/// Runs a gateway of which the paths lead from and to this process.
pub fn run(args: &PipeArgs) -> Outcome {
    let of_file = |errors: Vec<ConfigError>| told(&args.file, &errors);
    let mut tree = rdmalab_config::load(Path::new(&args.file)).map_err(of_file)?;
    if tree.get("nodes").and_then(|nodes| nodes.get(&args.node)).is_none() {
        return Err(usage(format!("{}: there is no node {}", args.file, args.node)));
    }
    let own = parse("pipe.json", &own(args).to_string()).map_err(of_file)?;
    put(&mut tree, own);
    let plan = Plan::check(&tree).map_err(of_file)?;
    verdict(&carry(plan, &args.device)?)
}

/// The keys of the pipe itself.
fn own(args: &PipeArgs) -> serde_json::Value {
    let format = json!(args.format);
    let mut paths = Vec::new();
    if !args.receive_only {
        paths.push(json!({ "in": STDIN, "out": args.node }));
    }
    if !args.send_only {
        paths.push(json!({ "in": args.node, "out": STDOUT }));
    }
    let input = json!({ "epoch_mode": "original", "signals": args.types });
    json!({
        "nodes": {
            STDIN: { "type": "file", "uri": "/dev/stdin", "format": format, "in": input },
            STDOUT: { "type": "file", "uri": "/dev/stdout", "format": format,
                "out": { "flush": true } },
        },
        "paths": paths,
    })
}

/// Adds nodes to those of the configuration, and puts other paths in the place of its own.
fn put(tree: &mut Value, own: Value) {
    let (Kind::Group(entries), Kind::Group(own)) = (&mut tree.kind, own.kind) else { return };
    entries.retain(|entry| entry.key != "paths");
    for new in own {
        let same = entries.iter_mut().find(|entry| entry.key == new.key);
        match (same.map(|entry| &mut entry.value.kind), new.value.kind) {
            (Some(Kind::Group(nodes)), Kind::Group(more)) => {
                nodes.retain(|node| more.iter().all(|new| new.key != node.key));
                nodes.extend(more);
            }
            (_, kind) => entries.push(Entry { value: Value { kind, ..new.value }, ..new }),
        }
    }
}
