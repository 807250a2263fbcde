//! A rank that is a process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdmalab_measure::limits::{available_cores, pin_to};
pub use rdmalab_measure::sync::UNMEASURED_SKEW_NS;
use rdmalab_measure::{Clock, Stamp};
use rustix::thread::{sched_getcpu, sched_yield};
use serde_bytes::ByteBuf;

use super::clock_sync::{Seen, Sight, Timeline};
use super::control::{Control, lock};
use super::frame::{self, ToLauncher};
use super::handshake::Assignment;
use super::panics;
use super::stream::Stream;
use crate::{CpuTime, Locks, Rank, Stopped};

/// Looks between two checks of the stop flag: 40 us, at 10 ns a look.
const LOOKS: u32 = 4096;
/// The same if the caller gives the time limit, which may be short.
const LOOKS_OF_LIMITED: u32 = 256;
/// Stamps between two checks of the stop flag in [`Rank::think`].
const STAMPS_OF_THINKING: u32 = 256;
/// An exchange waits this many times longer than other waits. If the missing rank itself waits in
/// vain, its time is over first, and it reports what it waited for.
const LONGER: u32 = 2;

/// A worker process as a [`Rank`].
///
/// Threads may share it: all of [`Rank`] works from each, and exchanges of several threads queue.
#[derive(Debug)]
pub struct ProcessRank {
    assignment: Assignment,
    clock: Clock,
    control: Arc<Control>,
    writer: Arc<Mutex<Stream>>,
    /// Round of the last exchange of this job.
    round: Mutex<u64>,
    job: u64,
    patience_ns: u64,
    yielding: bool,
    /// Cores that the process had before it was pinned.
    cores: Vec<usize>,
    /// The comparisons of each rank's clock with the launcher's in this job, window by window.
    sights: Mutex<Vec<Sights>>,
}

/// A rank's clock compared with the launcher's.
#[derive(Clone, Debug, Default)]
struct Sights {
    is_launchers: bool,
    seen: Vec<Seen>,
    timeline: Option<Timeline>,
}

/// Sends a message to the launcher.
pub(super) fn send(writer: &Mutex<Stream>, what: &ToLauncher) -> Result<(), Stopped> {
    let frame = frame::encode(what).map_err(|e| Stopped::Failed(e.to_string()))?;
    let sent = std::io::Write::write_all(&mut *lock(writer), &frame);
    sent.map_err(|e| Stopped::Other(format!("lost the connection to the launcher: {e}")))
}

impl ProcessRank {
    /// Accepts the assignment: pins the calling thread.
    ///
    /// # Errors
    /// A sentence, when it may not run on the core.
    pub(super) fn accept(
        assignment: Assignment,
        clock: Clock,
        control: Arc<Control>,
        writer: Arc<Mutex<Stream>>,
    ) -> Result<Self, String> {
        let cores = available_cores()
            .map_err(|e| format!("cannot determine which CPUs it may use: {e}"))?;
        if let Some(&core) = assignment.peers[assignment.index].cores.first() {
            let pinned = pin_to(core).map_err(|e| {
                format!("cannot run on CPU {core} ({e}); choose among {}", list(&cores))
            })?;
            pinned.keep();
        }
        let mut rank = Self {
            assignment,
            clock,
            control,
            writer,
            round: Mutex::new(0),
            job: 0,
            patience_ns: 0,
            yielding: false,
            cores,
            sights: Mutex::default(),
        };
        rank.yielding = rank.assignment.yielding.unwrap_or_else(|| rank.shares_cpu());
        Ok(rank)
    }

    pub(super) fn begin(&mut self, job: u64, patience_ns: u64) {
        (self.job, self.patience_ns) = (job, patience_ns);
        *lock(&self.round) = 0;
        lock(&self.sights).clear();
    }

    pub(super) fn send(&self, what: &ToLauncher) -> Result<(), Stopped> {
        send(&self.writer, what)
    }

    /// Cores that ranks of this machine were given, ours first.
    fn taken(&self) -> Vec<usize> {
        let ours = self.own_cores().first();
        let others = self.neighbours().filter_map(|i| self.assignment.peers[i].cores.first());
        ours.into_iter().chain(others).copied().collect()
    }

