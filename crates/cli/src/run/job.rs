//! What a worker is told to do, and the result.

use std::io;
use std::time::{Duration, SystemTime};

use rdmalab_experiments::{Limits, PlainPoint, Point};
use rdmalab_measure::{Outcome, Stamp};
use rdmalab_rank::Rank;
use rdmalab_rank::process::{
    Claim, ProcessRank, RendezvousAddress, Stream, connection, join, serve_as, serve_under,
};
use rdmalab_verbs::{Context, Device};
use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};

use super::hooks;
use super::starved::Before;
use crate::bench::task::{Task, Timings};
use crate::bench::worker::{Endpoint, perform};

/// How long a rank waits for the others.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long a worker that ssh started looks for its launcher, which is there.
const SEARCH: Duration = Duration::from_secs(15);
/// How long the work may go on when ssh has ended: the launcher has, or will soon.
const LAST_MOMENT: Duration = Duration::from_secs(3);

/// A job of each rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Job {
    /// Say what the device can.
    Limits {
        /// The device.
        device: String,
        /// Its port.
        port: u8,
    },
    /// Measure a point together with the others.
    Measure {
        /// The device.
        device: String,
        /// The point.
        point: Box<PlainPoint>,
    },
    /// Do a part of a row of `bench self`.
    Bench {
        /// The device.
        device: String,
        /// Which part.
        task: Task,
    },
}

impl Job {
    fn device(&self) -> &str {
        let (Self::Limits { device, .. }
        | Self::Measure { device, .. }
        | Self::Bench { device, .. }) = self;
        device
    }
}

/// The result of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum JobResult {
    /// What the device can.
    Limits(Limits),
    /// What was measured.
    Outcome(Outcome),
    /// What was found for `bench self`.
    Bench(Timings),
}

impl JobResult {
    /// What the device can, if that was asked.
    pub fn into_limits(self) -> Option<Limits> {
        if let Self::Limits(limits) = self { Some(limits) } else { None }
    }

    /// What was measured, if something was to be.
    pub fn into_outcome(self) -> Option<Outcome> {
        if let Self::Outcome(outcome) = self { Some(outcome) } else { None }
    }

    /// What was found for `bench self`, if that was asked.
    pub fn into_bench(self) -> Option<Timings> {
        if let Self::Bench(found) = self { Some(found) } else { None }
    }
}

/// What a worker has open.
struct Open {
    name: String,
    device: Device,
    /// Keeps the device's own threads: an experiment opens it again for each point.
    context: Context,
    /// The queue pair of `bench self`.
    endpoint: Option<Endpoint>,
}

/// `rdmalab worker`: does jobs until its launcher ends. A server's worker may have a device of its
/// own, whatever the launcher's is called. `soft_only`: the option that other devices cannot obey.
/// `server`: the process that started it for the launcher of another machine.
pub fn work(
    own_device: Option<&str>,
    soft_only: Option<&str>,
    server: Option<u32>,
) -> io::Result<()> {
    let (stream, run) = (connection()?, worker(own_device, soft_only)?);
    match server {
        Some(server) => serve_under(server, stream, run),
        None => serve_as(None, stream, run),
    }
}

/// The same of another host, started there by ssh: comes to the launcher, which waits at one of
/// these addresses. Standard input says what to show there, and ends with ssh.
pub fn work_there(addresses: &str, rank: usize, soft_only: Option<&str>) -> io::Result<()> {
    let mut token = String::new();
    io::stdin().read_line(&mut token)?;
    let end = || {
        // Whatever comes, or an error: only the end counts.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::thread::sleep(LAST_MOMENT);
        std::process::exit(1);
    };
    std::thread::Builder::new().name("ssh".to_owned()).spawn(end)?;
    let by_ssh = std::env::var("SSH_CONNECTION").ok();
    let stream = join(&RendezvousAddress::Tcp(resolved(addresses, by_ssh.as_deref())), SEARCH);
    let stream = stream.map_err(io::Error::other)?;
    let token = token.trim().to_owned();
    work_as(Some(Claim { rank, token }), stream, None, soft_only)
}

/// The addresses, with that of ssh's client for `ssh:PORT`.
fn resolved(addresses: &str, by_ssh: Option<&str>) -> Vec<String> {
    let client = by_ssh.and_then(|text| text.split(' ').next()).filter(|text| !text.is_empty());
    let one = |address: &str| match address.strip_prefix("ssh:") {
        None => Some(address.to_owned()),
        Some(port) => {
            let client = client?;
            Some(if client.contains(':') {
                format!("[{client}]:{port}")
            } else {
                format!("{client}:{port}")
            })
        }
    };
    addresses.split(',').filter_map(one).collect()
}

