//! The rendezvous of ranks that ssh, mpirun or srun started: the launcher listens at an address,
//! and each rank connects to it.

use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;

use super::control::lock;
use super::handshake::{Claim, ConnectedWorker, Hello};
use super::remote;
use super::stream::Stream;

/// How long a new connection may take to send its hello. A rank calibrates its clock first.
const HELLO: Duration = Duration::from_secs(10);
/// The most connections without a hello.
const PENDING_MAX: usize = 64;
/// Write time-out of our hello.
const UNREAD: Duration = Duration::from_secs(2);
/// Interval of checks whether all ranks are there.
const TICK: Duration = Duration::from_millis(50);
/// Interval of connection attempts while the launcher does not listen yet.
const AGAIN: Duration = Duration::from_millis(100);
/// The longest name of an abstract socket, in bytes: what `sockaddr_un` holds.
const NAME_MAX: usize = 107;

/// Where a rank finds its launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RendezvousAddress {
    /// At the first of these (`HOST:PORT`) that answers.
    Tcp(Vec<String>),
    /// On this host, in this network namespace: an abstract socket of this name.
    Here(String),
}

/// A launcher's listening socket for ranks.
#[derive(Debug)]
pub struct RendezvousListener {
    listener: Listener,
    token: String,
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Here(UnixListener),
}

/// For each rank that is still missing, the channel for the worker that connects as that rank.
pub(super) type OpenRanks = Mutex<Vec<Option<SyncSender<ConnectedWorker>>>>;

