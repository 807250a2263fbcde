//! Other people's programs as tests run them: on our library, with a watchdog, one at a time.
//!
//! Nothing here hangs and nothing stays: a program has a limit, and is killed (by its own process
//! id) when the test lets go of it.

pub use rdmalab_testing::{Ended, Process, again_while, find, free_port, skipped};
use rdmalab_testing::{PERFTEST_DISTURBED, built};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often a watchdog looks.
const LOOK: Duration = Duration::from_millis(5);
/// How long a server may take until it is bound.
const BOUND_LIMIT: Duration = Duration::from_secs(60);
/// What clients of the connection manager say whom nobody listened to: rping, ucmatose and cmtime,
/// udaddy, perftest by the event's number, those that say what the call failed with, and rstream,
/// which polls for it (and says which error the last call had).
const REFUSED: [&str; 6] = [
    "RDMA_CM_EVENT_REJECTED, error 8\n",
    "RDMA_CM_EVENT_REJECTED, error: 8\n",
    "RDMA_CM_EVENT_UNREACHABLE, error: 1\n",
    "Unexpected CM event bl blka 8\n",
    "Connection refused",
    "rpoll: ",
];
/// Why a pair of programs runs again.
pub const SPOILED: &str = "perftest could not tell its clock, or nobody listened yet";
/// How long a server whose client failed is given.
const GRACE: Duration = Duration::from_secs(1);
/// Whether among these words is that perftest could not measure its processor's clock, which says
/// nothing about us.
pub fn are_disturbed(words: &str) -> bool {
    words.contains(PERFTEST_DISTURBED)
}

/// Whether among these words is that nobody listened where a connection was asked for. A server is
/// bound before it listens, and a request is kept for 0.2 s meanwhile: on a busy machine that says
/// nothing about us, if the server still waits for somebody.
pub fn are_refused(words: &str) -> bool {
    REFUSED.iter().any(|refused| words.contains(refused))
}

/// Whether a program could not measure its processor's clock, as of [`are_disturbed`].
pub fn is_disturbed(ended: &Ended) -> bool {
    are_disturbed(&ended.stderr)
}

/// Whether nobody listened where a program asked for a connection, as of [`are_refused`].
pub fn is_refused(ended: &Ended) -> bool {
    are_refused(&format!("{}{}", ended.stdout, ended.stderr))
}

/// A server and its client, which connect by the connection manager.
pub struct Connected {
    /// The server, ended.
    pub server: Ended,
    /// The client, ended.
    pub client: Ended,
    /// The client was refused, and the server still waited for one.
    is_too_early: bool,
}

impl Connected {
    /// Waits for both ends, the client first. A server whose client went well has `patience`.
    fn of([mut server, client]: [Process; 2], limit: Duration, patience: Duration) -> Self {
        let client = client.end_by(Instant::now() + limit);
        let is_too_early = is_refused(&client) && !server.has_ended();
        let patience = if client.succeeded() { patience } else { GRACE };
        Self { server: server.end_by(Instant::now() + patience), client, is_too_early }
    }

    /// Both reports.
    pub fn report(&self) -> String {
        format!("{}{}", self.client.report(), self.server.report())
    }

    /// Whether somebody else took the processor where it mattered, which says nothing about us.
    fn is_spoiled(&self) -> bool {
        self.is_too_early || is_disturbed(&self.server) || is_disturbed(&self.client)
    }
}

/// Runs a server and its client, again while they are spoiled; `None` where `start` gives none. The
/// client has `limit`, and the server `patience` after it.
pub fn connected(
    mut start: impl FnMut() -> Option<[Process; 2]>,
    limit: Duration,
    patience: Duration,
) -> Option<Connected> {
    let once = || Some(Connected::of(start()?, limit, patience));
    again_while(SPOILED, once, |ends| ends.as_ref().is_some_and(Connected::is_spoiled))
}

/// Waits for the turn of the caller. Programs that spin take a processor each, so pairs of them
/// run one after the other; a test that failed does not keep the others from running.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long another checkout's test may have the turn.
const MACHINE_LIMIT: Duration = Duration::from_secs(600);

/// Waits for the turn of the caller among all test runs of this machine: for what a program cannot
/// be told to choose, such as its port. It lasts until the result is dropped, also by a kill.
///
/// It is a socket without a file, as the connection manager's ports are: what the turn is about and
/// the turn itself belong to the same network namespace.
///
/// # Panics
/// When the turn did not come within ten minutes.
#[must_use]
pub fn machine_turn(what: &str) -> UnixListener {
    let until = Instant::now() + MACHINE_LIMIT;
    loop {
        match try_machine_turn(what) {
            Ok(turn) => return turn,
            Err(error) if Instant::now() > until => {
                panic!("the turn for {what} did not come (ss -xl shows who has it): {error}")
            }
            Err(_) => sleep(LOOK),
        }
    }
}

