//! The transport of management datagrams (MADs): sockets to the other processes of this host, and
//! QP 1 to other hosts.
//!
//! Each process listens on one socket for its slot, and on one for each port that it is bound to (a
//! service). A REQ goes to the socket of its service, all other MADs go to the slot of the peer. A
//! process also keeps a connection to each peer's slot, which closes when the peer ends. The
//! receiver puts the MADs of its sockets into the order of sending ([`MadInbox`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rdmalab_ring::mad_socket::{self, MadFrame, Received};
use rdmalab_wire::cm::{Addressee, Mad, Message, Rej, SidrRep, reason};
use rdmalab_wire::ids::{Gid, Qpn};

use crate::gsi::Gsi;
use crate::mad_capture::MadCapture;
use crate::mad_inbox::MadInbox;

/// At most this many frames are queued for a peer that does not read. Further frames are dropped,
/// as on a network; the protocol sends them again.
const QUEUE_MAX: usize = 16_384;
/// The interval between attempts to deliver a request to a service, ms.
pub const RETRY_MS: i32 = 2;
/// How long a request waits for a listener before it is rejected, ns. The kernel rejects at once.
/// But some programs (perftest) call `rdma_listen` for their second connection while the peer
/// already connects. They win this race only because a network delays the peer's request.
const LISTEN_GRACE_NS: u64 = 200_000_000;
/// How long a request is retried while the backlog of a service is full, or while this process has
/// no free descriptor, ns. After about that time the protocol sends the request again.
const RETRY_LIMIT_NS: u64 = 4_000_000_000;

/// The destination or the source of a MAD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// A process of this host, by its slot.
    Process(u16),
    /// The process of this host that is bound to a service.
    Service(u64),
    /// Another host.
    Remote {
        /// Our GID.
        local: Gid,
        /// The peer's GID.
        remote: Gid,
    },
}

/// The process that must answer a MAD.
enum Owner {
    ThisProcess,
    OtherProcess,
    Nobody,
}

/// Whether an error says that no process holds the address. Other errors mean that this process has
/// no descriptor or memory left, or that the peer does not read (`WouldBlock`).
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | BrokenPipe)
}

fn is_remote(peer: Peer) -> bool {
    matches!(peer, Peer::Remote { .. })
}

/// The connection to a peer. We send on it; it closes when the peer ends.
struct Connection {
    fd: OwnedFd,
    /// What waits for room, in order: frames for this connection, and requests for services of the
    /// same process, which must not overtake them.
    queue: VecDeque<(MadFrame, Option<u64>)>,
    /// The last send failed although the socket is writable (the kernel had no memory). Polling for
    /// `POLLOUT` would spin.
    is_send_failing: bool,
}

/// The sockets and queues of this process.
pub struct MadTransport {
    slot: u16,
    listening: OwnedFd,
    services: BTreeMap<u64, OwnedFd>,
    /// Services that have a listener. A request between `rdma_bind_addr` and `rdma_listen` waits as
    /// if the service were not bound: the thread is faster than the program's next call.
    listened: BTreeSet<u64>,
    /// Services that were released. The thread closes their sockets, because it may be polling
    /// them.
    released: BTreeMap<u64, OwnedFd>,
    connections: BTreeMap<u16, Connection>,
    inbox: MadInbox,
    /// Requests whose service is not bound or has a full backlog: a queue for each service.
    retries: BTreeMap<u64, VecDeque<MadFrame>>,
    /// Requests that wait for a listener of this process, and the time when they came.
    without_listener: Vec<(Peer, Mad, u64)>,
    /// MADs from this process to itself, and rejections for services without a listener.
    loopback: VecDeque<(Peer, Mad)>,
    /// Peers that have ended.
    gone: VecDeque<Peer>,
    gsi: Option<Gsi>,
    capture: MadCapture,
    /// The time of the last frame.
    last_sent_ns: u64,
    wakeup: OwnedFd,
}

