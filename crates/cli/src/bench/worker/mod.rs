//! One end of a row: hot loops of its own, without a stamp in them, as the bare limits have none.

mod bare;
mod end;
mod flood;
mod patience;
mod trips;

use rdmalab_rank::Rank;
use rdmalab_verbs::Context;

use super::work::{Found, Make, Memory, Order, Work};
pub use end::End as BenchEnd;

use bare::Bare;
use end::End;
use patience::{Patience, Stopped};

/// Does what the order says, together with the other rank.
///
/// # Errors
/// A sentence with the likely causes.
pub fn obey<R: Rank>(
    rank: &R,
    context: &Context,
    end: &mut Option<End>,
    order: &Order,
) -> Result<Found, Stopped> {
    match order {
        Order::Make(make) => {
            // The old queue pair goes first, so that its receives do not count twice.
            *end = None;
            *end = Some(connected(rank, context, make)?);
            Ok(Found::default())
        }
        Order::Work { work, yielding } => {
            let patience = Patience::new(*yielding);
            if let Work::BareTrips { gid_index, .. } | Work::BareFlood { gid_index, .. } = work {
                let bare = Bare::meet(rank, context, *gid_index)?;
                return bare_work(rank, &bare, work, patience);
            }
            let end = end.as_ref().ok_or("nothing is connected")?;
            self::work(rank, end, work, patience)
        }
    }
}

fn connected<R: Rank>(rank: &R, context: &Context, make: &Make) -> Result<End, Stopped> {
    let mut end = End::make(context, make)?;
    let ours = postcard::to_stdvec(&end.describe()?).map_err(|e| e.to_string())?;
    let all = rank.exchange(&ours).map_err(|e| e.to_string())?;
    let theirs = all.get(1 - rank.index().min(1)).ok_or("there is no other rank")?;
    let (endpoint, memory): (String, Memory) =
        postcard::from_bytes(theirs).map_err(|e| e.to_string())?;
    end.connect(&endpoint, &memory)?;
    // Nobody sends before both are ready.
    rank.barrier().map_err(|e| e.to_string())?;
    Ok(end)
}

fn work<R: Rank>(rank: &R, end: &End, work: &Work, patience: Patience) -> Result<Found, Stopped> {
    let meet = || rank.barrier().map_err(|e| e.to_string());
    let (clock, answers) = (rank.clock(), rank.index() == 1);
    if !answers {
        meet()?;
    }
    match (work, answers) {
        (Work::Batches { op, bytes, batches, trips }, true) => {
            let count = trips::BATCH_WARM_UP + batches * trips;
            trips::answer(end, patience, *op, *bytes, count, meet)
        }
        (Work::Batches { op, bytes, batches, trips }, false) => {
            trips::batches(end, clock, patience, *op, *bytes, [*batches, *trips])
        }
        (Work::Flood { op, bytes, messages, list }, true) => {
            flood::receive(end, clock, patience, *op, *bytes, [*messages, *list], meet)
        }
        (Work::Flood { op, bytes, messages, list }, false) => {
            flood::send(end, clock, patience, *op, *bytes, [*messages, *list])
        }
        (Work::Watched { .. }, true) => flood::watch(end, patience, meet),
        (Work::Watched { bytes, messages }, false) => {
            flood::send_watched(end, clock, patience, *bytes, *messages)
        }
        (Work::BareTrips { .. } | Work::BareFlood { .. }, _) => {
            Err("bare datagrams need no queue pair".to_owned())
        }
    }
}

/// What bears no queue pair: both sockets are there, and so nothing is lost at the start.
fn bare_work<R: Rank>(
    rank: &R,
    bare: &Bare,
    work: &Work,
    patience: Patience,
) -> Result<Found, Stopped> {
    let (clock, answers) = (rank.clock(), rank.index() == 1);
    match (work, answers) {
        (Work::BareTrips { bytes, batches, trips, .. }, true) => {
            bare.answer(patience, *bytes, trips::BATCH_WARM_UP + batches * trips)
        }
        (Work::BareTrips { bytes, batches, trips, .. }, false) => {
            bare.trips(clock, patience, *bytes, [*batches, *trips])
        }
        (Work::BareFlood { bytes, .. }, true) => bare.drain(clock, patience, *bytes),
        (Work::BareFlood { bytes, messages, .. }, false) => {
            bare.flood(patience, *bytes as u64 * messages)
        }
        _ => Err("that needs a queue pair".to_owned()),
    }
}
