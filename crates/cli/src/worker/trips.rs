//! Round trips: one end begins, the other answers.

use std::sync::atomic::Ordering;

use rdmalab_measure::{Clock, LatencyHistogram, Stamp, stats};

use super::Stopped;
use super::end::{End, Sender};
use super::patience::Patience;
use crate::protocol::{Found, Op, Summary};

/// Round trips before the first batch.
pub const BATCH_WARM_UP: u64 = 2000;

/// Times as they come, and how many of them were below 0.
struct Times {
    histogram: LatencyHistogram,
    negative: u64,
}

impl Times {
    fn new() -> Self {
        Self { histogram: LatencyHistogram::new(), negative: 0 }
    }

    #[inline]
    fn record(&mut self, clock: &Clock, from: Stamp, to: Stamp) {
        self.negative += u64::from(to < from);
        self.histogram.record(clock.whole_ns_between(from, to));
    }

    fn summary(&self) -> Option<Summary> {
        let h = &self.histogram;
        let n = h.len();
        let supported = |q: f64| h.quantile_ns(q).filter(|_| stats::supports_quantile(n, q));
        Some(Summary {
            samples: n,
            min_ns: h.min_ns()?,
            median_ns: h.quantile_ns(0.5)?,
            p99_ns: supported(0.99),
            p99_9_ns: supported(0.999),
            p99_99_ns: supported(0.9999),
            max_ns: h.max_ns()?,
            max_index: h.max_index()?,
            negative: self.negative,
        })
    }
}

/// Every post but the last of `count` is as the sender likes; the last one has a completion.
#[inline]
fn post(sender: &mut Sender<'_>, patience: Patience, is_last: bool) -> Result<(), Stopped> {
    if is_last { sender.post_signaled(patience) } else { sender.post(patience) }
}

/// What stamped round trips give.
struct Stamps {
    one_way: Times,
    round_trip: Times,
    warm_up: Times,
}

/// `[warm-up, trips]` SEND round trips, each with a stamp before the post, one on arrival at the
/// other end (it comes back in the answer), and one on arrival of the answer. When they are cut
/// short, what was measured before counts.
pub fn stamped(
    end: &End,
    clock: &Clock,
    patience: Patience,
    bytes: usize,
    counts: [u64; 2],
    stop: impl Fn() -> bool,
) -> Result<Found, Stopped> {
    let mut stamps =
        Stamps { one_way: Times::new(), round_trip: Times::new(), warm_up: Times::new() };
    let cut_short = trip_by_trip(end, clock, patience, bytes, counts, stop, &mut stamps).err();
    Ok(Found {
        one_way: stamps.one_way.summary(),
        round_trip: stamps.round_trip.summary(),
        warm_up_max_ns: stamps.warm_up.histogram.max_ns(),
        cut_short,
        ..Found::default()
    })
}

fn trip_by_trip(
    end: &End,
    clock: &Clock,
    patience: Patience,
    bytes: usize,
    [warm_up, trips]: [u64; 2],
    stop: impl Fn() -> bool,
    stamps: &mut Stamps,
) -> Result<(), Stopped> {
    end.top_up()?;
    let mut sender = end.sender(Op::Send, bytes, 1)?;
    let mut receives = end.receives(1);
    let arrival = end.memory().word(end.inbox());
    for i in 0..warm_up + trips {
        let start = clock.now();
        post(&mut sender, patience, i + 1 == warm_up + trips)?;
        end.receive(patience)?;
        let back = clock.now();
        let there = Stamp(arrival.load(Ordering::Acquire));
        if i < warm_up {
            stamps.warm_up.record(clock, start, back);
        } else {
            stamps.one_way.record(clock, start, there);
            stamps.round_trip.record(clock, start, back);
        }
        end.post_receives(&mut receives)?;
        sender.reap_some(patience)?;
        if stop() {
            return Err("interrupted".to_owned());
        }
    }
    sender.finish(patience)
}

/// The other end of [`stamped`].
pub fn answer_stamped(
    end: &End,
    clock: &Clock,
    patience: Patience,
    bytes: usize,
    count: u64,
    arm: impl FnOnce() -> Result<(), Stopped>,
) -> Result<Found, Stopped> {
    end.top_up()?;
    let mut sender = end.sender(Op::Send, bytes, 1)?;
    let mut receives = end.receives(1);
    arm()?;
    for i in 0..count {
        end.receive(patience)?;
        end.memory().write_u64(0, clock.now().0);
        post(&mut sender, patience, i + 1 == count)?;
        end.post_receives(&mut receives)?;
        sender.reap_some(patience)?;
    }
    sender.finish(patience)?;
    Ok(Found::default())
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
            return self.end.receive(self.patience);
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
    round(BATCH_WARM_UP)?;
    let mut times = Vec::with_capacity(batches as usize);
    for _ in 0..batches {
        let start = clock.now();
        round(trips)?;
        times.push(clock.ns_between(start, clock.now()) / (2 * trips) as f64);
    }
    stats::sort(&mut times);
    side.sender.finish(patience)?;
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

    #[test]
    fn only_supported_quantiles_are_told() {
        let clock = Clock::monotonic_raw();
        let mut times = Times::new();
        assert_eq!(times.summary(), None);
        for i in 0..1000 {
            times.record(&clock, Stamp(100), Stamp(100 + i));
        }
        times.record(&clock, Stamp(100), Stamp(99));
        let summary = times.summary().unwrap();
        assert_eq!((summary.samples, summary.negative, summary.max_index), (1001, 1, 999));
        assert!(summary.p99_ns.is_some() && summary.p99_9_ns.is_none());
    }
}
