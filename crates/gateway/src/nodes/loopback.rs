//! `loopback`: samples that are written come back, for paths that feed other paths.

use std::time::Duration;

use rdmalab_config::{At, ConfigError, group, one_of};
use rdmalab_sample::{Handle, Pool, Signal};

use crate::keys::{InCommon, NodeCommon, OutCommon, VALUES_MAX, signals_or_default};
use crate::node::{Node, NodeCounts, Sink, Source, SourceState, World, wall_time};
use crate::queue::{self, Overflow, queue};

one_of! {
    /// How a reader waits.
    pub enum Mode {
        /// It sleeps until it is woken.
        Pthread = "pthread" | "eventfd" | "auto";
        /// It spins, which takes a processor.
        Polling = "polling";
    }
}

group! {
    /// What is written comes back.
    pub struct Config with (common: NodeCommon) {
        /// Samples that wait at most.
        queuelen: usize = 1024, in 1..=16_777_216;
        /// Which sample a full queue drops.
        overflow: Overflow = Overflow::Newest;
        /// How the reader waits.
        mode: Mode = Mode::Pthread;
        /// The reading half.
        r#in: Option<InCommon>;
        /// The writing half.
        out: Option<OutCommon>;
    }
}

/// The node.
struct Loopback {
    signals: Vec<Signal>,
    mode: Mode,
    queuelen: usize,
    overflow: Overflow,
    /// The ends that no path has taken, once one has taken the other.
    ends: Option<(Option<queue::Writer>, Option<queue::Reader>)>,
    counts: NodeCounts,
}

impl Config {
    /// The node.
    ///
    /// # Errors
    /// None.
    pub fn node(self, _name: &At<String>) -> Result<Box<dyn Node>, ConfigError> {
        let signals = signals_or_default(self.r#in.as_ref());
        let Self { mode, queuelen, overflow, .. } = self;
        let counts = NodeCounts::default();
        Ok(Box::new(Loopback { signals, mode, queuelen, overflow, ends: None, counts }))
    }
}

impl Loopback {
    fn ends(&mut self) -> &mut (Option<queue::Writer>, Option<queue::Reader>) {
        self.ends.get_or_insert_with(|| {
            let values = VALUES_MAX.min(self.signals.len());
            let (writer, reader) = queue(self.queuelen, values, self.overflow);
            (Some(writer), Some(reader))
        })
    }
}

impl Node for Loopback {
    fn signals(&self) -> &[Signal] {
        &self.signals
    }

    fn source(&mut self, _: &World) -> Result<Box<dyn Source>, String> {
        let queue = self.ends().1.take().ok_or("it is read twice")?;
        Ok(Box::new(Reading { queue, spins: self.mode == Mode::Polling }))
    }

    fn sink(&mut self, _: &World, _: &[Signal]) -> Result<Box<dyn Sink>, String> {
        let queue = self.ends().0.take().ok_or("it is written twice")?;
        let drops_newest = self.overflow == Overflow::Newest;
        Ok(Box::new(Writing { queue, drops_newest, counts: self.counts.clone() }))
    }

    fn start(&mut self, _: &World) -> Result<(), String> {
        // An end that no path took: the other one has to find that out.
        self.ends = Some((None, None));
        Ok(())
    }

    fn counts(&self) -> NodeCounts {
        self.counts.clone()
    }
}

/// A source that takes samples from a queue.
struct Reading {
    queue: queue::Reader,
    spins: bool,
}

/// What further paths of a node read: its samples, with the time at which they arrived.
pub struct Copied {
    /// The queue.
    pub queue: queue::Reader,
    /// As the source itself has it.
    pub skips_missed: bool,
}

impl Source for Copied {
    fn skips_missed(&self) -> bool {
        self.skips_missed
    }

    fn read(
        &mut self,
        pool: &mut Pool,
        to: &mut Vec<Handle>,
        patience: Duration,
    ) -> Result<SourceState, String> {
        Ok(read(&mut self.queue, pool, to, patience, false, true))
    }
}

/// Looks at the queue between two looks at the clock.
const LOOKS: u32 = 1000;

impl Source for Reading {
    fn read(
        &mut self,
        pool: &mut Pool,
        to: &mut Vec<Handle>,
        patience: Duration,
    ) -> Result<SourceState, String> {
        Ok(read(&mut self.queue, pool, to, patience, self.spins, false))
    }
}

/// Takes one sample from a queue. `with_arrival` keeps the time at which it arrived at the writer.
fn read(
    queue: &mut queue::Reader,
    pool: &mut Pool,
    to: &mut Vec<Handle>,
    patience: Duration,
    spins: bool,
    with_arrival: bool,
) -> SourceState {
    let begin = (!patience.is_zero()).then(std::time::Instant::now);
    let Some(mut one) = pool.take() else { return SourceState::Open };
    loop {
        for _ in 0..LOOKS {
            let mut sample = pool.get_mut(&mut one);
            if queue.pop(&mut sample, with_arrival) {
                if !with_arrival {
                    sample.set_received(wall_time());
                }
                to.push(one);
                return SourceState::Open;
            }
            if begin.is_none() || !spins {
                break;
            }
        }
        if queue.is_over() {
            pool.give(one);
            return SourceState::Ended;
        }
        let left = begin.map_or(Duration::ZERO, |begin| patience.saturating_sub(begin.elapsed()));
        if left.is_zero() {
            pool.give(one);
            return SourceState::Open;
        }
        if !spins {
            queue.sleep(left);
        }
    }
}

struct Writing {
    queue: queue::Writer,
    drops_newest: bool,
    counts: NodeCounts,
}

impl Sink for Writing {
    fn write(&mut self, pool: &Pool, sample: &Handle) -> Result<bool, String> {
        if self.queue.is_deaf() {
            return Ok(false);
        }
        match self.queue.push(pool.get(sample)) {
            0 => Ok(true),
            // One is counted by the path, if this one is the one that was dropped.
            dropped => {
                self.counts.dropped.add(dropped - 1);
                Ok(false)
            }
        }
    }

    fn may_retry(&self) -> bool {
        self.drops_newest && !self.queue.is_deaf()
    }
}
