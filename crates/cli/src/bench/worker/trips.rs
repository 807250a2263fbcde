//! Round trips: one end starts, the other one answers.

use std::sync::atomic::Ordering;

use rdmalab_measure::{Clock, stats};

use super::endpoint::{Endpoint, Sender};
use super::spin::{Spin, Stopped};
use crate::bench::task::{Op, Timings};

/// Round trips before the first batch.
pub const BATCH_WARM_UP: u64 = 2000;

/// The byte that marks the `i`-th written message: never 0, and never the same twice in a row.
const fn mark(i: u64) -> u8 {
    (i % 255) as u8 + 1
}

/// One side of round trips.
struct Side<'a> {
    end: &'a Endpoint,
    sender: Sender<'a>,
    receives: rdmalab_verbs::RecvBatch<'a>,
    spin: Spin,
    op: Op,
    bytes: usize,
}

impl<'a> Side<'a> {
    fn new(end: &'a Endpoint, spin: Spin, op: Op, bytes: usize) -> Result<Self, Stopped> {
        end.fill_receive_queue()?;
        end.memory().byte(end.incoming() + bytes - 1).store(0, Ordering::Release);
        let (sender, receives) = (end.sender(op, bytes, 1)?, end.receives(1));
        Ok(Self { end, sender, receives, spin, op, bytes })
    }

    #[inline(always)]
    fn send(&mut self, i: u64, is_last: bool) -> Result<(), Stopped> {
        if self.op == Op::Write {
            let byte = self.end.memory().byte(self.bytes - 1);
            byte.store(mark(i), Ordering::Release);
        }
        self.sender.post(self.spin, is_last)
    }

    #[inline(always)]
    fn receive(&mut self, i: u64) -> Result<(), Stopped> {
        if self.op == Op::Send {
            return self.end.receive(self.spin).map(|_| ());
        }
        let byte = self.end.memory().byte(self.end.incoming() + self.bytes - 1);
        let look = || (byte.load(Ordering::Acquire) == mark(i)).then_some(());
        let received = self.spin.until(look, || self.end.check());
        received.map_err(|reason| format!("round trip {i}: {reason}"))
    }

    /// Posts the receive of the last round trip again, and polls for send completions, while the
    /// message is in flight.
    #[inline(always)]
    fn repost_and_reap(&mut self, has_received: bool) -> Result<(), Stopped> {
        if self.op == Op::Send && has_received {
            self.end.post_receives(&mut self.receives)?;
        }
        self.sender.reap_some(self.spin)
    }
}

/// Half of the median round trip over batches. `[batches, round trips per batch]`.
pub fn batches(
    end: &Endpoint,
    clock: &Clock,
    spin: Spin,
    op: Op,
    bytes: usize,
    [batches, trips]: [u64; 2],
) -> Result<Timings, Stopped> {
    let mut side = Side::new(end, spin, op, bytes)?;
    let count = BATCH_WARM_UP + batches * trips;
    let mut i = 0;
    let mut round = |n: u64| {
        for _ in 0..n {
            side.send(i, i + 1 == count)?;
            side.repost_and_reap(i > 0)?;
            side.receive(i)?;
            i += 1;
        }
        Ok::<_, Stopped>(())
    };
    let found = half_round_trip(clock, [batches, trips], &mut round)?;
    side.sender.finish(spin)?;
    Ok(found)
}

/// Half a round trip: the median over batches, after a warm-up. `round` performs the given number
/// of round trips.
pub fn half_round_trip(
    clock: &Clock,
    [batches, trips]: [u64; 2],
    mut round: impl FnMut(u64) -> Result<(), Stopped>,
) -> Result<Timings, Stopped> {
    round(BATCH_WARM_UP)?;
    let mut times = Vec::with_capacity(batches as usize);
    for _ in 0..batches {
        let start = clock.now();
        round(trips)?;
        times.push(clock.ns_between(start, clock.now()) / (2 * trips) as f64);
    }
    stats::sort(&mut times);
    Ok(Timings { half_round_trip_ns: Some(stats::median(&times)), ..Timings::default() })
}

/// The other end of [`batches`].
pub fn answer(
    end: &Endpoint,
    spin: Spin,
    op: Op,
    bytes: usize,
    count: u64,
    arm: impl FnOnce() -> Result<(), Stopped>,
) -> Result<Timings, Stopped> {
    let mut side = Side::new(end, spin, op, bytes)?;
    arm()?;
    for i in 0..count {
        side.receive(i)?;
        side.send(i, i + 1 == count)?;
        side.repost_and_reap(true)?;
    }
    side.sender.finish(spin)?;
    Ok(Timings::default())
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
