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
/// Connections that are accepted at most, and at one look.
const PEERS_MAX: usize = 256;
const ACCEPTS: usize = 16;
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
    teller: Teller,
    counts: NodeCounts,
}

/// An endpoint at work.
struct End {
    endpoint: Endpoint,
    listener: Option<Listener>,
    /// When to connect, or to accept, again; `None` while that goes on.
    due: Option<Instant>,
    pause: Duration,
    /// Why the last connection failed. It is told once.
    last_failure: String,
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
    /// It has given a message.
    gave: bool,
    /// Nothing more comes from it.
    is_gone: bool,
    /// It broke the protocol.
    is_broken: bool,
    since: Instant,
    out: Vec<u8>,
    /// Bytes of `out` that the kernel has.
    sent: usize,
    /// What the rest of `out` has: bytes, and whether they are a sample.
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
        if !self.wire.answers().is_empty() && self.unsent() < ANSWERS_FROM {
            let answers = self.wire.answers();
            self.frames.push_back((answers.len(), false));
            self.out.append(answers);
        }
        while self.unsent() > 0 && !self.is_connecting && !self.is_gone {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match rustix::net::send(&self.socket, &self.out[self.sent..], flags) {
                Ok(sent) => self.sent(sent),
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Bytes that wait.
    pub fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
        // Moving no more bytes than were sent since the last time costs little.
        if self.sent >= self.unsent() {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
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
        for endpoint in endpoints {
            let failed = |why: std::io::Error| format!("{}: {why}", endpoint.text);
            let listener = endpoint.binds.then(|| endpoint.listen()).transpose().map_err(failed)?;
            ends.push(End {
                endpoint: endpoint.clone(),
                due: Some(Instant::now()),
                listener,
                pause: PAUSE,
                last_failure: String::new(),
            });
        }
        Ok(Self {
            ends,
            all: Vec::new(),
            make,
            epoll,
            bytes: vec![0; READ_BYTES],
            next_number: 0,
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
            if self.ends[at].listener.is_some() {
                self.ends[at].due = self.listen(at).err().map(|_| Instant::now() + PAUSE_MAX);
                continue;
            }
            match self.ends[at].endpoint.connect() {
                Ok(socket) => {
                    self.ends[at].due = None;
                    self.add(at, socket, true);
                }
                Err(why) => {
                    self.failed(at, &format!("{why}; it tries again"));
                    self.later(at);
                }
            }
        }
        for peer in self.all.iter_mut().filter(|peer| !peer.was_open) {
            peer.is_gone |= peer.since.elapsed() > HANDSHAKE_MAX;
        }
    }

    /// Connects to an endpoint later.
    fn later(&mut self, at: usize) {
        let end = &mut self.ends[at];
        end.due = Some(Instant::now() + end.pause);
        end.pause = (2 * end.pause).min(PAUSE_MAX);
    }

    /// Tells why there is no connection, unless the last one failed for the same reason.
    fn failed(&mut self, at: usize, why: &str) {
        let end = &mut self.ends[at];
        if end.last_failure != why {
            self.teller.say(format_args!("{}: {why}", end.endpoint.text));
            why.clone_into(&mut end.last_failure);
        }
    }

    /// From now on, looks see connections of a listener.
    fn listen(&self, at: usize) -> rustix::io::Result<()> {
        let Some(listener) = &self.ends[at].listener else { return Ok(()) };
        let data = epoll::EventData::new_u64(LISTENER | at as u64);
        epoll::add(&self.epoll, &listener.socket, data, epoll::EventFlags::IN)
    }

    fn accept(&mut self, at: usize) {
        for _ in 0..ACCEPTS {
            let Some(listener) = &self.ends[at].listener else { return };
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match rustix::net::accept_with(&listener.socket, flags) {
                Ok(_) if self.all.len() >= PEERS_MAX => {
                    self.failed(at, &format!("more than {PEERS_MAX} peers; others are refused"));
                }
                Ok(socket) => {
                    self.ends[at].endpoint.prepare(&socket);
                    self.add(at, socket, false);
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(why) => {
                    // Such as too many open files: each look would see it again.
                    let _ = epoll::delete(&self.epoll, &listener.socket);
                    self.ends[at].due = Some(Instant::now() + PAUSE_MAX);
                    return self.failed(at, &format!("{why}; it tries again"));
                }
            }
        }
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
            gave: false,
            is_gone: added.is_err(),
            is_broken: false,
            since: Instant::now(),
            out: Vec::new(),
            sent: 0,
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
                let (end, why) = (peer.end, std::io::Error::from(why));
                self.all.swap_remove(at);
                self.failed(end, &format!("{why}; it tries again"));
                self.later(end);
            }
        }
    }

    /// Takes what has come: `take` gets it with the number of connections that were open before,
    /// and says whether it wants more. Then forgets connections that are gone.
    pub fn hear(&mut self, mut take: impl FnMut(Heard<'_>, usize) -> bool) {
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
                    Ok(Some(heard)) => {
                        wants_more = take(heard, open);
                        peer.gave = true;
                    }
                    Err(wrong) => self.broke(at, wrong),
                }
            }
            self.all[at].push();
        }
        // What a connection sent before it went is taken first.
        if wants_more {
            self.forget();
        }
    }

    fn opened(&mut self, at: usize) {
        let end = &self.ends[self.all[at].end];
        let (at, text) = (if end.endpoint.binds { "a peer at " } else { "" }, &end.endpoint.text);
        let told = format!("{at}{text} is connected");
        self.teller.say(told);
        self.counts.connected.add(1);
    }

    fn broke(&mut self, at: usize, Wrong(why): Wrong) {
        self.counts.garbage.add(1);
        (self.all[at].is_gone, self.all[at].is_broken) = (true, true);
        self.failed(self.all[at].end, &format!("the peer is refused: {why}"));
    }

    /// Forgets connections that are gone. The samples that waited for them remain unread.
    fn forget(&mut self) {
        for at in (0..self.all.len()).rev().filter(|&at| self.all[at].is_gone).collect::<Vec<_>>() {
            let peer = self.all.remove(at);
            self.counts.unread.add(peer.waiting as u64);
            let end = &mut self.ends[peer.end];
            // One that was of use, and not one that fails again and again.
            let lasted = peer.was_open && peer.since.elapsed() >= PAUSE_MAX;
            if (peer.gave || lasted) && !peer.is_broken {
                (end.pause, end.last_failure) = (PAUSE, String::new());
            }
            let end = &end.endpoint;
            let connects = !end.binds;
            if peer.was_open {
                self.counts.disconnected.add(1);
                let at = if end.binds { "a peer at " } else { "" };
                let told = format!("{at}{} is gone", end.text);
                self.teller.say(told);
            }
            if !peer.was_open && !peer.is_broken {
                self.failed(peer.end, "the peer ended the connection during the handshake");
            }
            if connects {
                self.later(peer.end);
            }
        }
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
