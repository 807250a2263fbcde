//! Workers on other hosts, started by ssh: the command line, and what an exit status means.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::child::status_text;
use super::control::lock;
use super::handshake::printable;

/// Lines of standard error that are kept, to say why it ended.
const LAST_LINES: usize = 5;
/// The longest line of standard error that is passed on, in bytes.
const LINE_BYTES_MAX: u64 = 4096;

/// How to start a worker on another host.
#[derive(Clone, PartialEq, Eq)]
pub struct SshCommand {
    /// The program, `ssh`, and its options.
    pub ssh: Vec<OsString>,
    /// The host, as ssh takes it.
    pub host: String,
    /// Variables of its environment there, each as `NAME=VALUE`.
    pub variables: Vec<String>,
    /// The program there.
    pub program: String,
    /// Its arguments, which make the worker connect to the launcher's rendezvous.
    pub args: Vec<String>,
    /// The secret that the worker has to show: passed through standard input, so that no list of
    /// processes shows it.
    pub token: String,
}

impl std::fmt::Debug for SshCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {} {} {:?}", self.ssh, self.host, self.program, self.args)
    }
}

/// The last lines that it wrote to standard error.
#[derive(Clone, Debug, Default)]
pub struct StderrTail(Arc<Mutex<VecDeque<String>>>);

impl StderrTail {
    fn push(&self, line: String) {
        let mut lines = lock(&self.0);
        if lines.len() == LAST_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// Those, in one line.
    pub fn text(&self) -> String {
        lock(&self.0).iter().cloned().collect::<Vec<_>>().join("; ")
    }
}

impl SshCommand {
    /// Starts ssh. Its standard input stays open for as long as the worker has to live. It is in
    /// its own process group, so that Ctrl-C reaches only the launcher, which tells the workers.
    ///
    /// # Errors
    /// A sentence: there is no ssh.
    pub fn start(&self) -> Result<Child, String> {
        let Some((program, options)) = self.ssh.split_first() else {
            return Err("--ssh is empty: name a program".to_owned());
        };
        let name = program.to_string_lossy();
        let mut command = Command::new(program);
        command.args(options).arg(&self.host).arg(self.line());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.process_group(0).spawn().map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => format!(
                "`{name}` was not found: install OpenSSH's client (Debian: openssh-client), or \
                 name another program with --ssh"
            ),
            _ => format!("cannot start {name}: {e}"),
        })?;
        // If writing fails, the exit status says why.
        let _ = child.stdin.as_mut().map(|stdin| writeln!(stdin, "{}", self.token));
        Ok(child)
    }

    /// What the shell there is given.
    fn line(&self) -> String {
        let mut words = Vec::new();
        if !self.variables.is_empty() {
            words.push("env".to_owned());
            words.extend(self.variables.iter().map(|word| quoted(word)));
        }
        words.extend(std::iter::once(&self.program).chain(&self.args).map(|word| quoted(word)));
        format!("exec {}", words.join(" "))
    }

    /// What the exit status means, and what to do.
    pub fn exit_text(&self, status: ExitStatus, words: &StderrTail) -> String {
        let said = words.text();
        let colon = if said.is_empty() { "" } else { ": " };
        let (host, program) = (&self.host, &self.program);
        let has = |text: &str| said.contains(text);
        match status.code() {
            Some(255) if has("Could not resolve") => {
                format!("ssh does not know the host {host}{colon}{said}")
            }
            Some(255) if has("Host key verification failed") => {
                format!("ssh does not trust {host}{colon}{said}; log in once by hand: ssh {host}")
            }
            Some(255) if has("Permission denied") => format!(
                "ssh could not log in to {host}{colon}{said}; login must work without a password \
                 (keys, ssh-agent): try ssh -o BatchMode=yes {host} true"
            ),
            Some(255) => format!("ssh to {host} failed{colon}{said}"),
            Some(127) => format!(
                "there is no {program} on {host}{colon}{said}; install rdmalab {} there, in a \
                 directory of the PATH that `ssh {host} env` shows, or name its path with \
                 --remote-program",
                super::handshake::VERSION
            ),
            Some(126) => format!(
                "{program} cannot be run on {host}{colon}{said}; install the one for its \
                 architecture"
            ),
            Some(2) if has("unexpected argument") || has("unrecognized subcommand") => format!(
                "{host} has another version of rdmalab{colon}{said}; install {} on both",
                super::handshake::VERSION
            ),
            Some(_) if !said.is_empty() => said,
            _ => format!("its worker on {host} {}", status_text(status)),
        }
    }
}

/// Tells when all that it wrote to standard error has been read.
#[derive(Debug)]
pub struct StderrClosed(Receiver<()>);

