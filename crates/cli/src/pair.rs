//! Two worker processes, and the conversation with them.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::failure::{Outcome, run};
use crate::interrupt::Interrupt;
use crate::protocol::{Found, Make, Order, Reply, Work};

/// How long a worker may be silent: longer than any of its own limits.
const SILENCE: Duration = Duration::from_secs(90);
/// How long the other worker may take to say what it saw, when one has failed.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// Between two looks at whether the user wants to stop.
const TICK: Duration = Duration::from_millis(50);

/// What both ends agreed on.
#[derive(Clone, Debug, Default)]
pub struct Agreed {
    /// Inline bytes that messages may have.
    pub inline_bytes: usize,
    /// What kind of memory messages lie in.
    pub backing: String,
}

/// What the device is.
#[derive(Clone, Debug)]
pub struct About {
    /// Kind of the device: system, soft, sim.
    pub kind: String,
    /// Path MTU in bytes.
    pub mtu: usize,
    /// Entries of the GID table.
    pub gids: u32,
}

/// Two workers: the first begins, the second answers. Both end with this.
pub struct Pair {
    ends: [Worker; 2],
    interrupt: Interrupt,
}

struct Worker {
    name: &'static str,
    child: Child,
    orders: ChildStdin,
    replies: Receiver<String>,
}

impl Worker {
    fn start(name: &'static str) -> Outcome<Self> {
        let program = std::env::current_exe().map_err(run)?;
        let mut command = Command::new(program);
        // A process group of its own: Ctrl-C is for the command, which ends its workers.
        command.arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let cannot = |e| run(format!("cannot start a worker: {e}"));
        let mut child = command.spawn().map_err(cannot)?;
        let (Some(orders), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(run("a worker has no pipes"));
        };
        let (sender, replies) = channel();
        let read = move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        };
        let named = std::thread::Builder::new().name(format!("replies of {name}"));
        named.spawn(read).map_err(run)?;
        Ok(Self { name, child, orders, replies })
    }

    fn order(&mut self, order: &Order) -> Outcome {
        let line = serde_json::to_string(order).map_err(run)?;
        match writeln!(self.orders, "{line}") {
            Ok(()) => Ok(()),
            Err(_) => Err(run(self.obituary())),
        }
    }

    /// The next reply; an error when it does not come, or says that the worker failed. When the
    /// user wants to stop, the worker is told, and may still say what it has.
    fn reply(&mut self, interrupt: &Interrupt, patience: Duration) -> Outcome<Reply> {
        let mut limit = Instant::now() + patience;
        let mut told = false;
        loop {
            match self.replies.recv_timeout(TICK) {
                Ok(line) => return self.understood(&line),
                Err(RecvTimeoutError::Disconnected) => return Err(run(self.obituary())),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if interrupt.is_set() && !told {
                told = true;
                limit = Instant::now() + LAST_WORDS;
                // An error means that it is gone, which its pipe will say.
                let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            }
            if Instant::now() > limit {
                let silent = format!("{} is silent for {} s", self.name, patience.as_secs());
                return Err(run(if told { "interrupted".to_owned() } else { silent }));
            }
        }
    }

    fn understood(&self, line: &str) -> Outcome<Reply> {
        match serde_json::from_str(line) {
            Ok(Reply::Failed(reason)) => Err(run(format!("{}: {reason}", self.name))),
            Ok(reply) => Ok(reply),
            Err(error) => Err(run(format!("{} said {line:?}: {error}", self.name))),
        }
    }

    /// How it died.
    fn obituary(&mut self) -> String {
        let name = self.name;
        match self.child.wait() {
            Ok(status) => match (status.signal(), status.code()) {
                (Some(signal), _) => format!("{name} was ended by signal {signal}"),
                (None, code) => format!("{name} ended with exit status {}", code.unwrap_or(-1)),
            },
            Err(error) => format!("{name} is gone: {error}"),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may spin, and would not see that its input has ended. An error means that it is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Pair {
    /// Starts both, each on its core, and opens the device in both.
    pub fn open(
        interrupt: &Interrupt,
        device: &str,
        cores: Option<(usize, usize)>,
        yielding: bool,
    ) -> Outcome<(Self, About)> {
        let ends = [Worker::start("the first worker")?, Worker::start("the second worker")?];
        let mut pair = Self { ends, interrupt: interrupt.clone() };
        let cores = [cores.map(|c| c.0), cores.map(|c| c.1)];
        let mut about = About { kind: String::new(), mtu: 0, gids: 0 };
        for (i, core) in cores.into_iter().enumerate() {
            let device = device.to_owned();
            match pair.ask(i, &Order::Open { device, core, yielding })? {
                Reply::Opened { kind, mtu, gids } => about = About { kind, mtu, gids },
                other => return Err(confused(&other)),
            }
        }
        Ok((pair, about))
    }

    fn ask(&mut self, i: usize, order: &Order) -> Outcome<Reply> {
        self.ends[i].order(order)?;
        self.ends[i].reply(&self.interrupt, SILENCE)
    }

    /// Makes a queue pair at each end, and connects them.
    pub fn connect(&mut self, make: &Make) -> Outcome<Agreed> {
        let mut agreed = Agreed::default();
        let mut connects = Vec::new();
        for i in 0..2 {
            match self.ask(i, &Order::Make(make.clone()))? {
                Reply::Made { endpoint, memory, inline_bytes, backing } => {
                    agreed = Agreed { inline_bytes, backing };
                    connects.push(Order::Connect { endpoint, memory });
                }
                other => return Err(confused(&other)),
            }
        }
        // Each gets what the other said.
        for (i, order) in connects.iter().rev().enumerate() {
            match self.ask(i, order)? {
                Reply::Connected => {}
                other => return Err(confused(&other)),
            }
        }
        Ok(agreed)
    }

    /// Both do their parts: what the first found, and the second.
    pub fn work(&mut self, work: &Work) -> Outcome<[Found; 2]> {
        match self.ask(1, &Order::Answer(work.clone()))? {
            Reply::Armed => {}
            other => return Err(confused(&other)),
        }
        self.ends[0].order(&Order::Begin(work.clone()))?;
        let first = self.done(0, SILENCE);
        match first {
            Ok(mut found) if found.cut_short.is_some() => {
                let second = self.last_words();
                found.cut_short = found.cut_short.map(|one| joined(one, second));
                Ok([found, Found::default()])
            }
            Ok(found) => Ok([found, self.done(1, SILENCE)?]),
            Err(reason) => Err(run(joined(reason.to_string(), self.last_words()))),
        }
    }

    /// Why the second worker failed, when the first has.
    fn last_words(&mut self) -> Option<String> {
        if self.interrupt.is_set() {
            return None;
        }
        self.done(1, LAST_WORDS).err().map(|reason| reason.to_string())
    }

    fn done(&mut self, i: usize, patience: Duration) -> Outcome<Found> {
        match self.ends[i].reply(&self.interrupt, patience)? {
            Reply::Done(found) => Ok(*found),
            other => Err(confused(&other)),
        }
    }
}

fn joined(one: String, two: Option<String>) -> String {
    two.map_or(one.clone(), |two| format!("{one}; {two}"))
}

fn confused(reply: &Reply) -> crate::failure::Failure {
    run(format!("a worker gave an answer that does not fit: {reply:?}"))
}
