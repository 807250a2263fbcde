//! Programs that run beside a test. Each wait has a limit, and a process is killed, by its own id,
//! when the test drops it.

use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::ports::listens;
use crate::wait_limit::WaitLimit;

/// How long one wait may take, on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(120);
/// Time between two looks at a process or a port.
const LOOK: Duration = Duration::from_millis(5);
/// The same where a look may cost more, such as one at all processes.
const LONG_LOOK: Duration = Duration::from_millis(20);

/// A running process. Its output goes to unnamed files, so that it never blocks because the test
/// does not read.
pub struct Process {
    /// The process itself.
    pub child: Child,
    line: String,
    stdout: File,
    stderr: File,
}

/// What a process left behind.
#[derive(Debug)]
pub struct Ended {
    /// How it was called.
    pub line: String,
    /// How it ended; `None` when its time was over and it was killed.
    pub status: Option<ExitStatus>,
    /// Its exit code; `None` after a signal.
    pub code: Option<i32>,
    /// All of its standard output.
    pub stdout: String,
    /// All of its standard error.
    pub stderr: String,
}

impl Ended {
    /// Runs a command to its end, without a limit.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn of(command: &mut Command) -> Self {
        let line = line_of(command);
        let output = command.stdin(Stdio::null()).output();
        let output = output.unwrap_or_else(|error| panic!("{line}: {error}"));
        Self::new(line, Some(output.status), text(&output.stdout), text(&output.stderr))
    }

    fn new(line: String, status: Option<ExitStatus>, stdout: String, stderr: String) -> Self {
        let code = status.and_then(|status| status.code());
        Self { line, status, code, stdout, stderr }
    }

    /// Whether it ended by itself with status 0.
    pub fn succeeded(&self) -> bool {
        self.code == Some(0)
    }

    /// Everything about it, for the message of a failure.
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

