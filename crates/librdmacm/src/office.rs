//! Where letters go out and come in: the sockets of this process and the thread that serves them.
//!
//! The thread sleeps until a letter comes, a peer goes away or a timer is due; an idle process uses
//! no processor time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rdmalab_ring::madbox::{self, Letter, Received};
use rdmalab_wire::cm::{Addressee, Mad, Message, Rej, SidrRep, reason};
use rdmalab_wire::ids::{Gid, Qpn};

use crate::door::Door;
use crate::notes::Notes;
use crate::world::World;

/// Letters to one peer that wait for it to read; more are lost, as on a wire, and sent again by
/// the protocol.
const QUEUE_MAX: usize = 16_384;
/// How long to wait before knocking again where too many wait or nobody answers, ms.
const KNOCK_MS: i32 = 2;
/// How long a service may be without a holder before a request for it is refused, ns. A host's own
/// manager refuses at once; but some programs (perftest) listen anew for their second connection
/// while the peer is already asking for it, and win that race only where a network is between.
const GRACE_NS: u64 = 200_000_000;
/// How long to knock where too many wait, or while we are short of descriptors, ns: about as long
/// as the protocol waits until it sends the same again.
const PATIENCE_NS: u64 = 4_000_000_000;

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
enum Whose {
    Ours,
    Others,
    Nobodys,
}

