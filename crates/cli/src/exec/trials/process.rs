//! One trial: the program with all its processes, from its start until none of them is left.

use std::io::{PipeReader, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};
use rustix::time::{ClockId, clock_gettime};

use super::counters::Counters;
use crate::interrupt::Interrupt;

/// How often a signal of the user and the time limit are looked at.
const TICK: Duration = Duration::from_millis(20);
/// How long a program has after SIGTERM, in which mpirun ends its ranks.
const GRACE: Duration = Duration::from_secs(2);
/// How long processes that the program started may outlive it.
const LINGER: Duration = Duration::from_millis(500);
/// How long it takes at most until a killed process is gone.
const KILLED: Duration = Duration::from_secs(5);
/// How long it takes at most until the last output is read.
const PRINTED: Duration = Duration::from_secs(1);
/// Bytes of output that are kept, the last ones.
const KEPT_BYTES: usize = 4096;

/// How a trial ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Termination {
    /// With this status.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
    /// It ran longer than this, and was killed.
    TimedOut(Duration),
    /// The user wants to stop, and it was killed.
    Interrupted,
}

impl Termination {
    fn of(status: ExitStatus) -> Termination {
        match (status.code(), status.signal()) {
            (Some(code), _) => Termination::Exited(code),
            (None, signal) => Termination::Signalled(signal.unwrap_or(0)),
        }
    }

    /// In words.
    pub fn text(&self) -> String {
        match self {
            Termination::Exited(code) => format!("exit status {code}"),
            Termination::Signalled(signal) => match signal_hook::low_level::signal_name(*signal) {
                Some(name) => format!("signal {signal} ({name})"),
                None => format!("signal {signal}"),
            },
            Termination::TimedOut(limit) => format!("timed out after {} s", limit.as_secs_f64()),
            Termination::Interrupted => "interrupted".to_owned(),
        }
    }
}

/// What was seen of a trial.
#[derive(Clone, Debug)]
pub struct Trial {
    /// When it began.
    pub started: SystemTime,
    /// The same by `CLOCK_MONOTONIC`, ns.
    pub began_ns: u64,
    /// From its start to its end, or until it was given up.
    pub elapsed: Duration,
    /// How it ended.
    pub end: Termination,
    /// Processes that outlived the program, and were killed.
    pub left_behind: usize,
    /// The last line of its output.
    pub last_words: Option<String>,
    /// What its processes counted.
    pub counters: Counters,
}

/// Why a trial did not begin: one line.
#[derive(Debug)]
pub enum NoTrial {
    /// The program cannot be started.
    Program(String),
    /// This process lacks something: room for files, descriptors.
    Here(String),
}

impl NoTrial {
    /// The line.
    pub fn reason(self) -> String {
        match self {
            Self::Program(reason) | Self::Here(reason) => reason,
        }
    }

    /// This process lacks something.
    pub fn here(error: std::io::Error) -> Self {
        Self::Here(format!("exec: a trial cannot begin: {error}"))
    }
}

/// Where trials run, and what ends them early.
pub struct Supervisor {
    /// How long a trial may take.
    pub limit: Duration,
    /// Whether the user wants to stop.
    pub interrupt: Interrupt,
    /// Children that this process had before: it may have been a shell with processes in the
    /// background, which are nobody's trials.
    others: Vec<i32>,
}

