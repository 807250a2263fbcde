//! `shmem`: samples between two processes of one host, in shared memory. Each direction has a name;
//! the reader of a name and its writer may start, end and return in any order, and nothing stays
//! behind ([`rdmalab_ring::named`]).

use std::time::{Duration, Instant};

use rdmalab_config::{At, ConfigError, group, one_of};
use rdmalab_measure::Clock;
use rdmalab_ring::named::{BROKEN, Change, MESSAGE_WORDS_MAX, NotSent, Reader, Writer};
use rdmalab_sample::{Flags, Handle, Pool, SampleMut, SampleRef, Signal, Timestamp, Value};

use crate::keys::{InCommon, NodeCommon, OutCommon, signals_or_default};
use crate::node::{Log, Node, NodeCounts, Sink, Source, SourceState, World, wall_time};

/// Words before the values: sequence number, seconds, nanoseconds, flags.
const HEADER: usize = 4;
const _: () = assert!(HEADER + crate::keys::VALUES_MAX <= MESSAGE_WORDS_MAX);
/// Time between two looks for the peer.
const LOOK_NS: f64 = 5e6;

one_of! {
    /// How a reader waits.
    pub enum Mode {
        /// It sleeps until the writer wakes it.
        Pthread = "pthread";
        /// It spins, which takes a processor.
        Polling = "polling";
    }
}

group! {
    /// The reading half.
    pub struct In with (common: InCommon) {
        /// The name to read.
        name: At<String>;
        /// Samples that are read at a time.
        vectorize: usize = 1, in 1..=64;
    }
}

group! {
    /// The writing half.
    pub struct Out with (common: OutCommon) {
        /// The name to write to.
        name: At<String>;
    }
}

group! {
    /// Samples in shared memory.
    pub struct Config with (common: NodeCommon) {
        /// The reading half.
        r#in: In;
        /// The writing half.
        out: Out;
        /// Samples that wait at most.
        queuelen: usize = 512, in 2..=1_048_576;
        /// How the reader waits.
        mode: Mode = Mode::Pthread;
    }
    stale { polling => mode { "true" => "\"polling\"", "false" => "\"pthread\"" }; }
    refused { exec: "start the other process beside the gateway"; }
}

/// The node.
struct Shmem {
    name: String,
    config: Config,
    signals: Vec<Signal>,
    counts: NodeCounts,
}

impl Config {
    /// The node.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn node(self, name: &At<String>) -> Result<Box<dyn Node>, ConfigError> {
        for end in [&self.r#in.name, &self.out.name] {
            if let Err(why) = Writer::to(&end.value) {
                return Err(ConfigError::new(&end.at, format!("{:?}: {why}", end.value)));
            }
        }
        let signals = signals_or_default(Some(&self.r#in.common));
        let counts = NodeCounts::default();
        Ok(Box::new(Shmem { name: name.value.clone(), config: self, signals, counts }))
    }
}

impl Node for Shmem {
    fn signals(&self) -> &[Signal] {
        &self.signals
    }

    fn source(&mut self, world: &World) -> Result<Box<dyn Source>, String> {
        let name = &self.config.r#in.name.value;
        let words = HEADER + self.signals.len();
        let reader = Reader::claim(name, self.config.queuelen, words);
        let reader = reader.map_err(|error| match error.kind() {
            std::io::ErrorKind::AddrInUse => format!("another process reads {name}"),
            _ => format!("{name}: {error}"),
        })?;
        Ok(Box::new(Reading {
            node: self.name.clone(),
            reader,
            words: vec![0; words + 1],
            vectorize: self.config.r#in.vectorize,
            spins: self.config.mode == Mode::Polling,
            had_peer: false,
            clock: world.clock,
            next_look: world.clock.now().0,
            has_told: false,
            has_failed: false,
            log: world.log.clone(),
            counts: self.counts.clone(),
        }))
    }

