//! The launcher's side: a team of workers, each of them a rank.

mod local;
mod meet;
mod run;
mod ssh;

use std::fmt;
use std::io::{self, Write};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rdmalab_measure::limits::core_skew;
use rdmalab_measure::{Clock, ClockSource};

use super::align::{Hear, Pinger, Sight};
use super::frame::{self, ToLauncher, ToWorker};
use super::gate::Gate;
use super::hello::{self, Hello, Peer, Seat};
use super::stream::Stream;
pub use local::WorkerCommand;
pub(super) use local::{end, status_text};
use meet::Missing;
pub use ssh::SshCommand;

/// Ranks of a team at most.
pub const RANKS_MAX: usize = 256;
/// How long workers that are there may take until they have their seats.
const START: Duration = Duration::from_secs(30);
/// How long a worker may leave what we send it unread.
const UNREAD: Duration = Duration::from_secs(10);
/// How long a worker may take to be gone when it has lost its connection.
const REAP: Duration = Duration::from_secs(1);
/// Frames that wait for us, for all ranks together, before workers have to wait.
const WAITING_FRAMES: usize = 256;
/// Cores of which the counters are compared at most, at about 10 ms each.
const COMPARED_CORES: usize = 16;

/// Where a rank runs.
#[derive(Clone, Debug)]
pub enum Place {
    /// In a process of this machine, started with this command.
    Local(WorkerCommand),
    /// With the server of this address: `HOST` or `HOST:PORT`.
    Remote(String),
    /// On another host, started there by ssh; it comes to the team's [`Gate`].
    Ssh(SshCommand),
    /// Wherever mpirun or srun started it; it comes to the team's [`Gate`].
    Joining,
}

/// What a rank should be.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Where it runs.
    pub place: Place,
    /// CPUs of its host to stay on: the first for the rank, the following ones for threads that it
    /// spawns. Empty: the scheduler's choice.
    pub cores: Vec<usize>,
    /// Whether it yields the processor between two looks; `None`: when it shares a CPU with another
    /// rank of the team.
    pub yielding: Option<bool>,
}

impl Spec {
    /// A rank of this machine, anywhere on it.
    #[must_use]
    pub fn local(worker: WorkerCommand) -> Self {
        Self { place: Place::Local(worker), cores: Vec::new(), yielding: None }
    }

    /// What a message calls it that has not said hello yet.
    fn name(&self, rank: usize) -> String {
        match &self.place {
            Place::Ssh(command) => format!("rank {rank} on {}", command.host),
            _ => format!("rank {rank}"),
        }
    }

    /// A rank of another machine, anywhere on it.
    #[must_use]
    pub fn remote(address: &str) -> Self {
        Self { place: Place::Remote(address.to_owned()), cores: Vec::new(), yielding: None }
    }
}

/// What a rank is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Name of its host.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// CPUs that it was told to stay on.
    pub cores: Vec<usize>,
    /// The CPU that it was seen on last.
    pub cpu: usize,
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

/// What kind of end a run found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The team could not be brought together: the command, the address or the CPU is wrong.
    Start,
    /// A rank says that it failed.
    Failed,
    /// A rank is gone.
    Died,
    /// The user wanted an end, and not all ranks handed in what they have.
    Interrupted,
}

/// Why there are not all results: one line, and the results that there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamError {
    /// What kind of end it is.
    pub cause: Cause,
    /// The rank that it began with, where it was one.
    pub rank: Option<usize>,
    /// What happened, with rank and host.
    pub what: String,
    /// What each rank handed in nevertheless.
    pub partial: Vec<Option<Vec<u8>>>,
}

impl fmt::Display for TeamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for TeamError {}

/// Workers that are up, each with its seat. They end with this.
#[derive(Debug)]
pub struct Team {
    members: Vec<Member>,
    heard: Receiver<(usize, Heard)>,
    job: u64,
    /// Lines that came before the first job.
    early: Vec<(usize, String)>,
}

#[derive(Debug)]
struct Member {
    info: Info,
    stream: Stream,
    child: Option<Child>,
    /// Bytes that came from it.
    bytes: Arc<AtomicU64>,
    /// How it ended.
    gone: Option<String>,
}

