//! The connections of one half of a node. They are accepted or made, and made again when they are
//! lost, whenever the thread of the path looks for them.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags};

use super::endpoint::{Endpoint, Listener};
use super::wire::{Heard, Wire, Wrong};
use crate::node::{NodeCounts, Teller, World};

/// Bytes that are read from a connection at a time.
const READ_BYTES: usize = 65_536;
/// Connections that are accepted at most.
const PEERS_MAX: usize = 256;
/// Events that one look takes.
const EVENTS: usize = 64;
/// Time from one attempt to connect to the next: the first, and the longest.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Time for a connection until its handshake is over.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Bytes that wait for a peer, from which on it gets no answers besides.
const ANSWERS_FROM: usize = 1 << 16;
/// The data of events of listeners have this bit and the number of the endpoint; others have the
/// number of the connection.
const LISTENER: u64 = 1 << 63;

/// Makes the state machine of a new connection, over ipc or not.
type Make = Box<dyn Fn(bool) -> Box<dyn Wire> + Send>;

/// The connections of a half.
pub struct Peers {
    ends: Vec<End>,
    /// Those that there are.
    pub all: Vec<Peer>,
    make: Make,
    epoll: OwnedFd,
    bytes: Vec<u8>,
    next_number: u64,
    /// Why the last connection that broke the protocol did.
    last_wrong: String,
    teller: Teller,
    counts: NodeCounts,
}

/// An endpoint at work.
struct End {
    endpoint: Endpoint,
    listener: Option<Listener>,
    /// When to connect next; `None` while there is a connection.
    due: Option<Instant>,
    pause: Duration,
    has_told: bool,
}

/// A connection.
pub struct Peer {
    number: u64,
    end: usize,
    socket: OwnedFd,
    /// Its protocol.
    pub wire: Box<dyn Wire>,
    is_connecting: bool,
    was_open: bool,
    /// Nothing more comes from it.
    is_gone: bool,
    /// It broke the protocol.
    is_broken: bool,
    since: Instant,
    out: Vec<u8>,
    /// What `out` has: bytes, and whether they are a sample.
    frames: VecDeque<(usize, bool)>,
    /// The samples among them.
    pub waiting: usize,
}

impl Peer {
    /// Sends samples after those that wait.
    pub fn send(&mut self, samples: &[u8]) {
        let before = self.out.len();
        self.wire.frame(samples, &mut self.out);
        self.frames.push_back((self.out.len() - before, true));
        self.waiting += 1;
        self.push();
    }