impl Supervisor {
    /// Lets this process inherit what trials leave behind, so that it can be ended.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new(limit: Duration, interrupt: Interrupt) -> std::io::Result<Self> {
        let others = descendants(&[], |_| true).iter().map(|process| process.pid).collect();
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        Ok(Self { limit, interrupt, others })
    }

    /// Runs the command in the fresh directory `home` until all of its processes have ended.
    ///
    /// # Errors
    /// The program, or what a trial needs, cannot be started or made: the kernel's error.
    pub fn run(&self, command: &mut Command, home: &Path) -> Result<Trial, NoTrial> {
        let counters = home.join("counters");
        std::fs::create_dir(&counters).map_err(NoTrial::here)?;
        let (reader, writer) = std::io::pipe().map_err(NoTrial::here)?;
        let mark = Mark::of(&counters);
        command
            .env("RDMALAB_COUNTERS", &counters)
            .envs(["TMPDIR", "XDG_RUNTIME_DIR"].map(|name| (name, home)))
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(writer.try_clone().map_err(NoTrial::here)?)
            .stderr(writer);
        let (started, began) = (SystemTime::now(), Instant::now());
        let now = clock_gettime(ClockId::Monotonic);
        let began_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        let spawned = command.spawn();
        // The command still has the writing ends, and the reader waits for the last one to close.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = spawned.map_err(|error| {
            NoTrial::Program(format!("exec: {}: {error}", command.get_program().display()))
        })?;
        let group = Pid::from_child(&child);
        let output = collect(reader);
        let waiting = wait(child);
        let (end, elapsed) = self.until_end(&waiting, began);
        let is_cut = matches!(end, Termination::TimedOut(_) | Termination::Interrupted);
        if is_cut {
            // An error means that it has just ended.
            let _ = kill_process_group(group, Signal::TERM);
            if waiting.recv_timeout(GRACE).is_err() {
                self.kill_all(group, &mark);
                let _ = waiting.recv_timeout(KILLED);
            }
        }
        let killed = self.end_the_rest(if is_cut { Duration::ZERO } else { LINGER }, &mark);
        // Who was killed with the program did not outlive it.
        let left_behind = if is_cut { 0 } else { killed };
        Ok(Trial {
            started,
            began_ns,
            elapsed,
            end,
            left_behind,
            last_words: output.recv_timeout(PRINTED).ok().and_then(|text| last_words(&text)),
            counters: Counters::of(&counters),
        })
    }

    /// How the program ends (by itself, at its limit, or when the user wants it), and after which
    /// time.
    fn until_end(
        &self,
        waiting: &Receiver<(ExitStatus, Instant)>,
        began: Instant,
    ) -> (Termination, Duration) {
        let limit = self.limit;
        loop {
            match waiting.recv_timeout(TICK.min(limit.saturating_sub(began.elapsed()))) {
                Ok((status, ended)) => return (Termination::of(status), ended - began),
                // Its status was lost, which no program can cause.
                Err(RecvTimeoutError::Disconnected) => {
                    return (Termination::Exited(-1), began.elapsed());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.interrupt.is_set() {
                return (Termination::Interrupted, began.elapsed());
            }
            if began.elapsed() >= limit {
                return (Termination::TimedOut(limit), limit);
            }
        }
    }

    /// Kills the group of the program and all that descends from it.
    fn kill_all(&self, group: Pid, mark: &Mark) {
        let _ = kill_process_group(group, Signal::KILL);
        for process in self.of_trial(mark).iter().filter(|one| !one.has_ended) {
            if let Some(pid) = Pid::from_raw(process.pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    /// The processes of a trial. If this process had other children before, what they started may
    /// have come to it as well; then a child belongs to the trial only if it has its mark.
    fn of_trial(&self, mark: &Mark) -> Vec<Process> {
        match self.others.is_empty() {
            true => descendants(&self.others, |_| true),
            // What has ended only waits to be forgotten.
            false => descendants(&self.others, |one| one.has_ended || mark.is_on(one.pid)),
        }
    }

    /// Waits until no process of the trial is left, and kills those that stay longer than `linger`;
    /// returns how many those were.
    fn end_the_rest(&self, linger: Duration, mark: &Mark) -> usize {
        let began = Instant::now();
        let mut killed = Vec::new();
        loop {
            let all = self.of_trial(mark);
            // Orphans are children of this process now.
            for pid in
                all.iter().filter(|one| one.has_ended).filter_map(|one| Pid::from_raw(one.pid))
            {
                let _ = waitpid(Some(pid), WaitOptions::NOHANG);
            }
            let alive: Vec<i32> =
                all.iter().filter(|one| !one.has_ended).map(|one| one.pid).collect();
            if alive.is_empty() || began.elapsed() > linger + KILLED {
                return killed.len();
            }
            if began.elapsed() >= linger {
                for pid in alive {
                    if let Some(process) = Pid::from_raw(pid) {
                        let _ = kill_process(process, Signal::KILL);
                    }
                    if !killed.contains(&pid) {
                        killed.push(pid);
                    }
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// How often the environment of a process is read while it is empty, and the time between.
const EXEC_LOOKS: u32 = 20;
const EXEC_PAUSE: Duration = Duration::from_millis(1);

/// The variable of the environment by which processes of a trial are known.
struct Mark(Vec<u8>);

impl Mark {
    fn of(counters: &Path) -> Mark {
        Mark([b"RDMALAB_COUNTERS=", counters.as_os_str().as_bytes()].concat())
    }

    /// Whether a process began with it.
    fn is_on(&self, pid: i32) -> bool {
        for _ in 0..EXEC_LOOKS {
            match std::fs::read(format!("/proc/{pid}/environ")) {
                // While the kernel executes another program, the process has no environment.
                Ok(variables) if variables.is_empty() => std::thread::sleep(EXEC_PAUSE),
                Ok(variables) => {
                    return variables.split(|byte| *byte == 0).any(|variable| variable == self.0);
                }
                Err(_) => return false,
            }
        }
        false
    }
}

/// Waits for a child in a thread of its own, so that the time of its end is exact.
fn wait(mut child: Child) -> Receiver<(ExitStatus, Instant)> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        if let Ok(status) = child.wait() {
            // Nobody listens if the trial was given up.
            let _ = sender.send((status, Instant::now()));
        }
    });
    receiver
}

/// The last bytes of what the program prints, once nobody can print any more.
fn collect(mut reader: PipeReader) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let (mut kept, mut piece) = (Vec::new(), [0; KEPT_BYTES]);
        while let Ok(bytes @ 1..) = reader.read(&mut piece) {
            kept.extend_from_slice(&piece[..bytes]);
            let too_many = kept.len().saturating_sub(KEPT_BYTES);
            kept.drain(..too_many);
        }
        let _ = sender.send(String::from_utf8_lossy(&kept).into_owned());
    });
    receiver
}

/// The last line with a word in it: mpirun ends its messages with a line of dashes.
fn last_words(text: &str) -> Option<String> {
    let has_word = |line: &&str| line.chars().any(char::is_alphanumeric);
    text.lines().map(str::trim).rfind(has_word).map(str::to_owned)
}

/// A process of this machine.
struct Process {
    pid: i32,
    parent: i32,
    has_ended: bool,
}

/// All processes that this one started, except these, and those that they started. Of the children
/// of this one, only those that are `wanted`.
fn descendants(except: &[i32], wanted: impl Fn(&Process) -> bool) -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let process = |entry: std::fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let text = std::fs::read(entry.path().join("stat")).ok()?;
        let text = String::from_utf8_lossy(&text);
        // The name is in brackets, and may have blanks and brackets in it, or half a character. The
        // state is the third field, the parent the fourth, the number of threads the twentieth.
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        // The main thread may have ended before the others.
        let is_alone = fields.get(17)?.parse::<u32>().ok()? <= 1;
        let has_ended = matches!(*fields.first()?, "Z" | "X") && is_alone;
        Some(Process { pid, parent: fields.get(1)?.parse().ok()?, has_ended })
    };
    let mut others: Vec<Process> = entries.filter_map(process).collect();
    others.retain(|one| !except.contains(&one.pid));
    let this = rustix::process::getpid().as_raw_nonzero().get();
    others.retain(|one| one.parent != this || wanted(one));
    let mut parents = vec![this];
    let mut found = Vec::new();
    while let Some(parent) = parents.pop() {
        let (children, rest): (Vec<Process>, Vec<Process>) =
            others.into_iter().partition(|one| one.parent == parent);
        others = rest;
        parents.extend(children.iter().map(|one| one.pid));
        found.extend(children);
    }
    found
}
