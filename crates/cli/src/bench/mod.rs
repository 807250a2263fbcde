//! `rdmalab bench self`: compares the speed of the device with the bare limits of this machine.
//!
//! The device and the limit are measured alternately, A, B, A, B, in one run. The ratio of each
//! pair of neighbours is one sample; the result is the median of these ratios with its interval. So
//! drift cancels. The command never fails because of speed.

mod args;
mod programs;
mod result;
mod rows;
mod sessions;
mod show;
pub mod task;
pub mod worker;

use rdmalab_measure::Clock;
use rdmalab_measure::limits::{self, available_cores, one_cpu, two_cores};
use rdmalab_measure::stats::paired_ratio;
use rdmalab_verbs::Kind;

use crate::failure::{Outcome, run as failed, usage};
use crate::interrupt::Interrupt;
use crate::run::ends::Ends;
pub use args::BenchCommand;
use args::{Bench, BenchArgs};
use result::{CONFIDENCE, Conditions, RowResult};
use rows::{Reference, Row, Testbed};
use sessions::Sessions;
use task::{Task, Work};

/// Rounds: enough for an interval of 95 %.
const ROUNDS: usize = 25;
/// Rounds with `--quick`: at least six, since otherwise there is no interval of 95 %.
const ROUNDS_QUICK: usize = 7;

/// Runs a `bench` subcommand.
pub fn run(args: &BenchCommand) -> Outcome {
    let Bench::Own(args) = &args.what;
    run_self(args)
}

/// Measures and prints.
fn run_self(args: &BenchArgs) -> Outcome {
    let interrupt = Interrupt::catch();
    let cores = cores(args)?;
    let device = crate::soft::between_processes(&args.device, "the benchmark")?;
    if let Some(profile) = crate::soft::profile(&device) {
        return Err(usage(format!(
            "RDMALAB_PROFILE: {}: `bench self` measures the device without a profile: unset the \
             variable",
            profile.name
        )));
    }
    let rows = chosen_rows(args)?;
    let clock = Clock::new();
    let yielding = one_cpu() || cores.0 == cores.1;
    let rounds = match args.rounds {
        Some(rounds) => rounds as usize,
        None if args.quick => ROUNDS_QUICK,
        None => ROUNDS,
    };
    let _hold = args.latency.hold()?;
    let ends = Ends::pair(Some(format!("{},{}", cores.0, cores.1)));
    let mut sessions = Sessions::open(&interrupt, &args.device, ends)?;
    let kind = sessions
        .at(Testbed::OneHost)?
        .limits(1)?
        .into_iter()
        .next()
        .map_or_else(String::new, |limits| limits.kind);
    let mut conditions = Conditions {
        device: args.device.clone(),
        kind,
        cores: [cores.0, cores.1],
        one_cpu: yielding,
        rounds,
        load_before: load(),
        load_after: None,
        clock: clock.to_string(),
        held_dma_latency_us: args.latency.hold_dma_latency,
    };
    let mut results = Vec::new();
    let mut failure = None;
    for row in rows {
        let result = match row.reference {
            Reference::Programs(pair) => {
                let is_soft = device.kind() == Kind::Soft;
                let on = programs::Setting { device: &args.device, is_soft, cores, hosts: None };
                measure_programs(&mut sessions, row, &pair, on, rounds)
            }
            _ => measure(&mut sessions, row, clock, cores, (rounds, yielding)),
        };
        match result {
            Ok(result) => results.push(result),
            Err(reason) => {
                failure = Some(reason);
                break;
            }
        }
    }
    conditions.load_after = load();
    if args.list.is_json() {
        show::json(&conditions, &results, device.kind() == Kind::Soft);
    } else {
        show::table(&conditions, &results);
    }
    failure.map_or(Ok(()), Err)
}

fn chosen_rows(args: &BenchArgs) -> Outcome<Vec<Row>> {
    let rows = rows::chosen(args.only.as_deref(), args.peers);
    if !rows.is_empty() {
        return Ok(rows);
    }
    let names: Vec<&str> = rows::all(args.peers).iter().map(|row| row.name).collect();
    Err(usage(format!(
        "--only {}: no row has a name that contains this; the rows are: {}",
        args.only.as_deref().unwrap_or(""),
        names.join("; ")
    )))
}

