//! A cache line handed over from core to core: a lower bound of the time of every message.

use std::sync::atomic::{AtomicU64, Ordering};

use super::cpu::{Spin, SpinHint};
use super::limit::{Limit, Unsupported, median_ns_per_call};
use super::peer::{Line, Map, Peers, beside};
use crate::clock::Clock;
use crate::quantity::Quantity;

/// Round trips before the first batch.
const WARM_UP: u64 = 2_000;
const BATCHES: usize = 400;
/// Round trips of a batch: the two stamps around it weigh little, and a preemption hits one batch.
const PER_BATCH: usize = 32;

/// Where the words of the two ends are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lines {
    /// Both ends write the same word.
    One,
    /// Each end writes its line and reads the other's, as rings do.
    Two,
}

/// Half the round trip of a word that two pinned, spinning ends pass to and fro.
pub struct Handoff {
    clock: Clock,
    cores: (usize, usize),
    ends: Peers,
    lines: Lines,
    hint: SpinHint,
    map: Map,
}

impl Handoff {
    /// Between these cores: ours, and the other end's. Which way of looking is the faster one
    /// depends on the processor; the limit is the better of both.
    ///
    /// # Errors
    /// When no memory can be mapped.
    pub fn new(
        clock: Clock,
        cores: (usize, usize),
        ends: Peers,
        lines: Lines,
        hint: SpinHint,
    ) -> Result<Self, Unsupported> {
        let map = Map::shared(3 * size_of::<Line>())?;
        Ok(Self { clock, cores, ends, lines, hint, map })
    }
}

impl Limit for Handoff {
    fn name(&self) -> String {
        let lines = match self.lines {
            Lines::One => "one line",
            Lines::Two => "two lines",
        };
        let pause = match self.hint {
            SpinHint::Bare => "bare",
            SpinHint::Paused => "PAUSE",
        };
        format!("cache-line hand-off, {lines}, {pause}, two {}", self.ends.name())
    }

    fn quantity(&self) -> Quantity {
        Quantity::HalfRoundTrip
    }

    fn run(&mut self) -> Result<f64, Unsupported> {
        let [ping, second, stop] = self.map.lines() else {
            unreachable!("three lines were mapped")
        };
        let pong = if self.lines == Lines::One { ping } else { second };
        let (ping, pong, stop) = (&ping.0, &pong.0, &stop.0);
        ping.store(0, Ordering::Release);
        pong.store(0, Ordering::Release);
        let spin = Spin::between(self.cores).with_hint(self.hint);
        let ours = || {
            let mut sent = 0;
            let mut round_trip = || {
                sent += 2;
                ping.store(sent - 1, Ordering::Release);
                spin.until_equal(pong, sent)
            };
            for _ in 0..WARM_UP {
                round_trip()?;
            }
            let ns = median_ns_per_call(&self.clock, BATCHES, PER_BATCH, round_trip)?;
            Ok(ns / 2.0)
        };
        let theirs = || answer(spin, ping, pong, stop);
        // SAFETY: the other end reads and writes three words and yields, no more.
        unsafe { beside(self.ends, self.cores, stop, theirs, ours) }
    }
}

/// The other end: each odd number is answered by the next even one.
fn answer(spin: Spin, ping: &AtomicU64, pong: &AtomicU64, stop: &AtomicU64) {
    let mut expected = 1;
    while stop.load(Ordering::Relaxed) == 0 {
        // Looks at `stop` every now and then only: its line is not part of the hand-over.
        for _ in 0..1000 {
            if ping.load(Ordering::Acquire) == expected {
                pong.store(expected + 1, Ordering::Release);
                expected += 2;
            } else {
                spin.rest();
            }
        }
    }
}