impl StderrClosed {
    /// Waits until all is read, but only for `at_most`: a process that ssh left behind may keep its
    /// standard error open.
    pub fn wait(&self, at_most: Duration) {
        // Nothing is sent: the sender is dropped when all is read.
        let _ = self.0.recv_timeout(at_most);
    }
}

/// Passes on the standard error of ssh, line by line, until it is closed.
pub fn forward(
    stderr: ChildStderr,
    words: StderrTail,
    mut on_line: impl FnMut(String) + Send + 'static,
) -> io::Result<StderrClosed> {
    let mut lines = BufReader::new(stderr);
    let (reading, all_read) = sync_channel(0);
    let body = move || {
        let _until_its_end: SyncSender<()> = reading;
        let mut line = Vec::new();
        loop {
            line.clear();
            match lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let text = printable(&String::from_utf8_lossy(&line));
            let text = text.strip_prefix("rdmalab: ").unwrap_or(&text).to_owned();
            if !text.is_empty() {
                words.push(text.clone());
                on_line(text);
            }
        }
    };
    std::thread::Builder::new().name("stderr".to_owned()).spawn(body)?;
    Ok(StderrClosed(all_read))
}

/// A word as a POSIX shell takes it back.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%~".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn command() -> SshCommand {
        SshCommand {
            ssh: vec!["ssh".into()],
            host: "b".into(),
            variables: vec![],
            program: "~/my bin/rdmalab".into(),
            args: vec!["worker".into(), "it's".into(), String::new()],
            token: "secret".into(),
        }
    }

    #[test]
    fn the_shell_there_gets_the_words_back() {
        let line = command().line();
        assert_eq!(line, r"exec '~/my bin/rdmalab' worker 'it'\''s' ''");
        let plain = SshCommand { program: "~/bin/rdmalab".into(), args: vec![], ..command() };
        assert_eq!(plain.line(), "exec ~/bin/rdmalab");
        let variables = vec!["A=b c".to_owned()];
        assert_eq!(
            SshCommand { variables, ..plain.clone() }.line(),
            "exec env 'A=b c' ~/bin/rdmalab"
        );
        assert!(!format!("{plain:?}").contains("secret"));
    }

    #[test]
    fn each_end_of_ssh_says_what_to_do() {
        let of = |code: i32, said: &str| {
            let words = StderrTail::default();
            if !said.is_empty() {
                words.push(said.to_owned());
            }
            command().exit_text(ExitStatus::from_raw(code << 8), &words)
        };
        for (code, said, expected) in [
            (255, "ssh: Could not resolve hostname b: Name or service not known", "not know"),
            (255, "u@b: Permission denied (publickey).", "without a password"),
            (255, "Host key verification failed.", "log in once by hand"),
            (255, "ssh: connect to host b port 22: Connection refused", "Connection refused"),
            (127, "sh: 1: exec: rdmalab: not found", "--remote-program"),
            (126, "sh: 1: exec: rdmalab: Exec format error", "architecture"),
            (2, "error: unexpected argument '--join' found", "another version"),
            (1, "found no launcher within 20 s", "found no launcher"),
            (1, "", "exit status 1"),
        ] {
            let text = of(code, said);
            assert!(text.contains(expected) && text.contains(said), "{code} {said}: {text}");
        }
    }

    /// The last lines are complete even if the reader is slow.
    #[test]
    fn the_last_words_are_waited_for() {
        let mut child = Command::new("sh")
            .args(["-c", "echo one >&2; echo rdmalab: two >&2"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let words = StderrTail::default();
        let slow = |_| std::thread::sleep(Duration::from_millis(200));
        let all_read = forward(child.stderr.take().unwrap(), words.clone(), slow).unwrap();
        child.wait().unwrap();
        all_read.wait(Duration::from_secs(60));
        assert_eq!(words.text(), "one; two");
    }

    #[test]
    fn who_keeps_it_open_is_not_waited_for() {
        let mut command = Command::new("sh");
        command.args(["-c", "exec sleep 600"]).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let words = StderrTail::default();
        let all_read = forward(child.stderr.take().unwrap(), words.clone(), drop).unwrap();
        all_read.wait(Duration::from_millis(1));
        assert_eq!(words.text(), "");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn the_last_lines_are_kept() {
        let words = StderrTail::default();
        (0..9).for_each(|i| words.push(i.to_string()));
        assert_eq!(words.text(), "4; 5; 6; 7; 8");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let command = SshCommand { ssh: vec!["/no/such/ssh".into()], ..command() };
        assert!(command.start().unwrap_err().contains("/no/such/ssh"));
    }
}