#[derive(Debug)]
enum Heard {
    Said(ToLauncher),
    /// The connection ended; with what error, where it was one.
    Ended(Option<String>),
}

/// A worker that has said hello.
pub(in crate::process) struct Met {
    pub stream: Stream,
    pub child: Option<Child>,
    pub hello: Hello,
}

impl Team {
    /// Starts the workers and gives each its seat.
    ///
    /// # Errors
    /// [`Cause::Start`], naming the rank, and what to do.
    pub fn start(specs: &[Spec]) -> Result<Self, TeamError> {
        Self::gather(specs, None, &AtomicBool::new(false))
    }

    /// The same with ranks that come to `gate` by themselves; given up when `interrupt` becomes
    /// true.
    ///
    /// # Errors
    /// As [`Team::start`], and [`Cause::Interrupted`].
    pub fn gather(
        specs: &[Spec],
        gate: Option<&Gate>,
        interrupt: &AtomicBool,
    ) -> Result<Self, TeamError> {
        if specs.is_empty() || specs.len() > RANKS_MAX {
            let what = format!("a team has 1 to {RANKS_MAX} ranks, not {}", specs.len());
            return Err(start_error(None, what));
        }
        let (sender, heard) = sync_channel(WAITING_FRAMES);
        let mut team = Self { members: Vec::new(), heard, job: 0, early: Vec::new() };
        let mut peers = Vec::new();
        let (mut failed, mut is_whole) = (None, true);
        // The others are taken in also when one fails, as members end their workers.
        let all = meet::meet(specs, gate, interrupt, &sender);
        // Calibrated where it is needed: to compare machines, or cores of this one.
        let clock = (specs.len() > 1).then(Clock::new);
        let here = clock.as_ref().map(hello::machine);
        for ((rank, spec), met) in specs.iter().enumerate().zip(all) {
            let member = met.and_then(|met| {
                let peer = Peer::of(&met.hello, spec);
                let is_here = here.as_ref().is_none_or(|here| *here == met.hello.machine);
                let clock = clock.filter(|_| !is_here);
                let member = Member::new(rank, met, spec, (clock, sender.clone()));
                peers.push(peer);
                member.map_err(|e| Missing::Failed(e.to_string()))
            });
            match member {
                Ok(member) => team.members.push(member),
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
            let what = "interrupted before all ranks were there".to_owned();
            return Err(TeamError { cause: Cause::Interrupted, ..start_error(None, what) });
        }
        let skews = clock.map_or_else(Vec::new, |clock| skews(&peers, clock));
        for (index, spec) in specs.iter().enumerate() {
            let (peers, skews) = (peers.clone(), skews.clone());
            let seat = Seat { index, peers, yielding: spec.yielding, skews };
            team.tell(index, &ToWorker::Assign(Box::new(seat)));
        }
        team.wait_ready()?;
        Ok(team)
    }

    /// What the ranks are.
    pub fn infos(&self) -> impl Iterator<Item = &Info> {
        self.members.iter().map(|m| &m.info)
    }

    fn wait_ready(&mut self) -> Result<(), TeamError> {
        let until = Instant::now() + START;
        let mut missing = self.members.len();
        while missing > 0 {
            match self.heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((rank, Heard::Said(ToLauncher::Ready { cpu }))) => {
                    self.members[rank].info.cpu = cpu;
                    missing -= 1;
                }
                Ok((rank, Heard::Said(ToLauncher::Failed { why, .. }))) => {
                    return Err(start_error(Some(rank), self.of(rank, &why)));
                }
                Ok((rank, Heard::Said(ToLauncher::Died(how)))) => {
                    return Err(start_error(Some(rank), self.of(rank, &how)));
                }
                Ok((rank, Heard::Ended(error))) => {
                    let how = self.members[rank].obituary(error);
                    return Err(start_error(Some(rank), self.of(rank, &how)));
                }
                Ok((rank, Heard::Said(ToLauncher::Log(text)))) => self.early.push((rank, text)),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let s = START.as_secs();
                    let what = format!("{missing} ranks did not take their seats within {s} s");
                    return Err(start_error(None, what));
                }
            }
        }
        Ok(())
    }

    /// A sentence about a rank, with its name.
    fn of(&self, rank: usize, what: &str) -> String {
        format!("rank {rank} on {}: {}", self.members[rank].info.host, hello::printable(what))
    }

    /// Sends, unless it is gone. An end that does not take it loses its connection, which its
    /// reading thread then reports.
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
        met: Met,
        spec: &Spec,
        (clock, heard): (Option<Clock>, SyncSender<(usize, Heard)>),
    ) -> io::Result<Self> {
        let Met { stream, child, hello } = met;
        let bytes = Arc::new(AtomicU64::new(0));
        let info =
            Info { host: hello.host, pid: hello.pid, cores: spec.cores.clone(), cpu: usize::MAX };
        let reads = stream.try_clone().and_then(|s| stream.set_write_limit(UNREAD).map(|()| s));
        // From here on dropping it ends the worker.
        let member = Self { info, stream, child, bytes: bytes.clone(), gone: None };
        let mut from = Counted { stream: reads?, bytes };
        let named = std::thread::Builder::new().name(format!("rank {rank}"));
        let mut pinger = clock.map(Pinger::new);
        named.spawn(move || {
            loop {
                let said = match hear(&mut from, &mut pinger, |aside| {
                    // Nobody hears it any more when the team has ended.
                    let _ = heard.send((rank, Heard::Said(aside)));
                }) {
                    Ok(Some(said)) => Heard::Said(said),
                    Ok(None) => Heard::Ended(None),
                    Err(error) => Heard::Ended(Some(error.to_string())),
                };
                let is_end = matches!(said, Heard::Ended(_));
                if heard.send((rank, said)).is_err() || is_end {
                    return;
                }
            }
        })?;
        Ok(member)
    }

    /// How it ended, when its connection has.
    fn obituary(&mut self, error: Option<String>) -> String {
        self.stream.shutdown();
        let how = match (&mut self.child, error) {
            (Some(child), error) => local::obituary(child, REAP, error),
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
            local::end(child, REAP);
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        // All at once first, so that they end side by side.
        self.members.iter().for_each(|m| m.stream.shutdown());
    }
}

