//! Workers that the launcher or the server starts as child processes.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::handshake::{ConnectedWorker, Hello};
use super::stream::Stream;

/// How long a worker that lost its connection may take to exit.
pub const REAP: Duration = Duration::from_secs(1);
/// Interval of checks whether a process has ended.
const TICK: Duration = Duration::from_millis(2);

/// How to start a worker: a program that calls [`crate::process::serve`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables to set in its environment.
    pub envs: Vec<(OsString, OsString)>,
}

impl WorkerCommand {
    /// This program, with these arguments.
    ///
    /// # Errors
    /// When the program's file cannot be told.
    pub fn this_program<A: Into<OsString>>(args: impl IntoIterator<Item = A>) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let args = args.into_iter().map(Into::into).collect();
        Ok(Self { program, args, envs: Vec::new() })
    }

    /// Starts the worker with this connection as its standard input. Its standard output is closed,
    /// since only the launcher writes there. The worker is in its own process group, so that Ctrl-C
    /// reaches only the launcher, which tells the workers.
    ///
    /// # Errors
    /// A sentence: the program cannot be started.
    pub(super) fn start(&self, connection: OwnedFd) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        let variables = self.envs.iter().map(|(k, v)| (k, v));
        command.args(&self.args).envs(variables).process_group(0);
        command.stdin(Stdio::from(connection)).stdout(Stdio::null());
        command.spawn().map_err(|e| {
            let what = format!("cannot start a worker, {}: {e}", self.program.display());
            io::Error::new(e.kind(), what)
        })
    }
}

/// Starts a worker and exchanges hellos with it.
pub fn start_and_greet(worker: &WorkerCommand, limit: Duration) -> Result<ConnectedWorker, String> {
    let (mut stream, theirs) =
        Stream::pair().map_err(|e| format!("cannot create a socket pair: {e}"))?;
    let mut child = worker.start(theirs.into()).map_err(|e| e.to_string())?;
    // If writing fails, the exit status says why.
    let said = Hello::ours(None).write(&mut stream);
    match said.and_then(|()| Hello::read(&mut stream, limit)) {
        Ok(hello) => Ok(ConnectedWorker { stream, child: Some(child), hello }),
        Err(error) => {
            stream.shutdown();
            let how = exit_text(&mut child, REAP, Some(error.to_string()));
            Err(format!("the worker, {}, {how}", worker.program.display()))
        }
    }
}

/// How a worker that lost its connection ended, in words. Kills it if it does not exit in time.
pub fn exit_text(child: &mut Child, limit: Duration, error: Option<String>) -> String {
    match wait(child, limit) {
        Some(status) if status.success() => {
            error.unwrap_or_else(|| "ended before its job was done".to_owned())
        }
        Some(status) => status_text(status),
        None => {
            end(child, Duration::ZERO);
            let error =
                error.unwrap_or_else(|| "closed its connection but did not exit".to_owned());
            format!("{error}; it was killed")
        }
    }
}

/// Waits for it at most so long, then kills it.
pub fn end(child: &mut Child, limit: Duration) {
    if wait(child, limit).is_none() {
        // An error means that it has just ended.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Its status, when it ends within the limit.
pub fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let until = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Err(_) => return None,
            Ok(None) if Instant::now() >= until => return None,
            Ok(None) => std::thread::sleep(TICK),
        }
    }
}

/// How a process ended, in words.
pub fn status_text(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was ended by signal {signal}{}", signal_name(signal)),
        (None, Some(code)) => format!("ended with exit status {code}"),
        (None, None) => "ended".to_owned(),
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGKILL => {
            " (SIGKILL: sent by somebody, or by the kernel when memory ran out: see dmesg)"
        }
        libc::SIGSEGV => " (SIGSEGV)",
        libc::SIGBUS => " (SIGBUS)",
        libc::SIGABRT => " (SIGABRT)",
        libc::SIGILL => " (SIGILL)",
        libc::SIGFPE => " (SIGFPE)",
        libc::SIGTERM => " (SIGTERM)",
        libc::SIGINT => " (SIGINT)",
        _ => "",
    }
}
