//! Where frames go out and come in: the sockets of this process and the thread that serves them.
//!
//! The thread sleeps until a frame comes, a peer goes away or a timer is due; an idle process uses
//! no processor time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rdmalab_ring::mad_socket::{self, MadFrame, Received};
use rdmalab_wire::cm::{Addressee, Mad, Message, Rej, SidrRep, reason};
use rdmalab_wire::ids::{Gid, Qpn};

use crate::gsi::Gsi;
use crate::mad_capture::MadCapture;

/// Letters to one peer that wait for it to read; more are gone, as on a wire, and sent again by
/// the protocol.
const QUEUE_MAX: usize = 16_384;
/// How long to wait before retries again where too many wait or nobody answers, ms.
pub const RETRY_MS: i32 = 2;
/// How long a service may be without a holder before a request for it is refused, ns. A host's own
/// manager refuses at once; but some programs (perftest) listen anew for their second connection
/// while the peer is already asking for it, and win that race only where a network is between.
const LISTEN_GRACE_NS: u64 = 200_000_000;
/// How long to send_to_service where too many wait, or while we are short of descriptors, ns: about as long
/// as the protocol waits until it sends the same again.
const RETRY_LIMIT_NS: u64 = 4_000_000_000;

/// Who a datagram is for or from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// A process of this host, by its slot.
    Process(u16),
    /// Whoever holds a service on this host.
    Service(u64),
    /// Another host.
    Remote {
        /// Our GID.
        local: Gid,
        /// Theirs.
        remote: Gid,
    },
}

/// Who has to answer a datagram.
enum Owner {
    ThisProcess,
    OtherProcess,
    Nobody,
}

/// Whether a name's socket says that nobody has it. Everything else is about us (no descriptors, no
/// memory) or about a process that lives and does not lookup (`WouldBlock`).
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | BrokenPipe)
}

fn is_remote(peer: Peer) -> bool {
    matches!(peer, Peer::Remote { .. })
}

fn is_readable(fd: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one live pollfd.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
}

/// Our connection to a peer: for sending, and to notice its end.
struct Connection {
    fd: OwnedFd,
    queue: VecDeque<MadFrame>,
    /// The kernel had no memory for a frame, which does not make the socket unwritable.
    is_short: bool,
}

/// The sockets of this process.
pub struct MadTransport {
    slot: u16,
    listening: OwnedFd,
    services: BTreeMap<u64, OwnedFd>,
    /// Those of them that somebody listens for. Between binding and listening a request waits as if
    /// nobody held the service: binding wakes the thread, which is faster than the program's next
    /// call.
    listened: BTreeSet<u64>,
    /// Services that were given back. The thread closes them: while it waits for one, its name is
    /// taken.
    released: BTreeMap<u64, OwnedFd>,
    connections: BTreeMap<u16, Connection>,
    accepted: Vec<OwnedFd>,
    /// Requests to services where too many wait, or that nobody holds; and when they began.
    retries: Vec<(u64, MadFrame, u64)>,
    /// Requests for services that nobody here listens for; and when they came.
    without_listener: Vec<(Peer, Mad, u64)>,
    /// What came from this process itself, or was answered on behalf of nobody.
    loopback: VecDeque<(Peer, Mad)>,
    /// Peers that are gone.
    gone: VecDeque<Peer>,
    gsi: Option<Gsi>,
    capture: MadCapture,
    /// There was no descriptor for who needs_retry here: the sockets stay readable, and are no use.
    is_short: bool,
    wakeup: OwnedFd,
}

impl MadTransport {
    /// Takes a slot of this host.
    pub fn take_slot(start: u16, gsi: Option<Gsi>) -> io::Result<Self> {
        let (slot, listening) = mad_socket::claim_slot(start)?;
        Ok(Self {
            slot,
            listening,
            services: BTreeMap::new(),
            listened: BTreeSet::new(),
            released: BTreeMap::new(),
            connections: BTreeMap::new(),
            accepted: Vec::new(),
            retries: Vec::new(),
            without_listener: Vec::new(),
            loopback: VecDeque::new(),
            gone: VecDeque::new(),
            gsi,
            capture: MadCapture::new(),
            is_short: false,
            wakeup: crate::eventfd::create()?,
        })
    }

    /// This process's slot.
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// Whether other hosts can be reached.
    pub fn has_network(&self) -> bool {
        self.gsi.is_some()
    }