    /// Hands over to the kernel what it takes. An error shows when the connection is read.
    pub fn push(&mut self) {
        if !self.wire.answers().is_empty() && self.out.len() < ANSWERS_FROM {
            let answers = self.wire.answers();
            self.frames.push_back((answers.len(), false));
            self.out.append(answers);
        }
        while !self.out.is_empty() && !self.is_connecting && !self.is_gone {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match rustix::net::send(&self.socket, &self.out, flags) {
                Ok(sent) => self.sent(sent),
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn sent(&mut self, bytes: usize) {
        self.out.drain(..bytes);
        let mut left = bytes;
        while let Some((length, is_sample)) = self.frames.front_mut() {
            if *length > left {
                *length -= left;
                return;
            }
            left -= *length;
            self.waiting -= usize::from(*is_sample);
            self.frames.pop_front();
        }
    }

    /// Reads once.
    fn read(&mut self, bytes: &mut [u8]) {
        match rustix::net::recv(&self.socket, &mut *bytes, RecvFlags::DONTWAIT) {
            Ok((0, _)) => self.is_gone = true,
            Ok((length, _)) => self.wire.receive(&bytes[..length]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.is_gone = true,
        }
    }
}

impl Peers {
    /// Listens, and connects from the first look on.
    ///
    /// # Errors
    /// Why it cannot listen, in one line.
    pub fn open(
        endpoints: &[Endpoint],
        make: Make,
        node: &str,
        world: &World,
        counts: &NodeCounts,
    ) -> Result<Self, String> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|why| why.to_string())?;
        let mut ends = Vec::new();
        for (at, endpoint) in endpoints.iter().enumerate() {
            let failed = |why: std::io::Error| format!("{}: {why}", endpoint.text);
            let listener = endpoint.binds.then(|| endpoint.listen()).transpose().map_err(failed)?;
            if let Some(listener) = &listener {
                let data = epoll::EventData::new_u64(LISTENER | at as u64);
                let added = epoll::add(&epoll, &listener.socket, data, epoll::EventFlags::IN);
                added.map_err(|why| failed(why.into()))?;
            }
            ends.push(End {
                endpoint: endpoint.clone(),
                due: listener.is_none().then(Instant::now),
                listener,
                pause: PAUSE,
                has_told: false,
            });
        }
        Ok(Self {
            ends,
            all: Vec::new(),
            make,
            epoll,
            bytes: vec![0; READ_BYTES],
            next_number: 0,
            last_wrong: String::new(),
            teller: Teller::new(node, &world.log),
            counts: counts.clone(),
        })
    }

    /// Tells the user something about the node.
    pub fn tell(&mut self, what: impl Into<String>) {
        self.teller.tell(what);
    }

    /// Connections whose handshake is over.
    pub fn open_ones(&self) -> usize {
        self.all.iter().filter(|peer| peer.was_open).count()
    }

    /// Waits at most `patience` until something happens, and reads what has come. All that came
    /// before must have been taken ([`Peers::hear`]).
    ///
    /// # Errors
    /// When the kernel does not tell what happens.
    pub fn look(&mut self, patience: Duration) -> Result<(), String> {
        self.seek();
        let limit = Timespec::try_from(patience).unwrap_or_default();
        let mut room = [MaybeUninit::<epoll::Event>::uninit(); EVENTS];
        let events = match epoll::wait(&self.epoll, &mut room, Some(&limit)) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(()),
            Err(why) => return Err(why.to_string()),
        };
        for event in events {
            let number = event.data.u64();
            if number & LISTENER != 0 {
                self.accept((number & !LISTENER) as usize);
            } else if let Some(at) = self.all.iter().position(|peer| peer.number == number) {
                self.happened(at);
            }
        }
        Ok(())
    }

    /// Begins the connections that are due, and ends those whose handshake takes too long.
    fn seek(&mut self) {
        let mut now = None;
        for at in 0..self.ends.len() {
            let Some(due) = self.ends[at].due else { continue };
            if due > *now.get_or_insert_with(Instant::now) {
                continue;
            }
            match self.ends[at].endpoint.connect() {
                Ok(socket) => {
                    self.ends[at].due = None;
                    self.add(at, socket, true);
                }
                Err(why) => self.later(at, Some(why)),
            }
        }
        for peer in self.all.iter_mut().filter(|peer| !peer.was_open) {
            peer.is_gone |= peer.since.elapsed() > HANDSHAKE_MAX;
        }
    }

    /// Connects to an endpoint later.
    fn later(&mut self, at: usize, why: Option<std::io::Error>) {
        let end = &mut self.ends[at];
        end.due = Some(Instant::now() + end.pause);
        end.pause = (2 * end.pause).min(PAUSE_MAX);
        if let Some(why) = why
            && !std::mem::replace(&mut end.has_told, true)
        {
            let text = format!("{}: {why}; it tries again", end.endpoint.text);
            self.teller.tell(text);
        }
    }

    fn accept(&mut self, at: usize) {
        let Some(listener) = &self.ends[at].listener else { return };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let Ok(socket) = rustix::net::accept_with(&listener.socket, flags) else { return };
        if self.all.len() >= PEERS_MAX {
            self.teller.tell(format!("more than {PEERS_MAX} peers; further ones are refused"));
            return;
        }
        self.ends[at].endpoint.prepare(&socket);
        self.add(at, socket, false);
    }

    fn add(&mut self, end: usize, socket: OwnedFd, is_connecting: bool) {
        let number = self.next_number;
        self.next_number += 1;
        let flags = if is_connecting { epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
        let data = epoll::EventData::new_u64(number);
        let added = epoll::add(&self.epoll, &socket, data, flags);
        let mut peer = Peer {
            number,
            end,
            socket,
            wire: (self.make)(self.ends[end].endpoint.is_ipc()),
            is_connecting,
            was_open: false,
            is_gone: added.is_err(),
            is_broken: false,
            since: Instant::now(),
            out: Vec::new(),
            frames: VecDeque::new(),
            waiting: 0,
        };
        peer.push();
        self.all.push(peer);
    }

    /// There is something to read, or the connection is made.
    fn happened(&mut self, at: usize) {
        let peer = &mut self.all[at];
        if !peer.is_connecting {
            return peer.read(&mut self.bytes);
        }
        let data = epoll::EventData::new_u64(peer.number);
        let made = match rustix::net::sockopt::socket_error(&peer.socket) {
            Ok(Ok(())) => epoll::modify(&self.epoll, &peer.socket, data, epoll::EventFlags::IN),
            Ok(Err(why)) | Err(why) => Err(why),
        };
        peer.is_connecting = false;
        match made {
            Ok(()) => peer.push(),
            Err(why) => {
                let end = peer.end;
                self.all.swap_remove(at);
                self.later(end, Some(why.into()));
            }
        }
    }

    /// Takes what has come: `take` gets it with the number of connections that were open before,
    /// and says whether it wants more. Then forgets connections that are gone, and hands their
    /// waiting samples to the count that it returns.
    pub fn hear(&mut self, mut take: impl FnMut(Heard<'_>, usize) -> bool) -> u64 {
        let (mut open, mut wants_more) = (self.open_ones(), true);
        for at in 0..self.all.len() {
            while wants_more && !self.all[at].is_broken {
                let peer = &mut self.all[at];
                match peer.wire.next() {
                    Ok(None) => break,
                    Ok(Some(Heard::Opened)) => {
                        peer.was_open = true;
                        wants_more = take(Heard::Opened, open);
                        open += 1;
                        self.opened(at);
                    }
                    Ok(Some(heard)) => wants_more = take(heard, open),
                    Err(wrong) => self.broke(at, wrong),
                }
            }
            self.all[at].push();
        }
        // What a connection sent before it went is taken first.
        if wants_more { self.forget() } else { 0 }
    }

    fn opened(&mut self, at: usize) {
        let end = &mut self.ends[self.all[at].end];
        (end.pause, end.has_told) = (PAUSE, false);
        let (at, text) = (if end.endpoint.binds { "a peer at " } else { "" }, &end.endpoint.text);
        let told = format!("{at}{text} is connected");
        self.teller.say(told);
        self.counts.connected.add(1);
    }

    fn broke(&mut self, at: usize, Wrong(why): Wrong) {
        self.counts.garbage.add(1);
        (self.all[at].is_gone, self.all[at].is_broken) = (true, true);
        let why =
            format!("{}: the peer is refused: {why}", self.ends[self.all[at].end].endpoint.text);
        if why != self.last_wrong {
            self.teller.say(&why);
            self.last_wrong = why;
        }
    }

    /// Forgets connections that are gone; the samples that waited for them.
    fn forget(&mut self) -> u64 {
        let mut lost = 0;
        for at in (0..self.all.len()).rev().filter(|&at| self.all[at].is_gone).collect::<Vec<_>>() {
            let peer = self.all.remove(at);
            lost += peer.waiting as u64;
            let end = &self.ends[peer.end].endpoint;
            if peer.was_open {
                self.counts.disconnected.add(1);
                let at = if end.binds { "a peer at " } else { "" };
                let told = format!("{at}{} is gone", end.text);
                self.teller.say(told);
            }
            if !end.binds {
                self.later(peer.end, None);
            }
        }
        lost
    }

    /// Ends all connections so that what the kernel has reaches the peers: tells them that nothing
    /// more comes, and waits until they end the connection, at most until `until`.
    pub fn finish(&mut self, until: Instant) -> Result<(), String> {
        self.all.retain(|peer| !peer.is_connecting);
        for end in &mut self.ends {
            (end.listener, end.due) = (None, None);
        }
        for peer in &self.all {
            let _ = rustix::net::shutdown(&peer.socket, rustix::net::Shutdown::Write);
        }
        while !self.all.is_empty() && Instant::now() < until {
            self.look(Duration::from_millis(10))?;
            self.all.retain_mut(|peer| {
                // Whatever it still says.
                loop {
                    match peer.wire.next() {
                        Ok(None) => return !peer.is_gone,
                        Ok(Some(_)) => {}
                        Err(_) => return false,
                    }
                }
            });
        }
        Ok(())
    }
}
