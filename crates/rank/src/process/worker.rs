//! The worker's side: reads from the launcher, runs its jobs, and ends with it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdmalab_measure::Clock;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};
use rustix::thread::sched_getcpu;
use serde_bytes::ByteBuf;

use super::clock_sync::{self, Hot};
use super::control::Control;
use super::frame::{self, ToLauncher, ToWorker};
use super::handshake::{Assignment, Claim, Hello, printable};
use super::panics;
use super::rank::{self, ProcessRank};
use super::stream::Stream;
use crate::Rank;

/// How long the launcher may take to send its hello, which is the first thing that it sends. A
/// worker that was started by hand gives up after this time.
const HELLO: Duration = Duration::from_secs(30);
/// How long the work may go on when the launcher is gone. A thread that spins by means of the rank
/// ends at once; a loop without the rank would never end.
const LAST_MOMENT: Duration = Duration::from_secs(2);

/// Interval of checks whether the server still runs, without a pidfd.
const LOOK: Duration = Duration::from_millis(500);

/// Takes the connection to the launcher from standard input, which then becomes `/dev/null`.
///
/// # Errors
/// When standard input is no socket: the program was not started by a launcher.
pub fn connection() -> io::Result<Stream> {
    let no_launcher = |e: io::Error| {
        let what = format!("a worker is started by rdmalab itself, not by hand ({e})");
        io::Error::new(io::ErrorKind::InvalidInput, what)
    };
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let stream = Stream::from_fd(socket).map_err(no_launcher)?;
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    Ok(stream)
}

/// Runs the launcher's jobs, one after the other, until the launcher ends or is gone. `run` gets
/// the rank and the job's bytes, and returns the result or a one-line error; a panic counts as such
/// an error. If the launcher is gone and `run` does not end soon, the process exits.
///
/// From here on, panics in this process are not printed but reported to the launcher.
///
/// # Errors
/// Sentences: no process, or none of rdmalab, is at the other end.
pub fn serve(
    stream: Stream,
    run: impl FnMut(&ProcessRank, &[u8]) -> Result<Vec<u8>, String>,
) -> io::Result<()> {
    serve_as(None, stream, run)
}

/// Like [`serve`], for a rank that connected to the launcher by itself, see [`super::join`].
///
/// # Errors
/// Those of [`serve`], and the launcher's reason if it refuses the rank.
pub fn serve_as(
    claim: Option<Claim>,
    stream: Stream,
    run: impl FnMut(&ProcessRank, &[u8]) -> Result<Vec<u8>, String>,
) -> io::Result<()> {
    serve_for((claim, None), stream, run, refuse)
}

/// Like [`serve`], for a worker that a server started for the launcher. The worker ends when the
/// launcher or the server ends; `server` is the process id of the server.
///
/// # Errors
/// Those of [`serve`].
pub fn serve_under(
    server: u32,
    stream: Stream,
    run: impl FnMut(&ProcessRank, &[u8]) -> Result<Vec<u8>, String>,
) -> io::Result<()> {
    serve_for((None, Some(server)), stream, run, refuse)
}

/// Like [`serve_as`], also for jobs that this rank does without the others: `alone` gets the job's
/// bytes, and a flag that is set when it should stop. Each such job has its own thread, so the
/// launcher decides how many run at a time.
///
/// # Errors
/// Those of [`serve_as`].
pub fn serve_both(
    claim: Option<Claim>,
    stream: Stream,
    run: impl FnMut(&ProcessRank, &[u8]) -> Result<Vec<u8>, String>,
    alone: impl Fn(&[u8], &Arc<AtomicBool>) -> Result<Vec<u8>, String> + Sync,
) -> io::Result<()> {
    serve_for((claim, None), stream, run, alone)
}

/// Answers a job for one rank in a program that has none.
fn refuse(_: &[u8], _: &Arc<AtomicBool>) -> Result<Vec<u8>, String> {
    Err("this program has no job for a single rank".to_owned())
}

fn serve_for(
    (claim, server): (Option<Claim>, Option<u32>),
    mut stream: Stream,
    mut run: impl FnMut(&ProcessRank, &[u8]) -> Result<Vec<u8>, String>,
    alone: impl Fn(&[u8], &Arc<AtomicBool>) -> Result<Vec<u8>, String> + Sync,
) -> io::Result<()> {
    panics::record();
    let clock = Clock::new();
    Hello { claim, ..Hello::ours(Some(&clock)) }.write(&mut stream)?;
    Hello::read(&mut stream, HELLO).map_err(|e| named(e.kind(), &format!("the launcher {e}")))?;
    let Some(assignment) = read_assignment(&mut stream)? else { return Ok(()) };

    let control = Arc::new(Control::default());
    let (heard, reads) = (control.clone(), stream.try_clone()?);
    let writer = Arc::new(Mutex::new(stream.try_clone()?));
    let reader = std::thread::Builder::new().name("launcher".to_owned());
    // Start the reader before this thread is pinned: the reader would inherit the core and disturb
    // it.
    reader.spawn(move || listen(reads, &heard, clock))?;
    if let Some(server) = server {
        let (heard, watch, to) = (control.clone(), Server::of(server), writer.clone());
        let watcher = std::thread::Builder::new().name("server".to_owned());
        watcher.spawn(move || watch.outlive(&heard, &to))?;
    }
    let mut rank = match ProcessRank::accept(assignment, clock, control.clone(), writer.clone()) {
        Ok(rank) => rank,
        Err(why) => {
            frame::write(&mut stream, &ToLauncher::Failed { job: 0, why: why.clone() })?;
            return Err(named(io::ErrorKind::InvalidInput, &why));
        }
    };
    // An error of sending means that the launcher is gone, which ends the loop.
    let _ = rank.send(&ToLauncher::Ready { cpu: rank.cpu() });
    let (flag, writer) = (control.flag(), &*writer);
    // Ends when all threads have: the flag is set when the launcher is gone.
    std::thread::scope(|scope| {
        while let Some(job) = control.next_job() {
            let Some(patience_ns) = job.patience_ns else {
                let (flag, alone) = (&flag, &alone);
                let number = job.number;
                let body = move || report(writer, number, caught(|| alone(&job.bytes, flag)));
                let thread = std::thread::Builder::new().name("alone".to_owned());
                if let Err(error) = thread.spawn_scoped(scope, body) {
                    report(writer, number, Err(format!("cannot start a thread: {error}")));
                }
                continue;
            };
            rank.begin(job.number, patience_ns);
            let outcome = caught(|| run(&rank, &job.bytes));
            if let Some(panic) = panics::take() {
                // A thread that was not joined panicked, or the panic was caught.
                rank.tell(&printable(&panic));
            }
            report(writer, job.number, outcome);
        }
    });
    Ok(())
}