    /// Takes a service for this process alone; `AddrInUse` when another one has it.
    pub fn claim(&mut self, service_id: u64) -> io::Result<()> {
        if let std::collections::btree_map::Entry::Vacant(place) = self.services.entry(service_id) {
            let fd = match self.released.remove(&service_id) {
                Some(fd) => fd,
                None => mad_socket::claim_service(service_id)?,
            };
            place.insert(fd);
            self.wake();
        }
        Ok(())
    }

    /// Gives a service back.
    pub fn release(&mut self, service_id: u64) {
        if let Some(fd) = self.services.remove(&service_id) {
            self.released.insert(service_id, fd);
            self.wake();
        }
    }

    /// Somebody listens for a service of ours from now on, or nobody.
    pub fn set_listening(&mut self, service_id: u64, is_listening: bool) {
        match is_listening {
            true => self.listened.insert(service_id),
            false => self.listened.remove(&service_id),
        };
    }

    /// Makes the thread lookup again.
    pub fn wake(&self) {
        crate::eventfd::signal(self.wakeup.as_fd());
    }

    /// The next datagram that came without a socket.
    pub fn next_loopback(&mut self) -> Option<(Peer, Mad)> {
        let (peer, mad) = self.loopback.pop_front()?;
        self.capture.received(&mad);
        Some((peer, mad))
    }

    /// The next peer that is found gone.
    pub fn next_gone(&mut self) -> Option<Peer> {
        self.gone.pop_front()
    }

    /// Sends a datagram.
    pub fn send(&mut self, to: Peer, mad: Mad) {
        if !is_remote(to) {
            self.capture.sent(&mad);
        }
        match to {
            Peer::Process(slot) if slot == self.slot => {
                self.loopback.push_back((Peer::Process(self.slot), mad));
            }
            Peer::Process(slot) => {
                let frame = self.frame(&mad);
                if self.connect(slot)
                    && let Some(connection) = self.connections.get_mut(&slot)
                    && connection.queue.len() < QUEUE_MAX
                {
                    connection.queue.push_back(frame);
                    self.send_queued(slot);
                    if self
                        .connections
                        .get(&slot)
                        .is_some_and(|connection| !connection.queue.is_empty())
                    {
                        self.wake();
                    }
                }
            }
            Peer::Service(service) if self.listened.contains(&service) => {
                self.loopback.push_back((Peer::Process(self.slot), mad));
            }
            Peer::Service(service) if self.services.contains_key(&service) => {
                let own = Peer::Process(self.slot);
                self.hold_for_listener(own, mad, crate::os::now_ns());
                self.wake();
            }
            Peer::Service(service) => {
                let frame = self.frame(&mad);
                self.send_to_service(service, frame, crate::os::now_ns());
                if !self.retries.is_empty() {
                    self.wake();
                }
            }
            Peer::Remote { local, remote } => {
                if let Some(gsi) = &self.gsi {
                    gsi.send(local, remote, &mad.to_bytes());
                }
            }
        }
    }

    /// Keeps a request that nobody here listens for; with too many it is gone, as on a wire.
    fn hold_for_listener(&mut self, from: Peer, mad: Mad, since_ns: u64) {
        if self.without_listener.len() < QUEUE_MAX {
            self.without_listener.push((from, mad, since_ns));
        }
    }

    fn frame(&self, mad: &Mad) -> MadFrame {
        MadFrame { slot: self.slot, mad: mad.to_bytes() }
    }

    /// Delivers a request to a service, over a connection of its own.
    fn send_to_service(&mut self, service: u64, frame: MadFrame, since_ns: u64) {
        let sent = mad_socket::connect_service(service)
            .and_then(|fd| mad_socket::send(fd.as_fd(), &frame).map(|()| drop(fd)));
        match sent {
            Ok(()) => {}
            Err(error) => self.retry_later(service, frame, since_ns, &error),
        }
    }

    fn retry_later(&mut self, service: u64, frame: MadFrame, since_ns: u64, error: &io::Error) {
        let is_unclaimed = is_gone(error);
        let limit_ns = if is_unclaimed { LISTEN_GRACE_NS } else { RETRY_LIMIT_NS };
        match crate::os::now_ns() < since_ns + limit_ns {
            true if self.retries.len() < QUEUE_MAX => {
                self.retries.push((service, frame, since_ns));
            }
            false if is_unclaimed => {
                // The answer is the one that a host's own manager would give.
                if let Ok(mad) = Mad::parse(&frame.mad)
                    && let Some(answer) = refusal(&mad)
                {
                    self.loopback.push_back((Peer::Service(service), answer));
                }
            }
            // Lost, as on a wire.
            _ => {}
        }
    }

