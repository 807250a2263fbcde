//! Runs a point at one end.

use std::ops::ControlFlow;

use rdmalab_measure::Outcome;
use rdmalab_rank::process::ProcessRank;
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::Device;

use crate::check::{check, most_messages};
use crate::common::completions::failed;
use crate::common::gid;
use crate::common::limits::Limits;
use crate::common::params::Common;
use crate::duration;
use crate::list::{added, standard};
use crate::point::Point;
use crate::runner::Runner;

/// Time stamps taken to measure the cost of one.
const COST_SAMPLES: usize = 1000;

/// Measures a point of an experiment that is part of rdmalab. All ranks call this with the same
/// point, each with its device. Rank 0 is the active end and returns all measurements; the others
/// return only facts about themselves.
///
/// When the rank is asked to stop, the function returns the measurements up to then, with
/// [`Outcome::cut_short`] set.
///
/// # Errors
/// When the device cannot run the point ([`check`] tells this beforehand), the ends have different
/// points or versions, a work request fails, another end is gone, or nothing arrives for too long.
/// The text is one line with the likely causes.
pub fn run<R: Rank + Sync>(rank: &R, device: &Device, point: &Point) -> Result<Outcome, Stopped> {
    let experiment = point.experiment();
    let all = standard();
    let runner = all.iter().find(|runner| runner.experiment() == experiment);
    let unknown = || failed(format!("{experiment} cannot run on a rank of this kind"));
    measure(runner.ok_or_else(unknown)?, rank, device, point)
}

/// [`run`] for a rank that is a process; it also runs experiments that the program
/// [added](crate::add).
///
/// # Errors
/// As [`run`].
pub fn run_in_process(
    rank: &ProcessRank,
    device: &Device,
    point: &Point,
) -> Result<Outcome, Stopped> {
    match added().iter().find(|runner| runner.experiment() == point.experiment()) {
        Some(runner) => measure(runner, rank, device, point),
        None => run(rank, device, point),
    }
}

fn measure<R: Rank + Sync>(
    runner: &Runner<R>,
    rank: &R,
    device: &Device,
    point: &Point,
) -> Result<Outcome, Stopped> {
    point.experiment().takes(rank.count()).map_err(failed)?;
    agree(rank, point)?;
    let context = device.open().map_err(failed)?;
    let limits = Limits::query(&context, point.common.port).map_err(failed)?;
    check(point, &limits).map_err(failed)?;
    if point.common.rate_per_s == Point::SWEEP {
        return Err(failed(
            "a single point needs one rate; --rate sweep works only in `rdmalab run`",
        ));
    }
    let common = gid::chosen(rank, &context, &limits, &point.common)?;
    let run = |common: &Common| runner.run(&point.own, common, rank, &context, &limits);
    let mut outcome = match common.duration_ns {
        0 => run(&common)?,
        _ => for_a_time(rank, point, &common, run)?,
    };
    debug_assert!(is_as_foreseen(point, &outcome), "{outcome:?}");
    outcome.push_fact("clock", rank.clock().source());
    let cost = rank.stamp_cost(COST_SAMPLES);
    outcome.push_fact("stamp_cost_ns", format!("{:.1}", cost.mean_ns));
    Ok(outcome)
}

/// Measures for a time instead of a number of messages.
fn for_a_time<R: Rank>(
    rank: &R,
    point: &Point,
    common: &Common,
    run: impl Fn(&Common) -> Result<Outcome, Stopped>,
) -> Result<Outcome, Stopped> {
    let most = most_messages(point);
    let counted = match duration::counted(rank, common, most, &run)? {
        ControlFlow::Continue(counted) => counted,
        ControlFlow::Break(cut_short) => return Ok(cut_short),
    };
    let mut outcome = run(&counted)?;
    if rank.index() == 0 {
        duration::note(&mut outcome, common, &counted, most);
    }
    Ok(outcome)
}

/// Makes sure that both ends have the same version and the same value of every option.
fn agree<R: Rank>(rank: &R, point: &Point) -> Result<(), Stopped> {
    let mut text = format!("version={}\n", env!("CARGO_PKG_VERSION"));
    text.push_str(&format!("experiment={}\n", point.experiment()));
    for option in point.experiment().options() {
        text.push_str(&format!("{}={}\n", option.name, option.get(point)));
    }
    let all = rank.exchange(text.as_bytes())?;
    for (index, other) in all.iter().enumerate() {
        let other = String::from_utf8_lossy(other);
        let pair = text.lines().zip(other.lines()).find(|(a, b)| a != b);
        if let Some((ours, theirs)) = pair {
            return Err(failed(format!(
                "the ranks differ: {ours} at rank {}, {theirs} at rank {index}: start all with \
                 the same version and options",
                rank.index()
            )));
        }
        if text.lines().count() != other.lines().count() {
            return Err(failed(format!(
                "the ranks differ: rank {index} has other options than rank {}: install the same \
                 version on both hosts",
                rank.index()
            )));
        }
    }
    Ok(())
}

fn is_as_foreseen(point: &Point, outcome: &Outcome) -> bool {
    let of = outcome.series.iter().map(|series| series.quantity);
    let mut of = of.chain(outcome.figures.iter().map(|figure| figure.quantity));
    of.all(|quantity| point.quantities().contains(&quantity))
}