/// Does a job; a panic is an error.
fn caught(job: impl FnOnce() -> Result<Vec<u8>, String>) -> Result<Vec<u8>, String> {
    catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|panic| Err(panics::text(&*panic)))
}

fn named(kind: io::ErrorKind, what: &str) -> io::Error {
    io::Error::new(kind, what)
}

fn read_assignment(stream: &mut Stream) -> io::Result<Option<Assignment>> {
    match frame::read(stream)? {
        None => Ok(None),
        Some(ToWorker::Assign(assignment)) if assignment.index < assignment.peers.len() => {
            Ok(Some(*assignment))
        }
        Some(_) => Err(named(io::ErrorKind::InvalidData, "the launcher did not assign a rank")),
    }
}

fn report(to: &Mutex<Stream>, job: u64, outcome: Result<Vec<u8>, String>) {
    let said = match outcome {
        Ok(bytes) => ToLauncher::Done { job, cpu: sched_getcpu(), bytes: ByteBuf::from(bytes) },
        Err(why) => ToLauncher::Failed { job, why },
    };
    if let Err(error) = rank::send(to, &said) {
        // Too long to be sent; or the launcher is gone, and this fails as well.
        let _ = rank::send(to, &ToLauncher::Failed { job, why: error.to_string() });
    }
}

/// Reads the launcher's messages, and sleeps in between, until the launcher is gone.
fn listen(mut stream: Stream, control: &Control, clock: Clock) {
    let mut hot = Instant::now();
    let why = loop {
        match frame::read(&mut Hot::until(&mut stream, hot)) {
            Ok(Some(ToWorker::Ping)) => {
                // An error shows when the next frame is read.
                let _ = clock_sync::answer(&mut stream, &clock, clock.now());
                hot = Instant::now() + clock_sync::HOT;
            }
            Ok(Some(message)) => {
                // The next measurement needs the processor, so stop polling.
                hot = Instant::now();
                control.take(message);
            }
            Ok(None) => break "the launcher is gone".to_owned(),
            Err(error) => break format!("the launcher is gone: {error}"),
        }
    };
    end_soon(control, &why);
}

/// Asks the measuring threads to end, and ends the process if they do not.
fn end_soon(control: &Control, why: &str) -> ! {
    control.end(why);
    std::thread::sleep(LAST_MOMENT);
    // SAFETY: ends the process at once, and touches nothing of it. Exit handlers would wait for
    // locks that the stuck thread may hold.
    unsafe { libc::_exit(1) };
}

/// The server that started this worker. The connection is between client and worker, so the end of
/// the server has to be noticed in another way.
struct Server {
    pid: Option<Pid>,
    /// Becomes readable when the process ends; there is none on kernels before Linux 5.3.
    fd: Option<OwnedFd>,
}

impl Server {
    fn of(pid: u32) -> Self {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let fd = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Self { pid, fd }
    }

    /// Whether the server still runs: an orphaned process gets another parent. To be called after
    /// `fd` was opened, so that `fd` cannot be of another process with the same id.
    fn is_there(&self) -> bool {
        getppid() == self.pid
    }

    /// Sleeps until the server ends, and then ends this process. It tells the launcher first, which
    /// would otherwise only get the other ranks' errors about a lost peer.
    fn outlive(self, control: &Control, writer: &Mutex<Stream>) -> ! {
        while self.is_there() {
            match &self.fd {
                // After an interruption by a signal, the loop only looks once more.
                Some(fd) => drop(poll(&mut [PollFd::new(fd, PollFlags::IN)], None)),
                None => std::thread::sleep(LOOK),
            }
        }
        let why = "lost the server that started it: it was killed or crashed";
        // A thread that holds the lock is sending, maybe to a launcher that does not read.
        if let (Ok(mut to), Ok(notice)) =
            (writer.try_lock(), frame::encode(&ToLauncher::Died(why.to_owned())))
        {
            let _ = io::Write::write_all(&mut *to, &notice);
        }
        end_soon(control, why);
    }
}
