//! Tests with real processes: a test starts children with named roles. Sockets link the children to
//! each other and to the test. Each child has a time limit, and is killed when the test drops its
//! [`Processes`] or ends.
#![allow(dead_code)]

pub mod net;
pub mod node;
pub mod storm;

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdmalab_testing::WaitLimit;

/// The environment variable for a child's role.
const ROLE: &str = "RDMALAB_TEST_ROLE";
/// The variable for its numbers, separated by commas.
const ARGS: &str = "RDMALAB_TEST_ARGS";
/// The variable for its links: `WHO:DESCRIPTOR`, with commas; WHO is an index, or `p` for the test.
const LINKS: &str = "RDMALAB_TEST_LINKS";
/// A child that takes longer counts as hung. This happens only if something is broken.
pub const WATCHDOG: Duration = Duration::from_secs(100);
/// A wait that takes longer counts as hung.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The exit code of a child whose time is over.
const HUNG: i32 = 86;

/// A connection to another process or thread of the test, which carries numbers.
pub struct Link(UnixStream);

impl Link {
    /// The two ends of a link.
    pub fn pair() -> (Link, Link) {
        let (a, b) = UnixStream::pair().expect("a pair of sockets");
        (Link(a), Link(b))
    }

    /// Sends numbers.
    pub fn put(&self, words: &[u64]) {
        let mut bytes = (words.len() as u64).to_le_bytes().to_vec();
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        (&self.0).write_all(&bytes).expect("the other end of the link reads");
    }

    /// Receives the numbers of one `put`; `None` if the other end is closed.
    pub fn try_get(&self) -> Option<Vec<u64>> {
        if !node::becomes_readable(self.0.as_raw_fd()) {
            return None;
        }
        // They were written at once.
        let mut word = [0; 8];
        (&self.0).read_exact(&mut word).ok()?;
        let mut words = Vec::new();
        for _ in 0..u64::from_le_bytes(word) {
            (&self.0).read_exact(&mut word).ok()?;
            words.push(u64::from_le_bytes(word));
        }
        Some(words)
    }

    /// As [`Link::try_get`], but panics if the other end is closed.
    pub fn get(&self) -> Vec<u64> {
        self.try_get().expect("the other end of the link answers")
    }

    /// Returns when both ends have called it.
    pub fn sync(&self) {
        self.put(&[u64::MAX]);
        assert_eq!(self.get(), [u64::MAX], "both ends sync");
    }

    /// Waits up to `timeout_ms` for a message; returns whether one arrived.
    pub fn ready(&self, timeout_ms: i32) -> bool {
        node::readable(self.0.as_raw_fd(), timeout_ms)
    }
}

/// The data of a child: its index, its numbers, and its links to the others.
pub struct Topology {
    /// Its index.
    pub index: usize,
    /// The numbers that the test gave it.
    pub args: Vec<u64>,
    /// The link to the test.
    pub parent: Link,
    links: Vec<(usize, Option<Link>)>,
}

impl Topology {
    /// Takes the next link to child `index`.
    pub fn link(&mut self, index: usize) -> Link {
        let found = self.links.iter_mut().find(|(who, link)| *who == index && link.is_some());
        found.and_then(|(_, link)| link.take()).expect("a link to that child")
    }
}

/// The function of a role.
pub type Role = fn(Topology);

/// Runs the role of a child; each test file calls it in one test. In the test run itself no role is
/// set, and this only checks that no name occurs twice.
pub fn play(roles: &[(&str, Role)]) {
    let Ok(name) = std::env::var(ROLE) else {
        for (at, (name, _)) in roles.iter().enumerate() {
            assert!(roles[..at].iter().all(|(other, _)| other != name), "two roles {name}");
        }
        return;
    };
    let (_, role) = roles.iter().find(|(known, _)| *known == name).expect("a role of this file");
    let words = std::env::var(ARGS).unwrap_or_default();
    let args = words.split(',').filter_map(|word| word.parse().ok()).collect();
    let (mut parent, mut index, mut links) = (None, 0, Vec::new());
    for entry in std::env::var(LINKS).expect("links").split(',') {
        let (who, fd) = entry.split_once(':').expect("WHO:DESCRIPTOR");
        let link = adopt(fd.parse().expect("a descriptor"));
        match who.split_once('p') {
            Some((_, own)) => (parent, index) = (Some(link), own.parse().expect("a number")),
            None => links.push((who.parse().expect("a number"), Some(link))),
        }
    }
    end_if_hung(format!("{name} {index}"));
    role(Topology { index, args, parent: parent.expect("a link to the test"), links });
    std::process::exit(0);
}

/// Ends this process when it takes too long.
pub fn end_if_hung(title: String) {
    std::thread::spawn(move || {
        WaitLimit::of(WATCHDOG).sleep_out();
        eprintln!("{title}: hangs");
        if std::env::var_os("RDMALAB_TEST_GDB").is_some() {
            std::thread::sleep(Duration::from_secs(1000));
        }
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(HUNG) };
    });
}

fn adopt(fd: RawFd) -> Link {
    // SAFETY: the test gave us this descriptor, and the list of links names it once.
    let stream = unsafe { UnixStream::from_raw_fd(fd) };
    // SAFETY: a system call on a descriptor of ours.
    unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    Link(stream)
}

