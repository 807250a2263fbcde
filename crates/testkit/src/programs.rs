//! Other people's programs as tests run them: on our library, with a watchdog, one at a time.
//!
//! Nothing here hangs and nothing stays: a program has a limit, and is killed (by its own process
//! id) when the test lets go of it.

use rdmalab_testing::PERFTEST_DISTURBED;
pub use rdmalab_testing::{again_while, skipped};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often a watchdog looks.
const LOOK: Duration = Duration::from_millis(5);
/// How long a server may take until it listens.
const LISTEN_LIMIT: Duration = Duration::from_secs(60);
/// Ports for servers: below those that Linux gives to outgoing connections (32768 and above).
const PORTS: std::ops::Range<u16> = 19_000..31_000;
/// Where distributions put programs.
const PROGRAM_DIRS: [&str; 4] = ["/usr/bin", "/usr/sbin", "/bin", "/usr/local/bin"];

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
    fn of([mut server, client]: [Program; 2], limit: Duration, patience: Duration) -> Self {
        let client = client.end_by(Instant::now() + limit);
        let is_too_early = client.is_refused() && !server.has_ended();
        let patience = if client.succeeded() { patience } else { GRACE };
        Self { server: server.end_by(Instant::now() + patience), client, is_too_early }
    }

    /// Both reports.
    pub fn report(&self) -> String {
        format!("{}{}", self.client.report(), self.server.report())
    }

    /// Whether somebody else took the processor where it mattered, which says nothing about us.
    fn is_spoiled(&self) -> bool {
        self.is_too_early || self.server.is_disturbed() || self.client.is_disturbed()
    }
}

/// Runs a server and its client, again while they are spoiled; `None` where `start` gives none. The
/// client has `limit`, and the server `patience` after it.
pub fn connected(
    mut start: impl FnMut() -> Option<[Program; 2]>,
    limit: Duration,
    patience: Duration,
) -> Option<Connected> {
    let once = || Some(Connected::of(start()?, limit, patience));
    again_while(SPOILED, once, |ends| ends.as_ref().is_some_and(Connected::is_spoiled))
}

/// An installed program; `None` when there is none of this name.
pub fn find(name: &str) -> Option<PathBuf> {
    PROGRAM_DIRS.iter().map(|dir| Path::new(dir).join(name)).find(|path| path.is_file())
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

/// Builds a package and answers where its file with this ending is.
fn built(package: &str, ending: &str) -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--package", package, "--message-format", "json"])
        .args(["--profile", &profile()])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8_lossy(&output.stdout);
    // Of the messages in JSON only this one file name matters, and it has no escapes in it.
    let file = messages.split('"').rfind(|word| word.ends_with(ending));
    PathBuf::from(file.expect("cargo names what it built"))
}

/// The profile of the running test: cargo puts tests into `PROFILE/deps`.
fn profile() -> String {
    let exe = std::env::current_exe().expect("the test has a path");
    let dir = exe.parent().filter(|dir| dir.ends_with("deps")).and_then(Path::parent);
    match dir.and_then(Path::file_name).and_then(|name| name.to_str()) {
        None | Some("debug") => "dev".to_owned(),
        Some(name) => name.to_owned(),
    }
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

/// A TCP port that nobody listens on, and that this process has not been given before.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let span = PORTS.end - PORTS.start;
    let offset = (std::process::id() % u32::from(span)) as u16;
    for _ in 0..span {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + (offset.wrapping_add(step)) % span;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() && !listens(port) {
            return port;
        }
    }
    panic!("no TCP port of {PORTS:?} is free");
}

/// Whether somebody listens on a port. Asked of the kernel, because a connection would be taken
/// for the client.
fn listens(port: u16) -> bool {
    listens_in("/proc/net", port)
}

/// The same in the network namespace whose tables lie in a directory.
fn listens_in(tables: &str, port: u16) -> bool {
    // Fields of a line: number, local address:port, remote address:port, state; 0A is LISTEN.
    let local = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|table| {
        std::fs::read_to_string(format!("{tables}/{table}")).unwrap_or_default().lines().any(
            |line| {
                let fields: Vec<&str> = line.split_whitespace().take(4).collect();
                matches!(fields[..], [_, at, _, "0A"] if at.ends_with(&local))
            },
        )
    })
}

/// A running program with our library in front, whose output goes to files of no name: a program
/// that says much never waits for us to read.
pub struct Program {
    child: Child,
    line: String,
    stdout: File,
    stderr: File,
}

/// What a program left behind.
#[derive(Debug)]
pub struct Ended {
    /// How it was called.
    pub line: String,
    /// How it ended; `None` when its time was over and it was killed.
    pub status: Option<ExitStatus>,
    /// What it printed.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
}

impl Ended {
    /// Whether it ended by itself with status 0.
    pub fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Whether it could not measure its processor's clock, as of [`are_disturbed`].
    pub fn is_disturbed(&self) -> bool {
        are_disturbed(&self.stderr)
    }

