//! Bringing a team together: who is started here, who is called, and who comes by itself.

use std::process::Child;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use super::ssh::{self, AllRead, LastWords, SshCommand};
use super::{Heard, Met, Place, Spec, local};
use crate::process::control::lock;
use crate::process::frame::ToLauncher;
use crate::process::gate::Gate;
use crate::process::remote;

/// How long a worker may take from its start until it says hello.
const START: Duration = Duration::from_secs(30);
/// How long ranks that mpirun or srun starts may be apart, and one that ssh starts may take.
const GATHER: Duration = Duration::from_secs(60);
/// Between two looks at whether to go on waiting.
const TICK: Duration = Duration::from_millis(50);
/// How long the last words of an ssh that has ended may take to be read.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Why a rank is not there.
pub enum Missing {
    /// It failed: a sentence.
    Failed(String),
    /// Another one did, or the user wanted an end: nobody waits for it any more.
    Abandoned,
}

/// What those who bring a team together share.
struct Meeting<'a> {
    notes: Mutex<Vec<String>>,
    /// A rank failed, or all are there.
    is_over: AtomicBool,
    interrupt: &'a AtomicBool,
    heard: &'a SyncSender<(usize, Heard)>,
}

/// Starts and greets all workers side by side: each takes a moment to calibrate its clock.
pub fn meet(
    specs: &[Spec],
    gate: Option<&Gate>,
    interrupt: &AtomicBool,
    heard: &SyncSender<(usize, Heard)>,
) -> Vec<Result<Met, Missing>> {
    let (seats, coming): (Vec<_>, Vec<_>) = specs.iter().map(|spec| seat(&spec.place)).unzip();
    let seats = Mutex::new(seats);
    let meeting =
        Meeting { notes: Mutex::default(), is_over: AtomicBool::new(false), interrupt, heard };
    std::thread::scope(|scope| {
        let (meeting, seats) = (&meeting, &seats);
        if let Some(gate) = gate {
            let named = std::thread::Builder::new().name("gate".to_owned());
            let attend = move || gate.attend(seats, &meeting.notes, &meeting.is_over);
            if let Err(error) = named.spawn_scoped(scope, attend) {
                lock(&meeting.notes).push(format!("no thread for the gate: {error}"));
            }
        }
        let start = |(rank, (spec, coming)): (usize, (&'_ Spec, Option<Receiver<Met>>))| {
            let named = std::thread::Builder::new().name("meet".to_owned());
            let place = spec.place.clone();
            named.spawn_scoped(scope, move || {
                let met = meeting.one(rank, &place, coming);
                if met.is_err() {
                    meeting.is_over.store(true, Ordering::Relaxed);
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
                Err(error) => failed(format!("no thread to start it: {error}")),
            }
        });
        let met = met.collect();
        meeting.is_over.store(true, Ordering::Relaxed);
        met
    })
}

/// A seat at the gate, for those who come there.
fn seat(place: &Place) -> (Option<SyncSender<Met>>, Option<Receiver<Met>>) {
    match place {
        Place::Local(_) | Place::Remote(_) => (None, None),
        Place::Joining | Place::Ssh(_) => {
            let (sender, receiver) = sync_channel(1);
            (Some(sender), Some(receiver))
        }
    }
}

impl Meeting<'_> {
    fn one(
        &self,
        rank: usize,
        place: &Place,
        coming: Option<Receiver<Met>>,
    ) -> Result<Met, Missing> {
        match (place, coming) {
            (Place::Local(worker), _) => local::meet(worker, START).map_err(Missing::Failed),
            (Place::Remote(address), _) => remote::meet(address, START).map_err(Missing::Failed),
            (Place::Joining, Some(coming)) => self.wait(&coming, || None),
            (Place::Ssh(command), Some(coming)) => self.by_ssh(rank, command, &coming),
            (_, None) => Err(Missing::Failed("it has no seat".to_owned())),
        }
    }

    /// Waits until it comes to the gate; `end` tells when it never will.
    fn wait(
        &self,
        coming: &Receiver<Met>,
        mut end: impl FnMut() -> Option<String>,
    ) -> Result<Met, Missing> {
        let until = Instant::now() + GATHER;
        loop {
            match coming.recv_timeout(TICK) {
                Ok(met) => return Ok(met),
                Err(RecvTimeoutError::Timeout) => {}
                // The gate is gone, or it gave the seat away and could not hand over who came.
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
                return Err(Missing::Failed(format!("did not come within {s} s{notes}")));
            }
        }
    }

    fn by_ssh(
        &self,
        rank: usize,
        command: &SshCommand,
        coming: &Receiver<Met>,
    ) -> Result<Met, Missing> {
        let mut child = command.start().map_err(Missing::Failed)?;
        let words = LastWords::default();
        let forwarded = self.forward(rank, &mut child, &words);
        let waited = match forwarded {
            Ok(all_read) => self.wait(coming, || {
                let status = child.try_wait().ok().flatten()?;
                all_read.iter().for_each(|all_read| all_read.wait(LAST_WORDS));
                Some(command.obituary(status, &words))
            }),
            Err(why) => Err(Missing::Failed(why)),
        };
        match waited {
            Ok(met) => Ok(Met { child: Some(child), ..met }),
            Err(missing) => {
                local::end(&mut child, Duration::ZERO);
                Err(missing)
            }
        }
    }

    fn forward(
        &self,
        rank: usize,
        child: &mut Child,
        words: &LastWords,
    ) -> Result<Option<AllRead>, String> {
        let Some(stderr) = child.stderr.take() else { return Ok(None) };
        let heard = self.heard.clone();
        // Nobody hears it any more when the team has ended.
        let say = move |text| drop(heard.send((rank, Heard::Said(ToLauncher::Log(text)))));
        let all_read = ssh::forward(stderr, words.clone(), say);
        all_read.map(Some).map_err(|e| format!("no thread for it: {e}"))
    }
}
