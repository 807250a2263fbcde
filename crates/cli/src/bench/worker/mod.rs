//! One end of a row: hot loops of its own, without a stamp in them, as the bare limits have none.

mod end;
mod flood;
mod patience;
mod trips;

use rdmalab_rank::Rank;
use rdmalab_verbs::Context;

use super::work::{Found, Make, Memory, Order, Work};
pub use end::End as BenchEnd;

use end::End;
use patience::Patience;

/// What stops a work: a sentence with the likely causes.
type Stopped = String;

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
            let end = end.as_ref().ok_or("nothing is connected")?;
            self::work(rank, end, work, Patience::new(*yielding))
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
    }
}
