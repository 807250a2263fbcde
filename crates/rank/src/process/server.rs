//! `rdmalab serve`: workers of this machine for launchers on others.
//!
//! A worker does what its client says: it opens devices, and uses memory and processor time.
//! Therefore a server listens on the loopback address only, unless the user names an address.

use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::child::{WorkerCommand, end, status_text};
use super::frame::{self, ToLauncher};
use super::handshake::Hello;
use super::remote::addresses;
use super::stream::Stream;

/// How long a client may take to send its hello.
const HELLO: Duration = Duration::from_secs(5);
/// The most connections without a hello.
const PENDING_MAX: usize = 16;
/// The default limit of sessions at the same time.
pub const SESSIONS_MAX: usize = 16;
/// Interval of checks whether to stop. Long, because measurements run beside it.
const TICK: Duration = Duration::from_millis(250);
/// How long a worker may run on after its client is gone; it should end by itself after 2 s.
const LAST_MOMENT: Duration = Duration::from_secs(4);
/// Write time-out of the message that a worker has died.
const UNREAD: Duration = Duration::from_secs(2);

/// What happens at a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// A client got a worker.
    Began {
        /// The client.
        client: SocketAddr,
        /// Name of the client's host.
        host: String,
        /// The worker.
        pid: u32,
    },
    /// The worker of a client ended.
    Ended {
        /// The client.
        client: SocketAddr,
        /// How the worker failed; `None` if it ended well.
        failure: Option<String>,
    },
    /// A connection was refused.
    Refused {
        /// The client.
        client: SocketAddr,
        /// Why.
        why: String,
    },
}

/// Listens, and gives each client a worker process of its own, which ends with the client.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    worker: WorkerCommand,
    sessions_max: usize,
}

/// The state that all sessions share.
struct House<'a> {
    worker: &'a WorkerCommand,
    sessions_max: usize,
    sessions: AtomicUsize,
    pending: AtomicUsize,
    closing: AtomicBool,
}

/// Counts one more of something for as long as this value lives.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    /// `None` when there are `limit` already.
    fn one(count: &'a AtomicUsize, limit: usize) -> Option<Self> {
        let more = |n| (n < limit).then_some(n + 1);
        count.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok().map(|_| Self(count))
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Server {
    /// Listens at `ADDRESS` or `ADDRESS:PORT`; `None`: for this machine only, at the default port.
    ///
    /// # Errors
    /// A sentence: the address is not this machine's, or taken.
    pub fn bind(
        address: Option<&str>,
        worker: WorkerCommand,
        sessions_max: usize,
    ) -> io::Result<Self> {
        let address = address.unwrap_or("127.0.0.1");
        let all = addresses(address).map_err(|e| io::Error::new(ErrorKind::InvalidInput, e))?;
        let listener = TcpListener::bind(all.as_slice()).map_err(|e| {
            let hint = match e.kind() {
                ErrorKind::AddrInUse => ": another program listens there; name another port",
                ErrorKind::AddrNotAvailable => ": this machine does not have that address",
                _ => "",
            };
            let tried: Vec<String> = all.iter().map(ToString::to_string).collect();
            io::Error::new(e.kind(), format!("cannot listen at {}: {e}{hint}", tried.join(", ")))
        })?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, worker, sessions_max: sessions_max.max(1) })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// Those of `getsockname`.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` becomes true; then ends all workers. No client can end it.
    ///
    /// # Errors
    /// When the listening socket fails.
    pub fn run(&self, stop: &AtomicBool, mut on_event: impl FnMut(ServerEvent)) -> io::Result<()> {
        let house = House {
            worker: &self.worker,
            sessions_max: self.sessions_max,
            sessions: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
        };
        let (events, happened) = channel();
        std::thread::scope(|scope| {
            let result = loop {
                if stop.load(Ordering::Relaxed) {
                    break Ok(());
                }
                happened.try_iter().for_each(&mut on_event);
                match self.accept() {
                    Ok(Some((tcp, client))) => {
                        let (house, to) = (&house, events.clone());
                        let thread = std::thread::Builder::new().name(client.to_string());
                        let body = move || house.receive(tcp, client, &to);
                        if let Err(e) = thread.spawn_scoped(scope, body) {
                            on_event(refused(client, &format!("no thread: {e}")));
                        }
                    }
                    Ok(None) => {}
                    Err(error) => break Err(error),
                }
            };
            house.closing.store(true, Ordering::Relaxed);
            drop(events);
            // Ends when the last session has.
            happened.iter().for_each(&mut on_event);
            result
        })
    }

    /// The next connection, if one comes soon.
    fn accept(&self) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        let mut fds = [PollFd::new(&self.listener, PollFlags::IN)];
        match poll(&mut fds, Some(&timespec(TICK))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        match self.listener.accept() {
            Ok((tcp, client)) => Ok(Some((tcp, client))),
            Err(error) => match error.kind() {
                // No client connected, or it closed the connection at once.
                ErrorKind::WouldBlock | ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {
                    Ok(None)
                }
                _ if is_shortage(&error) => {
                    // File descriptors or memory may become available again soon.
                    std::thread::sleep(TICK);
                    Ok(None)
                }
                _ => Err(error),
            },
        }
    }
}