/// Whether a name's socket says that nobody has it. Everything else is about us (no descriptors, no
/// memory) or about a process that lives and does not look (`WouldBlock`).
fn nobody_is_there(error: &io::Error) -> bool {
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
struct Link {
    fd: OwnedFd,
    queue: VecDeque<Letter>,
    /// The kernel had no memory for a letter, which does not make the socket unwritable.
    is_short: bool,
}

/// The sockets of this process.
pub struct Office {
    slot: u16,
    listening: OwnedFd,
    services: BTreeMap<u64, OwnedFd>,
    /// Those of them that somebody listens for. Between binding and listening a request waits as if
    /// nobody held the service: binding wakes the thread, which is faster than the program's next
    /// call.
    open: BTreeSet<u64>,
    /// Services that were given back. The thread closes them: while it waits for one, its name is
    /// taken.
    retired: BTreeMap<u64, OwnedFd>,
    links: BTreeMap<u16, Link>,
    incoming: Vec<OwnedFd>,
    /// Requests to services where too many wait, or that nobody holds; and when they began.
    knocking: Vec<(u64, Letter, u64)>,
    /// Requests for services that nobody here listens for; and when they came.
    unanswered: Vec<(Peer, Mad, u64)>,
    /// What came from this process itself, or was answered on behalf of nobody.
    inbox: VecDeque<(Peer, Mad)>,
    /// Peers that are gone.
    lost: VecDeque<Peer>,
    door: Option<Door>,
    notes: Notes,
    /// There was no descriptor for who knocks here: the sockets stay readable, and are no use.
    is_short: bool,
    kick: OwnedFd,
}

impl Office {
    /// Takes a slot of this host.
    pub fn take_slot(start: u16, door: Option<Door>) -> io::Result<Self> {
        let (slot, listening) = madbox::claim_slot(start)?;
        Ok(Self {
            slot,
            listening,
            services: BTreeMap::new(),
            open: BTreeSet::new(),
            retired: BTreeMap::new(),
            links: BTreeMap::new(),
            incoming: Vec::new(),
            knocking: Vec::new(),
            unanswered: Vec::new(),
            inbox: VecDeque::new(),
            lost: VecDeque::new(),
            door,
            notes: Notes::new(),
            is_short: false,
            kick: crate::channel::event_fd()?,
        })
    }

    /// This process's slot.
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// Whether other hosts can be reached.
    pub fn has_door(&self) -> bool {
        self.door.is_some()
    }

    /// Takes a service for this process alone; `AddrInUse` when another one has it.
    pub fn claim(&mut self, service_id: u64) -> io::Result<()> {
        if let std::collections::btree_map::Entry::Vacant(place) = self.services.entry(service_id) {
            let fd = match self.retired.remove(&service_id) {
                Some(fd) => fd,
                None => madbox::claim_service(service_id)?,
            };
            place.insert(fd);
            self.wake();
        }
        Ok(())
    }

    /// Gives a service back.
    pub fn release(&mut self, service_id: u64) {
        if let Some(fd) = self.services.remove(&service_id) {
            self.retired.insert(service_id, fd);
            self.wake();
        }
    }

    /// Somebody listens for a service of ours from now on, or nobody.
    pub fn open(&mut self, service_id: u64, is_open: bool) {
        match is_open {
            true => self.open.insert(service_id),
            false => self.open.remove(&service_id),
        };
    }

    /// Makes the thread look again.
    pub fn wake(&self) {
        crate::channel::add_one(self.kick.as_fd());
    }

    /// The next datagram that came without a socket.
    pub fn next_inside(&mut self) -> Option<(Peer, Mad)> {
        let (peer, mad) = self.inbox.pop_front()?;
        self.notes.received(&mad);
        Some((peer, mad))
    }

    /// The next peer that is found gone.
    pub fn next_lost(&mut self) -> Option<Peer> {
        self.lost.pop_front()
    }

    /// Sends a datagram.
    pub fn post(&mut self, to: Peer, mad: Mad) {
        if !is_remote(to) {
            self.notes.sent(&mad);
        }
        match to {
            Peer::Process(slot) if slot == self.slot => {
                self.inbox.push_back((Peer::Process(self.slot), mad));
            }
            Peer::Process(slot) => {
                let letter = self.letter(&mad);
                if self.open_link(slot)
                    && let Some(link) = self.links.get_mut(&slot)
                    && link.queue.len() < QUEUE_MAX
                {
                    link.queue.push_back(letter);
                    self.push(slot);
                    if self.links.get(&slot).is_some_and(|link| !link.queue.is_empty()) {
                        self.wake();
                    }
                }
            }
            Peer::Service(service) if self.open.contains(&service) => {
                self.inbox.push_back((Peer::Process(self.slot), mad));
            }
            Peer::Service(service) if self.services.contains_key(&service) => {
                let own = Peer::Process(self.slot);
                self.keep_unanswered(own, mad, crate::world::now_ns());
                self.wake();
            }
            Peer::Service(service) => {
                let letter = self.letter(&mad);
                self.knock(service, letter, crate::world::now_ns());
                if !self.knocking.is_empty() {
                    self.wake();
                }
            }
            Peer::Remote { local, remote } => {
                if let Some(door) = &self.door {
                    door.send(local, remote, &mad.to_bytes());
                }
            }
        }
    }

    /// Keeps a request that nobody here listens for; with too many it is lost, as on a wire.
    fn keep_unanswered(&mut self, from: Peer, mad: Mad, since_ns: u64) {
        if self.unanswered.len() < QUEUE_MAX {
            self.unanswered.push((from, mad, since_ns));
        }
    }

    fn letter(&self, mad: &Mad) -> Letter {
        Letter { slot: self.slot, mad: mad.to_bytes() }
    }

    /// Delivers a request to a service, over a connection of its own.
    fn knock(&mut self, service: u64, letter: Letter, since_ns: u64) {
        let sent = madbox::connect_service(service)
            .and_then(|fd| madbox::send(fd.as_fd(), &letter).map(|()| drop(fd)));
        match sent {
            Ok(()) => {}
            Err(error) => self.knock_again(service, letter, since_ns, &error),
        }
    }

    fn knock_again(&mut self, service: u64, letter: Letter, since_ns: u64, error: &io::Error) {
        let is_empty = nobody_is_there(error);
        let patience_ns = if is_empty { GRACE_NS } else { PATIENCE_NS };
        match crate::world::now_ns() < since_ns + patience_ns {
            true if self.knocking.len() < QUEUE_MAX => {
                self.knocking.push((service, letter, since_ns));
            }
            false if is_empty => {
                // The answer is the one that a host's own manager would give.
                if let Ok(mad) = Mad::parse(&letter.mad)
                    && let Some(answer) = nobody_listens(&mad)
                {
                    self.inbox.push_back((Peer::Service(service), answer));
                }
            }
            // Lost, as on a wire.
            _ => {}
        }
    }

    /// Connects to a peer, unless we are; returns whether we are now.
    fn open_link(&mut self, slot: u16) -> bool {
        if slot == self.slot || self.links.contains_key(&slot) {
            return true;
        }
        match madbox::connect_slot(slot) {
            Ok(fd) => {
                self.links.insert(slot, Link { fd, queue: VecDeque::new(), is_short: false });
                self.wake();
                true
            }
            Err(error) => {
                if nobody_is_there(&error) {
                    self.lost.push_back(Peer::Process(slot));
                }
                false
            }
        }
    }

    /// Sends what waits for a peer, as far as it reads.
    fn push(&mut self, slot: u16) {
        let Some(link) = self.links.get_mut(&slot) else { return };
        link.is_short = false;
        while let Some(letter) = link.queue.front() {
            match madbox::send(link.fd.as_fd(), letter) {
                Ok(()) => {
                    link.queue.pop_front();
                }
                Err(error) if nobody_is_there(&error) => {
                    self.links.remove(&slot);
                    self.lost.push_back(Peer::Process(slot));
                    return;
                }
                Err(error) => {
                    link.is_short = error.kind() != io::ErrorKind::WouldBlock;
                    return;
                }
            }
        }
    }

    /// What the thread has to wait for, and whether it has to look again soon in any case.
    fn polls(&self) -> (Vec<libc::pollfd>, bool) {
        let poll = |fd: RawFd, events| libc::pollfd { fd, events, revents: 0 };
        let mut polls = vec![poll(self.kick.as_raw_fd(), libc::POLLIN)];
        if !self.is_short {
            polls.push(poll(self.listening.as_raw_fd(), libc::POLLIN));
            polls.extend(self.services.values().map(|fd| poll(fd.as_raw_fd(), libc::POLLIN)));
        }
        polls.extend(self.door.iter().map(|door| poll(door.fd(), libc::POLLIN)));
        polls.extend(self.incoming.iter().map(|fd| poll(fd.as_raw_fd(), libc::POLLIN)));
        let waits = |link: &Link| !link.queue.is_empty() && !link.is_short;
        let wanted = |link: &Link| if waits(link) { libc::POLLOUT } else { 0 };
        polls.extend(self.links.values().map(|link| poll(link.fd.as_raw_fd(), wanted(link))));
        let is_short = self.is_short || self.links.values().any(|link| link.is_short);
        (polls, is_short || !self.knocking.is_empty() || !self.unanswered.is_empty())
    }

    /// Takes everything that came; the result is for the manager.
    fn collect(&mut self) -> Vec<(Peer, Mad)> {
        crate::channel::drain(self.kick.as_fd());
        self.close_retired();
        let mut letters = Vec::new();
        self.is_short = false;
        for door in self.services.values().chain([&self.listening]) {
            loop {
                match madbox::accept(door.as_fd()) {
                    Ok(Some(fd)) => self.incoming.push(fd),
                    Ok(None) => break,
                    // The kernel takes a descriptor before it looks whether anybody knocks.
                    Err(_) => {
                        self.is_short |= is_readable(door);
                        break;
                    }
                }
            }
        }
        self.incoming.retain(|fd| {
            loop {
                match madbox::receive(fd.as_fd()) {
                    Received::Letter(letter) => letters.push(*letter),
                    Received::Noise => {}
                    Received::Nothing => return true,
                    Received::End => return false,
                }
            }
        });
        for (service, letter, since_ns) in std::mem::take(&mut self.knocking) {
            self.knock(service, letter, since_ns);
        }
        self.look_at_links();
        let now_ns = crate::world::now_ns();
        let mut arrived = std::mem::take(&mut self.unanswered);
        let mut others = Vec::new();
        for letter in letters {
            let Some((peer, mad)) = self.unseal(&letter) else { continue };
            match Mad::addressee(&letter.mad) {
                Ok(Addressee::Service(_)) => arrived.push((peer, mad, now_ns)),
                _ => others.push((peer, mad)),
            }
        }
        while let Some(new) = self.door.as_ref().and_then(Door::receive) {
            if let Ok(mad) = Mad::parse(&new.mad) {
                let peer = Peer::Remote { local: new.to, remote: new.from };
                arrived.push((peer, mad, now_ns));
            }
        }
        let mut mads = Vec::new();
        for (peer, mad, since_ns) in arrived {
            match self.whose(&mad) {
                Whose::Ours => mads.push((peer, mad)),
                Whose::Nobodys if now_ns >= since_ns + GRACE_NS => mads.push((peer, mad)),
                Whose::Nobodys => self.keep_unanswered(peer, mad, since_ns),
                Whose::Others => {}
            }
        }
        // Requests come first: what is said about them goes another way, and may be here already.
        mads.extend(others);
        for (_, mad) in mads.iter().filter(|(from, _)| !is_remote(*from)) {
            self.notes.received(mad);
        }
        mads
    }

    /// Closes services that were given back. Who knocked meanwhile is not lost: somebody may take
    /// the service again soon.
    fn close_retired(&mut self) {
        for door in std::mem::take(&mut self.retired).into_values() {
            while let Ok(Some(fd)) = madbox::accept(door.as_fd()) {
                while let Received::Letter(letter) = madbox::receive(fd.as_fd()) {
                    if let Some((peer, mad)) = self.unseal(&letter) {
                        self.keep_unanswered(peer, mad, crate::world::now_ns());
                    }
                }
            }
        }
    }

    /// Whose a datagram from another host is: every process that opened the door is shown all.
    /// What is nobody's is answered by everybody, which does no harm; so it must be nobody's for
    /// sure.
    fn whose(&self, mad: &Mad) -> Whose {
        match Mad::addressee(&mad.to_bytes()) {
            Ok(Addressee::Service(service)) if self.open.contains(&service) => Whose::Ours,
            Ok(Addressee::Service(service)) if self.services.contains_key(&service) => {
                Whose::Nobodys
            }
            Ok(Addressee::Service(service)) => match madbox::connect_service(service) {
                Ok(_) => Whose::Others,
                Err(error) if nobody_is_there(&error) => Whose::Nobodys,
                Err(_) => Whose::Others,
            },
            Ok(Addressee::Communication(id)) => match madbox::slot_of(id) {
                slot if slot == self.slot => Whose::Ours,
                slot => match madbox::connect_slot(slot) {
                    Err(error) if nobody_is_there(&error) => Whose::Ours,
                    _ => Whose::Others,
                },
            },
            Err(_) => Whose::Others,
        }
    }

    /// Who sent a letter, and what; from now on its sender is watched.
    fn unseal(&mut self, letter: &Letter) -> Option<(Peer, Mad)> {
        let mad = Mad::parse(&letter.mad).ok()?;
        self.open_link(letter.slot);
        Some((Peer::Process(letter.slot), mad))
    }

    fn look_at_links(&mut self) {
        let slots: Vec<u16> = self.links.keys().copied().collect();
        for slot in slots {
            // Peers do not write here: whatever there is to read is the end.
            let ended = self
                .links
                .get(&slot)
                .is_some_and(|link| matches!(madbox::receive(link.fd.as_fd()), Received::End));
            if ended {
                self.links.remove(&slot);
                self.lost.push_back(Peer::Process(slot));
            } else {
                self.push(slot);
            }
        }
    }
}

/// The answer to a request for a service that nobody holds.
fn nobody_listens(mad: &Mad) -> Option<Mad> {
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

/// The thread: runs for as long as the process.
pub fn run(world: &'static World) {
    loop {
        let (mut polls, timeout_ms) = {
            let mut inner = world.lock();
            let (polls, knocks) = inner.office.polls();
            inner.sleeps_until_ns = inner.next_deadline_ns();
            let left_ms = inner.sleeps_until_ns.map(|at| {
                let left_ns = at.saturating_sub(crate::world::now_ns());
                i32::try_from(left_ns.div_ceil(1_000_000)).unwrap_or(i32::MAX)
            });
            let knock_ms = knocks.then_some(KNOCK_MS);
            (polls, left_ms.into_iter().chain(knock_ms).min().unwrap_or(-1))
        };
        // SAFETY: a live array of that length.
        unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, timeout_ms) };
        let mut inner = world.lock();
        for (from, mad) in inner.office.collect() {
            inner.cm.receive(crate::world::now_ns(), from, mad);
        }
        inner.cm.tick(crate::world::now_ns());
        crate::reach::end_overdue(&mut inner, crate::world::now_ns());
        inner.flush();
    }
}

#[cfg(test)]
mod tests;