fn try_machine_turn(what: &str) -> io::Result<UnixListener> {
    let name = format!("rdmalab-tests/{what}");
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

/// Frames of a capture for which a display filter of tshark holds; `None` without tshark.
///
/// # Panics
/// When tshark complains of the capture.
pub fn tshark(capture: &Path, filter: &str) -> Option<Vec<String>> {
    let output = Command::new(find("tshark")?)
        .args(["-r", &capture.display().to_string(), "-Y", filter])
        .output()
        .expect("tshark runs");
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{filter}: {complaints}");
    assert!(!complaints.contains("cut short"), "{complaints}");
    Some(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// A directory that holds our `libibverbs.so.1` and `librdmacm.so.1`: what `LD_LIBRARY_PATH` has to
/// say.
///
/// It is `RDMALAB_LIBDIR`, if that is set. Otherwise the libraries are built here, because cargo
/// builds a package that is nothing but a shared object for nobody who depends on it; cargo has
/// let go of its lock by the time tests run, takes the same target directory from the same
/// environment, and has nothing to do when they are there. The profile is that of the running test.
///
/// # Panics
/// When they cannot be built.
pub fn library_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| match std::env::var_os("RDMALAB_LIBDIR") {
        Some(dir) => PathBuf::from(dir),
        None => {
            let [verbs, cm] = build();
            install(&cm);
            install(&verbs)
        }
    })
}

/// The binary `rdmalab`, with what it carries inside; built as [`library_dir`] is.
///
/// # Panics
/// When it cannot be built.
pub fn rdmalab() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| built("rdmalab", "/rdmalab"))
}

/// Builds the libraries and answers where they are.
fn build() -> [PathBuf; 2] {
    [built("rdmalab-libibverbs", "/libibverbs.so"), built("rdmalab-librdmacm", "/librdmacm.so")]
}

/// Gives a library the name that programs look for, beside it.
fn install(library: &Path) -> PathBuf {
    let dir = library.with_file_name("drop-in");
    std::fs::create_dir_all(&dir).expect("cargo's target directory is writable");
    let name = library.file_name().expect("a file").to_string_lossy();
    let link = dir.join(format!("{name}.1"));
    let new = dir.join(format!("new-{}-{name}", std::process::id()));
    // Renamed into place, so that somebody else's program always finds a library.
    let _ = std::fs::remove_file(&new);
    std::os::unix::fs::symlink(library, &new).expect("a symbolic link");
    std::fs::rename(&new, link).expect("the name of the library");
    dir
}

/// Starts a program on our library. `variables` are added to its environment.
///
/// # Panics
/// When it cannot be started.
pub fn start(path: &Path, arguments: &[String], variables: &[(String, String)]) -> Process {
    let mut command = Command::new(path);
    command
        .args(arguments)
        .env("LD_LIBRARY_PATH", library_dir())
        .env("LD_BIND_NOW", "1")
        .env("LC_ALL", "C")
        .env("RDMALAB_DEBUG", "1")
        .envs(variables.iter().map(|(name, value)| (name, value)));
    Process::start(&mut command)
}

/// Waits until a process, or another of its host, is bound to a port of the connection manager, or
/// it has ended.
pub fn wait_until_bound(process: &mut Process, port: u16) {
    let until = Instant::now() + BOUND_LIMIT;
    let ending = format!("{port:04x}");
    let table = format!("/proc/{}/net/unix", process.id());
    let is_bound = |line: &str| {
        line.split_once("@rdmalab-cm/").is_some_and(|(_, name)| {
            name.split_once("/s/").is_some_and(|(_, service)| service.ends_with(&ending))
        })
    };
    while Instant::now() < until && !process.has_ended() {
        let sockets = std::fs::read_to_string(&table).unwrap_or_default();
        if sockets.lines().any(is_bound) {
            return;
        }
        sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_of_the_machine_is_one_at_a_time() {
        let what = format!("a-test-{}", std::process::id());
        let turn = machine_turn(&what);
        let taken = try_machine_turn(&what).expect_err("it is taken");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        let waiting = std::thread::spawn({
            let what = what.clone();
            move || drop(machine_turn(&what))
        });
        sleep(LOOK);
        assert!(!waiting.is_finished());
        drop(turn);
        waiting.join().expect("it gets its turn");
        assert!(try_machine_turn(&what).is_ok());
    }
}
