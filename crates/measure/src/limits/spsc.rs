//! A ring with one producer and one consumer: an upper bound of every message rate.

use std::sync::atomic::{AtomicU64, Ordering};

use super::cpu::{self, Spin};
use super::limit::{Limit, Unsupported, median_ns_per_call};
use super::peer::{Line, Map, Peers, beside};
use crate::clock::Clock;
use crate::quantity::Quantity;

/// Items that fit the ring: 8 KiB of packed ones.
const SLOTS: u64 = 1024;
const BATCHES: usize = 60;
/// Items of a batch: many rings full, so that what waits in the ring at its ends weighs little.
const PER_BATCH: usize = 16 * SLOTS as usize;
/// Items that the consumer takes before it publishes its cursor: the producer only needs room.
const TELL_EVERY: u64 = SLOTS / 8;

/// How far apart items are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slots {
    /// Eight bytes: one cache line carries eight items.
    Packed,
    /// A cache line of 64 bytes each, as a small message with its header needs.
    Lines,
}

impl Slots {
    /// Words from one item to the next.
    const fn stride(self) -> usize {
        match self {
            Self::Packed => 1,
            Self::Lines => 8,
        }
    }
}

/// Items of 8 bytes per second through a ring between two pinned, spinning ends; counted at the
/// consumer. The producer publishes each item by itself; both ends remember what they last saw of
/// the other's cursor.
pub struct Spsc {
    clock: Clock,
    cores: (usize, usize),
    ends: Peers,
    layout: Slots,
    map: Map,
}

/// The ring, as both ends see it.
struct Ring<'a> {
    /// Items published.
    head: &'a AtomicU64,
    /// Items taken.
    tail: &'a AtomicU64,
    stop: &'a AtomicU64,
    slots: &'a [AtomicU64],
    /// Words from one slot to the next.
    stride: usize,
    spin: Spin,
}

impl Spsc {
    /// From the second core to the first.
    ///
    /// # Errors
    /// When no memory can be mapped.
    pub fn new(
        clock: Clock,
        cores: (usize, usize),
        ends: Peers,
        layout: Slots,
    ) -> Result<Self, Unsupported> {
        let slots_bytes = SLOTS as usize * layout.stride() * 8;
        let map = Map::shared(3 * size_of::<Line>() + slots_bytes)?;
        Ok(Self { clock, cores, ends, layout, map })
    }
}

impl Limit for Spsc {
    fn name(&self) -> String {
        let layout = match self.layout {
            Slots::Packed => "8-byte items",
            Slots::Lines => "an item per cache line",
        };
        format!("SPSC ring, {layout}, two {}", self.ends.name())
    }

    fn quantity(&self) -> Quantity {
        Quantity::Rate
    }

    fn run(&mut self) -> Result<f64, Unsupported> {
        let [head, tail, stop, ..] = self.map.lines() else {
            unreachable!("three lines were mapped")
        };
        let ring = Ring {
            head: &head.0,
            tail: &tail.0,
            stop: &stop.0,
            slots: self.map.words(3 * size_of::<Line>()),
            stride: self.layout.stride(),
            spin: Spin::between(self.cores),
        };
        ring.head.store(0, Ordering::Release);
        ring.tail.store(0, Ordering::Release);
        let ours = || {
            let mut consumer = Consumer { taken: 0, known: 0 };
            for _ in 0..PER_BATCH {
                consumer.take(&ring)?;
            }
            let take = || consumer.take(&ring);
            Ok(1e9 / median_ns_per_call(&self.clock, BATCHES, PER_BATCH, take)?)
        };
        // SAFETY: the producer reads and writes words of the ring and yields, no more.
        unsafe { beside(self.ends, self.cores, ring.stop, || produce(&ring), ours) }
    }
}

impl Ring<'_> {
    /// The word of an item.
    #[inline(always)]
    fn slot(&self, item: u64) -> &AtomicU64 {
        &self.slots[(item % SLOTS) as usize * self.stride]
    }
}

struct Consumer {
    taken: u64,
    /// Items that are known to have been published.
    known: u64,
}

impl Consumer {
    /// Takes one item, which must be the next one.
    #[inline(always)]
    fn take(&mut self, ring: &Ring<'_>) -> Result<(), Unsupported> {
        if self.taken == self.known {
            let published = || {
                let head = ring.head.load(Ordering::Acquire);
                (head != self.taken).then_some(head)
            };
            self.known = ring.spin.until(published).ok_or_else(cpu::no_answer)?;
        }
        let item = ring.slot(self.taken).load(Ordering::Relaxed);
        if item != self.taken {
            return Err(Unsupported(format!("item {} came as {item}", self.taken)));
        }
        self.taken += 1;
        if self.taken.is_multiple_of(TELL_EVERY) {
            ring.tail.store(self.taken, Ordering::Release);
        }
        Ok(())
    }
}

/// Numbers the items, from 0, until stopped.
fn produce(ring: &Ring<'_>) {
    let (mut made, mut taken) = (0, 0);
    loop {
        while made - taken == SLOTS {
            taken = ring.tail.load(Ordering::Acquire);
            if made - taken == SLOTS {
                if ring.stop.load(Ordering::Relaxed) != 0 {
                    return;
                }
                ring.spin.rest();
            }
        }
        ring.slot(made).store(made, Ordering::Relaxed);
        made += 1;
        ring.head.store(made, Ordering::Release);
    }
}
