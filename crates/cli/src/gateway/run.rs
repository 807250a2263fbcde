//! `rdmalab gateway run`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use rdmalab_gateway::node::{Log, Stop, World};
use rdmalab_gateway::timer::TimerKind;
use rdmalab_gateway::{Live, Plan, Summary};
use rdmalab_measure::Clock;

use super::check::plan;
use super::metrics;
use crate::failure::{Outcome, run as failed, usage};
use crate::interrupt::Interrupt;
use crate::link::LinkArgs;
use crate::soft;

/// Time between two views of paths on a terminal, and between two looks whether to end.
const SHOWN_EACH: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(50);

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
    /// Serve what paths have done so far to Prometheus
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
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
    let plan = plan(&args.file)?;
    if let Some(at) = args.metrics {
        if at.port() == 0 {
            return Err(usage(format!("--metrics {at}: choose a port, from 1 to 65535")));
        }
        metrics::serve(at, plan.live())?;
    }
    let summary = carry(plan, &args.device)?;
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
    // Draws nothing where standard error is no terminal.
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{msg}").map_err(failed)?);
    let world = World {
        device,
        clock: Clock::new(),
        timer: TimerKind::Timerfd,
        stop: Stop::of(Interrupt::catch().flag()),
        log: Log::new({
            let bar = bar.clone();
            move |line| bar.suspend(|| errln!("{line}"))
        }),
    };
    let live = plan.live();
    let ended = AtomicBool::new(false);
    let summary = thread::scope(|scope| {
        scope.spawn(|| show(&bar, &live, &ended));
        let _ended = SetAtEnd(&ended);
        plan.run(&world)
    });
    bar.finish_and_clear();
    summary.map_err(failed)
}

/// Is set at the end of a block, also by a panic.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Shows each second what paths have done, if standard error is a terminal.
fn show(bar: &ProgressBar, live: &Live, ended: &AtomicBool) {
    let mut shown = Instant::now();
    while !bar.is_hidden() && !ended.load(Ordering::Relaxed) {
        thread::sleep(LOOK);
        if shown.elapsed() >= SHOWN_EACH {
            shown = Instant::now();
            let lines: Vec<String> = live.ask(LOOK).iter().map(|(_, path)| path.line()).collect();
            bar.set_message(lines.join("\n"));
        }
    }
}
