//! Runs a point at one end.

use rdmalab_measure::Outcome;
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::Device;

use crate::check::check;
use crate::common::completions::failed;
use crate::common::endpoint::{End, agree};
use crate::common::limits::Limits;
use crate::common::threads;
use crate::point::{Experiment, Point};
use crate::{blast, connect, fan, mr, oneway, overhead, ping, recvq, rpc, timeout};

/// Stamps taken to learn what one costs.
const COST_SAMPLES: usize = 1000;

/// Measures a point. Both ranks call this with the same point, each with its device; rank 0 is the
/// active end, and returns all that was measured. Rank 1 returns its own facts.
///
/// When it was asked to stop, what was measured so far is returned, with
/// [`Outcome::cut_short`] set.
///
/// # Errors
/// When the device cannot do it ([`check`] tells before), the two ends run different points or
/// versions, a work request fails, the other end is gone, or nothing comes for too long: one line
/// with the likely causes.
pub fn run<R: Rank + Sync>(rank: &R, device: &Device, point: &Point) -> Result<Outcome, Stopped> {
    point.experiment.takes(rank.count()).map_err(failed)?;
    agree(rank, point)?;
    let context = device.open().map_err(failed)?;
    let limits = Limits::query(&context, point.port).map_err(failed)?;
    check(point, &limits).map_err(failed)?;
    if point.rate_per_s == Point::SWEEP {
        return Err(failed("--rate sweep is for whoever makes the points: a point has one rate"));
    }
    let point = &crate::common::gid::chosen(rank, &context, &limits, point)?;
    let mut outcome = match point.experiment {
        Experiment::Oneway | Experiment::Ping | Experiment::Blast if point.threads > 1 => {
            let own = &point.of_a_thread();
            threads::run(rank, &context, &limits, own, |member, end| {
                traffic(member, end, &own.of_thread(member.thread()))
            })
        }
        Experiment::Oneway | Experiment::Ping | Experiment::Blast => {
            traffic(rank, &End::connect(rank, &context, &limits, point)?, point)
        }
        Experiment::Overhead => overhead::run(rank, &context, &limits, point),
        Experiment::Mr => mr::run(rank, &context, point),
        Experiment::Connect => connect::run(rank, &context, &limits, point),
        Experiment::Timeout => timeout::run(rank, &context, &limits, point),
        Experiment::Rpc => rpc::run(rank, &context, &limits, point),
        Experiment::Recvq => recvq::run(rank, &context, &limits, point),
        Experiment::Fan => fan::run(rank, &context, &limits, point),
    }?;
    debug_assert!(is_as_foreseen(point, &outcome), "{outcome:?}");
    let clock = rank.clock();
    outcome.push_fact("clock", clock.source());
    let cost = clock.cost(COST_SAMPLES);
    outcome.push_fact("stamp_cost_ns", format!("{:.1}", cost.mean_ns));
    Ok(outcome)
}

fn is_as_foreseen(point: &Point, outcome: &Outcome) -> bool {
    let of = outcome.series.iter().map(|series| series.quantity);
    let mut of = of.chain(outcome.figures.iter().map(|figure| figure.quantity));
    of.all(|quantity| point.quantities().contains(&quantity))
}

/// An experiment that sends messages from end to end.
fn traffic<R: Rank>(rank: &R, end: &End, point: &Point) -> Result<Outcome, Stopped> {
    match point.experiment {
        Experiment::Oneway => oneway::run(rank, end, point),
        Experiment::Ping => ping::run(rank, end, point),
        _ => blast::run(rank, end, point),
    }
}
