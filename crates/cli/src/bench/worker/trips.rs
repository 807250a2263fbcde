//! Round trips: one end begins, the other answers.

use std::sync::atomic::Ordering;

use rdmalab_measure::{Clock, stats};

use super::end::{End, Sender};
use super::patience::{Patience, Stopped};
use crate::bench::work::{Found, Op};

/// Round trips before the first batch.
pub const BATCH_WARM_UP: u64 = 2000;

/// Every post but the last of `count` is as the sender likes; the last one has a completion.
#[inline]
fn post(sender: &mut Sender<'_>, patience: Patience, is_last: bool) -> Result<(), Stopped> {
    if is_last { sender.post_signaled(patience) } else { sender.post(patience) }
}

/// The byte by which the `i`-th written message is known: never 0, and another one each time.
const fn mark(i: u64) -> u8 {
    (i % 255) as u8 + 1
}

/// One side of round trips without stamps in them.
struct Side<'a> {
    end: &'a End,
    sender: Sender<'a>,
    receives: rdmalab_verbs::RecvBatch<'a>,
    patience: Patience,
    op: Op,
    bytes: usize,
}

impl<'a> Side<'a> {
    fn new(end: &'a End, patience: Patience, op: Op, bytes: usize) -> Result<Self, Stopped> {
        end.top_up()?;
        end.memory().byte(end.written() + bytes - 1).store(0, Ordering::Release);
        let (sender, receives) = (end.sender(op, bytes, 1)?, end.receives(1));
        Ok(Self { end, sender, receives, patience, op, bytes })
    }

    #[inline(always)]
    fn say(&mut self, i: u64, is_last: bool) -> Result<(), Stopped> {
        if self.op == Op::Write {
            let byte = self.end.memory().byte(self.bytes - 1);
            byte.store(mark(i), Ordering::Release);
        }
        post(&mut self.sender, self.patience, is_last)
    }

    #[inline(always)]
    fn hear(&mut self, i: u64) -> Result<(), Stopped> {
        if self.op == Op::Send {
            return self.end.receive(self.patience).map(|_| ());
        }
        let byte = self.end.memory().byte(self.end.written() + self.bytes - 1);
        let look = || (byte.load(Ordering::Acquire) == mark(i)).then_some(());
        let heard = self.patience.until(look, || self.end.check());
        heard.map_err(|reason| format!("round trip {i}: {reason}"))
    }

    /// What is left over from the last round trip, done while the message is under way.
    #[inline(always)]
    fn tidy(&mut self, heard: bool) -> Result<(), Stopped> {
        if self.op == Op::Send && heard {
            self.end.post_receives(&mut self.receives)?;
        }
        self.sender.reap_some(self.patience)
    }
}

/// Round trips in batches; half of the median one. `[batches, trips of a batch]`.
pub fn batches(
    end: &End,
    clock: &Clock,
    patience: Patience,
    op: Op,
    bytes: usize,
    [batches, trips]: [u64; 2],
) -> Result<Found, Stopped> {
    let mut side = Side::new(end, patience, op, bytes)?;
    let count = BATCH_WARM_UP + batches * trips;
    let mut i = 0;
    let mut round = |n: u64| {
        for _ in 0..n {
            side.say(i, i + 1 == count)?;
            side.tidy(i > 0)?;
            side.hear(i)?;
            i += 1;
        }
        Ok::<_, Stopped>(())
    };
    let found = half_trips(clock, [batches, trips], &mut round)?;
    side.sender.finish(patience)?;
    Ok(found)
}

/// Half a round trip: the median over batches, after a warm-up, of `round` trips without a stamp
/// in between.
pub fn half_trips(
    clock: &Clock,
    [batches, trips]: [u64; 2],
    mut round: impl FnMut(u64) -> Result<(), Stopped>,
) -> Result<Found, Stopped> {
    round(BATCH_WARM_UP)?;
    let mut times = Vec::with_capacity(batches as usize);
    for _ in 0..batches {
        let start = clock.now();
        round(trips)?;
        times.push(clock.ns_between(start, clock.now()) / (2 * trips) as f64);
    }
    stats::sort(&mut times);
    Ok(Found { half_round_trip_ns: Some(stats::median(&times)), ..Found::default() })
}

/// The other end of [`batches`].
pub fn answer(
    end: &End,
    patience: Patience,
    op: Op,
    bytes: usize,
    count: u64,
    arm: impl FnOnce() -> Result<(), Stopped>,
) -> Result<Found, Stopped> {
    let mut side = Side::new(end, patience, op, bytes)?;
    arm()?;
    for i in 0..count {
        side.hear(i)?;
        side.say(i, i + 1 == count)?;
        side.tidy(true)?;
    }
    side.sender.finish(patience)?;
    Ok(Found::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_never_the_one_before_nor_zero() {
        for i in 0..1000 {
            assert!(mark(i) != 0 && mark(i) != mark(i + 1));
        }
    }
}