    /// Whether nobody listened where it asked for a connection, as of [`are_refused`].
    pub fn is_refused(&self) -> bool {
        are_refused(&format!("{}{}", self.stdout, self.stderr))
    }

    /// Everything about it, for whoever has to find out what went wrong.
    pub fn report(&self) -> String {
        let mut text = String::new();
        let end = match self.status {
            Some(status) => status.to_string(),
            None => "did not end in time, and was killed".to_owned(),
        };
        let _ = writeln!(text, "$ {}\n  {end}", self.line);
        for (name, stream) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            for line in stream.lines().filter(|line| !line.trim().is_empty()) {
                let _ = writeln!(text, "  {name}: {line}");
            }
        }
        text
    }
}

impl Program {
    /// Starts a program on our library. `variables` are added to its environment.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(path: &Path, arguments: &[String], variables: &[(String, String)]) -> Program {
        let (stdout, stderr) = (nameless_file(), nameless_file());
        let file = |file: &File| Stdio::from(file.try_clone().expect("a second descriptor"));
        let mut command = Command::new(path);
        command
            .args(arguments)
            .env("LD_LIBRARY_PATH", library_dir())
            .env("LD_BIND_NOW", "1")
            .env("LC_ALL", "C")
            .env("RDMALAB_DEBUG", "1")
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(file(&stdout))
            .stderr(file(&stderr));
        let mut line = String::new();
        for (name, value) in variables {
            let _ = write!(line, "{name}={value} ");
        }
        let _ = write!(line, "{} {}", path.display(), arguments.join(" "));
        let child = command.spawn().unwrap_or_else(|error| panic!("{line}: {error}"));
        Program { child, line, stdout, stderr }
    }

    /// Waits until it listens on `port`, or has ended. Returns whether it listens.
    pub fn wait_until_it_listens(&mut self, port: u16) -> bool {
        let until = Instant::now() + LISTEN_LIMIT;
        // It may have been put into another network namespace.
        let tables = format!("/proc/{}/net", self.child.id());
        while Instant::now() < until {
            if listens_in(&tables, port) {
                return true;
            }
            if self.has_ended() {
                return false;
            }
            sleep(LOOK);
        }
        false
    }

    /// Waits until it, or another program of its host, is bound to a port of the connection
    /// manager, or it has ended.
    pub fn wait_until_it_is_bound(&mut self, port: u16) {
        let until = Instant::now() + LISTEN_LIMIT;
        let ending = format!("{port:04x}");
        let table = format!("/proc/{}/net/unix", self.child.id());
        let is_bound = |line: &str| {
            line.split_once("@rdmalab-cm/").is_some_and(|(_, name)| {
                name.split_once("/s/").is_some_and(|(_, service)| service.ends_with(&ending))
            })
        };
        while Instant::now() < until && !self.has_ended() {
            let sockets = std::fs::read_to_string(&table).unwrap_or_default();
            if sockets.lines().any(is_bound) {
                return;
            }
            sleep(LOOK);
        }
    }

    /// What it has printed so far.
    pub fn said(&self) -> String {
        let length = self.stdout.metadata().map_or(0, |file| file.len() as usize);
        let mut bytes = vec![0; length];
        self.stdout.read_exact_at(&mut bytes, 0).expect("a regular file");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for it to end until `until`, then kills it.
    pub fn end_by(mut self, until: Instant) -> Ended {
        while !self.has_ended() && Instant::now() < until {
            sleep(LOOK);
        }
        let status = self.child.try_wait().ok().flatten();
        self.kill();
        Ended {
            line: std::mem::take(&mut self.line),
            status,
            stdout: content(&mut self.stdout),
            stderr: content(&mut self.stderr),
        }
    }

    fn kill(&mut self) {
        // Both do nothing for a process that was waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A file that goes away with its last descriptor.
fn nameless_file() -> File {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("rdmalab-{}-{number}", std::process::id()));
    let file = File::options()
        .read(true)
        .append(true)
        .create_new(true)
        .open(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    std::fs::remove_file(&path).expect("the file that was just made");
    file
}

fn content(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("a regular file");
    String::from_utf8_lossy(&bytes).into_owned()
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

    #[test]
    fn a_program_that_hangs_is_killed_and_its_words_are_kept() {
        let Some(shell) = find("sh") else { return skipped("programs", "no shell") };
        let port = free_port();
        assert_ne!(port, free_port());
        assert!(!listens(port));
        // No library is needed here, and none is to be built.
        let start = |script: &str| {
            let child = Command::new(&shell)
                .args(["-c", script])
                .stdout(Stdio::null())
                .spawn()
                .expect("a shell");
            Program { child, line: script.into(), stdout: nameless_file(), stderr: nameless_file() }
        };
        let ended = start("exec sleep 1000").end_by(Instant::now());
        assert!(ended.status.is_none() && !ended.succeeded());
        assert!(ended.report().contains("did not end in time"), "{}", ended.report());
        let ended = start("exit 3").end_by(Instant::now() + LISTEN_LIMIT);
        assert_eq!(ended.status.and_then(|status| status.code()), Some(3));
        let _here = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
        assert!(listens(port));
    }
}