fn cores(args: &BenchArgs) -> Outcome<(usize, usize)> {
    let allowed = available_cores().map_err(failed)?;
    match args.cores.as_slice() {
        [] => Ok(two_cores()),
        [a, b] => match [a, b].into_iter().find(|core| !allowed.contains(core)) {
            None => Ok((*a, *b)),
            Some(core) => Err(usage(format!(
                "--cores {a},{b}: this process may not run on core {core}: choose two of \
                 {allowed:?}"
            ))),
        },
        other => Err(usage(format!("--cores takes two numbers, such as 0,1, not {}", other.len()))),
    }
}

/// Measures one row: the device and the limit alternately.
fn measure(
    sessions: &mut Sessions,
    row: Row,
    clock: Clock,
    cores: (usize, usize),
    (rounds, yielding): (usize, bool),
) -> Outcome<RowResult> {
    let mut result = RowResult::of(row, String::new());
    let mut limit = match Limit::of(sessions, &row, clock, cores) {
        Ok(limit) => limit,
        Err(reason) => {
            result.missing = Some(reason.to_string());
            return Ok(result);
        }
    };
    result.limit_name = limit.name();
    // The testbed may not be possible on this machine.
    if let Some(reason) = sessions.at(row.testbed).err() {
        if row.testbed == Testbed::OneHost || sessions.is_interrupted() {
            return Err(reason);
        }
        result.missing = Some(reason.to_string());
        return Ok(result);
    }
    sessions.at(row.testbed)?.bench(Task::Connect(row.setup()))?;
    for _ in 0..rounds {
        let found = sessions.at(row.testbed)?.bench(Task::Work { work: row.work(), yielding })?;
        let Some(ours) = row.value(&found) else {
            return Err(failed(format!("{}: nothing was measured", row.name)));
        };
        sessions.settle(row.testbed)?;
        match limit.run(sessions, &row, yielding) {
            Ok(bare) => {
                result.ours.push(ours);
                result.limit.push(bare);
            }
            Err(reason) if sessions.is_interrupted() => return Err(reason),
            Err(reason) => {
                result.missing = Some(reason.to_string());
                return Ok(result);
            }
        }
    }
    result.ratio = paired_ratio(&result.ours, &result.limit, CONFIDENCE);
    Ok(result)
}

/// Measures a row of programs: ours and the other one alternately.
fn measure_programs(
    sessions: &mut Sessions,
    row: Row,
    pair: &programs::Pair,
    mut on: programs::Setting<'_>,
    rounds: usize,
) -> Outcome<RowResult> {
    let mut result = RowResult::of(row, pair.beside.name(pair.bytes));
    if row.testbed == Testbed::TwoHosts {
        match sessions.at(row.testbed).map(|session| session.pids()) {
            Ok(pids) => on.hosts = pids.try_into().ok(),
            Err(reason) if sessions.is_interrupted() => return Err(reason),
            Err(reason) => {
                result.missing = Some(reason.to_string());
                return Ok(result);
            }
        }
    }
    for _ in 0..rounds {
        match programs::run(pair, &on) {
            Ok((ours, beside)) => {
                result.ours.push(ours);
                result.limit.push(beside);
            }
            Err(reason) if sessions.is_interrupted() => return Err(failed(reason)),
            Err(reason) => {
                result.missing = Some(reason);
                return Ok(result);
            }
        }
    }
    result.ratio = paired_ratio(&result.ours, &result.limit, CONFIDENCE);
    Ok(result)
}

/// The reference of a row.
enum Limit {
    /// A bare limit that needs no workers.
    Bare(Box<dyn limits::Limit>),
    /// Work of workers.
    Work { testbed: Testbed, work: Work, name: String },
}

impl Limit {
    fn of(
        sessions: &mut Sessions,
        row: &Row,
        clock: Clock,
        cores: (usize, usize),
    ) -> Outcome<Limit> {
        let Some((testbed, work, name)) = row.reference_work() else {
            return row.limit(clock, cores).map(Limit::Bare).map_err(failed);
        };
        if testbed != row.testbed {
            sessions.at(testbed)?.bench(Task::Connect(row.setup()))?;
        }
        Ok(Limit::Work { testbed, work, name })
    }

    fn name(&self) -> String {
        match self {
            Self::Bare(limit) => limit.name(),
            Self::Work { name, .. } => name.clone(),
        }
    }

    fn run(&mut self, sessions: &mut Sessions, row: &Row, yielding: bool) -> Outcome<f64> {
        match self {
            Self::Bare(limit) => limit.run().map_err(failed),
            Self::Work { testbed, work, .. } => {
                let work = work.clone();
                let found = sessions.at(*testbed)?.bench(Task::Work { work, yielding })?;
                row.reference_value(&found).ok_or_else(|| failed("nothing was measured"))
            }
        }
    }
}

/// Runnable processes over the last minute.
fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}
