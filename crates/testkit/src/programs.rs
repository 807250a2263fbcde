//! Runs programs of other projects on our library in tests: with a time limit, one at a time.
//!
//! No program hangs or is left behind: each has a limit, and is killed by its own process id when
//! the test drops its [`Process`].

pub use rdmalab_testing::{Ended, Process, WaitLimit, again_while, find, free_port, skipped};
use rdmalab_testing::{PERFTEST_DISTURBED, library};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often a wait looks again.
const LOOK: Duration = Duration::from_millis(5);
/// How long a server may take until it is bound.
const BOUND_LIMIT: Duration = Duration::from_secs(60);
/// The messages that clients of the connection manager print when nobody listened: rping, ucmatose
/// and cmtime, udaddy, perftest (the number of the event), programs that print the error of the
/// failed call, and rstream, which polls and prints the error of its last call.
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
/// How long a server may take to end after its client failed.
const GRACE: Duration = Duration::from_secs(1);
/// Whether the output says that perftest could not measure its processor's clock, which is no fault
/// of our library.
pub fn are_disturbed(words: &str) -> bool {
    words.contains(PERFTEST_DISTURBED)
}

/// Whether the output says that nobody listened where a program asked for a connection. A server is
/// bound before it listens, and the library keeps a request for only 0.2 s in between. If the
/// server still waits for a client, the machine was too busy; this is no fault of our library.
pub fn are_refused(words: &str) -> bool {
    REFUSED.iter().any(|refused| words.contains(refused))
}

/// Whether a program could not measure its processor's clock; see [`are_disturbed`].
pub fn is_disturbed(ended: &Ended) -> bool {
    are_disturbed(&ended.stderr)
}

/// Whether nobody listened where a program asked for a connection; see [`are_refused`].
pub fn is_refused(ended: &Ended) -> bool {
    are_refused(&format!("{}{}", ended.stdout, ended.stderr))
}

/// A server and its client, which used the connection manager and have ended.
pub struct Connected {
    /// The server.
    pub server: Ended,
    /// The client.
    pub client: Ended,
    /// The client was refused while the server still waited for one.
    is_too_early: bool,
}

impl Connected {
    /// Waits for both ends, the client first. After a client's success the server has `patience`.
    fn of([mut server, client]: [Process; 2], limit: Duration, patience: Duration) -> Self {
        let client = client.end_by(Instant::now() + limit);
        let is_too_early = is_refused(&client) && !server.has_ended();
        let patience = if client.succeeded() { patience } else { GRACE };
        Self { server: server.end_by(Instant::now() + patience), client, is_too_early }
    }

    /// The reports of both ends.
    pub fn report(&self) -> String {
        format!("{}{}", self.client.report(), self.server.report())
    }

    /// Whether other load on the machine spoiled the run, which is no fault of our library.
    fn is_spoiled(&self) -> bool {
        self.is_too_early || is_disturbed(&self.server) || is_disturbed(&self.client)
    }
}

/// Runs a server and its client, again while the run is spoiled; `None` where `start` gives none.
/// The client may take `limit`, and the server then another `patience`.
pub fn connected(
    mut start: impl FnMut() -> Option<[Process; 2]>,
    limit: Duration,
    patience: Duration,
) -> Option<Connected> {
    let once = || Some(Connected::of(start()?, limit, patience));
    again_while(SPOILED, once, |ends| ends.as_ref().is_some_and(Connected::is_spoiled))
}

