//! `socket`: samples over UDP or Unix datagrams, each datagram a message of the format; or over a
//! TCP connection, as a stream.
//!
//! - `datagrams`: the socket that both halves use. `write`: the writing half.

mod datagrams;
mod write;

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::Duration;

use datagrams::Datagrams;
use rdmalab_config::{At, ConfigError, group, one_of};
use rdmalab_sample::{Handle, Pool, Signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SocketType;
use write::{Sender, Stream, Writing};

use crate::decoder::Decoder;
use crate::format::FormatChoice;
use crate::keys::{InCommon, NodeCommon, OutCommon, signals_or_default};
use crate::node::{Log, Node, NodeCounts, Sink, Source, SourceState, Teller, World, stamp};
use crate::sockets::{addresses, notice_a_dead_peer, remove_left};

/// The longest datagram.
const DATAGRAM_BYTES: usize = 65_536;
/// Datagrams without samples that one read takes at most.
const DATAGRAMS_MAX: u32 = 64;
/// Bytes of a stream without a sample after which it is no stream of samples.
const UNDECODED_BYTES: usize = 1 << 20;

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
        /// Samples that are sent together.
        vectorize: usize = 1, in 1..=64;
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
        let signals = self.r#in.as_ref().map(|half| signals_or_default(Some(&half.common)));
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
    let found = addresses(text, "0.0.0.0");
    found
        .map(|all| all[0])
        .map_err(|why| format!("{text:?}: {why}; it must be like \"127.0.0.1:12000\""))
}