/// One group of processes at a time: roles spin, and the machine may have only two processors.
static ALONE: Mutex<()> = Mutex::new(());

/// Children that run together.
pub struct Processes {
    children: Vec<(String, Child)>,
    parents: Vec<Link>,
    done: Vec<bool>,
    _alone: MutexGuard<'static, ()>,
}

/// The children to start.
pub struct Plan<'a> {
    /// Role and numbers of each child.
    pub roles: &'a [(&'a str, &'a [u64])],
    /// How many links connect each pair of children.
    pub links: usize,
    /// Environment variables.
    pub env: &'a [(&'a str, &'a str)],
}

impl Processes {
    /// Starts children with one link for each pair.
    pub fn start(roles: &[(&str, &[u64])]) -> Processes {
        Processes::start_plan(&Plan { roles, links: 1, env: &[] })
    }

    /// Starts children.
    pub fn start_plan(plan: &Plan<'_>) -> Processes {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let count = plan.roles.len();
        let mut ends: Vec<Vec<(String, Link)>> = (0..count).map(|_| Vec::new()).collect();
        let mut parents = Vec::new();
        for child in 0..count {
            let (ours, theirs) = Link::pair();
            parents.push(ours);
            ends[child].push((format!("p{child}"), theirs));
            for other in 0..child {
                for _ in 0..plan.links {
                    let (a, b) = Link::pair();
                    ends[child].push((other.to_string(), a));
                    ends[other].push((child.to_string(), b));
                }
            }
        }
        let roles = plan.roles.iter().zip(&ends);
        let children = roles.map(|((name, args), ends)| spawn(name, args, ends, plan.env));
        let children = children.collect();
        Processes { children, parents, done: vec![false; count], _alone: alone }
    }

    /// The link to child `index`.
    pub fn link(&self, index: usize) -> &Link {
        &self.parents[index]
    }

    /// The process id of child `index`.
    pub fn pid(&self, index: usize) -> i32 {
        self.children[index].1.id() as i32
    }

    /// Sends child `index` a signal.
    pub fn signal(&self, index: usize, signal: i32) {
        // SAFETY: our own child, which is not reaped yet.
        assert_eq!(unsafe { libc::kill(self.pid(index), signal) }, 0);
    }

    /// Kills child `index` at once and reaps it.
    pub fn kill(&mut self, index: usize) {
        self.signal(index, libc::SIGKILL);
        let status = self.children[index].1.wait().expect("our child");
        assert_eq!(status.signal(), Some(libc::SIGKILL), "{} ended before", index);
        self.done[index] = true;
    }

    /// Waits for the end of child `index`, which must succeed.
    pub fn expect_end(&mut self, index: usize) {
        let status = self.wait(index);
        let name = &self.children[index].0;
        let hung = if status.code() == Some(HUNG) { " (hung)" } else { "" };
        assert!(status.success(), "{name} {index} failed: {status}{hung}");
    }

    /// Waits for the end of child `index`.
    pub fn wait(&mut self, index: usize) -> ExitStatus {
        let mut wait_limit = WaitLimit::of(WATCHDOG + Duration::from_secs(5));
        loop {
            let status = self.children[index].1.try_wait().expect("our child");
            if let Some(status) = status {
                self.done[index] = true;
                return status;
            }
            assert!(wait_limit.is_left(), "{} {index} does not end", self.children[index].0);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for the end of all children; each must succeed.
    pub fn finish(mut self) {
        for index in 0..self.children.len() {
            if !self.done[index] {
                self.expect_end(index);
            }
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for (index, (_, child)) in self.children.iter_mut().enumerate() {
            if !self.done[index] {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

fn spawn(
    name: &str,
    args: &[u64],
    ends: &[(String, Link)],
    env: &[(&str, &str)],
) -> (String, Child) {
    let fds: Vec<RawFd> = ends.iter().map(|(_, link)| link.0.as_raw_fd()).collect();
    let links: Vec<String> =
        ends.iter().map(|(who, link)| format!("{who}:{}", link.0.as_raw_fd())).collect();
    let args: Vec<String> = args.iter().map(u64::to_string).collect();
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["child_process_entry", "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, name)
        .env(ARGS, args.join(","))
        .env(LINKS, links.join(","))
        .env("RUST_BACKTRACE", "0")
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        command.pre_exec(move || {
            for fd in &fds {
                libc::fcntl(*fd, libc::F_SETFD, 0);
            }
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        })
    };
    (name.to_string(), command.spawn().expect("a child"))
}

/// Waits until `condition` holds; it may do work each time it is called.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let mut wait_limit = WaitLimit::of(PATIENCE);
    while !condition() {
        assert!(wait_limit.is_left(), "waited in vain: {what}");
    }
}

/// The number of this process's mappings that have `name` in their line.
pub fn mappings(name: &str) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("own mappings");
    maps.lines().filter(|line| line.contains(name)).count()
}

/// Waits until every thread of a process is stopped.
pub fn until_stopped(pid: i32) {
    let is_stopped = |task: std::path::PathBuf| {
        let stat = std::fs::read_to_string(task.join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    };
    until("the process is stopped", || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
        tasks.flatten().all(|task| is_stopped(task.path()))
    });
}