    /// Other ranks of this machine.
    fn neighbours(&self) -> impl Iterator<Item = usize> {
        let machine = &self.assignment.peers[self.assignment.index].machine;
        let is_near = move |i: &usize| self.assignment.peers[*i].machine == *machine;
        (0..self.assignment.peers.len()).filter(|&i| i != self.assignment.index).filter(is_near)
    }

    fn own_cores(&self) -> &[usize] {
        &self.assignment.peers[self.assignment.index].cores
    }

    /// Whether another rank runs where this one does, or there are fewer CPUs than ranks.
    fn shares_cpu(&self) -> bool {
        let taken = self.taken();
        match self.own_cores().first() {
            Some(core) => taken[1..].contains(core),
            None => self.cores.len() <= self.neighbours().count(),
        }
    }

    /// Where a thread beside the ranks runs: the core (`None`: where the scheduler likes), and
    /// whether a rank has that already.
    fn spare_core(&self) -> (Option<usize>, bool) {
        let taken = self.taken();
        let Some(&ours) = self.own_cores().first() else {
            return (None, self.cores.len() < self.neighbours().count() + 2);
        };
        let free = self.cores.iter().find(|c| !taken.contains(c));
        let other = self.cores.iter().find(|&&c| c != ours);
        (Some(*free.or(other).unwrap_or(&ours)), free.is_none())
    }

    /// Whether the rank yields the processor between two looks, because ranks share a CPU.
    #[must_use]
    pub fn is_yielding(&self) -> bool {
        self.yielding
    }

    /// The CPU that the calling thread runs on now.
    #[must_use]
    pub fn cpu(&self) -> usize {
        sched_getcpu()
    }

    /// The name of rank `other`'s host; empty when there is no such rank.
    #[must_use]
    pub fn host_of(&self, other: usize) -> &str {
        self.assignment.peers.get(other).map_or("", |p| &p.host)
    }

    /// How long an exchange waits.
    fn longer(&self) -> Option<Duration> {
        Some(Duration::from_nanos(self.patience_ns).saturating_mul(LONGER))
    }

    fn exchange_round(
        &self,
        bytes: &[u8],
        limit: Option<Duration>,
        to_end: bool,
    ) -> Result<Vec<Vec<u8>>, Stopped> {
        let bytes = ByteBuf::from(bytes);
        self.round(limit, to_end, |job, round| ToLauncher::Exchange { job, round, bytes })
    }

    /// An exchange that also works when this rank was asked to stop.
    fn exchange_even_then(
        &self,
        bytes: &[u8],
        limit: Option<Duration>,
    ) -> Result<Vec<Vec<u8>>, Stopped> {
        match self.control.check() {
            Ok(()) | Err(Stopped::Asked) => self.exchange_round(bytes, limit, true),
            Err(reason) => Err(reason),
        }
    }

    /// A round in which every rank sends bytes, and gets the bytes of all ranks. Without a limit it
    /// waits until they have come or a rank is gone.
    fn round(
        &self,
        limit: Option<Duration>,
        to_end: bool,
        give: impl FnOnce(u64, u64) -> ToLauncher,
    ) -> Result<Vec<Vec<u8>>, Stopped> {
        let mut round = lock(&self.round);
        *round += 1;
        let (job, round) = (self.job, *round);
        self.send(&give(job, round))?;
        self.control.wait_exchanged(round, limit, to_end)
    }

    /// Records the launcher's comparison of each rank's clock.
    fn see(&self, parts: &[Vec<u8>]) -> Result<(), Stopped> {
        let mut sights = lock(&self.sights);
        sights.resize(parts.len(), Sights::default());
        for (sights, part) in sights.iter_mut().zip(parts) {
            match postcard::from_bytes(part) {
                Ok(Sight::Same) => sights.is_launchers = true,
                Ok(Sight::Other(seen)) => sights.seen.push(seen),
                Ok(Sight::Lost) => {}
                Err(_) => {
                    let what = "the ranks are out of step: one aligns clocks, another exchanges";
                    return Err(Stopped::Failed(what.to_owned()));
                }
            }
            sights.timeline = Timeline::of(&sights.seen);
        }
        Ok(())
    }

