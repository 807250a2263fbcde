//! One end of a row. Its hot loops take no time stamps, because the bare limits take none either.
//! Its loops and credits are not those of the experiments, which serve several queue pairs, all
//! transports and losses, and ask on the way whether they should stop: that work would be measured.

mod datagrams;
mod endpoint;
mod flood;
mod spin;
mod trips;

use rdmalab_rank::Rank;
use rdmalab_verbs::Context;

use super::task::{Setup, Task, Timings, Work};
pub use endpoint::Endpoint;

use datagrams::DatagramPair;
use spin::{Spin, Stopped};

/// Performs a task together with the other rank. `endpoint` is kept between tasks.
///
/// # Errors
/// A sentence with the likely causes.
pub fn perform<R: Rank>(
    rank: &R,
    context: &Context,
    endpoint: &mut Option<Endpoint>,
    task: &Task,
) -> Result<Timings, Stopped> {
    match task {
        Task::Connect(setup) => {
            // The old queue pair is destroyed first, so that there are never two.
            *endpoint = None;
            *endpoint = Some(connect(rank, context, setup)?);
            Ok(Timings::default())
        }
        Task::Work { work, yielding } => {
            let spin = Spin::new(*yielding);
            if let Work::DatagramTrips { gid_index, .. } | Work::DatagramFlood { gid_index, .. } =
                work
            {
                let pair = DatagramPair::open(rank, context, *gid_index)?;
                return datagram_work(rank, &pair, work, spin);
            }
            let endpoint = endpoint.as_ref().ok_or("no queue pair is connected")?;
            self::work(rank, endpoint, work, spin)
        }
    }
}

fn connect<R: Rank>(rank: &R, context: &Context, setup: &Setup) -> Result<Endpoint, Stopped> {
    let end = Endpoint::connect(rank, context, setup)?;
    // Neither end sends before both are connected.
    rank.barrier().map_err(|e| e.to_string())?;
    Ok(end)
}

fn work<R: Rank>(rank: &R, end: &Endpoint, work: &Work, spin: Spin) -> Result<Timings, Stopped> {
    let barrier = || rank.barrier().map_err(|e| e.to_string());
    let (clock, answers) = (rank.clock(), rank.index() == 1);
    if !answers {
        barrier()?;
    }
    match (work, answers) {
        (Work::RoundTrips { op, bytes, batches, trips }, true) => {
            let count = trips::BATCH_WARM_UP + batches * trips;
            trips::answer(end, spin, *op, *bytes, count, barrier)
        }
        (Work::RoundTrips { op, bytes, batches, trips }, false) => {
            trips::batches(end, clock, spin, *op, *bytes, [*batches, *trips])
        }
        (Work::Flood { op, bytes, messages, list }, true) => {
            flood::receive(end, clock, spin, *op, *bytes, [*messages, *list], barrier)
        }
        (Work::Flood { op, bytes, messages, list }, false) => {
            flood::send(end, clock, spin, *op, *bytes, [*messages, *list])
        }
        (Work::FloodToPoller { .. }, true) => flood::poll_until_done(end, spin, barrier),
        (Work::FloodToPoller { bytes, messages }, false) => {
            flood::send_to_poller(end, clock, spin, *bytes, *messages)
        }
        (Work::DatagramTrips { .. } | Work::DatagramFlood { .. }, _) => {
            Err("datagrams need no queue pair".to_owned())
        }
    }
}

/// UDP datagrams. Both sockets already exist, so that no datagram is lost at the start.
fn datagram_work<R: Rank>(
    rank: &R,
    pair: &DatagramPair,
    work: &Work,
    spin: Spin,
) -> Result<Timings, Stopped> {
    let (clock, answers) = (rank.clock(), rank.index() == 1);
    match (work, answers) {
        (Work::DatagramTrips { bytes, batches, trips, .. }, true) => {
            pair.answer(spin, *bytes, trips::BATCH_WARM_UP + batches * trips)
        }
        (Work::DatagramTrips { bytes, batches, trips, .. }, false) => {
            pair.trips(clock, spin, *bytes, [*batches, *trips])
        }
        (Work::DatagramFlood { bytes, .. }, true) => pair.drain(clock, spin, *bytes),
        (Work::DatagramFlood { bytes, messages, .. }, false) => {
            pair.flood(spin, *bytes as u64 * messages)
        }
        _ => Err("this work needs a queue pair".to_owned()),
    }
}
