//! `rdmalab goal`: replays a schedule of messages on simulated adapters.

use std::path::{Path, PathBuf};

use clap::Args;
use rdmalab_goal::{Done, Options, Pairs, Plan, Schedule, check, critical_path, replay};
use rdmalab_rank::Stopped;
use rdmalab_sim::{Profile, Report, Simulation};
use serde_json::json;

use crate::failure::{Outcome, run as failed, usage};
use crate::format::ListFormatArgs;
use crate::interrupt::Interrupt;
use crate::simulated::{self, Spent};
use crate::table::Rows;

/// Messages that may go to a peer before it has given credits back.
const CREDITS: u32 = 16;
/// Ranks that the table shows; JSON has all.
const SHOWN: usize = 32;

/// Replay a schedule of sends, receives and calculations (GOAL, as LogGOPSim reads it)
///
/// Each rank of the schedule has a simulated adapter, and calls verbs: a message up to --eager is a
/// SEND, for which the receiver gives credits; a longer one is asked for and answered (two SENDs),
/// and then written with immediate data. `calc` is time of the rank's processor, in nanoseconds.
/// Prints when each rank has completed, in virtual time, and the operations that decided when the
/// last one did. Exits with 2 if the schedule is wrong, and says in which line.
#[derive(Args, Clone, Debug)]
pub struct GoalArgs {
    /// The schedule, a text file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The simulated device, as sim:connectx4; `devices` lists them
    #[arg(short, long, value_name = "NAME")]
    pub device: String,
    /// Longest message that is sent at once, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 8192,
        value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    pub eager: u32,
    /// Form of the output.
    #[command(flatten)]
    pub format: ListFormatArgs,
}

/// Reads, checks, replays, and prints.
pub fn run(args: &GoalArgs) -> Outcome {
    let Some(profile) = simulated::profile(&args.device)? else {
        return Err(usage(format!(
            "--device {}: schedules are replayed on simulated devices only: choose {}",
            args.device,
            simulated::names().join(", ")
        )));
    };
    let schedule = read(&args.file)?;
    let options = Options { eager_bytes: args.eager.into(), credits: CREDITS };
    let wrong = |error| usage(format!("{}:{error}", args.file.display()));
    let pairs = check(&schedule, options.eager_bytes).map_err(wrong)?;
    let plan = Plan::of(&schedule, options);
    let interrupt = Interrupt::catch();
    simulated::warn_of_debug_build();
    let mut spent = Spent::begin();
    let simulation = Simulation::new(&profile, schedule.ranks.len(), interrupt.flag());
    let device = simulated::device_of(&simulation)?;
    let (results, report) = simulation.run(|rank| {
        let context = device.open().map_err(|why| Stopped::Failed(why.to_string()))?;
        replay(rank, &context, &plan)
    });
    // The first failure of a rank's own is the reason; the others only tell that it failed.
    let own = |result: &&Result<Done, Stopped>| {
        matches!(result, Err(Stopped::Failed(_) | Stopped::TimedOut(_)))
    };
    let first = results.iter().find(own).or_else(|| results.iter().find(|r| r.is_err()));
    if let Some(why) = first.and_then(|result| result.as_ref().err()) {
        return Err(failed(format!("{}: {why}", args.file.display())));
    }
    let done: Vec<Done> = results.into_iter().flatten().collect();
    spent.add(&report);
    let found = Replayed { schedule, pairs, done, report, device: &args.device, profile };
    match args.format.is_json() {
        true => found.print_json(),
        false => found.print(),
    }
    errln!("{}", spent.text());
    Ok(())
}

fn read(file: &Path) -> Outcome<Schedule> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|why| usage(format!("{shown}: {why}")))?;
    Schedule::parse(&text).map_err(|error| usage(format!("{shown}:{error}")))
}

/// What a replay found.
struct Replayed<'a> {
    schedule: Schedule,
    pairs: Pairs,
    done: Vec<Done>,
    report: Report,
    device: &'a str,
    profile: Profile,
}

impl Replayed<'_> {
    fn total_ns(&self) -> f64 {
        self.done.iter().map(Done::completed_ns).fold(0.0, f64::max)
    }

    fn sum(&self, of: impl Fn(&Done) -> u64) -> u64 {
        self.done.iter().map(of).sum()
    }

    /// The critical path: rank, operation, line, begin and end.
    fn path(&self) -> Vec<(usize, String, usize, f64, f64)> {
        let path = critical_path(&self.schedule, &self.pairs, &self.done);
        let step = |(rank, index): (usize, usize)| {
            let op = &self.schedule.ranks[rank][index];
            let (begin, end) = self.done[rank].times_ns[index];
            (rank, op.to_string(), op.line, begin, end)
        };
        path.into_iter().map(step).collect()
    }

    fn print(&self) {
        let us = |ns: f64| format!("{:.3}", ns / 1e3);
        let mut ranks: Vec<usize> = (0..self.done.len()).collect();
        ranks.sort_by(|a, b| self.done[*b].completed_ns().total_cmp(&self.done[*a].completed_ns()));
        let hidden = ranks.len().saturating_sub(SHOWN);
        ranks.truncate(SHOWN);
        ranks.sort_unstable();
        let mut rows = Rows::new(&["rank", "operations", "sent", "bytes", "completed [us]"], 0);
        for rank in ranks {
            let done = &self.done[rank];
            rows.push(&[
                rank.to_string(),
                done.times_ns.len().to_string(),
                (done.eager + done.long).to_string(),
                done.bytes.to_string(),
                us(done.completed_ns()),
            ]);
        }
        out!("{}", rows.text());
        if hidden > 0 {
            outln!("{hidden} ranks that completed earlier are left out: --json has all");
        }
        outln!("\nwhat the last operation waited for, and what that waited for:");
        let mut rows = Rows::new(&["rank", "operation", "line", "begin [us]", "end [us]"], 2);
        for (rank, op, line, begin, end) in self.path() {
            rows.push(&[rank.to_string(), op, line.to_string(), us(begin), us(end)]);
        }
        out!("{}", rows.text());
        outln!(
            "\ncompleted after {} us of virtual time on {} (model {:016x}): numbers of a model, \
             not of an adapter",
            us(self.total_ns()),
            self.device,
            self.profile.hash()
        );
        outln!(
            "{} messages sent at once, {} asked for, {} bytes; {} events",
            self.sum(|done| done.eager),
            self.sum(|done| done.long),
            self.sum(|done| done.bytes),
            self.report.events
        );
    }

    fn print_json(&self) {
        let ranks = self.done.iter().enumerate().map(|(rank, done)| {
            json!({
                "rank": rank,
                "operations": done.times_ns.len(),
                "sent": done.eager + done.long,
                "bytes": done.bytes,
                "completed_ns": done.completed_ns(),
            })
        });
        let path = self.path().into_iter().map(|(rank, op, line, begin_ns, end_ns)| {
            json!({
                "rank": rank, "operation": op, "line": line,
                "begin_ns": begin_ns, "end_ns": end_ns,
            })
        });
        let all = json!({
            "device": self.device,
            "device_kind": "sim",
            "device_profile": self.profile.name,
            "model": format!("{} {:016x}", self.profile.name, self.profile.hash()),
            "completed_ns": self.total_ns(),
            "eager_messages": self.sum(|done| done.eager),
            "long_messages": self.sum(|done| done.long),
            "bytes": self.sum(|done| done.bytes),
            "events": self.report.events,
            "ranks": ranks.collect::<Vec<_>>(),
            "critical_path": path.collect::<Vec<_>>(),
        });
        outln!("{all:#}");
    }
}
