//! The launcher's side: a group of workers, each of them a rank.

mod alone;
mod gather;
mod run;

use std::fmt;
use std::io::{self, Write};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rdmalab_measure::limits::core_skew;
use rdmalab_measure::{Clock, ClockSource};

use super::child;
use super::clock_sync::{PingStream, Pinger, Sight};
use super::frame::{self, FromWorker, ToLauncher, ToWorker};
use super::handshake::{self, Assignment, ConnectedWorker, Hello, Peer};
use super::rendezvous::RendezvousListener;
use super::spec::RankSpec;
use super::stream::Stream;
pub use alone::AloneEvent;
use gather::Missing;

/// Ranks of a group at most.
pub const RANKS_MAX: usize = 256;
/// How long connected workers may take to accept their assignments.
const START: Duration = Duration::from_secs(30);
/// Write time-out of messages to a worker.
const UNREAD: Duration = Duration::from_secs(10);
/// Received frames of all ranks together that may wait for the launcher before workers have to
/// wait.
const WAITING_FRAMES: usize = 256;
/// Cores of which the counters are compared at most, at about 10 ms each.
const COMPARED_CORES: usize = 16;

/// What a rank is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankInfo {
    /// Name of its host.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// CPUs that it was told to stay on.
    pub cores: Vec<usize>,
    /// The CPU that it was seen on last.
    pub cpu: usize,
    /// How many CPUs it has for itself: those that it may use, divided by the ranks that may use
    /// them too. At least 1.
    pub share: usize,
    /// How many jobs it has done without the others.
    pub alone: u64,
}

/// What happens while a job runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TeamEvent {
    /// A rank has a line for the user.
    Log {
        /// Which rank.
        rank: usize,
        /// The line.
        text: String,
    },
    /// Some time went by: about ten times a second.
    Tick,
}

/// Why a run ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The group could not be brought together: the command, the address or the CPU is wrong.
    Start,
    /// A rank says that it failed.
    Failed,
    /// A rank is gone.
    Died,
    /// The user interrupted the run, and not all ranks handed in their results.
    Interrupted,
}

/// Why results are missing, in one line, with the results of the other ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerGroupError {
    /// What kind of end it is.
    pub cause: Cause,
    /// The rank where the failure began, if it was a rank.
    pub rank: Option<usize>,
    /// What happened, with rank and host.
    pub what: String,
    /// What each rank handed in nevertheless.
    pub partial: Vec<Option<Vec<u8>>>,
}

impl fmt::Display for WorkerGroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for WorkerGroupError {}

/// Workers that run, each with its assignment. Dropping this ends them.
#[derive(Debug)]
pub struct WorkerGroup {
    members: Vec<Member>,
    incoming: Receiver<(usize, FromWorker)>,
    job: u64,
    /// Lines that came before the first job.
    early: Vec<(usize, String)>,
}

#[derive(Debug)]
struct Member {
    info: RankInfo,
    stream: Stream,
    child: Option<Child>,
    /// Bytes that came from it.
    bytes: Arc<AtomicU64>,
    /// How it ended.
    gone: Option<String>,
    /// The last job that it was given to do without the others.
    alone: u64,
}

impl WorkerGroup {
    /// Starts the workers and assigns a rank to each.
    ///
    /// # Errors
    /// [`Cause::Start`], naming the rank, and what to do.
    pub fn start(specs: &[RankSpec]) -> Result<Self, WorkerGroupError> {
        Self::gather(specs, None, &AtomicBool::new(false))
    }

