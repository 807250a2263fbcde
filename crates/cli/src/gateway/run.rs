//! `rdmalab gateway run`.

use std::path::PathBuf;

use clap::Args;
use rdmalab_gateway::node::{Log, Stop, World};
use rdmalab_gateway::timer::TimerKind;
use rdmalab_gateway::{Plan, Summary};
use rdmalab_measure::Clock;

use super::check::plan;
use crate::failure::{Outcome, run as failed, usage};
use crate::interrupt::Interrupt;
use crate::link::LinkArgs;
use crate::soft;

/// Run a gateway: its nodes and paths
///
/// Ends when all sources have ended and everything was handed over. Ctrl-C, SIGTERM and SIGHUP end
/// it too, after what is under way; a second signal ends it at once. The exit code is 1 if a node
/// failed.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// The configuration
    #[arg(value_name = "FILE")]
    file: String,
    /// Write a summary as JSON: the counts of each path, and how long its samples took
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// The device.
    #[command(flatten)]
    device: DeviceArgs,
}

/// Which device infiniband nodes use.
#[derive(Args, Clone, Debug)]
pub struct DeviceArgs {
    /// The device of infiniband nodes [default: an adapter with an active port, else soft0]
    #[arg(short, long, value_name = "NAME")]
    device: Option<String>,
    /// The link of a soft device.
    #[command(flatten)]
    link: LinkArgs,
}

/// Checks, runs and reports.
pub fn run(args: &RunArgs) -> Outcome {
    let summary = carry(plan(&args.file)?, &args.device)?;
    for path in &summary.paths {
        outln!("{}", path.line());
    }
    if let Some(file) = &args.summary {
        let text = serde_json::to_string_pretty(&summary).map_err(failed)?;
        let written = std::fs::write(file, text + "\n");
        written.map_err(|why| failed(format!("--summary {}: {why}", file.display())))?;
    }
    verdict(&summary)
}

/// A run in which a node ended early has failed.
pub(super) fn verdict(summary: &Summary) -> Outcome {
    match &summary.failed()[..] {
        [] => Ok(()),
        nodes => Err(failed(format!("ended early: {}", nodes.join(", ")))),
    }
}

/// Runs a plan until its sources have ended, or until it is interrupted.
pub(super) fn carry(plan: Plan, args: &DeviceArgs) -> Outcome<Summary> {
    args.link.take_all(0).map_err(usage)?;
    let device = match plan.needs_device() {
        true => {
            let name = args.device.clone().unwrap_or_else(|| soft::best(&args.link));
            let device = soft::between_processes(&name, "a gateway")?;
            args.link.check(&device).map_err(usage)?;
            Some(device)
        }
        false => None,
    };
    let world = World {
        device,
        clock: Clock::new(),
        timer: TimerKind::Timerfd,
        stop: Stop::of(Interrupt::catch().flag()),
        log: Log::new(|line| errln!("{line}")),
    };
    plan.run(&world).map_err(failed)
}