/// Counts what is read, so that a slow answer can be told from none.
struct Counted {
    stream: Stream,
    bytes: Arc<AtomicU64>,
}

/// What a rank says next. Who asks what its clock is to ours is looked at before it is heard.
fn hear(
    from: &mut Counted,
    pinger: &mut Option<Pinger>,
    aside: impl FnMut(ToLauncher),
) -> io::Result<Option<ToLauncher>> {
    let (job, round) = match frame::read(from)? {
        Some(ToLauncher::Align { job, round }) => (job, round),
        said => return Ok(said),
    };
    let sight = pinger.as_mut().map_or(Ok(Sight::Same), |pinger| pinger.look(from, aside))?;
    let bytes = postcard::to_stdvec(&sight).map_err(io::Error::other)?;
    Ok(Some(ToLauncher::Exchange { job, round, bytes: bytes.into() }))
}

impl Hear for Counted {
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
    /// A rank that was left one core only, as mpirun does, is as good as told to stay there.
    fn of(hello: &Hello, spec: &Spec) -> Self {
        let bound = if hello.cores.len() == 1 { hello.cores.clone() } else { Vec::new() };
        let cores = if spec.cores.is_empty() { bound } else { spec.cores.clone() };
        Self { host: hello.host.clone(), machine: hello.machine.clone(), cores }
    }
}

fn start_error(rank: Option<usize>, what: String) -> TeamError {
    TeamError { cause: Cause::Start, rank, what, partial: Vec::new() }
}

/// How far the counter of each core that ranks of this machine may run on is off from the first
/// one's; empty where that cannot be measured. The workers are idle while this runs.
fn skews(peers: &[Peer], clock: Clock) -> Vec<(usize, f64)> {
    let available = rdmalab_measure::limits::available_cores().unwrap_or_default();
    let machine = hello::machine(&clock);
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