impl RendezvousListener {
    /// Listens at every address of this machine. Port 0 means any free port. Only ranks with the
    /// token are accepted.
    ///
    /// # Errors
    /// A sentence: the port is taken.
    pub fn tcp(port: u16, token: &str) -> io::Result<Self> {
        // Takes IPv4 too, unless the kernel has no IPv6.
        let listener = TcpListener::bind(("::", port));
        let listener = listener.or_else(|_| TcpListener::bind(("0.0.0.0", port))).map_err(|e| {
            let what = format!("cannot listen at port {port} for the other ranks: {e}");
            io::Error::new(e.kind(), what)
        })?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener: Listener::Tcp(listener), token: token.to_owned() })
    }

    /// Listens on this host only, under a name. Only processes of the same user are accepted.
    ///
    /// # Errors
    /// A sentence: somebody has the name already.
    pub fn here(name: &str) -> io::Result<Self> {
        let listener = UnixListener::bind_addr(&named(name)?).map_err(|e| {
            let what = format!("cannot wait for the other ranks as {name:?}: {e}");
            io::Error::new(e.kind(), what)
        })?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener: Listener::Here(listener), token: String::new() })
    }

    /// The TCP port, where it has one.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        match &self.listener {
            Listener::Tcp(listener) => listener.local_addr().ok().map(|address| address.port()),
            Listener::Here(_) => None,
        }
    }

    /// Accepts ranks until it is over. Adds a line to `notes` for each connection that is refused.
    pub(super) fn accept_ranks(
        &self,
        open_ranks: &OpenRanks,
        notes: &Mutex<Vec<String>>,
        is_over: &AtomicBool,
    ) {
        let pending = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            while !is_over.load(Ordering::Relaxed) {
                let has_room = pending.load(Ordering::Relaxed) < PENDING_MAX;
                let Some((stream, who)) = has_room.then(|| self.accept()).flatten() else {
                    self.wait();
                    continue;
                };
                pending.fetch_add(1, Ordering::Relaxed);
                let pending = &pending;
                let body = move || {
                    if let Err(why) = self.receive(stream, open_ranks) {
                        note(notes, format!("{who} {why}"));
                    }
                    pending.fetch_sub(1, Ordering::Relaxed);
                };
                let thread = std::thread::Builder::new().name("rendezvous".to_owned());
                if let Err(error) = thread.spawn_scoped(scope, body) {
                    note(notes, format!("cannot start a thread for a connecting rank: {error}"));
                    return;
                }
            }
        });
    }

    fn wait(&self) {
        let fd = match &self.listener {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Here(listener) => listener.as_fd(),
        };
        let tick = Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as i64 };
        // After an interruption by a signal, the caller only looks once more.
        let _ = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&tick));
    }

    /// The next connection, and its source in words.
    fn accept(&self) -> Option<(Stream, String)> {
        match &self.listener {
            Listener::Tcp(listener) => {
                let (tcp, from) = listener.accept().ok()?;
                Some((Stream::tcp(tcp).ok()?, from.ip().to_canonical().to_string()))
            }
            Listener::Here(listener) => {
                let (stream, _) = listener.accept().ok()?;
                is_ours(&stream).ok()?;
                Some((Stream::Local(stream), "a process of this host".to_owned()))
            }
        }
    }

    /// Does the handshake and hands the worker over to the thread that waits for its rank.
    fn receive(&self, mut stream: Stream, open_ranks: &OpenRanks) -> Result<(), String> {
        let said = |e: io::Error| e.to_string();
        stream.set_write_limit(UNREAD).map_err(said)?;
        let mut ours = Hello::ours(None);
        let hello = Hello::read(&mut stream, HELLO).map_err(|error| {
            if error.kind() == ErrorKind::Unsupported {
                // Answer, so that both ends can name both versions. An error means that the peer is
                // gone.
                let _ = ours.write(&mut stream);
            }
            error.to_string()
        })?;
        match self.admit(hello.claim.as_ref(), open_ranks) {
            Ok(open_rank) => {
                ours.write(&mut stream).map_err(said)?;
                // No thread waits any more if the group has failed meanwhile.
                let _ = open_rank.try_send(ConnectedWorker { stream, child: None, hello });
                Ok(())
            }
            Err(why) => {
                ours.refusal = Some(why.clone());
                let _ = ours.write(&mut stream);
                Err(format!("was rejected: {why}"))
            }
        }
    }

    fn admit(
        &self,
        claim: Option<&Claim>,
        open_ranks: &OpenRanks,
    ) -> Result<SyncSender<ConnectedWorker>, String> {
        let claim = claim.ok_or("it did not give its rank")?;
        if !is_same(claim.token.as_bytes(), self.token.as_bytes()) {
            return Err("its token is not that of this run".to_owned());
        }
        let mut open_ranks = open_ranks.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open_ranks.len();
        let open_rank = open_ranks.get_mut(claim.rank).and_then(Option::take);
        open_rank.ok_or_else(|| {
            let rank = claim.rank;
            format!(
                "rank {rank} of {count} is already connected or does not exist: was it started \
                 twice?"
            )
        })
    }
}

/// Keeps some lines only: a port scanner may connect often.
fn note(notes: &Mutex<Vec<String>>, line: String) {
    const NOTES_MAX: usize = 4;
    let mut notes = lock(notes);
    if notes.len() < NOTES_MAX && !notes.contains(&line) {
        notes.push(line);
    }
}

/// Compares two secrets in constant time.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

fn named(name: &str) -> io::Result<SocketAddr> {
    let name = &name.as_bytes()[..name.len().min(NAME_MAX)];
    SocketAddr::from_abstract_name(name)
}

/// Any user of this host may bind an abstract name or connect to it. Accepts our own user only.
fn is_ours(stream: &UnixStream) -> Result<(), String> {
    let other = socket_peercred(stream).map_err(|e| e.to_string())?.uid;
    match other == rustix::process::geteuid() {
        true => Ok(()),
        false => Err(format!("user {} already uses this name", other.as_raw())),
    }
}