    fn sink(&mut self, world: &World, signals: &[Signal]) -> Result<Box<dyn Sink>, String> {
        let writer = Writer::to(&self.config.out.name.value).map_err(|error| error.to_string())?;
        Ok(Box::new(Writing {
            node: self.name.clone(),
            writer,
            words: Vec::with_capacity(HEADER + signals.len()),
            clock: world.clock,
            next_look: world.clock.now().0,
            has_failed: false,
            is_full: false,
            log: world.log.clone(),
            counts: self.counts.clone(),
        }))
    }

    fn counts(&self) -> NodeCounts {
        self.counts.clone()
    }
}

fn to_words(sample: SampleRef<'_>, words: &mut Vec<u64>) {
    let origin = sample.origin().unwrap_or_default();
    let flags = sample.flags().without(Flags::RECEIVED).bits();
    words.clear();
    words.extend([
        sample.sequence().unwrap_or_default(),
        origin.seconds.cast_unsigned(),
        origin.nanoseconds.cast_unsigned(),
        flags.into(),
    ]);
    words.extend(sample.values().map(Value::bits));
}

fn from_words(words: &[u64], to: &mut SampleMut<'_>) -> bool {
    let [sequence, seconds, nanoseconds, flags, values @ ..] = words else { return false };
    if values.len() > to.capacity() {
        return false;
    }
    to.clear();
    to.set_sequence(*sequence);
    to.set_origin(Timestamp::new(seconds.cast_signed(), nanoseconds.cast_signed()));
    for value in values {
        let _ = to.push(Value::from_bits(*value));
    }
    let known = [Flags::SEQUENCE, Flags::ORIGIN, Flags::DATA];
    for flag in known.into_iter().filter(|flag| *flags & u64::from(flag.bits()) == 0) {
        to.remove_flags(flag);
    }
    for flag in [Flags::NEW_FRAME, Flags::NEW_SIMULATION] {
        if *flags & u64::from(flag.bits()) != 0 {
            to.add_flags(flag);
        }
    }
    true
}

/// What a look has found. One that fails has found nothing: what a peer sent was wrong, or this
/// process lacks something for now. Each failure counts, and is told until a look does not fail.
fn looked<E: std::fmt::Display>(
    found: Result<Change, E>,
    node: &str,
    has_failed: &mut bool,
    log: &Log,
    counts: &NodeCounts,
) -> Change {
    let had_failed = std::mem::replace(has_failed, found.is_err());
    found.unwrap_or_else(|why| {
        counts.garbage.add(1);
        if !had_failed {
            log.say(format_args!("{node}: {why}"));
        }
        Change::None
    })
}

/// The reading half.
struct Reading {
    node: String,
    reader: Reader,
    words: Vec<u64>,
    vectorize: usize,
    spins: bool,
    had_peer: bool,
    clock: Clock,
    next_look: u64,
    has_told: bool,
    has_failed: bool,
    log: Log,
    counts: NodeCounts,
}

/// Looks at the ring between two looks at the clock.
const LOOKS: u32 = 256;

impl Reading {
    /// Takes what is there.
    fn take(&mut self, pool: &mut Pool, to: &mut Vec<Handle>) {
        while to.len() < self.vectorize {
            let Some(mut one) = pool.take() else { return };
            let Some(words) = self.reader.receive(&mut self.words) else { return pool.give(one) };
            let mut sample = pool.get_mut(&mut one);
            let room = self.words.len();
            if words < room && from_words(&self.words[..words], &mut sample) {
                sample.set_received(wall_time());
                to.push(one);
                continue;
            }
            pool.give(one);
            self.counts.garbage.add(1);
            if !std::mem::replace(&mut self.has_told, true) {
                let (node, own) = (&self.node, room - HEADER - 1);
                let what = match words {
                    BROKEN => "a broken message".to_owned(),
                    _ => format!("a sample of {} values", words.saturating_sub(HEADER)),
                };
                self.log
                    .say(format_args!("{node}: {what} does not fit in.signals, which are {own}"));
            }
        }
    }