    /// Connects to a peer, unless we are; returns whether we are now.
    fn connect(&mut self, slot: u16) -> bool {
        if slot == self.slot || self.connections.contains_key(&slot) {
            return true;
        }
        match mad_socket::connect_slot(slot) {
            Ok(fd) => {
                self.connections
                    .insert(slot, Connection { fd, queue: VecDeque::new(), is_short: false });
                self.wake();
                true
            }
            Err(error) => {
                if is_gone(&error) {
                    self.gone.push_back(Peer::Process(slot));
                }
                false
            }
        }
    }

    /// Sends what waits for a peer, as far as it reads.
    fn send_queued(&mut self, slot: u16) {
        let Some(connection) = self.connections.get_mut(&slot) else { return };
        connection.is_short = false;
        while let Some(frame) = connection.queue.front() {
            match mad_socket::send(connection.fd.as_fd(), frame) {
                Ok(()) => {
                    connection.queue.pop_front();
                }
                Err(error) if is_gone(&error) => {
                    self.connections.remove(&slot);
                    self.gone.push_back(Peer::Process(slot));
                    return;
                }
                Err(error) => {
                    connection.is_short = error.kind() != io::ErrorKind::WouldBlock;
                    return;
                }
            }
        }
    }

    /// What the thread has to wait for, and whether it has to lookup again soon in any case.
    pub fn poll_set(&self) -> (Vec<libc::pollfd>, bool) {
        let poll = |fd: RawFd, events| libc::pollfd { fd, events, revents: 0 };
        let mut poll_set = vec![poll(self.wakeup.as_raw_fd(), libc::POLLIN)];
        if !self.is_short {
            poll_set.push(poll(self.listening.as_raw_fd(), libc::POLLIN));
            poll_set.extend(self.services.values().map(|fd| poll(fd.as_raw_fd(), libc::POLLIN)));
        }
        poll_set.extend(self.gsi.iter().map(|gsi| poll(gsi.fd(), libc::POLLIN)));
        poll_set.extend(self.accepted.iter().map(|fd| poll(fd.as_raw_fd(), libc::POLLIN)));
        let waits = |connection: &Connection| !connection.queue.is_empty() && !connection.is_short;
        let wanted = |connection: &Connection| if waits(connection) { libc::POLLOUT } else { 0 };
        poll_set.extend(
            self.connections
                .values()
                .map(|connection| poll(connection.fd.as_raw_fd(), wanted(connection))),
        );
        let is_short =
            self.is_short || self.connections.values().any(|connection| connection.is_short);
        (poll_set, is_short || !self.retries.is_empty() || !self.without_listener.is_empty())
    }

    /// Takes everything that came; the result is for the manager.
    pub fn receive_all(&mut self) -> Vec<(Peer, Mad)> {
        crate::eventfd::clear(self.wakeup.as_fd());
        self.close_released();
        let mut frames = Vec::new();
        self.is_short = false;
        for gsi in self.services.values().chain([&self.listening]) {
            loop {
                match mad_socket::accept(gsi.as_fd()) {
                    Ok(Some(fd)) => self.accepted.push(fd),
                    Ok(None) => break,
                    // The kernel takes a descriptor before it lookups whether anybody needs_retry.
                    Err(_) => {
                        self.is_short |= is_readable(gsi);
                        break;
                    }
                }
            }
        }
        self.accepted.retain(|fd| {
            loop {
                match mad_socket::receive(fd.as_fd()) {
                    Received::Frame(frame) => frames.push(*frame),
                    Received::Invalid => {}
                    Received::Empty => return true,
                    Received::Closed => return false,
                }
            }
        });
        for (service, frame, since_ns) in std::mem::take(&mut self.retries) {
            self.send_to_service(service, frame, since_ns);
        }
        self.check_connections();
        let now_ns = crate::os::now_ns();
        let mut requests = std::mem::take(&mut self.without_listener);
        let mut others = Vec::new();
        for frame in frames {
            let Some((peer, mad)) = self.parse(&frame) else { continue };
            match Mad::addressee(&frame.mad) {
                Ok(Addressee::Service(_)) => requests.push((peer, mad, now_ns)),
                _ => others.push((peer, mad)),
            }
        }
        while let Some(received) = self.gsi.as_ref().and_then(Gsi::receive) {
            if let Ok(mad) = Mad::parse(&received.mad) {
                let peer = Peer::Remote { local: received.to, remote: received.from };
                requests.push((peer, mad, now_ns));
            }
        }
        let mut mads = Vec::new();
        for (peer, mad, since_ns) in requests {
            match self.owner_of(&mad) {
                Owner::ThisProcess => mads.push((peer, mad)),
                Owner::Nobody if now_ns >= since_ns + LISTEN_GRACE_NS => mads.push((peer, mad)),
                Owner::Nobody => self.hold_for_listener(peer, mad, since_ns),
                Owner::OtherProcess => {}
            }
        }
        // Requests come first: what is said about them goes another path, and may be here already.
        mads.extend(others);
        for (_, mad) in mads.iter().filter(|(from, _)| !is_remote(*from)) {
            self.capture.received(mad);
        }
        mads
    }