    /// The error bound of a converted stamp of a rank on another machine.
    fn error_across_ns(&self, other: usize) -> Option<f64> {
        let sights = lock(&self.sights);
        let of = |rank: usize| match sights.get(rank)? {
            sights if sights.is_launchers => Some(0.0),
            sights => sights.timeline.map(|timeline| timeline.error_ns()),
        };
        // The stamps of the comparison come from other cores than those that measure.
        let cores = self.assignment.skews.iter().map(|s| s.1).max_by(f64::total_cmp);
        let cores = cores.unwrap_or(UNMEASURED_SKEW_NS) + UNMEASURED_SKEW_NS;
        Some(of(self.assignment.index)? + of(other)? + cores)
    }

    /// Checks whether to go on. Not inlined, to keep the polling loop short.
    #[cold]
    #[inline(never)]
    fn rest(&self, start: &mut Option<Stamp>, limit_ns: u64) -> Result<bool, Stopped> {
        self.control.check()?;
        if self.yielding {
            sched_yield();
        }
        let now = self.clock.now();
        let start = *start.get_or_insert(now);
        Ok(self.clock.ns_between(start, now) < limit_ns as f64)
    }

    /// The body of a thread on that core, or on all that the process had.
    fn on_core<T>(&self, core: Option<usize>, body: impl FnOnce() -> T) -> T {
        // A thread starts with the affinity of its creator. If it cannot be changed, the thread
        // stays.
        match core {
            Some(core) => {
                let _ = pin_to(core).map(rdmalab_measure::limits::Pin::keep);
            }
            None => {
                let _ = run_on(&self.cores);
            }
        }
        body()
    }
}

/// Lets the calling thread run on all of these.
fn run_on(cores: &[usize]) -> rustix::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    cores.iter().filter(|&&c| c < rustix::thread::CpuSet::MAX_CPU).for_each(|&c| set.set(c));
    rustix::thread::sched_setaffinity(None, &set)
}