fn is_shortage(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM].iter().any(|&c| code == Some(c))
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}

fn refused(client: SocketAddr, why: &str) -> ServerEvent {
    ServerEvent::Refused { client, why: why.to_owned() }
}

impl House<'_> {
    /// One connection, from its first byte until its worker has ended.
    fn receive(&self, tcp: TcpStream, client: SocketAddr, events: &Sender<ServerEvent>) {
        // The receiver may be gone; there is no other one.
        let tell = |event| drop(events.send(event));
        let (session, held, mut child) = match self.greet(tcp) {
            Ok((session, held, child, host)) => {
                tell(ServerEvent::Began { client, host, pid: child.id() });
                (session, held, child)
            }
            Err(error) => return tell(refused(client, &error.to_string())),
        };
        let failure = self.watch(&mut child, &held);
        held.shutdown();
        drop(session);
        tell(ServerEvent::Ended { client, failure });
    }

    /// Does the handshake with a client and starts its worker.
    fn greet(&self, tcp: TcpStream) -> io::Result<(Counted<'_>, Stream, Child, String)> {
        let busy = |what: &str, limit| {
            let what = format!("the server's limit of {limit} {what} is reached; try again later");
            io::Error::new(ErrorKind::ConnectionRefused, what)
        };
        let handshaking = Counted::one(&self.pending, PENDING_MAX);
        let handshaking = handshaking.ok_or_else(|| busy("connections in set-up", PENDING_MAX))?;
        let mut stream = Stream::tcp(tcp)?;
        stream.set_write_limit(UNREAD)?;
        let mut ours = Hello::ours(None);
        let theirs = match Hello::read(&mut stream, HELLO) {
            Ok(hello) => hello,
            Err(error) => {
                if error.kind() == ErrorKind::Unsupported {
                    // So that both ends can name both versions.
                    ours.write(&mut stream)?;
                }
                return Err(error);
            }
        };
        drop(handshaking);
        let Some(session) = Counted::one(&self.sessions, self.sessions_max) else {
            let error = busy("simultaneous sessions", self.sessions_max);
            ours.refusal = Some(error.to_string());
            ours.write(&mut stream)?;
            return Err(error);
        };
        ours.write(&mut stream)?;
        let mut held = stream.try_clone()?;
        match self.worker.start(stream.into_fd()) {
            Ok(child) => Ok((session, held, child, theirs.host)),
            Err(error) => {
                ours.refusal = Some(error.to_string());
                ours.write(&mut held)?;
                Err(error)
            }
        }
    }

    /// Waits until the worker has ended, and tells the client if it failed. The worker itself talks
    /// to the client; none of its data passes through the server.
    fn watch(&self, child: &mut Child, mut held: &Stream) -> Option<String> {
        let mut closing = None;
        let status = loop {
            match wait(child, TICK) {
                Ok(Some(status)) => break status,
                Ok(None) => {}
                Err(error) => return Some(format!("cannot determine how it ended: {error}")),
            }
            if self.closing.load(Ordering::Relaxed) && closing.is_none() {
                held.shutdown();
                closing = Some(Instant::now());
            }
            if closing.is_some_and(|began: Instant| began.elapsed() > LAST_MOMENT) {
                end(child, Duration::ZERO);
            }
        };
        if status.success() || closing.is_some() {
            return None;
        }
        let how = status_text(status);
        // The worker had removed the time limit. An error means that the client was gone first.
        let limited = held.set_write_limit(UNREAD);
        if let (Ok(()), Ok(notice)) = (limited, frame::encode(&ToLauncher::Died(how.clone()))) {
            let _ = held.write_all(&notice);
        }
        Some(how)
    }
}

/// Waits at most so long for a process to end, asleep.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    if let Some(status) = child.try_wait()? {
        return Ok(Some(status));
    }
    // Linux 5.3; before it, the time is just slept.
    match pidfd_open(Pid::from_child(child), PidfdFlags::empty()) {
        Ok(pidfd) => {
            let mut fds = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
            // After an interruption by a signal, the caller only looks once more.
            let _ = poll(&mut fds, Some(&timespec(limit)));
        }
        Err(_) => std::thread::sleep(limit),
    }
    child.try_wait()
}