    /// Closes services that were given back. Who knocked meanwhile is not gone: somebody may take
    /// the service again soon.
    fn close_released(&mut self) {
        for gsi in std::mem::take(&mut self.released).into_values() {
            while let Ok(Some(fd)) = mad_socket::accept(gsi.as_fd()) {
                while let Received::Frame(frame) = mad_socket::receive(fd.as_fd()) {
                    if let Some((peer, mad)) = self.parse(&frame) {
                        self.hold_for_listener(peer, mad, crate::os::now_ns());
                    }
                }
            }
        }
    }

    /// Owner a datagram from another host is: every process that opened the gsi is shown all.
    /// What is nobody's is answered by everybody, which does no harm; so it must be nobody's for
    /// sure.
    fn owner_of(&self, mad: &Mad) -> Owner {
        match Mad::addressee(&mad.to_bytes()) {
            Ok(Addressee::Service(service)) if self.listened.contains(&service) => {
                Owner::ThisProcess
            }
            Ok(Addressee::Service(service)) if self.services.contains_key(&service) => {
                Owner::Nobody
            }
            Ok(Addressee::Service(service)) => match mad_socket::connect_service(service) {
                Ok(_) => Owner::OtherProcess,
                Err(error) if is_gone(&error) => Owner::Nobody,
                Err(_) => Owner::OtherProcess,
            },
            Ok(Addressee::Communication(id)) => match mad_socket::slot_of(id) {
                slot if slot == self.slot => Owner::ThisProcess,
                slot => match mad_socket::connect_slot(slot) {
                    Err(error) if is_gone(&error) => Owner::ThisProcess,
                    _ => Owner::OtherProcess,
                },
            },
            Err(_) => Owner::OtherProcess,
        }
    }

    /// Who sent a frame, and what; from now on its sender is watched.
    fn parse(&mut self, frame: &MadFrame) -> Option<(Peer, Mad)> {
        let mad = Mad::parse(&frame.mad).ok()?;
        self.connect(frame.slot);
        Some((Peer::Process(frame.slot), mad))
    }

    fn check_connections(&mut self) {
        let slots: Vec<u16> = self.connections.keys().copied().collect();
        for slot in slots {
            // Peers do not write here: whatever there is to read is the end.
            let ended = self.connections.get(&slot).is_some_and(|connection| {
                matches!(mad_socket::receive(connection.fd.as_fd()), Received::Closed)
            });
            if ended {
                self.connections.remove(&slot);
                self.gone.push_back(Peer::Process(slot));
            } else {
                self.send_queued(slot);
            }
        }
    }
}

/// The answer to a request for a service that nobody holds.
fn refusal(mad: &Mad) -> Option<Mad> {
    let message = match &mad.message {
        Message::Req(req) => Message::Rej(Rej {
            local_id: 0,
            remote_id: req.local_id,
            about: 0,
            reason: reason::INVALID_SERVICE_ID,
            info_length: 0,
            info: [0; Rej::INFO_BYTES],
            private_data: [0; Rej::PRIVATE_BYTES],
        }),
        Message::SidrReq(req) => Message::SidrRep(SidrRep {
            request_id: req.request_id,
            status: 1,
            info_length: 0,
            qpn: Qpn::default(),
            service_id: req.service_id,
            qkey: 0,
            info: [0; SidrRep::INFO_BYTES],
            private_data: [0; SidrRep::PRIVATE_BYTES],
        }),
        _ => return None,
    };
    Some(Mad { transaction: mad.transaction, message })
}

#[cfg(test)]
mod tests;