impl MadTransport {
    /// Claims a slot of this host.
    pub fn take_slot(start: u16, gsi: Option<Gsi>) -> io::Result<Self> {
        let (slot, listening) = mad_socket::claim_slot(start)?;
        Ok(Self {
            slot,
            listening,
            services: BTreeMap::new(),
            listened: BTreeSet::new(),
            released: BTreeMap::new(),
            connections: BTreeMap::new(),
            inbox: MadInbox::default(),
            retries: BTreeMap::new(),
            without_listener: Vec::new(),
            loopback: VecDeque::new(),
            gone: VecDeque::new(),
            gsi,
            capture: MadCapture::new(),
            last_sent_ns: 0,
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

    /// Binds a service for this process; `AddrInUse` when another process has it.
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

    /// Releases a service.
    pub fn release(&mut self, service_id: u64) {
        if let Some(fd) = self.services.remove(&service_id) {
            self.released.insert(service_id, fd);
            self.wake();
        }
    }

    /// Records whether a service of this process has a listener.
    pub fn set_listening(&mut self, service_id: u64, is_listening: bool) {
        match is_listening {
            true => self.listened.insert(service_id),
            false => self.listened.remove(&service_id),
        };
    }

    /// Wakes the thread.
    pub fn wake(&self) {
        crate::eventfd::signal(self.wakeup.as_fd());
    }

    /// The next loopback MAD.
    pub fn next_loopback(&mut self) -> Option<(Peer, Mad)> {
        let (peer, mad) = self.loopback.pop_front()?;
        self.capture.received(&mad);
        Some((peer, mad))
    }

    /// The next peer that has ended.
    pub fn next_gone(&mut self) -> Option<Peer> {
        self.gone.pop_front()
    }

    /// Sends a MAD.
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
                if self.connect(slot) {
                    self.queue(slot, frame, None);
                    self.send_queued(slot);
                    if self.is_queued(slot) {
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
                self.send_to_service(service, frame);
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

    /// Queues a request until its service has a listener. Drops it if too many wait.
    fn hold_for_listener(&mut self, from: Peer, mad: Mad, since_ns: u64) {
        if self.without_listener.len() < QUEUE_MAX {
            self.without_listener.push((from, mad, since_ns));
        }
    }

    fn frame(&mut self, mad: &Mad) -> MadFrame {
        self.last_sent_ns = crate::os::now_ns().max(self.last_sent_ns + 1);
        MadFrame { slot: self.slot, sent_ns: self.last_sent_ns, mad: mad.to_bytes() }
    }

    /// Queues a frame for a peer, or behind its frames for one of its services. Drops it if too
    /// many wait.
    fn queue(&mut self, slot: u16, frame: MadFrame, service: Option<u64>) {
        if let Some(connection) = self.connections.get_mut(&slot)
            && connection.queue.len() < QUEUE_MAX
        {
            connection.queue.push_back((frame, service));
        }
    }

    fn is_queued(&self, slot: u16) -> bool {
        self.connections.get(&slot).is_some_and(|connection| !connection.queue.is_empty())
    }

    /// Sends a request to a service, after the earlier ones.
    fn send_to_service(&mut self, service: u64, frame: MadFrame) {
        if self.retries.contains_key(&service) {
            self.retry_later(service, frame);
        } else if let Err(error) = self.try_service(service, &frame) {
            self.on_service_error(service, frame, &error);
        }
    }

    /// Sends a request to a service, over a connection for this request only. It waits behind
    /// earlier frames for the same process, if there are any.
    fn try_service(&mut self, service: u64, frame: &MadFrame) -> io::Result<()> {
        let fd = mad_socket::connect_service(service)?;
        let is_same = |connection: &Connection| {
            mad_socket::listener_pid(connection.fd.as_fd()) == mad_socket::listener_pid(fd.as_fd())
        };
        let mut queued = self.connections.iter().filter(|(_, peer)| !peer.queue.is_empty());
        match queued.find(|(_, peer)| is_same(peer)).map(|(slot, _)| *slot) {
            Some(slot) => self.queue(slot, frame.clone(), Some(service)),
            None => mad_socket::send(fd.as_fd(), frame)?,
        }
        Ok(())
    }

    /// Handles a failed attempt to send a request; returns whether it is tried again.
    fn on_service_error(&mut self, service: u64, frame: MadFrame, error: &io::Error) -> bool {
        let is_unclaimed = is_gone(error);
        let limit_ns = if is_unclaimed { LISTEN_GRACE_NS } else { RETRY_LIMIT_NS };
        let is_tried_again = crate::os::now_ns() < frame.sent_ns + limit_ns;
        if is_tried_again {
            self.retry_later(service, frame);
        } else if is_unclaimed
            && let Ok(mad) = Mad::parse(&frame.mad)
            && let Some(answer) = refusal(&mad)
        {
            // The kernel's connection manager would answer the same.
            self.loopback.push_back((Peer::Service(service), answer));
        }
        // Otherwise it is dropped, as on a network.
        is_tried_again
    }

    fn retry_later(&mut self, service: u64, frame: MadFrame) {
        if self.retries.values().map(VecDeque::len).sum::<usize>() < QUEUE_MAX {
            self.retries.entry(service).or_default().push_back(frame);
        }
    }

    /// Sends the requests that wait for their service, until the first that must wait on.
    fn retry_services(&mut self) {
        for (service, mut waiting) in std::mem::take(&mut self.retries) {
            while let Some(frame) = waiting.pop_front() {
                if let Err(error) = self.try_service(service, &frame)
                    && self.on_service_error(service, frame, &error)
                {
                    self.retries.entry(service).or_default().append(&mut waiting);
                }
            }
        }
    }

    /// Connects to a peer if there is no connection; returns whether there is one now.
    fn connect(&mut self, slot: u16) -> bool {
        if slot == self.slot || self.connections.contains_key(&slot) {
            return true;
        }
        match mad_socket::connect_slot(slot) {
            Ok(fd) => {
                self.connections.insert(
                    slot,
                    Connection { fd, queue: VecDeque::new(), is_send_failing: false },
                );
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

    /// Sends the queued frames of a peer, until its socket is full.
    fn send_queued(&mut self, slot: u16) {
        while let Some(connection) = self.connections.get_mut(&slot) {
            connection.is_send_failing = false;
            let Some((frame, service)) = connection.queue.pop_front() else { return };
            let Some(service) = service else {
                match mad_socket::send(connection.fd.as_fd(), &frame) {
                    Ok(()) => continue,
                    Err(error) if is_gone(&error) => return self.on_end(slot),
                    Err(error) => {
                        connection.is_send_failing = error.kind() != io::ErrorKind::WouldBlock;
                        return connection.queue.push_front((frame, None));
                    }
                }
            };
            let sent = mad_socket::connect_service(service)
                .and_then(|fd| mad_socket::send(fd.as_fd(), &frame));
            if let Err(error) = sent {
                self.on_service_error(service, frame, &error);
            }
        }
    }

    /// Forgets a peer that has ended. Another process may have its services by now.
    fn on_end(&mut self, slot: u16) {
        self.gone.push_back(Peer::Process(slot));
        let queue = self.connections.remove(&slot).map(|peer| peer.queue).unwrap_or_default();
        for (frame, service) in queue {
            if let Some(service) = service {
                self.send_to_service(service, frame);
            }
        }
    }

    /// The descriptors that the thread polls, and whether it must run again after [`RETRY_MS`].
    pub fn poll_set(&self) -> (Vec<libc::pollfd>, bool) {
        let poll = |fd: RawFd, events| libc::pollfd { fd, events, revents: 0 };
        let mut poll_set = vec![poll(self.wakeup.as_raw_fd(), libc::POLLIN)];
        if !self.inbox.is_out_of_fds {
            poll_set.push(poll(self.listening.as_raw_fd(), libc::POLLIN));
            poll_set.extend(self.services.values().map(|fd| poll(fd.as_raw_fd(), libc::POLLIN)));
        }
        poll_set.extend(self.gsi.iter().map(|gsi| poll(gsi.fd(), libc::POLLIN)));
        poll_set.extend(self.inbox.accepted.iter().map(|fd| poll(fd.as_raw_fd(), libc::POLLIN)));
        let waits =
            |connection: &Connection| !connection.queue.is_empty() && !connection.is_send_failing;
        let wanted = |connection: &Connection| if waits(connection) { libc::POLLOUT } else { 0 };
        poll_set.extend(
            self.connections
                .values()
                .map(|connection| poll(connection.fd.as_raw_fd(), wanted(connection))),
        );
        let is_stuck = self.inbox.is_out_of_fds
            || self.connections.values().any(|connection| connection.is_send_failing);
        (poll_set, is_stuck || !self.retries.is_empty() || !self.without_listener.is_empty())
    }

    /// Receives from all sockets; returns the MADs for the protocol.
    pub fn receive_all(&mut self) -> Vec<(Peer, Mad)> {
        crate::eventfd::clear(self.wakeup.as_fd());
        self.close_released();
        // The frames that a process sent before its end are in the sockets, and are read below.
        self.check_connections();
        let listening: Vec<&OwnedFd> = self.services.values().chain([&self.listening]).collect();
        let frames = self.inbox.receive(&listening);
        if self.inbox.has_waiting() {
            self.wake();
        }
        self.retry_services();
        let now_ns = crate::os::now_ns();
        let mut requests = std::mem::take(&mut self.without_listener);
        for frame in frames {
            if let Some((peer, mad)) = self.parse(&frame) {
                requests.push((peer, mad, now_ns));
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
            // A process of this host sends only requests to a socket that others may have by now.
            let addressee = Mad::addressee(&mad.to_bytes());
            let is_asked = is_remote(peer) || matches!(addressee, Ok(Addressee::Service(_)));
            let owner = if is_asked { self.owner_of(&mad) } else { Owner::ThisProcess };
            match owner {
                Owner::ThisProcess => mads.push((peer, mad)),
                Owner::Nobody if now_ns >= since_ns + LISTEN_GRACE_NS => mads.push((peer, mad)),
                Owner::Nobody => self.hold_for_listener(peer, mad, since_ns),
                Owner::OtherProcess => {}
            }
        }
        for (_, mad) in mads.iter().filter(|(from, _)| !is_remote(*from)) {
            self.capture.received(mad);
        }
        mads
    }

    /// Closes released services. Requests that wait there are kept: the program may bind the
    /// service again soon.
    fn close_released(&mut self) {
        for socket in std::mem::take(&mut self.released).into_values() {
            while let Ok(Some(fd)) = mad_socket::accept(socket.as_fd()) {
                while let Received::Frame(frame) = mad_socket::receive(fd.as_fd()) {
                    if let Some((peer, mad)) = self.parse(&frame) {
                        self.hold_for_listener(peer, mad, crate::os::now_ns());
                    }
                }
            }
        }
    }

    /// The process that must answer a MAD. Every process that opened QP 1 receives all MADs of the
    /// host. If a MAD has no owner, all of them answer it, which does no harm. If the owner cannot
    /// be determined, the MAD counts as another process's, so that no wrong rejection is sent.
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

    /// The sender and the MAD of a frame. Connects to the sender, to notice when it ends.
    fn parse(&mut self, frame: &MadFrame) -> Option<(Peer, Mad)> {
        let mad = Mad::parse(&frame.mad).ok()?;
        self.connect(frame.slot);
        Some((Peer::Process(frame.slot), mad))
    }

    fn check_connections(&mut self) {
        let slots: Vec<u16> = self.connections.keys().copied().collect();
        for slot in slots {
            // Peers do not send here: a readable socket means that the peer has ended.
            let ended = self.connections.get(&slot).is_some_and(|connection| {
                matches!(mad_socket::receive(connection.fd.as_fd()), Received::Closed)
            });
            match ended {
                true => self.on_end(slot),
                false => self.send_queued(slot),
            }
        }
    }
}

/// The answer to a request for a service without a listener.
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
