//! The tour: two processes on a device, and what they measured.

mod limits;
mod plan;
mod show;

use rdmalab_measure::limits::{one_cpu, two_cores};
use rdmalab_measure::{Clock, limits::core_skew};
use serde::Serialize;

use crate::args::TourArgs;
use crate::failure::{Failure, Outcome, run as run_failed, usage};
use crate::interrupt::Interrupt;
use crate::pair::Pair;
use crate::protocol::{Found, Make, Op, Work};
use plan::{Plan, Point};

/// Round trips before those that count, of each point; at most a tenth of them.
const WARM_UP: u64 = 2000;
/// Messages of a flood, and bytes of one at most.
const FLOOD_MESSAGES: u64 = 400_000;
/// See above.
const FLOOD_BYTES: u64 = 1 << 30;

/// What was measured at a point.
#[derive(Clone, Debug, Serialize)]
struct Measured {
    #[serde(flatten)]
    point: Point,
    /// One-way and round trip.
    latency: Found,
    /// Messages one way.
    flood: Option<Found>,
}

/// The conditions of a run.
#[derive(Clone, Debug, Serialize)]
struct Conditions {
    device: String,
    kind: String,
    cores: [usize; 2],
    one_cpu: bool,
    mtu_bytes: usize,
    inline_bytes: usize,
    memory: String,
    clock: String,
    stamp_cost: String,
    /// Bounds of how far the second core's clock is ahead, in ns.
    skew_ns: Option<[f64; 2]>,
    seed: u64,
    warm_up: u64,
}

/// Measures and prints. What was measured before a failure is printed too.
pub fn run(args: &TourArgs) -> Outcome {
    let interrupt = Interrupt::catch();
    crate::soft::find(&args.device)?;
    let clock = Clock::new();
    let cores = two_cores();
    let yielding = one_cpu();
    let skew = core_skew(clock, cores).ok();
    let pinned = (!yielding).then_some(cores);
    let (mut pair, about) = Pair::open(&interrupt, &args.device, pinned, yielding)?;
    let plan = Plan::new(args, about.mtu)?;
    if let Some(index) = args.gid_index.filter(|index| u32::from(*index) >= about.gids) {
        return Err(usage(format!(
            "--gid-index {index}: {} has {} GIDs, from 0 on (`rdmalab devices` shows them)",
            args.device, about.gids
        )));
    }
    let mut conditions = Conditions {
        device: args.device.clone(),
        kind: about.kind,
        cores: [cores.0, cores.1],
        one_cpu: yielding,
        mtu_bytes: about.mtu,
        inline_bytes: 0,
        memory: String::new(),
        clock: clock.to_string(),
        stamp_cost: clock.cost(100_000).to_string(),
        skew_ns: skew.map(|s| [s.low_ns, s.high_ns]),
        seed: plan.seed,
        warm_up: WARM_UP.min(args.samples),
    };
    let mut measured = Vec::new();
    let failure = points(&mut pair, args, &plan, &mut conditions, &mut measured).err();
    // The cores are free for the limits now.
    drop(pair);
    measured.sort_by_key(|m: &Measured| plan.rank(&m.point));
    let bare = if failure.is_none() { limits::measure(clock, cores) } else { Vec::new() };
    if args.json {
        show::json(&conditions, &measured, &bare, failure.as_ref());
    } else if failure.is_none() || !measured.is_empty() {
        show::table(&conditions, &measured, &bare, &plan);
    }
    failure.map_or(Ok(()), |failure| Err(cut_short(failure, measured.len(), plan.points.len())))
}

fn cut_short(failure: Failure, done: usize, planned: usize) -> Failure {
    match failure {
        Failure::Run(reason) if done > 0 => Failure::Run(format!(
            "{reason} (what was measured of {done} of {planned} points is above)"
        )),
        other => other,
    }
}

fn points(
    pair: &mut Pair,
    args: &TourArgs,
    plan: &Plan,
    conditions: &mut Conditions,
    measured: &mut Vec<Measured>,
) -> Outcome {
    for point in &plan.points {
        let agreed = pair.connect(&Make {
            transport: point.transport,
            bytes_max: point.bytes,
            private_memory: false,
            gid_index: args.gid_index,
        })?;
        (conditions.inline_bytes, conditions.memory) = (agreed.inline_bytes, agreed.backing);
        let trips = args.samples;
        let warm_up = conditions.warm_up;
        let [latency, _] = pair.work(&Work::Stamped { bytes: point.bytes, warm_up, trips })?;
        // Whatever comes of the flood, the latency is measured.
        let cut_short = latency.cut_short.clone();
        if latency.round_trip.is_some() {
            measured.push(Measured { point: *point, latency, flood: None });
        }
        if let Some(reason) = cut_short {
            return Err(run_failed(reason));
        }
        let messages = (FLOOD_BYTES / point.bytes as u64).min(FLOOD_MESSAGES).min(4 * trips).max(1);
        let flood = |messages| Work::Flood { op: Op::Send, bytes: point.bytes, messages, list: 1 };
        pair.work(&flood((messages / 10).max(1)))?;
        let [_, received] = pair.work(&flood(messages))?;
        if let Some(last) = measured.last_mut() {
            last.flood = Some(received);
        }
    }
    Ok(())
}