impl Socket {
    fn datagrams(&mut self) -> Result<Arc<Datagrams>, String> {
        if let Some(socket) = &self.datagrams {
            return Ok(socket.clone());
        }
        let here = self.config.r#in.as_ref().map(|half| half.address.value.clone());
        let there = self.config.out.as_ref().map(|half| half.address.value.clone());
        let failed = |error: std::io::Error| match &here {
            Some(here) => format!("{here}: {error}"),
            None => error.to_string(),
        };
        let socket = if self.config.layer == Layer::Unix {
            let socket = match &here {
                Some(path) => {
                    remove_left(path.as_ref(), SocketType::DGRAM);
                    UnixDatagram::bind(path)
                }
                None => UnixDatagram::unbound(),
            };
            let socket = socket.map_err(failed)?;
            socket.set_nonblocking(true).map_err(failed)?;
            Datagrams::Unix { socket, here, there }
        } else {
            let bound = resolve(here.as_deref().unwrap_or("0.0.0.0:0"))?;
            let socket = UdpSocket::bind(bound).map_err(failed)?;
            socket.set_nonblocking(true).map_err(failed)?;
            Datagrams::Udp(socket, there.as_deref().map(resolve).transpose()?)
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
        let receiver = if self.config.layer == Layer::Tcp {
            let failed = |error| format!("{}: {error}", half.address.value);
            let listener = TcpListener::bind(resolve(&half.address.value)?).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            Receiver::Stream { listener, peer: None, bytes: Vec::new() }
        } else {
            Receiver::Datagrams(self.datagrams()?)
        };
        Ok(Box::new(Reading {
            name: self.name.clone(),
            receiver,
            decoder: Decoder::new(self.config.format.build(), &self.signals),
            bytes: vec![0; DATAGRAM_BYTES],
            had_peer: false,
            has_told: false,
            log: world.log.clone(),
            counts: self.counts.clone(),
        }))
    }

    fn sink(&mut self, world: &World, signals: &[Signal]) -> Result<Box<dyn Sink>, String> {
        let half = self.config.out.clone().ok_or("it writes, so it needs out.address")?;
        let sender = if self.config.layer == Layer::Tcp {
            let there = resolve(&half.address.value)?;
            Sender::Stream(Stream::to(there, &self.name, world, &self.counts))
        } else {
            Sender::Datagrams(self.datagrams()?)
        };
        Ok(Box::new(Writing {
            sender,
            format: self.config.format.build(),
            signals: signals.to_vec(),
            vectorize: half.vectorize,
            gathered: 0,
            bytes: Vec::with_capacity(DATAGRAM_BYTES),
            is_full: false,
            teller: Teller::new(&self.name, &world.log),
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

/// What the reading half receives from.
enum Receiver {
    Datagrams(Arc<Datagrams>),
    Stream { listener: TcpListener, peer: Option<TcpStream>, bytes: Vec<u8> },
}

struct Reading {
    name: String,
    receiver: Receiver,
    decoder: Decoder,
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

    /// Takes one datagram, or more of the last one; whether there was one.
    fn datagram(&mut self, pool: &mut Pool, to: &mut Vec<Handle>) -> Result<bool, String> {
        if self.decoder.has_rest() {
            if let Err(why) = self.decoder.rest(pool, to) {
                self.garbage(&why);
            }
            return Ok(true);
        }
        let Receiver::Datagrams(socket) = &self.receiver else { return Ok(false) };
        let length = match socket.receive(&mut self.bytes) {
            Ok(length) => length,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => {
                    return Ok(false);
                }
                // The answer to a datagram that we sent where nobody listens.
                ErrorKind::ConnectionRefused => return Ok(true),
                _ => return Err(error.to_string()),
            },
        };
        if let Err(why) = self.decoder.message(&self.bytes[..length], pool, to) {
            self.garbage(&why);
        }
        stamp(pool, to);
        Ok(true)
    }

    /// Takes what a stream has.
    fn stream(&mut self, pool: &mut Pool, to: &mut Vec<Handle>) -> SourceState {
        let Receiver::Stream { listener, peer, bytes } = &mut self.receiver else {
            return SourceState::Open;
        };
        let mut state = SourceState::Open;
        if peer.is_none() {
            if let Ok((stream, from)) = listener.accept() {
                let _ = (stream.set_nonblocking(true), notice_a_dead_peer(&stream));
                bytes.clear();
                self.counts.connected.add(1);
                self.log.say(format_args!("{}: {from} sends", self.name));
                *peer = Some(stream);
                if std::mem::replace(&mut self.had_peer, true) {
                    state = SourceState::Restarted;
                }
            }
            return state;
        }
        let mut is_gone = false;
        // More is read only when what is there has no whole sample.
        if !bytes.is_empty() && self.decode(pool, to) {
            return state;
        }
        let Receiver::Stream { peer: Some(stream), bytes, .. } = &mut self.receiver else {
            return state;
        };
        match stream.read(&mut self.bytes) {
            Ok(0) => is_gone = true,
            Ok(length) => bytes.extend_from_slice(&self.bytes[..length]),
            Err(error) => {
                is_gone = !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
            }
        }
        let has_decoded = !is_gone && self.decode(pool, to);
        let Receiver::Stream { peer, bytes, .. } = &mut self.receiver else { return state };
        let is_endless = !has_decoded && bytes.len() >= UNDECODED_BYTES;
        if is_gone || is_endless {
            (*peer, *bytes) = (None, Vec::new());
            self.counts.disconnected.add(1);
            self.log.say(format_args!("{}: the sender is gone", self.name));
        }
        if is_endless {
            self.garbage(&format_args!("{UNDECODED_BYTES} bytes without one"));
        }
        state
    }

    /// Decodes bytes of a stream; whether some were samples or garbage.
    fn decode(&mut self, pool: &mut Pool, to: &mut Vec<Handle>) -> bool {
        let Receiver::Stream { bytes, .. } = &mut self.receiver else { return false };
        match self.decoder.stream(bytes, pool, to) {
            Ok(used) => {
                bytes.drain(..used);
                used > 0
            }
            Err(why) => {
                let resume = why.resume().unwrap_or(bytes.len());
                bytes.drain(..resume.min(bytes.len()));
                self.garbage(&why);
                true
            }
        }
    }
}

impl Source for Reading {
    fn read(
        &mut self,
        pool: &mut Pool,
        to: &mut Vec<Handle>,
        patience: Duration,
    ) -> Result<SourceState, String> {
        let mut waited = patience.is_zero();
        let mut state = SourceState::Open;
        loop {
            match &self.receiver {
                Receiver::Datagrams(_) => {
                    // A datagram without samples does not end the wait, but many of them do.
                    for _ in 0..DATAGRAMS_MAX {
                        if !self.datagram(pool, to)? || !to.is_empty() {
                            break;
                        }
                    }
                }
                Receiver::Stream { .. } => {
                    state = self.stream(pool, to);
                    stamp(pool, to);
                }
            }
            if !to.is_empty() || waited || state != SourceState::Open {
                break;
            }
            match &self.receiver {
                Receiver::Datagrams(socket) => {
                    let fd = socket.fd();
                    wait(&mut [PollFd::new(&fd, PollFlags::IN)], patience);
                }
                Receiver::Stream { listener, peer: None, .. } => {
                    wait(&mut [PollFd::new(listener, PollFlags::IN)], patience);
                }
                Receiver::Stream { peer: Some(peer), .. } => {
                    wait(&mut [PollFd::new(peer, PollFlags::IN)], patience);
                }
            }
            waited = true;
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rdmalab_sample::Kind;
    use rdmalab_testing::{LIMIT, WaitLimit};

    use super::*;
    use crate::keys::VECTORIZE_MAX;
    use crate::node::Stop;
    use crate::sockets::would_notice;

    fn reading(receiver: Receiver, format: &str) -> (Reading, Pool) {
        let reading = Reading {
            name: "net".to_owned(),
            receiver,
            decoder: Decoder::new(
                FormatChoice::named(format).build(),
                &Signal::numbered(1, Kind::Float),
            ),
            bytes: vec![0; DATAGRAM_BYTES],
            had_peer: false,
            has_told: false,
            log: Log::new(|_| {}),
            counts: NodeCounts::default(),
        };
        (reading, Pool::new(2 * VECTORIZE_MAX, 1))
    }

    #[test]
    fn a_flood_of_garbage_does_not_keep_a_read() {
        let here = UdpSocket::bind("127.0.0.1:0").unwrap();
        here.set_nonblocking(true).unwrap();
        let to = here.local_addr().unwrap();
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..DATAGRAMS_MAX + 8 {
            peer.send_to(&[0xff], to).unwrap();
        }
        let receiver = Receiver::Datagrams(Arc::new(Datagrams::Udp(here, None)));
        let (mut reading, mut pool) = reading(receiver, "villas.binary");
        let mut to = Vec::new();
        assert_eq!(reading.read(&mut pool, &mut to, Duration::ZERO), Ok(SourceState::Open));
        assert_eq!(reading.counts.garbage.get(), u64::from(DATAGRAMS_MAX));
        assert_eq!(reading.read(&mut pool, &mut to, Duration::ZERO), Ok(SourceState::Open));
        assert_eq!(reading.counts.garbage.get(), u64::from(DATAGRAMS_MAX) + 8);
    }

    /// A stream with a peer.
    fn stream(format: &str) -> (Reading, Pool, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        peer.set_nonblocking(true).unwrap();
        listener.set_nonblocking(true).unwrap();
        let receiver = Receiver::Stream { listener, peer: Some(peer), bytes: Vec::new() };
        let (reading, pool) = reading(receiver, format);
        (reading, pool, sender)
    }

    #[test]
    fn a_stream_without_an_end_of_line_ends() {
        let (mut reading, mut pool, mut sender) = stream("villas.human");
        let mut to = Vec::new();
        let writes = std::thread::spawn(move || while sender.write_all(&[b'1'; 4096]).is_ok() {});
        while reading.counts.disconnected.get() == 0 {
            assert!(reading.read(&mut pool, &mut to, Duration::from_millis(10)).is_ok());
            let Receiver::Stream { bytes, .. } = &reading.receiver else { panic!("a stream") };
            assert!(bytes.len() < UNDECODED_BYTES + DATAGRAM_BYTES, "{}", bytes.len());
        }
        writes.join().unwrap();
        assert_eq!((reading.counts.garbage.get(), to.len()), (1, 0));
    }

    #[test]
    fn a_stream_is_read_no_faster_than_it_is_decoded() {
        let (mut reading, mut pool, mut sender) = stream("villas.human");
        let line = b"1.000000000(7)\t2.5\n";
        const LINES: usize = 20_000;
        let writes = std::thread::spawn(move || sender.write_all(&line.repeat(LINES)));
        let (mut to, mut samples) = (Vec::new(), 0);
        while samples < LINES {
            assert!(reading.read(&mut pool, &mut to, Duration::from_millis(10)).is_ok());
            let Receiver::Stream { bytes, .. } = &reading.receiver else { panic!("a stream") };
            assert!(bytes.len() < 2 * DATAGRAM_BYTES, "{}", bytes.len());
            samples += to.len();
            to.drain(..).for_each(|sample| pool.give(sample));
        }
        writes.join().unwrap().unwrap();
        assert_eq!(reading.counts.garbage.get(), 0);
    }

    #[test]
    fn dead_peers_are_noticed_by_the_kernel() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let to = listener.local_addr().unwrap();
        let log = Log::new(|_| {});
        let receiver = Receiver::Stream { listener, peer: None, bytes: Vec::new() };
        let (mut reading, mut pool) = reading(receiver, "villas.human");
        let clock = rdmalab_measure::Clock::new();
        let timer = crate::timer::TimerKind::Timerfd;
        let world = World { device: None, clock, timer, stop: Stop::default(), log };
        let mut stream = Stream::to(to, "net", &world, &NodeCounts::default());
        let (mut to, mut wait_limit) = (Vec::new(), WaitLimit::of(LIMIT));
        while stream.peer().is_none() || reading.counts.connected.get() == 0 {
            assert!(wait_limit.is_left(), "no connection");
            assert!(reading.read(&mut pool, &mut to, Duration::from_millis(5)).is_ok());
            stream.send(&[], 0);
        }
        let Receiver::Stream { peer: Some(peer), .. } = &reading.receiver else { panic!("a peer") };
        assert!(would_notice(peer) && stream.peer().is_some_and(would_notice));
    }
}