/// The same over a connection that is there.
pub fn work_as(
    claim: Option<Claim>,
    stream: Stream,
    own_device: Option<&str>,
    soft_only: Option<&str>,
) -> io::Result<()> {
    serve_as(claim, stream, worker(own_device, soft_only)?)
}

/// What a job leaves, for the wire, or why it failed.
type Done = Result<Vec<u8>, String>;

/// What does a worker's jobs.
fn worker(
    own_device: Option<&str>,
    soft_only: Option<&str>,
) -> io::Result<impl FnMut(&ProcessRank, &[u8]) -> Done> {
    let all_cores = rustix::thread::sched_getaffinity(None)?;
    let mut open: Option<Open> = None;
    Ok(move |rank: &ProcessRank, bytes: &[u8]| {
        let job: Job = postcard::from_bytes(bytes).map_err(|e| format!("a job of no kind: {e}"))?;
        let device = own_device.unwrap_or(job.device());
        if open.as_ref().is_none_or(|open| open.name != device) {
            open = Some(opened(device, &all_cores, soft_only)?);
        }
        let Some(open) = &mut open else { return Err(format!("{device} is not open")) };
        let before = Before::now();
        let result = do_job(rank, open, &job).map_err(|why| before.explain(why))?;
        postcard::to_stdvec(&result).map_err(|e| format!("the result cannot be sent: {e}"))
    })
}

/// Opens a device on a thread that may run anywhere: threads that the device starts for itself
/// begin where their maker is, and this one has to stay on its core.
fn opened(name: &str, cores: &CpuSet, soft_only: Option<&str>) -> Result<Open, String> {
    let open = || {
        // Where it is refused, the thread stays where it is.
        let _ = rustix::thread::sched_setaffinity(None, cores);
        let device = crate::soft::find(name).map_err(|failure| failure.to_string())?;
        if let Some(option) = soft_only {
            crate::link::check_soft(option, &device)?;
        }
        let context = device.open().map_err(|e| format!("{name}: {e}"))?;
        Ok(Open { name: name.to_owned(), device, context, endpoint: None })
    };
    std::thread::scope(|scope| scope.spawn(open).join())
        .unwrap_or_else(|_| Err(format!("{name}: opening it panicked")))
}

fn do_job(rank: &ProcessRank, open: &mut Open, job: &Job) -> Result<JobResult, String> {
    let context = &open.context;
    match job {
        Job::Limits { port, .. } => {
            let limits = Limits::query(context, *port).map_err(|e| e.to_string())?;
            let profile = crate::soft::profile(&open.device);
            let profile = profile.map(|profile| (profile.name.clone(), profile.does()));
            Ok(JobResult::Limits(Limits { profile, ..limits }))
        }
        Job::Measure { point, .. } => {
            let point = Point::try_from(PlainPoint::clone(point))
                .map_err(|why| format!("{why}: start all ranks with the same program"))?;
            let before = hooks::State::of(&open.device);
            rdmalab_experiments::run_in_process(rank, &open.device, &point)
                .map(|measured| before.labelled(measured, rank.index()))
                .map(|outcome| JobResult::Outcome(dated(rank, outcome)))
                .map_err(|stopped| stopped.to_string())
        }
        Job::Bench { task, .. } => {
            perform(rank, context, &mut open.endpoint, task).map(JobResult::Bench)
        }
    }
}

/// The outcome with the time of day at its largest samples, by what time it is now: an experiment
/// knows stamps only.
fn dated(rank: &ProcessRank, mut outcome: Outcome) -> Outcome {
    let (now, stamp) = (SystemTime::now(), rank.now());
    let Ok(now) = now.duration_since(SystemTime::UNIX_EPOCH) else { return outcome };
    let clock = rank.clock();
    outcome.set_times(|ticks| {
        let ago_ns = clock.ns_between(Stamp(ticks), stamp);
        u64::try_from(now.as_nanos()).ok()?.checked_add_signed(-(ago_ns as i64))
    });
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launcher_is_where_ssh_came_from() {
        let of = |client| resolved("ssh:7,vm:7", client);
        assert_eq!(of(Some("10.0.0.1 5000 10.0.0.2 22")), ["10.0.0.1:7", "vm:7"]);
        assert_eq!(of(Some("fd00::1 5000 fd00::2 22")), ["[fd00::1]:7", "vm:7"]);
        assert_eq!((of(None), of(Some(""))), (vec!["vm:7".to_owned()], vec!["vm:7".to_owned()]));
    }
}