/// The turn to run programs, until it is dropped.
pub enum Turn {
    /// No other program has it.
    Alone(RwLockWriteGuard<'static, ()>),
    /// Others that share it may have it too.
    Shared(RwLockReadGuard<'static, ()>),
}

static TURN: RwLock<()> = RwLock::new(());

/// Waits for the caller's turn. Pairs of programs run one after the other because each program that
/// spins needs a processor. A failed test does not keep the others from running.
pub fn turn() -> Turn {
    Turn::Alone(TURN.write().unwrap_or_else(PoisonError::into_inner))
}

/// Waits for the turn of programs that mostly wait, for time-outs or for the network: they run
/// beside each other.
pub fn shared_turn() -> Turn {
    Turn::Shared(TURN.read().unwrap_or_else(PoisonError::into_inner))
}

/// How long a test run of another checkout may hold the turn.
const MACHINE_LIMIT: Duration = Duration::from_secs(600);

/// Waits for the caller's turn among all test runs of this machine, for programs with a fixed port
/// or another fixed resource. The turn ends when the result is dropped or the process dies.
///
/// The turn is a Unix socket with an abstract name, like the connection manager's ports. So the
/// turn and the resource belong to the same network namespace.
///
/// # Panics
/// When the turn did not come within ten minutes.
#[must_use]
pub fn machine_turn(what: &str) -> UnixListener {
    let mut wait_limit = WaitLimit::of(MACHINE_LIMIT);
    loop {
        match try_machine_turn(what) {
            Ok(turn) => return turn,
            Err(error) if !wait_limit.is_left() => {
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

/// The frames of a capture that match a display filter of tshark; `None` without tshark.
///
/// # Panics
/// When tshark reports an error.
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

/// A directory with our `libibverbs.so.1` and `librdmacm.so.1`, for `LD_LIBRARY_PATH`.
///
/// It is `RDMALAB_LIBDIR`, if that is set; otherwise the libraries are [built](library).
///
/// # Panics
/// When the build fails.
pub fn library_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| match std::env::var_os("RDMALAB_LIBDIR") {
        Some(dir) => PathBuf::from(dir),
        None => {
            install(&library("librdmacm.so"));
            install(&library("libibverbs.so"))
        }
    })
}

/// The binary `rdmalab` with everything that is embedded in it.
///
/// # Panics
/// When the build fails.
pub fn rdmalab() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(rdmalab_testing::rdmalab)
}

/// The preload library that gives programs memory which peers can map.
///
/// # Panics
/// When the build fails.
pub fn memory_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| library("librdmalab_memory.so"))
}

/// Links to a library by the name that programs look for, in a directory beside it.
fn install(library: &Path) -> PathBuf {
    let dir = library.with_file_name("drop-in");
    std::fs::create_dir_all(&dir).expect("cargo's target directory is writable");
    let name = library.file_name().expect("a file").to_string_lossy();
    let link = dir.join(format!("{name}.1"));
    let new = dir.join(format!("new-{}-{name}", std::process::id()));
    // A rename is atomic: programs that start now always find a library.
    let _ = std::fs::remove_file(&new);
    std::os::unix::fs::symlink(library, &new).expect("a symbolic link");
    std::fs::rename(&new, link).expect("the name of the library");
    dir
}

/// Starts a program on our library, with `variables` added to its environment.
///
/// # Panics
/// When the program cannot be started.
pub fn start(path: &Path, arguments: &[String], variables: &[(String, String)]) -> Process {
    let mut command = Command::new(path);
    command
        .args(arguments)
        .env("LD_LIBRARY_PATH", library_dir())
        .env("LD_BIND_NOW", "1")
        .env("LC_ALL", "C")
        .env("RDMALAB_DEBUG", "1")
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .envs(shared_memory(variables));
    Process::start(&mut command)
}

/// What `rdmalab exec --memory shared` sets, if `RDMALAB_TEST_MEMORY` is `shared`: then all
/// programs of the interop suite have buffers that their peers can map.
fn shared_memory(variables: &[(String, String)]) -> Vec<(&'static str, String)> {
    match std::env::var("RDMALAB_TEST_MEMORY").as_deref() {
        Ok("shared") => {
            let given = |name: &str| {
                variables.iter().find(|(known, _)| known == name).map(|(_, text)| text)
            };
            let ours = memory_library().display();
            let preloaded = given("LD_PRELOAD")
                .map_or_else(|| ours.to_string(), |others| format!("{ours}:{others}"));
            let hooks = given("UCX_MEM_MMAP_HOOK_MODE").map_or("none", String::as_str).to_owned();
            vec![("LD_PRELOAD", preloaded), ("UCX_MEM_MMAP_HOOK_MODE", hooks)]
        }
        Ok(other) => panic!("RDMALAB_TEST_MEMORY is {other:?}: use shared, or leave it unset"),
        Err(_) => Vec::new(),
    }
}

/// Waits until any process in the network namespace of `process` is bound to a port of the
/// connection manager, or `process` has ended.
pub fn wait_until_bound(process: &mut Process, port: u16) {
    let mut wait_limit = WaitLimit::of(BOUND_LIMIT);
    let ending = format!("{port:04x}");
    let table = format!("/proc/{}/net/unix", process.id());
    let is_bound = |line: &str| {
        line.split_once("@rdmalab-cm/").is_some_and(|(_, name)| {
            name.split_once("/s/").is_some_and(|(_, service)| service.ends_with(&ending))
        })
    };
    while wait_limit.is_left() && !process.has_ended() {
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
