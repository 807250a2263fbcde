//! What the tests of the command share: calling it, and letting it run until something happens.
#![allow(dead_code)] // Each test uses a part.

pub mod shapes;

use std::collections::BTreeSet;
use std::io::Read;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long anything may take, on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(120);

pub fn rdmalab(arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("rdmalab"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// How a command ended, and what it said.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs it to its end.
pub fn said(command: &mut Command) -> Said {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

/// Ends the process when dropped, also when a test fails.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Starts it with its output to be read at the end.
    pub fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command.spawn().expect("it starts"))
    }

    /// A run that lasts until something happens to it.
    pub fn endless(transport: &str, more: &[&str]) -> Self {
        let mut command = rdmalab(&["run", "ping", "--messages", "3M", "--warm-up", "0"]);
        command.args(["--pause", "200us"]);
        Self::start(command.args(["--transport", transport]).args(more))
    }

    pub fn within<T>(&mut self, what: &str, mut look: impl FnMut(&mut Child) -> Option<T>) -> T {
        let start = Instant::now();
        while start.elapsed() < LIMIT {
            if let Some(found) = look(&mut self.0) {
                return found;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("waited in vain for {what}");
    }

    /// Waits until something is there because of it; fails with what it said when it ends before.
    pub fn brings<T>(&mut self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let found = self.within(what, |child| {
            // In this order: it may bring it and end.
            let ended = child.try_wait().expect("our own child");
            look().map(Ok).or(ended.map(Err))
        });
        found.unwrap_or_else(|status| {
            let [stdout, stderr] = self.words();
            panic!("no {what}: {status}: {stdout}{stderr}");
        })
    }

    /// Waits until it, or somebody that it starts, listens there.
    pub fn listens_on(&mut self, port: u16) {
        let what = format!("listener on port {port}");
        self.brings(&what, || is_listened_on(port).then_some(()));
    }

    /// Its workers, once both measure, in no order.
    pub fn workers(&mut self) -> [u32; 2] {
        let path = format!("/proc/{0}/task/{0}/children", self.0.id());
        self.within("two workers", |_| {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let mut pids: Vec<u32> =
                text.split_whitespace().filter_map(|p| p.parse().ok()).collect();
            pids.sort_unstable();
            <[u32; 2]>::try_from(pids).ok().filter(|pids| pids.iter().all(|pid| is_busy(*pid)))
        })
    }

    /// How it ends, and what it said.
    pub fn end(mut self) -> Said {
        let status = self.within("the end", |child| child.try_wait().expect("our own child"));
        let [stdout, stderr] = self.words();
        Said { code: status.code(), stdout, stderr }
    }

    /// All that it said on standard output and standard error.
    fn words(&mut self) -> [String; 2] {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.0.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        [stdout, stderr]
    }
}

/// Whether a worker has computed for some time: then it measures.
pub fn is_busy(pid: u32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = text.rsplit(')').next().unwrap_or("");
    let ticks = after_name.split_whitespace().nth(11).and_then(|t| t.parse::<u64>().ok());
    ticks.is_some_and(|ticks| ticks > 50)
}

/// Sends a signal by the name that `kill` takes. Not by `kill`: small systems lack it.
pub fn signal(name: &str, pid: u32) {
    use rustix::process::{Pid, Signal, kill_process};
    let signal = match name {
        "-INT" => Signal::INT,
        "-KILL" => Signal::KILL,
        "-STOP" => Signal::STOP,
        other => panic!("{other}?"),
    };
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

/// A TCP port that was free a moment ago, and that nobody in this process was given before: between
/// now and a server's use of it the kernel may draw the same one again.
pub fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    // What is drawn again stays bound meanwhile, so that each draw is another one.
    let mut drawn = Vec::new();
    loop {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().unwrap().port();
        if given.insert(port) {
            return port;
        }
        drawn.push(listener);
    }
}

/// Whether somebody listens. Asked of the kernel: a connection would be taken for the client.
fn is_listened_on(port: u16) -> bool {
    let port = format!(":{port:04X}");
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
    let mut lines = tables.iter().flatten().flat_map(|table| table.lines());
    lines.any(|line| {
        let fields: Vec<&str> = line.split_whitespace().take(4).collect();
        matches!(fields[..], [_, at, _, "0A"] if at.ends_with(&port))
    })
}

/// Processes whose words hold this text, and whose environment holds all of those.
pub fn processes(word: &str, variables: &[&str]) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has = |pid: u32, file: &str, text: &str| {
        let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        text.is_empty() || String::from_utf8_lossy(&bytes).contains(text)
    };
    let is_one = |pid: &u32| {
        has(*pid, "cmdline", word) && variables.iter().all(|text| has(*pid, "environ", text))
    };
    pids.filter(is_one).collect()
}
