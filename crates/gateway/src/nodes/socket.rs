//! `socket`: samples over UDP or Unix datagrams, each datagram a message of the format; or over a
//! TCP connection, as a stream.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdmalab_config::{At, ConfigError, group, one_of};
use rdmalab_sample::{Collector, Form, Format, Handle, Pool, Signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::format::FormatChoice;
use crate::keys::{InCommon, NodeCommon, OutCommon, VECTORIZE_MAX, signals_or_default};
use crate::node::{Log, Node, NodeCounts, Sink, Source, State, World, wall_time};

/// The longest datagram.
const DATAGRAM_BYTES: usize = 65_536;
/// Bytes that wait for a TCP peer at most.
const WAITING_BYTES: usize = 1 << 20;
/// Time between two attempts to reach a TCP peer, and how long one may take.
const PAUSE: Duration = Duration::from_millis(200);

one_of! {
    /// What carries the samples.
    pub enum Layer {
        /// UDP.
        Udp = "udp";
        /// A TCP connection from `out.address` to `in.address`.
        Tcp = "tcp";
        /// Datagrams between paths of files.
        Unix = "unix";
    }
}

group! {
    /// The reading half.
    pub struct In with (common: InCommon) {
        /// The address to receive at: `host:port`, `*:port`, or a path.
        address: At<String>;
    }
    refused { multicast: "use an address of one host"; }
}

group! {
    /// The writing half.
    pub struct Out with (common: OutCommon) {
        /// The address to send to.
        address: At<String>;
    }
    refused { multicast: "use an address of one host"; }
}

group! {
    /// Samples over sockets.
    pub struct Config with (common: NodeCommon) {
        /// What carries them.
        layer: Layer = Layer::Udp;
        /// Their form.
        format: FormatChoice = FormatChoice::named("villas.binary");
        /// The reading half.
        r#in: Option<In>;
        /// The writing half.
        out: Option<Out>;
    }
    refused { verify_source: "let a firewall do it"; }
}

/// The node.
struct Socket {
    name: String,
    config: Config,
    signals: Vec<Signal>,
    datagrams: Option<Arc<Datagrams>>,
    counts: NodeCounts,
}

impl Config {
    /// The node.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn node(self, name: &At<String>) -> Result<Box<dyn Node>, ConfigError> {
        let ends = [self.r#in.as_ref().map(|i| &i.address), self.out.as_ref().map(|o| &o.address)];
        for address in ends.into_iter().flatten().filter(|_| self.layer != Layer::Unix) {
            if let Err(why) = resolve(&address.value) {
                return Err(ConfigError::new(&address.at, why));
            }
        }
        let signals = self.r#in.as_ref().map(|half| signals_or_default(&half.common));
        Ok(Box::new(Socket {
            name: name.value.clone(),
            config: self,
            signals: signals.unwrap_or_default(),
            datagrams: None,
            counts: NodeCounts::default(),
        }))
    }
}

/// The first address of a name; `*` is any address of this host.
fn resolve(text: &str) -> Result<SocketAddr, String> {
    let full = text.strip_prefix('*').map(|rest| format!("0.0.0.0{rest}"));
    let full = full.as_deref().unwrap_or(text);
    let wrong = |why: String| format!("{text:?}: {why}; it must be like \"127.0.0.1:12000\"");
    let mut all = full.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    all.next().ok_or_else(|| wrong("no address".to_owned()))
}

/// A socket for datagrams, which both halves use.
#[derive(Debug)]
enum Datagrams {
    Udp(UdpSocket),
    /// The file is removed at the end.
    Unix(UnixDatagram, Option<String>),
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        if let Self::Unix(_, Some(path)) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Datagrams {
    fn receive(&self, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Udp(socket) => socket.recv(into),
            Self::Unix(socket, _) => socket.recv(into),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Udp(socket) => socket.as_fd(),
            Self::Unix(socket, _) => socket.as_fd(),
        }
    }
}

impl Socket {
    fn datagrams(&mut self) -> Result<Arc<Datagrams>, String> {
        if let Some(socket) = &self.datagrams {
            return Ok(socket.clone());
        }
        let here = self.config.r#in.as_ref().map(|half| half.address.value.clone());
        let failed = |error: std::io::Error| match &here {
            Some(here) => format!("{here}: {error}"),
            None => error.to_string(),
        };
        let socket = if self.config.layer == Layer::Unix {
            let socket = match &here {
                Some(path) => {
                    // A file that a killed process left keeps nobody out.
                    let _ = std::fs::remove_file(path);
                    UnixDatagram::bind(path)
                }
                None => UnixDatagram::unbound(),
            };
            let socket = socket.map_err(failed)?;
            socket.set_nonblocking(true).map_err(failed)?;
            Datagrams::Unix(socket, here)
        } else {
            let bound = resolve(here.as_deref().unwrap_or("0.0.0.0:0"))?;
            let socket = UdpSocket::bind(bound).map_err(failed)?;
            socket.set_nonblocking(true).map_err(failed)?;
            Datagrams::Udp(socket)
        };
        let socket = Arc::new(socket);
        self.datagrams = Some(socket.clone());
        Ok(socket)
    }
}

impl Node for Socket {
    fn signals(&self) -> &[Signal] {
        &self.signals
    }

    fn source(&mut self, world: &World) -> Result<Box<dyn Source>, String> {
        let half = self.config.r#in.clone().ok_or("it reads, so it needs in.address")?;
        let ear = if self.config.layer == Layer::Tcp {
            let failed = |error| format!("{}: {error}", half.address.value);
            let listener = TcpListener::bind(resolve(&half.address.value)?).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            Ear::Stream { listener, peer: None, bytes: Vec::new() }
        } else {
            Ear::Datagrams(self.datagrams()?)
        };
        Ok(Box::new(Reading {
            name: self.name.clone(),
            ear,
            format: self.config.format.build(),
            signals: self.signals.clone(),
            bytes: vec![0; DATAGRAM_BYTES],
            had_peer: false,
            has_told: false,
            log: world.log.clone(),
            counts: self.counts.clone(),
        }))
    }

    fn sink(&mut self, world: &World, signals: &[Signal]) -> Result<Box<dyn Sink>, String> {
        let half = self.config.out.clone().ok_or("it writes, so it needs out.address")?;
        let there = half.address.value;
        let mouth = match self.config.layer {
            Layer::Udp => Mouth::Udp(self.datagrams()?, resolve(&there)?),
            Layer::Unix => Mouth::Unix(self.datagrams()?, there),
            Layer::Tcp => {
                Mouth::Stream(Stream::to(resolve(&there)?, &self.name, world, &self.counts))
            }
        };
        Ok(Box::new(Writing {
            mouth,
            format: self.config.format.build(),
            signals: signals.to_vec(),
            vectorize: half.common.vectorize,
            gathered: 0,
            bytes: Vec::with_capacity(DATAGRAM_BYTES),
            name: self.name.clone(),
            told: String::new(),
            log: world.log.clone(),
        }))
    }

    fn counts(&self) -> NodeCounts {
        self.counts.clone()
    }
}

/// Waits until there is something to read.
fn wait(fds: &mut [PollFd<'_>], patience: Duration) {
    let limit = Timespec::try_from(patience).unwrap_or_default();
    let _ = poll(fds, Some(&limit));
}

/// What the reading half listens to.
enum Ear {
    Datagrams(Arc<Datagrams>),
    Stream { listener: TcpListener, peer: Option<TcpStream>, bytes: Vec<u8> },
}

struct Reading {
    name: String,
    ear: Ear,
    format: Box<dyn Format>,
    signals: Vec<Signal>,
    bytes: Vec<u8>,
    had_peer: bool,
    has_told: bool,
    log: Log,
    counts: NodeCounts,
}

impl Reading {
    fn garbage(&mut self, why: &dyn std::fmt::Display) {
        self.counts.garbage.add(1);
        if !std::mem::replace(&mut self.has_told, true) {
            self.log.say(format_args!("{}: no sample: {why}", self.name));
        }
    }

    /// Takes one datagram; whether there was one.
    fn datagram(&mut self, pool: &mut Pool, to: &mut Vec<Handle>) -> Result<bool, String> {
        let Ear::Datagrams(socket) = &self.ear else { return Ok(false) };
        let length = match socket.receive(&mut self.bytes) {
            Ok(length) => length,
            Err(error) => match error.kind() {
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted => {
                    return Ok(false);
                }
                // The answer to a datagram that we sent where nobody listens.
                std::io::ErrorKind::ConnectionRefused => return Ok(true),
                _ => return Err(error.to_string()),
            },
        };
        let mut into = Collector::new(pool, to, VECTORIZE_MAX);
        let decoded = into.message(&*self.format, &self.bytes[..length], &self.signals);
        drop(into);
        if let Err(why) = decoded {
            self.garbage(&why);
        }
        Ok(true)
    }

    /// Takes what a stream has.
    fn stream(&mut self, pool: &mut Pool, to: &mut Vec<Handle>) -> State {
        let Ear::Stream { listener, peer, bytes } = &mut self.ear else { return State::Open };
        let mut state = State::Open;
        let Some(stream) = peer else {
            if let Ok((stream, from)) = listener.accept() {
                let _ = stream.set_nonblocking(true);
                bytes.clear();
                self.counts.connected.add(1);
                self.log.say(format_args!("{}: {from} sends", self.name));
                *peer = Some(stream);
                if std::mem::replace(&mut self.had_peer, true) {
                    state = State::Restarted;
                }
            }
            return state;
        };
        let is_gone = match stream.read(&mut self.bytes) {
            Ok(0) => true,
            Ok(length) => {
                bytes.extend_from_slice(&self.bytes[..length]);
                false
            }
            Err(error) => !matches!(
                error.kind(),
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted
            ),
        };
        let mut into = Collector::new(pool, to, VECTORIZE_MAX);
        let used = self.format.decode(Form::File, bytes, &self.signals, &mut into);
        drop(into);
        let trouble = match used {
            Ok(used) => {
                bytes.drain(..used);
                None
            }
            Err(why) => {
                let resume = why.resume().unwrap_or(bytes.len());
                bytes.drain(..resume.min(bytes.len()));
                Some(why)
            }
        };
        if is_gone && to.is_empty() {
            *peer = None;
            self.counts.disconnected.add(1);
            self.log.say(format_args!("{}: the sender is gone", self.name));
        }
        if let Some(why) = trouble {
            self.garbage(&why);
        }
        state
    }
}

impl Source for Reading {
    fn read(
        &mut self,
        pool: &mut Pool,
        to: &mut Vec<Handle>,
        patience: Duration,
    ) -> Result<State, String> {
        let mut waited = patience.is_zero();
        let mut state = State::Open;
        loop {
            match &self.ear {
                Ear::Datagrams(_) => {
                    // A datagram without samples must not end the wait.
                    while self.datagram(pool, to)? && to.is_empty() {}
                }
                Ear::Stream { .. } => state = self.stream(pool, to),
            }
            if !to.is_empty() || waited || state != State::Open {
                break;
            }
            match &self.ear {
                Ear::Datagrams(socket) => {
                    let fd = socket.fd();
                    wait(&mut [PollFd::new(&fd, PollFlags::IN)], patience);
                }
                Ear::Stream { listener, peer: None, .. } => {
                    wait(&mut [PollFd::new(listener, PollFlags::IN)], patience);
                }
                Ear::Stream { peer: Some(peer), .. } => {
                    wait(&mut [PollFd::new(peer, PollFlags::IN)], patience);
                }
            }
            waited = true;
        }
        let now = wall_time();
        for sample in to.iter_mut() {
            pool.get_mut(sample).set_received(now);
        }
        Ok(state)
    }
}

/// Where the writing half sends.
enum Mouth {
    Udp(Arc<Datagrams>, SocketAddr),
    Unix(Arc<Datagrams>, String),
    Stream(Stream),
}

struct Writing {
    mouth: Mouth,
    format: Box<dyn Format>,
    signals: Vec<Signal>,
    vectorize: usize,
    gathered: usize,
    bytes: Vec<u8>,
    name: String,
    told: String,
    log: Log,
}

impl Writing {
    fn tell(&mut self, why: String) {
        if why != self.told {
            self.log.say(format_args!("{}: {why}", self.name));
            self.told = why;
        }
    }

    /// Sends the gathered samples; whether they were taken.
    fn send(&mut self) -> bool {
        self.gathered = 0;
        let sent = match &mut self.mouth {
            Mouth::Udp(socket, there) => match &**socket {
                Datagrams::Udp(socket) => socket.send_to(&self.bytes, *there).map(|_| ()),
                Datagrams::Unix(..) => Ok(()),
            },
            Mouth::Unix(socket, there) => match &**socket {
                Datagrams::Unix(socket, _) => socket.send_to(&self.bytes, there).map(|_| ()),
                Datagrams::Udp(_) => Ok(()),
            },
            Mouth::Stream(stream) => {
                let taken = stream.send(&self.bytes);
                self.bytes.clear();
                return taken;
            }
        };
        self.bytes.clear();
        match sent {
            Ok(()) => true,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => false,
            Err(error) => {
                self.tell(error.to_string());
                false
            }
        }
    }
}

impl Sink for Writing {
    fn write(&mut self, pool: &Pool, sample: &Handle) -> Result<bool, String> {
        let form = if matches!(self.mouth, Mouth::Stream(_)) { Form::File } else { Form::Message };
        let sample = [pool.get(sample)];
        if let Err(why) = self.format.encode(form, &self.signals, &sample, &mut self.bytes) {
            self.tell(why.to_string());
            return Ok(false);
        }
        self.gathered += 1;
        Ok(self.gathered < self.vectorize || self.send())
    }

    fn is_ready(&self) -> bool {
        !matches!(&self.mouth, Mouth::Stream(stream) if stream.peer.is_none())
    }

    fn flush(&mut self) -> Result<(), String> {
        if self.gathered > 0 {
            self.send();
        }
        if let Mouth::Stream(stream) = &mut self.mouth {
            stream.send(&[]);
        }
        Ok(())
    }

    fn close(&mut self, limit: Duration) -> Result<u64, String> {
        self.flush()?;
        let until = Instant::now() + limit;
        let Mouth::Stream(stream) = &mut self.mouth else { return Ok(0) };
        while !stream.waiting.is_empty() && stream.peer.is_some() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
            stream.send(&[]);
        }
        Ok(u64::from(!stream.waiting.is_empty()))
    }
}

/// A TCP connection that a thread makes anew when it is lost.
struct Stream {
    peer: Option<TcpStream>,
    /// What the thread has connected, and whether it shall.
    shared: Arc<Connecting>,
    waiting: Vec<u8>,
    node: String,
    log: Log,
    counts: NodeCounts,
}

#[derive(Default)]
struct Connecting {
    found: Mutex<Option<TcpStream>>,
    is_over: std::sync::atomic::AtomicBool,
    is_wanted: std::sync::atomic::AtomicBool,
}

use std::sync::atomic::Ordering::Relaxed;

impl Stream {
    fn to(there: SocketAddr, node: &str, world: &World, counts: &NodeCounts) -> Self {
        let shared = Arc::new(Connecting::default());
        shared.is_wanted.store(true, Relaxed);
        let own = shared.clone();
        let work = move || {
            while !own.is_over.load(Relaxed) {
                if own.is_wanted.load(Relaxed)
                    && let Ok(stream) = TcpStream::connect_timeout(&there, PAUSE)
                {
                    let _ = (stream.set_nodelay(true), stream.set_nonblocking(true));
                    own.is_wanted.store(false, Relaxed);
                    *own.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
                    continue;
                }
                std::thread::sleep(PAUSE / 10);
            }
        };
        // Without the thread nothing is ever connected, which the counts show.
        let _ = std::thread::Builder::new().name(format!("{node}-connect")).spawn(work);
        let (node, log, counts) = (node.to_owned(), world.log.clone(), counts.clone());
        Self { peer: None, shared, waiting: Vec::new(), node, log, counts }
    }

    /// Sends bytes after those that wait; whether they were taken.
    fn send(&mut self, bytes: &[u8]) -> bool {
        if self.peer.is_none() {
            let found = self.shared.found.try_lock().ok().and_then(|mut found| found.take());
            let Some(stream) = found else { return bytes.is_empty() };
            self.counts.connected.add(1);
            self.log.say(format_args!("{}: connected", self.node));
            self.peer = Some(stream);
            self.waiting.clear();
        }
        let takes = self.waiting.len() + bytes.len() <= WAITING_BYTES;
        if takes {
            self.waiting.extend_from_slice(bytes);
        }
        while let (Some(peer), false) = (&mut self.peer, self.waiting.is_empty()) {
            match peer.write(&self.waiting) {
                Ok(sent) if sent > 0 => drop(self.waiting.drain(..sent)),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                _ => {
                    self.peer = None;
                    self.waiting.clear();
                    self.counts.disconnected.add(1);
                    self.log.say(format_args!("{}: the receiver is gone", self.node));
                    self.shared.is_wanted.store(true, Relaxed);
                    return false;
                }
            }
        }
        takes
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Relaxed);
    }
}
