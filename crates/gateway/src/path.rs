//! A path at work: one thread that reads its sources, and writes to its destinations.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use rdmalab_measure::limits::{Pin, pin_to};
use rdmalab_rank::realtime;
use rdmalab_sample::hooks::stats::Stats;
use rdmalab_sample::{Flags, Handle, Hook, Pool, Signal, Value};

use crate::config::Mode;
use crate::counts::{Latencies, Tracker};
use crate::hooks::Chain;
use crate::live::LivePath;
use crate::mapping::Part;
use crate::node::{
    Count, Log, NodeCounts, Observer, Sink, Source, SourceState, Stop, World, wall_time,
};
use crate::queue;
use crate::summary::{InputReport, OutputReport, PathReport};
use crate::timer::{Timer, TimerKind};

/// The longest wait for a sample, so that a request to end is seen.
const PATIENCE: Duration = Duration::from_millis(50);
/// The same while a destination holds samples, which only this thread hands over: at first. While
/// nothing comes, each wait is twice as long as the one before.
const PATIENCE_BEHIND: Duration = Duration::from_millis(1);
/// After a request to end: how long sources may be silent before they count as drained, and how
/// long they may go on in all.
const DRAINED: Duration = Duration::from_millis(100);
const DRAIN_MAX: Duration = Duration::from_secs(2);
/// How long destinations may take to hand over what they hold.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// Looks at silent sources before the thread gives way, and before it sleeps in between.
const LOOKS: u32 = 200;
const LOOKS_AWAKE: u32 = 20_000;
const NAP: Duration = Duration::from_micros(100);
/// Time between two writes of a sample for which there was no room.
const ROOM: Duration = Duration::from_micros(50);

/// A source of a path.
pub struct Input {
    /// The node.
    pub name: String,
    /// Its reading half.
    pub source: Box<dyn Source>,
    /// Stamps and numbers samples that lack it.
    pub builtin: bool,
    /// Counts of the node.
    pub counts: NodeCounts,
    /// The hooks of its reading half.
    pub hooks: Chain,
    /// What counts its samples for other nodes.
    pub observers: Vec<Observer>,
    /// Other paths that read the same node, and samples for which they had no room.
    pub copies: Vec<(queue::Writer, Count)>,
    /// Whether its samples make the path's.
    pub triggers: bool,
}

/// A destination of a path.
pub struct Output {
    /// The node.
    pub name: String,
    /// Its writing half.
    pub sink: Box<dyn Sink>,
    /// The hooks of that.
    pub hooks: Chain,
    /// Counts of the node.
    pub counts: NodeCounts,
}

impl Output {
    /// Writes a sample behind the hooks of the node, which change a copy. `None` if they drop it.
    fn write(
        &mut self,
        pool: &mut Pool,
        sample: &Handle,
        log: &Log,
        until: Option<&Stop>,
    ) -> Result<Option<bool>, String> {
        let copy = if self.hooks.is_empty() { None } else { pool.take() };
        let Some(mut copy) = copy else { return self.hand(pool, sample, until).map(Some) };
        pool.copy(sample, &mut copy);
        let written = match self.hooks.pass(&mut pool.get_mut(&mut copy), log) {
            true => self.hand(pool, &copy, until).map(Some),
            false => Ok(None),
        };
        pool.give(copy);
        written
    }

    /// Writes a sample; with `until`, again and again until there is room.
    fn hand(&mut self, pool: &Pool, sample: &Handle, until: Option<&Stop>) -> Result<bool, String> {
        loop {
            let is_taken = self.sink.write(pool, sample)?;
            let waits = until.is_some_and(|stop| !stop.is_set()) && self.sink.may_retry();
            if is_taken || !waits {
                return Ok(is_taken);
            }
            self.sink.flush()?;
            std::thread::sleep(ROOM);
        }
    }
}

/// A part of the path's sample: what is taken of which source, and where it goes.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The number of the source.
    pub input: usize,
    /// What is taken.
    pub part: Part,
    /// Which of the source's values.
    pub values: std::ops::Range<usize>,
    /// The first of the path's values.
    pub at: usize,
}