    /// Looks for the writer; whether it is a new one.
    fn look(&mut self) -> SourceState {
        let node = &self.node;
        match looked(self.reader.look(), node, &mut self.has_failed, &self.log, &self.counts) {
            Change::None => {}
            Change::Came(pid) => {
                self.counts.connected.add(1);
                self.log.say(format_args!("{node}: process {pid} writes"));
                if std::mem::replace(&mut self.had_peer, true) {
                    return SourceState::Restarted;
                }
            }
            Change::Gone(_) => {
                self.counts.disconnected.add(1);
                self.log.say(format_args!("{node}: the writer is gone"));
            }
        }
        SourceState::Open
    }
}

impl Source for Reading {
    fn read(
        &mut self,
        pool: &mut Pool,
        to: &mut Vec<Handle>,
        patience: Duration,
    ) -> Result<SourceState, String> {
        let begin = self.clock.now();
        loop {
            for _ in 0..if self.spins { LOOKS } else { 1 } {
                self.take(pool, to);
                if !to.is_empty() {
                    return Ok(SourceState::Open);
                }
                if patience.is_zero() {
                    break;
                }
            }
            let now = self.clock.now();
            if now.0 >= self.next_look || !(self.spins || patience.is_zero()) {
                self.next_look = self.clock.after_ns(now, LOOK_NS).0;
                let state = self.look();
                if state == SourceState::Restarted {
                    return Ok(state);
                }
            }
            let left_ns = patience.as_nanos() as f64 - self.clock.ns_between(begin, now);
            if left_ns <= 0.0 {
                return Ok(SourceState::Open);
            }
            if !self.spins {
                self.reader.sleep(Duration::from_nanos(left_ns as u64));
            }
        }
    }
}

/// The writing half.
struct Writing {
    node: String,
    writer: Writer,
    words: Vec<u64>,
    clock: Clock,
    next_look: u64,
    has_failed: bool,
    /// The ring had no room for the last sample.
    is_full: bool,
    log: Log,
    counts: NodeCounts,
}

impl Writing {
    fn look(&mut self) {
        let now = self.clock.now();
        if now.0 < self.next_look {
            return;
        }
        self.next_look = self.clock.after_ns(now, LOOK_NS).0;
        let node = &self.node;
        match looked(self.writer.look(), node, &mut self.has_failed, &self.log, &self.counts) {
            Change::None => {}
            Change::Came(pid) => {
                self.counts.connected.add(1);
                self.log.say(format_args!("{node}: process {pid} reads"));
            }
            Change::Gone(unread) => {
                self.counts.disconnected.add(1);
                self.counts.unread.add(unread);
                self.log.say(format_args!(
                    "{node}: the reader is gone; up to {unread} samples were not read"
                ));
            }
        }
    }
}

impl Sink for Writing {
    fn write(&mut self, pool: &Pool, sample: &Handle) -> Result<bool, String> {
        self.look();
        to_words(pool.get(sample), &mut self.words);
        let sent = self.writer.send(&self.words);
        self.is_full = sent == Err(NotSent::Full);
        Ok(sent.is_ok())
    }

    fn may_retry(&self) -> bool {
        self.is_full && self.is_ready()
    }

    fn is_ready(&self) -> bool {
        self.writer.is_connected()
    }

    fn flush(&mut self) -> Result<(), String> {
        self.look();
        Ok(())
    }

    /// Waits until the reader has taken everything; what it maps stays readable for it in any case.
    fn close(&mut self, limit: Duration) -> Result<u64, String> {
        let until = Instant::now() + limit;
        let mut unread = self.writer.unread();
        while unread > 0 && self.writer.is_connected() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
            self.next_look = 0;
            self.look();
            unread = self.writer.unread();
        }
        Ok(unread)
    }
}