fn list(cores: &[usize]) -> String {
    cores.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Locks for ProcessRank {}

impl Rank for ProcessRank {
    fn index(&self) -> usize {
        self.assignment.index
    }

    fn count(&self) -> usize {
        self.assignment.peers.len()
    }

    #[inline(always)]
    fn now(&self) -> Stamp {
        self.clock.now()
    }

    fn tell(&self, line: &str) {
        // Lost if the launcher is gone.
        let _ = self.send(&ToLauncher::Log(line.to_owned()));
    }

    #[inline(always)]
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn clock_error_ns(&self, other: usize) -> Option<f64> {
        let (ours, theirs) =
            (&self.assignment.peers[self.assignment.index], self.assignment.peers.get(other)?);
        if other == self.assignment.index {
            return Some(0.0);
        }
        if ours.machine != theirs.machine {
            return self.error_across_ns(other);
        }
        // Each core's distance from a common one; of a rank that is not pinned, the largest.
        let skews = &self.assignment.skews;
        let of = |core: Option<&usize>| match core {
            Some(core) => skews.iter().find(|(c, _)| c == core).map(|s| s.1),
            None if self.cores.iter().all(|c| skews.iter().any(|(s, _)| s == c)) => {
                skews.iter().map(|s| s.1).max_by(f64::total_cmp)
            }
            None => None,
        };
        let (a, b) = (ours.cores.first(), theirs.cores.first());
        if a.is_some() && a == b {
            return Some(0.0);
        }
        let measured = of(a).zip(of(b)).map(|(a, b)| a + b);
        Some(measured.unwrap_or(UNMEASURED_SKEW_NS))
    }

    fn shares_clock(&self, other: usize) -> bool {
        let machine = |rank: usize| self.assignment.peers.get(rank).map(|peer| &peer.machine);
        machine(other).is_some() && machine(other) == machine(self.assignment.index)
    }

    fn align_clocks(&self) -> Result<(), Stopped> {
        if (0..self.count()).all(|other| self.shares_clock(other)) {
            return Ok(());
        }
        match self.control.check() {
            Ok(()) | Err(Stopped::Asked) => {}
            Err(reason) => return Err(reason),
        }
        let align = |job, round| ToLauncher::Align { job, round };
        let parts = self.round(self.longer(), true, align)?;
        self.see(&parts)
    }

    fn to_own_clock(&self, other: usize, stamp: Stamp) -> Stamp {
        if self.shares_clock(other) {
            return stamp;
        }
        let sights = lock(&self.sights);
        let timeline = |rank: usize| sights.get(rank).and_then(|sights| sights.timeline);
        let at_launcher = timeline(other).map_or(stamp, |line| line.at_launcher(stamp));
        timeline(self.assignment.index).map_or(at_launcher, |line| line.at_rank(at_launcher))
    }

    fn sleep(&self, ns: u64) -> Result<(), Stopped> {
        self.control.sleep(Duration::from_nanos(ns))
    }

    fn think(&self, ns: u64) -> Result<(), Stopped> {
        let until = self.clock.after_ns(self.clock.now(), ns as f64);
        loop {
            for _ in 0..STAMPS_OF_THINKING {
                if self.clock.now() >= until {
                    return Ok(());
                }
            }
            self.control.check()?;
        }
    }

    #[inline(always)]
    fn spin<T>(&self, mut look: impl FnMut() -> Option<T>) -> Result<T, Stopped> {
        let looks = if self.yielding { 1 } else { LOOKS };
        let mut start = None;
        loop {
            for _ in 0..looks {
                if let Some(found) = look() {
                    return Ok(found);
                }
            }
            if !self.rest(&mut start, self.patience_ns)? {
                let s = seconds(self.patience_ns);
                return Err(Stopped::TimedOut(format!("nothing arrived within {s} s")));
            }
        }
    }

    #[inline(always)]
    fn spin_for<T>(
        &self,
        limit_ns: u64,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>, Stopped> {
        let looks = if self.yielding { 1 } else { LOOKS_OF_LIMITED };
        let mut start = Some(self.clock.now());
        loop {
            for _ in 0..looks {
                if let Some(found) = look() {
                    return Ok(Some(found));
                }
            }
            if !self.rest(&mut start, limit_ns)? {
                return Ok(None);
            }
        }
    }

    #[inline(always)]
    fn poll_memory(&self, word: &AtomicU64, old: u64) -> Result<u64, Stopped> {
        self.spin(|| {
            let value = word.load(Ordering::Acquire);
            (value != old).then_some(value)
        })
    }

    fn restamping<T>(&self, word: &AtomicU64, body: impl FnOnce() -> T) -> Result<T, Stopped> {
        /// Ends the thread also when `body` panics.
        struct EndOnDrop<'a>(&'a AtomicBool);
        impl Drop for EndOnDrop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let (core, shares) = self.spare_core();
        let (started, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let stamp = || {
            self.on_core(core, || {
                word.store(self.clock.now().0, Ordering::Release);
                started.store(true, Ordering::Release);
                while !ended.load(Ordering::Relaxed) {
                    word.store(self.clock.now().0, Ordering::Release);
                    if shares {
                        sched_yield();
                    }
                }
            });
        };
        std::thread::scope(|scope| {
            let named = std::thread::Builder::new().name("restamp".to_owned());
            let thread = named.spawn_scoped(scope, stamp);
            thread.map_err(|e| {
                Stopped::Failed(format!("cannot start the thread that writes timestamps: {e}"))
            })?;
            let _end = EndOnDrop(&ended);
            while !started.load(Ordering::Acquire) {
                self.control.check()?;
                sched_yield();
            }
            Ok(body())
        })
    }

    fn restamp_shares_cpu(&self) -> bool {
        self.spare_core().1
    }

    fn spawn<T: Send>(
        &self,
        bodies: Vec<Box<dyn FnOnce() -> T + Send + '_>>,
    ) -> Result<Vec<T>, Stopped> {
        std::thread::scope(|scope| {
            let mut threads = Vec::with_capacity(bodies.len());
            for (i, body) in bodies.into_iter().enumerate() {
                let core = self.own_cores().get(i).copied();
                let named = std::thread::Builder::new().name(format!("rank thread {i}"));
                let thread = named.spawn_scoped(scope, move || self.on_core(core, body));
                let cannot = |e| Stopped::Failed(format!("thread {i} cannot be started: {e}"));
                threads.push(thread.map_err(cannot)?);
            }
            let mut results = Vec::with_capacity(threads.len());
            let mut failed = None;
            for (i, thread) in threads.into_iter().enumerate() {
                match thread.join() {
                    Ok(result) => results.push(result),
                    Err(panic) => {
                        let what = panics::text(&*panic);
                        failed.get_or_insert(format!("thread {i} panicked: {what}"));
                    }
                }
            }
            failed.map_or(Ok(results), |what| Err(Stopped::Failed(what)))
        })
    }

    fn patience_ns(&self) -> u64 {
        self.patience_ns
    }

    #[inline(always)]
    fn is_asked_to_stop(&self) -> bool {
        self.control.is_stopping()
    }

    fn exchange(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Stopped> {
        self.control.check()?;
        self.exchange_round(bytes, self.longer(), false)
    }

    fn exchange_to_end(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Stopped> {
        self.exchange_even_then(bytes, self.longer())
    }

    fn exchange_at_leisure(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Stopped> {
        self.exchange_even_then(bytes, None)
    }

    fn cpu_time(&self) -> CpuTime {
        // SAFETY: all bytes zero are a valid rusage, a structure of integers.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is a rusage to write to; with RUSAGE_SELF the call cannot fail.
        unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
        let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000;
        CpuTime { user_ns: ns(usage.ru_utime), system_ns: ns(usage.ru_stime) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::handshake::Peer;
    use super::*;

    const ANYWHERE: (&str, &[usize]) = ("a", &[]);

    /// Rank 0 of ranks that are pinned so, on machines of these names, with four CPUs here.
    fn rank(peers: &[(&str, &[usize])], skews: &[(usize, f64)]) -> ProcessRank {
        let peer = |(machine, cores): &(&str, &[usize])| Peer {
            host: String::new(),
            machine: (*machine).to_owned(),
            cores: cores.to_vec(),
        };
        ProcessRank {
            assignment: Assignment {
                index: 0,
                peers: peers.iter().map(peer).collect(),
                yielding: None,
                skews: skews.to_vec(),
            },
            clock: Clock::monotonic_raw(),
            control: Arc::default(),
            writer: Arc::new(Mutex::new(Stream::pair().unwrap().0)),
            round: Mutex::new(0),
            job: 0,
            patience_ns: 0,
            yielding: false,
            cores: vec![0, 1, 2, 3],
            sights: Mutex::default(),
        }
    }

    #[test]
    fn ranks_yield_where_they_share_a_cpu() {
        assert!(rank(&[("a", &[1]), ("a", &[1])], &[]).shares_cpu());
        assert!(!rank(&[("a", &[1]), ("a", &[2])], &[]).shares_cpu());
        assert!(!rank(&[("a", &[1]), ("b", &[1])], &[]).shares_cpu());
        assert!(!rank(&[ANYWHERE; 4], &[]).shares_cpu());
        assert!(rank(&[ANYWHERE; 5], &[]).shares_cpu());
    }

    #[test]
    fn stamps_are_written_beside_the_ranks_where_there_is_room() {
        let place = |peers: &[(&str, &[usize])]| rank(peers, &[]).spare_core();
        assert_eq!(place(&[("a", &[0]), ("a", &[1])]), (Some(2), false));
        assert_eq!(place(&[("a", &[0]), ("b", &[1])]), (Some(1), false));
        let full = [("a", [2].as_slice()), ("a", &[1]), ("a", &[0]), ("a", &[3])];
        assert_eq!(place(&full), (Some(0), true));
        assert_eq!(place(&[ANYWHERE; 3]), (None, false));
        assert_eq!(place(&[ANYWHERE; 4]), (None, true));
        let mut alone = rank(&[("a", &[1])], &[]);
        alone.cores = vec![1];
        assert_eq!(alone.spare_core(), (Some(1), true));
        assert!(alone.restamp_shares_cpu());
    }

    #[test]
    fn the_error_of_two_clocks_is_what_was_measured_or_a_bound() {
        let skews = [(0, 0.0), (1, 5.0), (2, 7.0), (3, 1.0)];
        let error = |peers: [(&str, &[usize]); 2], skews| rank(&peers, skews).clock_error_ns(1);
        assert_eq!(error([("a", &[1]), ("a", &[2])], &skews), Some(12.0));
        assert_eq!(error([("a", &[1]), ("a", &[1])], &skews), Some(0.0));
        assert_eq!(error([("a", &[]), ("a", &[1])], &skews), Some(12.0));
        assert_eq!(error([("a", &[]), ("a", &[1])], &skews[..3]), Some(UNMEASURED_SKEW_NS));
        assert_eq!(error([("a", &[1]), ("a", &[2])], &[]), Some(UNMEASURED_SKEW_NS));
        assert_eq!(error([("a", &[1]), ("b", &[1])], &skews), None);
        let one = rank(&[("a", &[1])], &skews);
        assert_eq!((one.clock_error_ns(0), one.clock_error_ns(1)), (Some(0.0), None));
    }
}