/// A path that is ready to run.
pub struct Path {
    /// Its name, for messages.
    pub name: String,
    /// Its sources.
    pub inputs: Vec<Input>,
    /// Its destinations.
    pub outputs: Vec<Output>,
    /// How its samples are put together; empty if they are those of the only source.
    pub taken: Vec<Taken>,
    /// Its hooks.
    pub hooks: Chain,
    /// The signals of its samples, before its hooks.
    pub signals: Vec<Signal>,
    /// Room for values in its pool.
    pub values: usize,
    /// When several sources make a sample.
    pub mode: Mode,
    /// Whether samples keep their numbers.
    pub keeps_numbers: bool,
    /// How long it waits for its destinations before the first sample.
    pub connect_wait: Duration,
    /// Sends the last sample at this rate, and only then.
    pub rate_hz: Option<f64>,
    /// Processors of its thread.
    pub affinity: Option<u64>,
    /// The only processor of its thread, in place of those.
    pub processor: Option<usize>,
    /// Priority of its thread.
    pub priority: Option<u8>,
    /// Who asks what it has done so far.
    pub live: LivePath,
    /// The rest of the process.
    pub world: World,
}

/// What a path changes while it runs.
struct Work {
    pool: Pool,
    /// What each source has told.
    trackers: Vec<Tracker>,
    latencies: Latencies,
    /// Whether sources can wait for destinations.
    waits: bool,
    ended: Vec<bool>,
    /// Sources and destinations that ended early.
    failed_inputs: Vec<bool>,
    failed: Vec<bool>,
    /// Sources that have had a sample since the last of the path's.
    seen: Vec<bool>,
    /// The sample that is put together.
    last: Option<Handle>,
    has_last: bool,
    /// The values that a source's sample gives it.
    found: Vec<Option<Value>>,
    next_number: u64,
    counters: Vec<u64>,
    written: Vec<u64>,
    dropped: Vec<u64>,
    lost: Vec<u64>,
}

impl Path {
    /// Runs until all sources have ended, or the gateway is asked to end.
    ///
    /// # Errors
    /// Why it could not begin, in one line.
    pub fn run(mut self) -> Result<PathReport, String> {
        self.take_its_place();
        let mut work = self.begin()?;
        let name = self.name.clone();
        let failed = |why| format!("{name}: {why}");
        let mut timer = match self.rate_hz {
            Some(rate) => {
                Some(Timer::start(TimerKind::Tsc, rate, &self.world.clock).map_err(failed)?)
            }
            None => None,
        };
        let mut arrived = Vec::with_capacity(64);
        let (mut looks, mut drain, mut behind) = (0, Drain::default(), PATIENCE_BEHIND);
        while !work.ended.iter().all(|ended| *ended) {
            let is_alone = self.inputs.len() == 1 && timer.is_none();
            let patience = match is_alone {
                true if self.outputs.iter().any(|to| to.sink.is_behind()) => {
                    let wait = behind;
                    behind = PATIENCE.min(2 * wait);
                    wait
                }
                true => PATIENCE,
                false => Duration::ZERO,
            };
            let mut any = self.read_all(&mut work, &mut arrived, patience);
            if let Some(timer) = &mut timer {
                let tick = timer.wait(Duration::ZERO).map_err(failed)?;
                if tick.is_some() && work.has_last {
                    self.emit_last(&mut work);
                    any = true;
                }
            }
            self.live.answer(|| self.report(&work));
            if self.world.stop.is_set() && drain.is_over(any) {
                break;
            }
            looks = if any { 0 } else { looks + 1 };
            if any {
                behind = PATIENCE_BEHIND;
                continue;
            }
            self.flush(&mut work);
            match looks {
                _ if is_alone => {}
                0..LOOKS => std::hint::spin_loop(),
                LOOKS..LOOKS_AWAKE => std::thread::yield_now(),
                _ => std::thread::sleep(NAP),
            }
        }
        Ok(self.end(work))
    }

    /// Asks the scheduler for what the configuration wants.
    fn take_its_place(&self) {
        let affinity = match self.processor {
            Some(core) => Some(pin_to(core).map(Pin::keep).map_err(|why| why.to_string())),
            None => self.affinity.map(realtime::run_on),
        };
        let priority = self.priority.map(realtime::run_first);
        for why in [affinity, priority].into_iter().flatten().filter_map(Result::err) {
            self.world.log.say(format_args!("{}: {why}", self.name));
        }
    }