    /// Like [`WorkerGroup::start`], also with ranks that connect to `listener` by themselves. Gives
    /// up when `interrupt` becomes true.
    ///
    /// # Errors
    /// As [`WorkerGroup::start`], and [`Cause::Interrupted`].
    pub fn gather(
        specs: &[RankSpec],
        listener: Option<&RendezvousListener>,
        interrupt: &AtomicBool,
    ) -> Result<Self, WorkerGroupError> {
        if specs.is_empty() || specs.len() > RANKS_MAX {
            let what = format!("a group has 1 to {RANKS_MAX} ranks, not {}", specs.len());
            return Err(start_error(None, what));
        }
        let (sender, incoming) = sync_channel(WAITING_FRAMES);
        let mut workers = Self { members: Vec::new(), incoming, job: 0, early: Vec::new() };
        let mut peers = Vec::new();
        let mut usable = Vec::new();
        let (mut failed, mut is_whole) = (None, true);
        // Even if one fails, make members of the others: dropping a member ends its worker.
        let all = gather::gather(specs, listener, interrupt, &sender);
        // Calibrate a clock only if needed: to compare machines, or cores of this machine.
        let clock = (specs.len() > 1).then(Clock::new);
        let here = clock.as_ref().map(handshake::machine);
        for ((rank, spec), met) in specs.iter().enumerate().zip(all) {
            let member = met.and_then(|met| {
                let peer = Peer::of(&met.hello, spec);
                usable.push((peer.machine.clone(), met.hello.cores.clone()));
                let is_here = here.as_ref().is_none_or(|here| *here == met.hello.machine);
                let clock = clock.filter(|_| !is_here);
                let member = Member::new(rank, met, spec, (clock, sender.clone()));
                peers.push(peer);
                member.map_err(|e| Missing::Failed(e.to_string()))
            });
            match member {
                Ok(member) => workers.members.push(member),
                Err(Missing::Failed(what)) => {
                    let error = || start_error(Some(rank), format!("{}: {what}", spec.name(rank)));
                    failed.get_or_insert_with(error);
                }
                Err(Missing::Abandoned) => is_whole = false,
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        if !is_whole {
            let what = "interrupted before all ranks had started".to_owned();
            return Err(WorkerGroupError { cause: Cause::Interrupted, ..start_error(None, what) });
        }
        for (member, share) in workers.members.iter_mut().zip(shares(&usable)) {
            member.info.share = share;
        }
        let skews = clock.map_or_else(Vec::new, |clock| skews(&peers, clock));
        for (index, spec) in specs.iter().enumerate() {
            let (peers, skews) = (peers.clone(), skews.clone());
            let assignment = Assignment { index, peers, yielding: spec.yielding, skews };
            workers.tell(index, &ToWorker::Assign(Box::new(assignment)));
        }
        workers.wait_ready()?;
        Ok(workers)
    }

    /// What the ranks are.
    pub fn infos(&self) -> impl Iterator<Item = &RankInfo> {
        self.members.iter().map(|m| &m.info)
    }

    fn wait_ready(&mut self) -> Result<(), WorkerGroupError> {
        let until = Instant::now() + START;
        let mut missing = self.members.len();
        while missing > 0 {
            match self.incoming.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((rank, FromWorker::Message(ToLauncher::Ready { cpu }))) => {
                    self.members[rank].info.cpu = cpu;
                    missing -= 1;
                }
                Ok((rank, FromWorker::Message(ToLauncher::Failed { why, .. }))) => {
                    return Err(start_error(Some(rank), self.of(rank, &why)));
                }
                Ok((rank, FromWorker::Message(ToLauncher::Died(how)))) => {
                    return Err(start_error(Some(rank), self.of(rank, &how)));
                }
                Ok((rank, FromWorker::Closed(error))) => {
                    let how = self.members[rank].exit_text(error);
                    return Err(start_error(Some(rank), self.of(rank, &how)));
                }
                Ok((rank, FromWorker::Message(ToLauncher::Log(text)))) => {
                    self.early.push((rank, text))
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let s = START.as_secs();
                    let what = format!("{missing} ranks did not start within {s} s");
                    return Err(start_error(None, what));
                }
            }
        }
        Ok(())
    }

    /// A sentence about a rank, with its name.
    fn of(&self, rank: usize, what: &str) -> String {
        format!("rank {rank} on {}: {}", self.members[rank].info.host, handshake::printable(what))
    }

    /// Sends a message to a rank, unless the rank is gone. A rank that does not read it loses its
    /// connection, which its reading thread then reports.
    fn tell(&mut self, rank: usize, what: &ToWorker) {
        match frame::encode(what) {
            Ok(frame) => self.tell_bytes(rank, &frame),
            Err(_) => self.members[rank].stream.shutdown(),
        }
    }

    fn tell_bytes(&mut self, rank: usize, frame: &[u8]) {
        let member = &mut self.members[rank];
        if member.gone.is_none() && member.stream.write_all(frame).is_err() {
            member.stream.shutdown();
        }
    }
}

impl Member {
    fn new(
        rank: usize,
        met: ConnectedWorker,
        spec: &RankSpec,
        (clock, incoming): (Option<Clock>, SyncSender<(usize, FromWorker)>),
    ) -> io::Result<Self> {
        let ConnectedWorker { stream, child, hello } = met;
        let bytes = Arc::new(AtomicU64::new(0));
        let info = RankInfo {
            host: hello.host,
            pid: hello.pid,
            cores: spec.cores.clone(),
            cpu: usize::MAX,
            share: 1,
            alone: 0,
        };
        let reads = stream.try_clone().and_then(|s| stream.set_write_limit(UNREAD).map(|()| s));
        // From here on dropping it ends the worker.
        let member = Self { info, stream, child, bytes: bytes.clone(), gone: None, alone: 0 };
        let mut from = Counted { stream: reads?, bytes };
        let named = std::thread::Builder::new().name(format!("rank {rank}"));
        let mut pinger = clock.map(Pinger::new);
        named.spawn(move || {
            loop {
                let received = match receive_from(&mut from, &mut pinger, |aside| {
                    // Nothing receives it any more when the group has ended.
                    let _ = incoming.send((rank, FromWorker::Message(aside)));
                }) {
                    Ok(Some(received)) => FromWorker::Message(received),
                    Ok(None) => FromWorker::Closed(None),
                    Err(error) => FromWorker::Closed(Some(error.to_string())),
                };
                let is_end = matches!(received, FromWorker::Closed(_));
                if incoming.send((rank, received)).is_err() || is_end {
                    return;
                }
            }
        })?;
        Ok(member)
    }

