//! Gathering a group: starts local workers, connects to servers, and waits for the ranks that
//! connect by themselves.

use std::process::Child;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::process::control::lock;
use crate::process::frame::{FromWorker, ToLauncher};
use crate::process::handshake::ConnectedWorker;
use crate::process::rendezvous::RendezvousListener;
use crate::process::spec::{LaunchMethod, RankSpec};
use crate::process::ssh::{self, SshCommand, StderrClosed, StderrTail};
use crate::process::{child, remote};

/// How long a worker may take from its start until it says hello.
const START: Duration = Duration::from_secs(30);
/// How long ranks that mpirun or srun starts may be apart, and one that ssh starts may take.
const GATHER: Duration = Duration::from_secs(60);
/// Interval of checks whether to go on waiting.
const TICK: Duration = Duration::from_millis(50);
/// How long reading the standard error of an ssh may take after ssh has ended.
const STDERR: Duration = Duration::from_secs(1);

/// Why a rank is not there.
pub enum Missing {
    /// It failed, for this reason.
    Failed(String),
    /// Another rank failed, or the user interrupted: it is not awaited any more.
    Abandoned,
}

/// The state that the threads share that gather a group.
struct Gathering<'a> {
    notes: Mutex<Vec<String>>,
    /// A rank failed, or all are there.
    is_over: AtomicBool,
    interrupt: &'a AtomicBool,
    incoming: &'a SyncSender<(usize, FromWorker)>,
}

/// Starts all workers in parallel, because each takes a moment to calibrate its clock.
pub fn gather(
    specs: &[RankSpec],
    listener: Option<&RendezvousListener>,
    interrupt: &AtomicBool,
    incoming: &SyncSender<(usize, FromWorker)>,
) -> Vec<Result<ConnectedWorker, Missing>> {
    let (open_ranks, coming): (Vec<_>, Vec<_>) =
        specs.iter().map(|spec| channel_for(&spec.place)).unzip();
    let open_ranks = Mutex::new(open_ranks);
    let gathering =
        Gathering { notes: Mutex::default(), is_over: AtomicBool::new(false), interrupt, incoming };
    std::thread::scope(|scope| {
        let (gathering, open_ranks) = (&gathering, &open_ranks);
        if let Some(listener) = listener {
            let named = std::thread::Builder::new().name("rendezvous".to_owned());
            let accept =
                move || listener.accept_ranks(open_ranks, &gathering.notes, &gathering.is_over);
            if let Err(error) = named.spawn_scoped(scope, accept) {
                lock(&gathering.notes).push(format!("cannot start the rendezvous thread: {error}"));
            }
        }
        let start =
            |(rank, (spec, coming)): (usize, (&'_ RankSpec, Option<Receiver<ConnectedWorker>>))| {
                let named = std::thread::Builder::new().name("gather".to_owned());
                let place = spec.place.clone();
                named.spawn_scoped(scope, move || {
                    let met = gathering.one(rank, &place, coming);
                    if met.is_err() {
                        gathering.is_over.store(true, Ordering::Relaxed);
                    }
                    met
                })
            };
        let threads: Vec<_> = specs.iter().zip(coming).enumerate().map(start).collect();
        let met = threads.into_iter().map(|thread| {
            let failed = |why: String| Err(Missing::Failed(why));
            match thread {
                Ok(thread) => {
                    thread.join().unwrap_or_else(|_| failed("starting it panicked".to_owned()))
                }
                Err(error) => failed(format!("cannot start a thread to start it: {error}")),
            }
        });
        let met = met.collect();
        gathering.is_over.store(true, Ordering::Relaxed);
        met
    })
}

/// A channel for a rank that connects to the rendezvous.
fn channel_for(
    place: &LaunchMethod,
) -> (Option<SyncSender<ConnectedWorker>>, Option<Receiver<ConnectedWorker>>) {
    match place {
        LaunchMethod::Local(_) | LaunchMethod::Remote(_) => (None, None),
        LaunchMethod::Joining | LaunchMethod::Ssh(_) => {
            let (sender, receiver) = sync_channel(1);
            (Some(sender), Some(receiver))
        }
    }
}

impl Gathering<'_> {
    fn one(
        &self,
        rank: usize,
        place: &LaunchMethod,
        coming: Option<Receiver<ConnectedWorker>>,
    ) -> Result<ConnectedWorker, Missing> {
        match (place, coming) {
            (LaunchMethod::Local(worker), _) => {
                child::start_and_greet(worker, START).map_err(Missing::Failed)
            }
            (LaunchMethod::Remote(address), _) => {
                remote::start_and_greet(address, START).map_err(Missing::Failed)
            }
            (LaunchMethod::Joining, Some(coming)) => self.wait(&coming, || None),
            (LaunchMethod::Ssh(command), Some(coming)) => self.by_ssh(rank, command, &coming),
            (_, None) => Err(Missing::Failed("its rank was not assigned".to_owned())),
        }
    }

    /// Waits until it connects to the rendezvous; `end` returns why it never will.
    fn wait(
        &self,
        coming: &Receiver<ConnectedWorker>,
        mut end: impl FnMut() -> Option<String>,
    ) -> Result<ConnectedWorker, Missing> {
        let until = Instant::now() + GATHER;
        loop {
            match coming.recv_timeout(TICK) {
                Ok(met) => return Ok(met),
                Err(RecvTimeoutError::Timeout) => {}
                // The rendezvous has ended, or it could not hand over the worker.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(TICK),
            }
            if let Some(why) = end() {
                return Err(Missing::Failed(why));
            }
            let is_over = [&self.is_over, self.interrupt];
            if is_over.iter().any(|flag| flag.load(Ordering::Relaxed)) {
                return Err(Missing::Abandoned);
            }
            if Instant::now() > until {
                let notes = lock(&self.notes).join("; ");
                let notes = if notes.is_empty() { notes } else { format!(" ({notes})") };
                let s = GATHER.as_secs();
                return Err(Missing::Failed(format!("did not connect within {s} s{notes}")));
            }
        }
    }

    fn by_ssh(
        &self,
        rank: usize,
        command: &SshCommand,
        coming: &Receiver<ConnectedWorker>,
    ) -> Result<ConnectedWorker, Missing> {
        let mut child = command.start().map_err(Missing::Failed)?;
        let words = StderrTail::default();
        let forwarded = self.forward(rank, &mut child, &words);
        let waited = match forwarded {
            Ok(all_read) => self.wait(coming, || {
                let status = child.try_wait().ok().flatten()?;
                all_read.iter().for_each(|all_read| all_read.wait(STDERR));
                Some(command.exit_text(status, &words))
            }),
            Err(why) => Err(Missing::Failed(why)),
        };
        match waited {
            Ok(met) => Ok(ConnectedWorker { child: Some(child), ..met }),
            Err(missing) => {
                child::end(&mut child, Duration::ZERO);
                Err(missing)
            }
        }
    }

    fn forward(
        &self,
        rank: usize,
        child: &mut Child,
        words: &StderrTail,
    ) -> Result<Option<StderrClosed>, String> {
        let Some(stderr) = child.stderr.take() else { return Ok(None) };
        let incoming = self.incoming.clone();
        // Nothing receives it any more when the group has ended.
        let say =
            move |text| drop(incoming.send((rank, FromWorker::Message(ToLauncher::Log(text)))));
        let all_read = ssh::forward(stderr, words.clone(), say);
        all_read.map(Some).map_err(|e| format!("cannot start a thread for it: {e}"))
    }
}
