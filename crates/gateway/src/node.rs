//! What a node-type has to offer. Each one is a file in `nodes`, and none knows another one or the
//! paths.
//!
//! The configuration of a node is a [`Node`]. Opened, it gives a [`Source`], a [`Sink`] or both,
//! which move to the threads of their paths. All samples of a path lie in one pool, which the
//! thread of the path owns.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rdmalab_config::At;
use rdmalab_measure::Clock;
use rdmalab_sample::{Handle, Pool, Signal, Storage, Timestamp, hooks};
use rdmalab_verbs::Device;

use crate::timer::TimerKind;

/// What all nodes and paths of a gateway share.
#[derive(Clone, Debug)]
pub struct World {
    /// The device of `infiniband` nodes, if there is one.
    pub device: Option<Device>,
    /// The clock that timers read.
    pub clock: Clock,
    /// How timers wait, unless a node says so itself.
    pub timer: TimerKind,
    /// Whether the gateway has to end.
    pub stop: Stop,
    /// Where messages for the user go.
    pub log: Log,
}

/// Asks the gateway to end. Cheap to clone, and to look at.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// The flag itself sets it.
    #[must_use]
    pub fn of(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    /// From now on, everything has to end.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether everything has to end.
    #[inline]
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Where a line for the user goes.
type Tell = dyn Fn(&str) + Send + Sync;

/// Messages for the user, each one line.
#[derive(Clone)]
pub struct Log(Arc<Tell>);

impl Log {
    /// A log that hands its lines to `tell`.
    pub fn new(tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// Tells the user something.
    pub fn say(&self, line: impl fmt::Display) {
        (self.0)(&line.to_string());
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
    }
}

/// Tells the user about one node, and nothing twice in a row.
#[derive(Clone, Debug)]
pub struct Teller {
    node: String,
    log: Log,
    told: String,
}

impl Teller {
    /// Messages about this node.
    #[must_use]
    pub fn new(node: &str, log: &Log) -> Self {
        Self { node: node.to_owned(), log: log.clone(), told: String::new() }
    }

    /// Tells something, unless it was told last.
    pub fn tell(&mut self, what: impl Into<String>) {
        let what = what.into();
        if what != self.told {
            self.say(&what);
            self.told = what;
        }
    }

    /// Tells something in any case. What was told before it is new again.
    pub fn say(&mut self, what: impl fmt::Display) {
        self.log.say(format_args!("{}: {what}", self.node));
        self.told.clear();
    }
}

/// A number that a node counts while a path or the summary reads it. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Count(Arc<AtomicU64>);

impl Count {
    /// More.
    #[inline]
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// How many so far.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a node counts besides what its paths do.
#[derive(Clone, Debug, Default)]
pub struct NodeCounts {
    /// Ticks that were over before the node got to them.
    pub missed: Count,
    /// Samples that found a queue full.
    pub dropped: Count,
    /// Samples that were handed over and, as far as is known, never read.
    pub unread: Count,
    /// Messages from peers that were no samples.
    pub garbage: Count,
    /// Peers that came.
    pub connected: Count,
    /// Peers that went.
    pub disconnected: Count,
}

/// The wall clock, which stamps origins and arrivals.
#[inline]
#[must_use]
pub fn wall_time() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::new(since.as_secs() as i64, since.subsec_nanos().into())
}

/// The samples have arrived now.
pub(crate) fn stamp(pool: &mut Pool, samples: &mut [Handle]) {
    if !samples.is_empty() {
        stamp_at(wall_time(), pool, samples);
    }
}

/// The samples have arrived then.
pub(crate) fn stamp_at(arrived: Timestamp, pool: &mut Pool, samples: &mut [Handle]) {
    samples.iter_mut().for_each(|sample| pool.get_mut(sample).set_received(arrived));
}

/// What a path counts of a node's samples, while another node shows it.
pub type Observer = Arc<Mutex<hooks::stats::Stats>>;

/// A checked node.
pub trait Node: Send {
    /// The signals of the samples that it reads.
    fn signals(&self) -> &[Signal];

    /// Opens its reading half, when all sinks are open.
    ///
    /// # Errors
    /// Why it cannot, in one line. Node-types that only write say so.
    fn source(&mut self, world: &World) -> Result<Box<dyn Source>, String>;

    /// Opens its writing half for samples of these signals.
    ///
    /// # Errors
    /// As [`Node::source`].
    fn sink(&mut self, world: &World, signals: &[Signal]) -> Result<Box<dyn Sink>, String>;

    /// Begins what concerns both halves, such as connections, after they were opened.
    ///
    /// # Errors
    /// As [`Node::source`].
    fn start(&mut self, world: &World) -> Result<(), String> {
        let _ = world;
        Ok(())
    }

    /// What it counts.
    fn counts(&self) -> NodeCounts;

    /// The nodes that it shows statistics of, where they are named, and what counts for each.
    fn observes(&self) -> Vec<(At<String>, Observer)> {
        Vec::new()
    }
}

/// What a read has found besides samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// There may be more later.
    Open,
    /// The peer began anew: these and later numbers have nothing to do with those before.
    Restarted,
    /// There will be no more.
    Ended,
}

/// The reading half of a node.
pub trait Source: Send {
    /// Samples of the pool that it keeps to itself.
    fn keeps(&self) -> usize {
        0
    }

    /// The memory that the pool must lie in, for so many samples of so many values; `None` if it
    /// does not matter.
    ///
    /// # Errors
    /// When there is not enough.
    fn memory(
        &mut self,
        samples: usize,
        values: usize,
    ) -> Result<Option<Box<dyn Storage>>, String> {
        let _ = (samples, values);
        Ok(None)
    }

    /// Comes first, in the thread of the path: takes samples of the pool, so that a peer can
    /// connect while the path waits for its destinations.
    ///
    /// # Errors
    /// Why it cannot begin, in one line.
    fn begin(&mut self, pool: &mut Pool) -> Result<(), String> {
        let _ = pool;
        Ok(())
    }

    /// Comes when the destinations are ready, just before the first read: timers start.
    ///
    /// # Errors
    /// As [`Source::begin`].
    fn start(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Whether samples come by a clock or from a peer. Those that do not wait for destinations.
    fn is_paced(&self) -> bool {
        true
    }

    /// Whether the numbers of samples leave out the ticks that it missed.
    fn skips_missed(&self) -> bool {
        false
    }

    /// Adds what has arrived to `to`, with the time of its arrival. Waits at most about `patience`
    /// for a first sample; zero does not wait.
    ///
    /// # Errors
    /// Why it ends, in one line.
    fn read(
        &mut self,
        pool: &mut Pool,
        to: &mut Vec<Handle>,
        patience: Duration,
    ) -> Result<SourceState, String>;
}

/// The writing half of a node.
pub trait Sink: Send {
    /// Writes a sample, without waiting. Returns false if a queue was full: the sample is dropped.
    ///
    /// # Errors
    /// Why the node ends, in one line.
    fn write(&mut self, pool: &Pool, sample: &Handle) -> Result<bool, String>;

    /// Whether somebody takes what is written. [`Sink::flush`] looks for peers.
    fn is_ready(&self) -> bool {
        true
    }

    /// Whether a write that returned false has changed nothing, and may be taken later.
    fn may_retry(&self) -> bool {
        self.is_ready()
    }

    /// Whether it holds samples that a flush may hand over soon.
    fn is_behind(&self) -> bool {
        false
    }

    /// Lets go what it holds back until more comes, since nothing comes now.
    ///
    /// # Errors
    /// As [`Sink::write`].
    fn flush(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Samples that it took and has lost, once it has failed.
    fn lost(&self) -> u64 {
        0
    }

    /// Comes last: hands over everything, waiting at most about `limit`. Returns how many of the
    /// samples that it took are lost.
    ///
    /// # Errors
    /// As [`Sink::write`].
    fn close(&mut self, limit: Duration) -> Result<u64, String> {
        let _ = limit;
        self.flush().map(|()| 0)
    }
}
