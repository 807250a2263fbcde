//! The jobs of a worker and their results.

use std::io;
use std::time::{Duration, SystemTime};

use rdmalab_experiments::{Limits, PlainPoint, Point};
use rdmalab_measure::{Outcome, Stamp};
use rdmalab_rank::Rank;
use rdmalab_rank::process::{
    Claim, ProcessRank, RendezvousAddress, Stream, connection, join, serve_both, serve_under,
};
use rdmalab_verbs::{Context, Device};
use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};

use super::hooks;
use super::starved::Before;
use crate::bench::task::{Task, Timings};
use crate::bench::worker::{Endpoint, perform};
use crate::simulated::simulate_errand;

/// How long a rank waits for the others.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long a worker that ssh started tries to connect to its launcher, which already listens.
const SEARCH: Duration = Duration::from_secs(15);
/// How long the work may go on after ssh has ended, since then the launcher has ended or will soon.
const LAST_MOMENT: Duration = Duration::from_secs(3);

/// A job that all ranks perform.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Job {
    /// Query the limits of the device.
    Limits {
        /// The device.
        device: String,
        /// Its port.
        port: u8,
    },
    /// Measure a point together with the other ranks.
    Measure {
        /// The device.
        device: String,
        /// The point.
        point: Box<PlainPoint>,
    },
    /// Perform a part of a row of `bench self`.
    Bench {
        /// The device.
        device: String,
        /// The part.
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
    /// The limits of the device.
    Limits(Limits),
    /// The measured results.
    Outcome(Outcome),
    /// The times for `bench self`.
    Bench(Timings),
}

impl JobResult {
    /// The limits of the device, if this is the result of such a job.
    pub fn into_limits(self) -> Option<Limits> {
        if let Self::Limits(limits) = self { Some(limits) } else { None }
    }

    /// The measured results, if this is the result of such a job.
    pub fn into_outcome(self) -> Option<Outcome> {
        if let Self::Outcome(outcome) = self { Some(outcome) } else { None }
    }

    /// The times for `bench self`, if this is the result of such a job.
    pub fn into_bench(self) -> Option<Timings> {
        if let Self::Bench(found) = self { Some(found) } else { None }
    }
}

/// A worker's open device.
struct Open {
    name: String,
    device: Device,
    /// Keeps the device's threads alive, since an experiment opens the device again for each point.
    context: Context,
    /// The queue pair of `bench self`.
    endpoint: Option<Endpoint>,
}

/// `rdmalab worker`: performs jobs until its launcher ends. A server's worker may have its own
/// device, whatever the launcher's is called. `soft_only`: an option that only soft devices
/// support. `server`: the process that started this worker for a launcher on another machine.
pub fn work(
    own_device: Option<&str>,
    soft_only: Option<&str>,
    server: Option<u32>,
) -> io::Result<()> {
    let (stream, run) = (connection()?, worker(own_device, soft_only)?);
    match server {
        Some(server) => serve_under(server, stream, run),
        None => serve_both(None, stream, run, simulate_errand),
    }
}

/// A worker on another host, started there by ssh. It connects to the launcher at one of these
/// addresses. Its standard input has the token to show there, and reaches its end when ssh ends.
pub fn work_there(addresses: &str, rank: usize, soft_only: Option<&str>) -> io::Result<()> {
    let mut token = String::new();
    io::stdin().read_line(&mut token)?;
    let end = || {
        // Input and errors are ignored: only the end of the input matters.
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

/// The addresses, with `ssh:PORT` replaced by the address of ssh's client.
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

/// A worker with an existing connection.
pub fn work_as(
    claim: Option<Claim>,
    stream: Stream,
    own_device: Option<&str>,
    soft_only: Option<&str>,
) -> io::Result<()> {
    serve_both(claim, stream, worker(own_device, soft_only)?, simulate_errand)
}

/// The serialised result of a job, or why it failed.
type Done = Result<Vec<u8>, String>;

/// The function that performs a worker's jobs.
fn worker(
    own_device: Option<&str>,
    soft_only: Option<&str>,
) -> io::Result<impl FnMut(&ProcessRank, &[u8]) -> Done> {
    let all_cores = rustix::thread::sched_getaffinity(None)?;
    let mut open: Option<Open> = None;
    Ok(move |rank: &ProcessRank, bytes: &[u8]| {
        let job: Job =
            postcard::from_bytes(bytes).map_err(|e| format!("the job cannot be decoded: {e}"))?;
        let device = own_device.unwrap_or(job.device());
        if open.as_ref().is_none_or(|open| open.name != device) {
            open = Some(opened(device, &all_cores, soft_only)?);
        }
        let Some(open) = &mut open else {
            return Err(format!("this rank has not opened {device}"));
        };
        let before = Before::now();
        let result = do_job(rank, open, &job).map_err(|why| before.explain(why))?;
        postcard::to_stdvec(&result).map_err(|e| format!("the result cannot be sent: {e}"))
    })
}

/// Opens a device on a thread that may run on any core: threads that the device starts inherit the
/// affinity of their creator, and this thread has to stay on its core.
fn opened(name: &str, cores: &CpuSet, soft_only: Option<&str>) -> Result<Open, String> {
    let open = || {
        // If this is refused, the thread keeps its affinity.
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
            let before = hooks::HooksSnapshot::of(&open.device, point.common.port);
            rdmalab_experiments::run_in_process(rank, &open.device, &point)
                .map(|measured| before.labelled(measured, rank.index(), &point))
                .map(|outcome| JobResult::Outcome(dated(rank, outcome)))
                .map_err(|stopped| stopped.to_string())
        }
        Job::Bench { task, .. } => {
            perform(rank, context, &mut open.endpoint, task).map(JobResult::Bench)
        }
    }
}

/// Adds the time of day to the largest samples of an outcome, which have time stamps only.
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