    /// Waits until somebody takes what is written, for a limited time.
    fn wait_for_destinations(&mut self, work: &mut Work) {
        let until = Instant::now() + self.connect_wait;
        while Instant::now() < until && !self.world.stop.is_set() {
            self.flush(work);
            if self.outputs.iter().all(|output| output.sink.is_ready()) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn begin(&mut self) -> Result<Work, String> {
        // Those that sources keep, those that are read at a time, and the one put together.
        let kept: usize = self.inputs.iter().map(|input| input.source.keeps()).sum();
        let samples = kept + 2 * crate::keys::VECTORIZE_MAX + 3;
        let mut storage = None;
        for input in &mut self.inputs {
            let wanted = input.source.memory(samples, self.values);
            let wanted = wanted.map_err(|why| format!("{}: {why}", input.name))?;
            match (&storage, wanted) {
                (None, Some(wanted)) => storage = Some(wanted),
                (Some(_), Some(_)) => {
                    let (path, node) = (&self.name, &input.name);
                    return Err(format!("{path}: {node} needs a path of its own"));
                }
                (_, None) => {}
            }
        }
        let mut pool = match storage {
            Some(storage) => {
                let pool = Pool::in_storage(storage, samples, self.values);
                pool.map_err(|why| format!("{}: {why}", self.name))?
            }
            None => Pool::new(samples, self.values),
        };
        let last = if self.taken.is_empty() && self.rate_hz.is_none() { None } else { pool.take() };
        let mut work = Work {
            pool,
            trackers: vec![Tracker::default(); self.inputs.len()],
            latencies: Latencies::default(),
            waits: self.rate_hz.is_none() && !self.inputs.iter().any(|i| i.source.is_paced()),
            ended: vec![false; self.inputs.len()],
            failed_inputs: vec![false; self.inputs.len()],
            failed: vec![false; self.outputs.len()],
            seen: vec![false; self.inputs.len()],
            last,
            has_last: false,
            found: vec![None; self.signals.len()],
            next_number: 0,
            counters: vec![0; self.inputs.len()],
            written: vec![0; self.outputs.len()],
            dropped: vec![0; self.outputs.len()],
            lost: vec![0; self.outputs.len()],
        };
        if let Some(last) = &mut work.last {
            let mut sample = work.pool.get_mut(last);
            for signal in &self.signals {
                let _ = sample.push(signal.init);
            }
        }
        for input in &mut self.inputs {
            let begun = input.source.begin(&mut work.pool);
            begun.map_err(|why| format!("{}: {why}", input.name))?;
        }
        self.wait_for_destinations(&mut work);
        for input in &mut self.inputs {
            input.source.start().map_err(|why| format!("{}: {why}", input.name))?;
        }
        Ok(work)
    }

    /// Reads each source once. Whether there was any sample.
    fn read_all(&mut self, work: &mut Work, arrived: &mut Vec<Handle>, patience: Duration) -> bool {
        let mut any = false;
        for at in 0..self.inputs.len() {
            if work.ended[at] {
                continue;
            }
            match self.inputs[at].source.read(&mut work.pool, arrived, patience) {
                Ok(SourceState::Open) => {}
                Ok(SourceState::Restarted) => {
                    work.trackers[at].restart();
                    self.inputs[at].hooks.restart();
                    observe(&self.inputs[at].observers, Hook::restart);
                }
                Ok(SourceState::Ended) => work.ended[at] = true,
                Err(why) => {
                    self.world.log.say(format_args!("{}: {why}", self.inputs[at].name));
                    (work.ended[at], work.failed_inputs[at]) = (true, true);
                }
            }
            any |= !arrived.is_empty();
            for sample in arrived.drain(..) {
                self.take(work, at, sample);
            }
            if work.ended[at] {
                // Nodes that show its statistics end with it.
                self.inputs[at].observers.clear();
            }
        }
        any
    }

    /// A sample of a source: counts it, and makes the path's sample.
    fn take(&mut self, work: &mut Work, at: usize, mut sample: Handle) {
        let input = &mut self.inputs[at];
        let flags = work.pool.get(&sample).flags();
        if input.builtin {
            let mut view = work.pool.get_mut(&mut sample);
            if !flags.has(Flags::SEQUENCE) {
                view.set_sequence(work.counters[at]);
                work.counters[at] += 1;
            }
            if !flags.has(Flags::RECEIVED) {
                view.set_received(wall_time());
            }
            if !flags.has(Flags::ORIGIN) {
                let received = view.as_ref().received().unwrap_or_default();
                view.set_origin(received);
            }
        }
        let view = work.pool.get(&sample);
        if let Some(number) = view.sequence() {
            work.trackers[at].saw(number);
        }
        // An origin that is the arrival itself is no latency.
        if let (true, Some(offset_ns)) = (flags.has(Flags::ORIGIN), view.offset_ns()) {
            work.latencies.push(i64::try_from(offset_ns).unwrap_or(i64::MAX));
        }
        if !input.observers.is_empty() {
            let mut view = work.pool.get_mut(&mut sample);
            // Counting changes nothing and cannot fail.
            observe(&input.observers, |stats| {
                let _ = stats.process(&mut view, &wall_time);
            });
        }
        if !input.hooks.is_empty()
            && !input.hooks.pass(&mut work.pool.get_mut(&mut sample), &self.world.log)
        {
            return work.pool.give(sample);
        }
        let view = work.pool.get(&sample);
        for (copy, dropped) in &mut input.copies {
            dropped.add(copy.push(view));
        }
        if self.taken.is_empty() && self.rate_hz.is_none() {
            if !self.keeps_numbers {
                work.pool.get_mut(&mut sample).set_sequence(work.next_number);
                work.next_number += 1;
            }
            self.emit(work, &mut sample);
        } else {
            self.put_together(work, at, &sample);
        }
        work.pool.give(sample);
    }

    fn put_together(&mut self, work: &mut Work, at: usize, sample: &Handle) {
        let Some(mut last) = work.last.take() else { return };
        if self.taken.is_empty() {
            work.pool.copy(sample, &mut last);
        } else {
            let view = work.pool.get(sample);
            for part in self.taken.iter().filter(|part| part.input == at) {
                part.part.take(view, part.values.clone(), |to, value| {
                    if let Some(place) = work.found.get_mut(part.at + to) {
                        *place = Some(value);
                    }
                });
            }
            let (number, origin, received) = (view.sequence(), view.origin(), view.received());
            let mut view = work.pool.get_mut(&mut last);
            for (to, slot) in work.found.iter_mut().enumerate() {
                if let Some(value) = slot.take() {
                    view.set_value(to, value);
                }
            }
            if let Some(number) = number.filter(|_| self.keeps_numbers) {
                view.set_sequence(number);
            }
            if let Some(origin) = origin {
                view.set_origin(origin);
            }
            if let Some(received) = received {
                view.set_received(received);
            }
        }
        work.last = Some(last);
        work.seen[at] = true;
        work.has_last = true;
        let is_due = match self.mode {
            Mode::Any => self.inputs[at].triggers,
            Mode::All => {
                let mut triggers = self.inputs.iter().zip(&work.seen).filter(|(i, _)| i.triggers);
                triggers.all(|(_, seen)| *seen)
            }
        };
        if is_due && self.rate_hz.is_none() {
            self.emit_last(work);
        }
    }

    fn emit_last(&mut self, work: &mut Work) {
        work.seen.fill(false);
        let Some(mut last) = work.last.take() else { return };
        if !self.keeps_numbers {
            work.pool.get_mut(&mut last).set_sequence(work.next_number);
            work.next_number += 1;
        }
        // Hooks change a copy: the next sample is put together from this one.
        let copy = if self.hooks.is_empty() { None } else { work.pool.take() };
        match copy {
            Some(mut copy) => {
                work.pool.copy(&last, &mut copy);
                self.emit(work, &mut copy);
                work.pool.give(copy);
            }
            None => self.emit(work, &mut last),
        }
        work.last = Some(last);
    }

    /// Writes a sample to all destinations, behind the hooks.
    fn emit(&mut self, work: &mut Work, sample: &mut Handle) {
        let log = &self.world.log;
        if !self.hooks.is_empty() && !self.hooks.pass(&mut work.pool.get_mut(sample), log) {
            return;
        }
        for (at, output) in self.outputs.iter_mut().enumerate() {
            if work.failed[at] {
                work.lost[at] += 1;
                continue;
            }
            let until = work.waits.then_some(&self.world.stop);
            match output.write(&mut work.pool, sample, log, until) {
                Ok(Some(true)) => work.written[at] += 1,
                Ok(Some(false)) => work.dropped[at] += 1,
                Ok(None) => {}
                Err(why) => {
                    self.world.log.say(format_args!("{}: {why}", output.name));
                    work.failed[at] = true;
                    work.lost[at] += 1;
                }
            }
        }
    }

    /// Tells what its hooks have written.
    fn tell_hooks(&mut self, end: bool) {
        let inputs = self.inputs.iter_mut().map(|input| &mut input.hooks);
        let outputs = self.outputs.iter_mut().map(|output| &mut output.hooks);
        let chains = inputs.chain(std::iter::once(&mut self.hooks)).chain(outputs);
        chains.for_each(|chain| chain.tell(end, &self.world.log));
    }

    fn flush(&mut self, work: &mut Work) {
        self.tell_hooks(false);
        for (at, output) in self.outputs.iter_mut().enumerate() {
            if work.failed[at] {
                continue;
            }
            if let Err(why) = output.sink.flush() {
                self.world.log.say(format_args!("{}: {why}", output.name));
                work.failed[at] = true;
            }
        }
    }

    /// Lets all destinations hand over what they hold, and reports.
    fn end(mut self, mut work: Work) -> PathReport {
        for input in &mut self.inputs {
            input.copies.clear();
        }
        self.tell_hooks(true);
        for (at, output) in self.outputs.iter_mut().enumerate() {
            let closed = match work.failed[at] {
                true => Ok(output.sink.lost()),
                false => output.sink.close(CLOSE_MAX),
            };
            let lost = closed.unwrap_or_else(|why| {
                self.world.log.say(format_args!("{}: {why}", output.name));
                work.failed[at] = true;
                output.sink.lost()
            });
            work.lost[at] += lost;
            work.written[at] = work.written[at].saturating_sub(lost);
        }
        let report = self.report(&work);
        self.live.end(report.clone());
        report
    }

    /// What it has done so far.
    fn report(&self, work: &Work) -> PathReport {
        let inputs = self.inputs.iter().enumerate().map(|(at, input)| {
            let (found, has_failed) = (work.trackers[at].found, work.failed_inputs[at]);
            let skipped = if input.source.skips_missed() { input.counts.missed.get() } else { 0 };
            InputReport::new(&input.name, found, skipped, has_failed, &input.counts)
        });
        let outputs = self.outputs.iter().enumerate().map(|(at, output)| OutputReport {
            node: output.name.clone(),
            written: work.written[at],
            dropped: work.dropped[at],
            lost: work.lost[at],
            unread: output.counts.unread.get(),
            garbage: output.counts.garbage.get(),
            has_failed: work.failed[at],
            connected: output.counts.connected.get(),
            disconnected: output.counts.disconnected.get(),
        });
        PathReport::new(&self.name, inputs.collect(), outputs.collect(), work.latencies.quantiles())
    }
}

/// Lets all observers of a node do something.
fn observe(observers: &[Observer], mut act: impl FnMut(&mut Stats)) {
    for observer in observers {
        act(&mut observer.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Waits until nothing comes any more, after a request to end.
#[derive(Default)]
struct Drain {
    began: Option<Instant>,
    silent_since: Option<Instant>,
}

impl Drain {
    fn is_over(&mut self, any: bool) -> bool {
        let now = Instant::now();
        let began = *self.began.get_or_insert(now);
        let silent = *self.silent_since.get_or_insert(now);
        if any {
            self.silent_since = Some(now);
        }
        now - began > DRAIN_MAX || !any && now - silent > DRAINED
    }
}