/// Connects to the launcher, which may start later.
///
/// # Errors
/// A sentence with what to do, if the launcher does not answer within the limit.
pub fn join(rendezvous: &RendezvousAddress, limit: Duration) -> Result<Stream, String> {
    let until = Instant::now() + limit;
    loop {
        let why = match attempt(rendezvous) {
            Ok(stream) => return Ok(stream),
            Err(why) => why,
        };
        if Instant::now() + AGAIN >= until {
            let s = limit.as_secs();
            return Err(format!("found no launcher within {s} s: {why}; {}", advice(rendezvous)));
        }
        std::thread::sleep(AGAIN);
    }
}

fn advice(rendezvous: &RendezvousAddress) -> &'static str {
    match rendezvous {
        RendezvousAddress::Here(_) => {
            "is rank 0 on this host, in the same network namespace? If not, give its address with \
             --rendezvous HOST:PORT"
        }
        RendezvousAddress::Tcp(_) => {
            "with --rendezvous HOST:PORT name an address of the launcher that this host can \
             reach, and a port that no firewall blocks"
        }
    }
}

fn attempt(rendezvous: &RendezvousAddress) -> Result<Stream, String> {
    match rendezvous {
        RendezvousAddress::Here(name) => {
            let stream = named(name).and_then(|name| UnixStream::connect_addr(&name));
            let stream = stream.map_err(|e| format!("{name:?}: {e}"))?;
            is_ours(&stream).map(|()| Stream::Local(stream))
        }
        RendezvousAddress::Tcp(addresses) => {
            let mut all = Vec::new();
            for address in addresses {
                match connect(address) {
                    Ok(stream) => return Ok(stream),
                    Err(why) => all.push(why),
                }
            }
            Err(all.join(", "))
        }
    }
}

fn connect(address: &str) -> Result<Stream, String> {
    let mut last = format!("{address} does not resolve to an address");
    for to in remote::addresses(address)? {
        match TcpStream::connect_timeout(&to, remote::CONNECT).and_then(Stream::tcp) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = format!("{to}: {error}"),
        }
    }
    Err(last)
}

/// A random token: 32 hexadecimal digits.
///
/// # Errors
/// When the kernel gives no random bytes.
pub fn new_token() -> io::Result<String> {
    let mut bytes = [0; 16];
    io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_are_compared_whole() {
        let (a, b) = (new_token().unwrap(), new_token().unwrap());
        assert!(a.len() == 32 && a != b);
        assert!(is_same(a.as_bytes(), a.as_bytes()) && !is_same(a.as_bytes(), b.as_bytes()));
        assert!(!is_same(&a.as_bytes()[..31], a.as_bytes()) && is_same(b"", b""));
    }

    #[test]
    fn each_seat_is_given_once_and_only_to_who_knows_the_token() {
        let listener = RendezvousListener::tcp(0, "secret").unwrap();
        let (sender, _met) = std::sync::mpsc::sync_channel(1);
        let open_ranks = Mutex::new(vec![None, Some(sender)]);
        let open_rank = |rank, token: &str| {
            listener.admit(Some(&Claim { rank, token: token.to_owned() }), &open_ranks).map(drop)
        };
        assert!(open_rank(1, "secreT").unwrap_err().contains("token"));
        assert!(open_rank(0, "secret").unwrap_err().contains("rank 0"));
        assert!(open_rank(2, "secret").unwrap_err().contains("of 2"));
        assert_eq!(open_rank(1, "secret"), Ok(()));
        assert!(open_rank(1, "secret").unwrap_err().contains("twice"));
        assert!(listener.admit(None, &open_ranks).is_err());
    }

    #[test]
    fn who_finds_nobody_says_what_to_do() {
        let name = format!("rdmalab-test-nobody-{}", std::process::id());
        let why = join(&RendezvousAddress::Here(name), Duration::ZERO).unwrap_err();
        assert!(why.contains("--rendezvous"), "{why}");
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let nowhere =
            RendezvousAddress::Tcp(vec!["no.such.host.invalid:7".into(), free.to_string()]);
        let why = join(&nowhere, Duration::ZERO).unwrap_err();
        assert!(why.contains("cannot resolve") && why.contains(&free.to_string()), "{why}");
    }
}