impl Process {
    /// Starts a command, without standard input.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Self {
        Self::spawn(command.stdin(Stdio::null()))
    }

    /// Starts a command whose standard input is a pipe, `child.stdin`.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start_with_input(command: &mut Command) -> Self {
        Self::spawn(command.stdin(Stdio::piped()))
    }

    fn spawn(command: &mut Command) -> Self {
        let (stdout, stderr) = (nameless_file(), nameless_file());
        let file = |file: &File| Stdio::from(file.try_clone().expect("a second descriptor"));
        let line = line_of(command);
        command.stdout(file(&stdout)).stderr(file(&stderr));
        let child = command.spawn().unwrap_or_else(|error| panic!("{line}: {error}"));
        Self { child, line, stdout, stderr }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Its standard output so far.
    pub fn said(&self) -> String {
        content(&self.stdout)
    }

    /// Its standard error so far.
    pub fn complained(&self) -> String {
        content(&self.stderr)
    }

    /// Looks until there is something.
    ///
    /// # Panics
    /// When there is nothing within [`LIMIT`].
    pub fn within<T>(&mut self, what: &str, mut look: impl FnMut(&mut Child) -> Option<T>) -> T {
        let mut wait_limit = WaitLimit::of(LIMIT);
        loop {
            if let Some(found) = look(&mut self.child) {
                return found;
            }
            let (stdout, stderr) = (&self.stdout, &self.stderr);
            let words = || format!("{}{}", content(stdout), content(stderr));
            assert!(wait_limit.is_left(), "waited in vain for {what}: {}", words());
            sleep(LONG_LOOK);
        }
    }

    /// Looks until there is something because of it.
    ///
    /// # Panics
    /// When it ends before, or within [`LIMIT`] there is nothing.
    pub fn brings<T>(&mut self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let found = self.within(what, |child| {
            // In this order, since the process may cause the event and then end.
            let ended = child.try_wait().expect("our own child");
            look().map(Ok).or(ended.map(Err))
        });
        found.unwrap_or_else(|status| {
            panic!("no {what}: {status}: {}{}", self.said(), content(&self.stderr))
        })
    }

    /// Waits until these words are in its standard error.
    ///
    /// # Panics
    /// When it ends before, or they do not come within [`LIMIT`].
    pub fn warns(&mut self, words: &str) {
        let stderr = self.stderr.try_clone().expect("a second descriptor");
        self.brings(words, || content(&stderr).contains(words).then_some(()));
    }

    /// Waits until it, or a process that it starts, listens on a TCP port.
    ///
    /// # Panics
    /// As [`Process::brings`].
    pub fn listens_on(&mut self, port: u16) {
        let id = self.id();
        let what = format!("listener on port {port}");
        self.brings(&what, || listens(id, port).then_some(()));
    }

    /// As [`Process::listens_on`], but returns whether it listens.
    pub fn wait_until_it_listens(&mut self, port: u16) -> bool {
        let mut wait_limit = WaitLimit::of(LIMIT);
        while wait_limit.is_left() {
            if listens(self.id(), port) {
                return true;
            }
            if self.has_ended() {
                return false;
            }
            sleep(LOOK);
        }
        false
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it does not end within [`LIMIT`].
    pub fn end(mut self) -> Ended {
        self.within("the end", |child| child.try_wait().expect("our own child"));
        self.end_by(Instant::now())
    }

    /// Waits for its end until then, and kills it.
    pub fn end_by(mut self, until: impl Into<WaitLimit>) -> Ended {
        let mut wait_limit = until.into();
        while !self.has_ended() && wait_limit.is_left() {
            sleep(LOOK);
        }
        let status = self.child.try_wait().ok().flatten();
        self.kill();
        let line = std::mem::take(&mut self.line);
        Ended::new(line, status, content(&self.stdout), content(&self.stderr))
    }

    /// Kills it at once and reaps it; nothing if it was reaped already.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How a command is called: what it changes in the environment, the program and its arguments.
fn line_of(command: &Command) -> String {
    let mut line = String::new();
    for (name, value) in command.get_envs() {
        let value = value.unwrap_or_default();
        let _ = write!(line, "{}={} ", name.to_string_lossy(), value.to_string_lossy());
    }
    let _ = write!(line, "{}", command.get_program().to_string_lossy());
    for argument in command.get_args() {
        let _ = write!(line, " {}", argument.to_string_lossy());
    }
    line
}

/// A file that is deleted when its last descriptor is closed.
fn nameless_file() -> File {
    static COUNT: AtomicU32 = AtomicU32::new(0);
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

fn content(file: &File) -> String {
    let length = file.metadata().map_or(0, |file| file.len() as usize);
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0).expect("a regular file");
    text(&bytes)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::free_port;

    fn shell(script: &str) -> Process {
        Process::start(Command::new("/bin/sh").args(["-c", script]))
    }

    #[test]
    fn a_process_that_hangs_is_killed_and_its_output_is_kept() {
        let hangs = shell("echo first; echo second >&2; exec sleep 1000");
        let (stdout, stderr) = (&hangs.stdout, &hangs.stderr);
        let printed = || !content(stdout).is_empty() && !content(stderr).is_empty();
        let has_printed = WaitLimit::of(LIMIT).until(|| printed().then_some(()));
        assert!(has_printed.is_some(), "it printed nothing");
        let ended = hangs.end_by(Instant::now());
        assert!(ended.status.is_none() && !ended.succeeded());
        assert_eq!([&ended.stdout[..], &ended.stderr], ["first\n", "second\n"]);
        let report = ended.report();
        assert!(report.contains("did not end in time") && report.contains("stderr: second"));
        assert_eq!(shell("exit 3").end().code, Some(3));
        assert_eq!(Ended::of(Command::new("/bin/sh").args(["-c", "exit 4"])).code, Some(4));
    }

    #[test]
    fn a_process_ends_with_the_test_that_started_it() {
        let process = shell("exec sleep 1000");
        let directory = format!("/proc/{}", process.id());
        assert!(std::fs::exists(&directory).unwrap());
        drop(process);
        assert!(!std::fs::exists(&directory).unwrap());
    }

    #[test]
    fn a_server_that_ends_is_not_waited_for() {
        let mut server = shell("echo the port is taken >&2; exit 3");
        let waited = catch_unwind(AssertUnwindSafe(|| server.listens_on(free_port())));
        let said = waited.expect_err("nobody listens");
        let said = said.downcast_ref::<String>().expect("a sentence");
        assert!(said.contains("exit status: 3") && said.contains("the port is taken"), "{said}");
    }
}