    /// How it ended, when its connection has.
    fn exit_text(&mut self, error: Option<String>) -> String {
        self.stream.shutdown();
        let how = match (&mut self.child, error) {
            (Some(child), error) => child::exit_text(child, child::REAP, error),
            (None, Some(error)) => format!("lost the connection: {error}"),
            (None, None) => "closed the connection".to_owned(),
        };
        self.gone.get_or_insert(how).clone()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.stream.shutdown();
        if let Some(child) = &mut self.child {
            child::end(child, child::REAP);
        }
    }
}

impl Drop for WorkerGroup {
    fn drop(&mut self) {
        // Shut down all connections first, so that the workers end in parallel.
        self.members.iter().for_each(|m| m.stream.shutdown());
    }
}

/// Counts the bytes that are read, to distinguish a slow answer from none.
struct Counted {
    stream: Stream,
    bytes: Arc<AtomicU64>,
}

/// The next message of a rank. Answers a request to align clocks itself.
fn receive_from(
    from: &mut Counted,
    pinger: &mut Option<Pinger>,
    aside: impl FnMut(ToLauncher),
) -> io::Result<Option<ToLauncher>> {
    let (job, round) = match frame::read(from)? {
        Some(ToLauncher::Align { job, round }) => (job, round),
        received => return Ok(received),
    };
    let sight = pinger.as_mut().map_or(Ok(Sight::Same), |pinger| pinger.look(from, aside))?;
    let bytes = postcard::to_stdvec(&sight).map_err(io::Error::other)?;
    Ok(Some(ToLauncher::Exchange { job, round, bytes: bytes.into() }))
}

impl PingStream for Counted {
    fn stream(&self) -> &Stream {
        &self.stream
    }
}

impl io::Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(buffer)?;
        self.bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl Peer {
    /// A rank that may use one core only (mpirun binds so) counts as pinned to it.
    fn of(hello: &Hello, spec: &RankSpec) -> Self {
        let bound = if hello.cores.len() == 1 { hello.cores.clone() } else { Vec::new() };
        let cores = if spec.cores.is_empty() { bound } else { spec.cores.clone() };
        Self { host: hello.host.clone(), machine: hello.machine.clone(), cores }
    }
}

fn start_error(rank: Option<usize>, what: String) -> WorkerGroupError {
    WorkerGroupError { cause: Cause::Start, rank, what, partial: Vec::new() }
}

/// How many CPUs each rank has for itself, by the machines of the ranks and the CPUs that they may
/// use there.
fn shares(usable: &[(String, Vec<usize>)]) -> Vec<usize> {
    let share = |(machine, cores): &(String, Vec<usize>)| {
        let meets = |(other, theirs): &&(String, Vec<usize>)| {
            other == machine && theirs.iter().any(|core| cores.contains(core))
        };
        let sharing = usable.iter().filter(meets).count();
        (cores.len() / sharing.max(1)).max(1)
    };
    usable.iter().map(share).collect()
}

/// The offset bound between the counter of the first core and that of each other core on which
/// ranks of this machine may run; empty if it cannot be measured. The workers are idle meanwhile.
fn skews(peers: &[Peer], clock: Clock) -> Vec<(usize, f64)> {
    let available = rdmalab_measure::limits::available_cores().unwrap_or_default();
    let machine = handshake::machine(&clock);
    let here: Vec<&Peer> = peers.iter().filter(|p| p.machine == machine).collect();
    if here.len() < 2 || clock.source() == ClockSource::MonotonicRaw {
        return Vec::new();
    }
    let firsts: Option<Vec<usize>> = here.iter().map(|p| p.cores.first().copied()).collect();
    let mut cores = firsts.unwrap_or_else(|| available.clone());
    cores.sort_unstable();
    cores.dedup();
    let Some((&first, others)) = cores.split_first() else { return Vec::new() };
    if cores.len() > COMPARED_CORES || cores.iter().any(|c| !available.contains(c)) {
        return Vec::new();
    }
    let mut skews = vec![(first, 0.0)];
    for &core in others {
        if let Ok(skew) = core_skew(clock, (first, core)) {
            skews.push((core, skew.error_ns()));
        }
    }
    skews
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_the_cpus_that_they_may_use() {
        let of =
            |machine: &str, cores: std::ops::Range<usize>| (machine.to_owned(), cores.collect());
        // Two without a binding on one machine, one alone on another.
        assert_eq!(shares(&[of("a", 0..9), of("b", 0..9), of("a", 0..9)]), [4, 9, 4]);
        // Bound to halves, to single CPUs, and more ranks than CPUs.
        assert_eq!(shares(&[of("a", 0..4), of("a", 4..8)]), [4, 4]);
        assert_eq!(shares(&[of("a", 0..1), of("a", 1..2), of("a", 0..2)]), [1, 1, 1]);
        assert_eq!(shares(&[of("a", 0..2), of("a", 0..2), of("a", 0..2), of("a", 0..0)]), [1; 4]);
    }
}
