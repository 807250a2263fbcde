//! The communication manager: how two queue pairs find each other (IBA vol. 1, chapter 12).
//!
//! [`Manager`] is a state machine without input or output. The driver passes in datagrams, commands
//! and the time, and takes [`Output`]s: datagrams to send, and events for the owners of
//! connections. `P` is the driver's name for a peer; the manager only compares such names.
//!
//! The states are those of the specification's figures 12-11 to 12-14. Where they leave a choice,
//! the manager does as the Linux kernel does, since kernels are its peers.

mod command;
mod connection;
mod receive;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use rdmalab_wire::cm::{Mad, Message, Rej, Rep, Req, SidrRep, SidrReq};
use rdmalab_wire::ids::Qpn;

use connection::Connection;
pub use connection::ConnectionState;

/// Default for the number of connections of a manager, those in TIMEWAIT included.
pub const MAX_CONNECTIONS: usize = 65_536;
/// Requests of one service that wait for their owner, at most.
pub const MAX_BACKLOG: usize = 1024;

/// A time that the messages carry as a code: 4.096 us x 2^code, in ns. Codes have 5 bits.
pub const fn code_ns(code: u8) -> u64 {
    4096 << (code & 0x1f)
}

/// The identifier of a connection or of a service request on this side.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct CommId(pub u32);

/// The configuration of a [`Manager`].
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The GUID of this node.
    pub ca_guid: u64,
    /// The fixed bits of all identifiers; the bits in `id_mask` count up.
    pub id_base: u32,
    /// The bits of an identifier that the manager chooses; low ones.
    pub id_mask: u32,
    /// The first identifier: random, so that a restarted process does not repeat itself soon.
    pub first_id: u32,
    /// Connections at a time.
    pub max_connections: usize,
}

/// Why a command was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CmError {
    /// There is no such connection.
    UnknownId,
    /// The connection is not in a state in which this makes sense.
    WrongState(ConnectionState),
    /// There are as many connections as there may be.
    TooMany,
}

impl fmt::Display for CmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownId => f.write_str("there is no such connection"),
            Self::WrongState(state) => write!(f, "not possible in state {state:?}"),
            Self::TooMany => f.write_str("there are as many connections as there may be"),
        }
    }
}

impl std::error::Error for CmError {}

/// An event of a connection, for its owner. Events come in the order in which they happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<P> {
    /// A peer asks for a connection; accept, reject or destroy it.
    Request {
        /// The new connection.
        id: CommId,
        /// The peer that asks.
        peer: P,
        /// The peer's message.
        req: Box<Req>,
    },
    /// The peer accepts; establish, reject or destroy the connection.
    Reply {
        /// The connection.
        id: CommId,
        /// The peer's message.
        rep: Box<Rep>,
    },
    /// The peer refuses.
    Rejected {
        /// The connection.
        id: CommId,
        /// The peer's message.
        rej: Box<Rej>,
    },
    /// The peer has our REP: data may flow.
    Established {
        /// The connection.
        id: CommId,
    },
    /// The peer answered neither the message nor its repetitions.
    Unreachable {
        /// The connection.
        id: CommId,
    },
    /// The connection is over.
    Disconnected {
        /// The connection.
        id: CommId,
        /// The peer did not confirm the disconnection.
        is_unconfirmed: bool,
    },
    /// TIMEWAIT has ended: no packet of the connection is in the network any more.
    TimewaitExit {
        /// The connection.
        id: CommId,
    },
    /// A peer asks for a datagram service; answer or destroy the request.
    SidrRequest {
        /// The new request.
        id: CommId,
        /// The peer that asks.
        peer: P,
        /// The peer's message.
        req: Box<SidrReq>,
    },
    /// The answer to our request for a datagram service.
    SidrReply {
        /// The request.
        id: CommId,
        /// The peer's message.
        rep: Box<SidrRep>,
    },
}

/// An action for the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output<P> {
    /// Send a datagram; it may get lost.
    Send {
        /// The receiving peer.
        to: P,
        /// The datagram.
        mad: Box<Mad>,
    },
    /// Pass an event to the owner.
    Tell(Event<P>),
}

/// A service that the program listens for.
#[derive(Clone, Copy, Debug)]
struct Listener {
    /// Listeners that share it.
    count: usize,
    /// Requests that may wait.
    backlog: usize,
    /// Requests that wait.
    waiting: usize,
}

/// The connections of a process, or of a host.
#[derive(Debug)]
pub struct Manager<P> {
    config: Config,
    next: u32,
    connections: BTreeMap<u32, Connection<P>>,
    /// By the peer's node and identifier.
    by_remote: BTreeMap<(u64, u32), u32>,
    /// By the peer's node and queue pair.
    by_qpn: BTreeMap<(u64, Qpn), u32>,
    listeners: BTreeMap<u64, Listener>,
    deadlines: BTreeSet<(u64, u32)>,
    out: VecDeque<Output<P>>,
}

impl<P: Clone + Eq> Manager<P> {
    /// A manager without connections.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            next: config.first_id & config.id_mask,
            connections: BTreeMap::new(),
            by_remote: BTreeMap::new(),
            by_qpn: BTreeMap::new(),
            listeners: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            out: VecDeque::new(),
        }
    }

    /// Sets the GUID of this node, if it was not known when the manager was made.
    pub fn set_guid(&mut self, ca_guid: u64) {
        self.config.ca_guid = ca_guid;
    }

    /// The GUID of this node.
    pub fn guid(&self) -> u64 {
        self.config.ca_guid
    }

    /// The next thing to do, in order.
    pub fn output(&mut self) -> Option<Output<P>> {
        self.out.pop_front()
    }

    /// Time at which [`Manager::tick`] must be called, in ns; `None`: never.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Connections and service requests there are, those in TIMEWAIT included.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// The state of a connection.
    pub fn state(&self, id: CommId) -> Option<ConnectionState> {
        self.connections.get(&id.0).map(|connection| connection.state)
    }

    /// The peer to which a connection's datagrams are sent.
    pub fn peer(&self, id: CommId) -> Option<&P> {
        self.connections.get(&id.0).map(|connection| &connection.peer)
    }

    fn send(&mut self, to: P, mad: Mad) {
        self.out.push_back(Output::Send { to, mad: Box::new(mad) });
    }

    fn tell(&mut self, event: Event<P>) {
        self.out.push_back(Output::Tell(event));
    }

    /// A transaction identifier for messages that this node sends.
    fn transaction(&self, id: u32) -> u64 {
        (self.config.ca_guid << 32) | u64::from(id)
    }

    fn allocate(&mut self, connection: Connection<P>) -> Result<u32, CmError> {
        let room = self.config.max_connections.min(self.config.id_mask as usize);
        if self.connections.len() >= room {
            return Err(CmError::TooMany);
        }
        loop {
            let id = self.config.id_base | self.next;
            self.next = self.next.wrapping_add(1) & self.config.id_mask;
            if id != 0 && !self.connections.contains_key(&id) {
                self.connections.insert(id, connection);
                debug_assert!(self.connections.len() <= room, "more connections than there may be");
                return Ok(id);
            }
        }
    }

    /// Sets or clears the timer of a connection.
    fn arm(&mut self, id: u32, at_ns: Option<u64>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Some(before) = connection.deadline_ns {
            self.deadlines.remove(&(before, id));
        }
        connection.deadline_ns = at_ns;
        if let Some(at) = at_ns {
            self.deadlines.insert((at, id));
        }
        debug_assert!(
            self.deadlines.len() <= self.connections.len(),
            "a connection has two timers, or is gone and has one"
        );
    }

    /// Forgets a connection.
    fn forget(&mut self, id: u32) {
        self.arm(id, None);
        let Some(connection) = self.connections.remove(&id) else { return };
        self.leave_backlog(&connection);
        self.unlink(id, &connection);
        self.assert_unlinked(id);
    }

    /// Asserts, while the indices by peer are small, that none refers to connection `id`.
    fn assert_unlinked(&self, id: u32) {
        debug_assert!(
            self.by_remote.len() > 64 || self.by_remote.values().all(|known| *known != id),
            "a peer's identifier leads to a connection that is over"
        );
        debug_assert!(
            self.by_qpn.len() > 64 || self.by_qpn.values().all(|known| *known != id),
            "a peer's queue pair belongs to a connection that is over"
        );
    }

    /// Takes a connection out of the indices by peer.
    fn unlink(&mut self, id: u32, connection: &Connection<P>) {
        let remote = (connection.remote_guid, connection.remote_id);
        if self.by_remote.get(&remote) == Some(&id) {
            self.by_remote.remove(&remote);
        }
        let qpn = (connection.remote_guid, connection.remote_qpn);
        self.free_qpn(id, qpn);
    }

    /// From now on the peer's queue pair may be connected anew.
    fn free_qpn(&mut self, id: u32, qpn: (u64, Qpn)) {
        if self.by_qpn.get(&qpn) == Some(&id) {
            self.by_qpn.remove(&qpn);
        }
    }

    fn leave_backlog(&mut self, connection: &Connection<P>) {
        if connection.is_waiting
            && let Some(listener) = self.listeners.get_mut(&connection.service_id)
        {
            listener.waiting = listener.waiting.saturating_sub(1);
        }
    }

    /// Puts a connection into TIMEWAIT, from which it goes away by itself.
    fn enter_timewait(&mut self, now_ns: u64, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        debug_assert!(
            connection.state.was_established(),
            "TIMEWAIT of a connection that never was: {:?}",
            connection.state
        );
        connection.enter(ConnectionState::Timewait);
        let until = now_ns + connection.timewait_ns;
        self.arm(id, Some(until));
    }

    /// Ends a connection that was never established. Its owner may still ask for its state.
    fn reset(&mut self, id: u32) {
        self.arm(id, None);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.enter(ConnectionState::Idle);
        connection.resend = None;
        let is_owned = connection.is_owned;
        let copy = connection.clone();
        self.unlink(id, &copy);
        self.assert_unlinked(id);
        if !is_owned {
            self.forget(id);
        }
    }

    /// Handles all timers that are due: sends again, gives up, or leaves TIMEWAIT.
    pub fn tick(&mut self, now_ns: u64) {
        while let Some(&(at, id)) = self.deadlines.first() {
            if at > now_ns {
                break;
            }
            self.arm(id, None);
            self.expire(now_ns, id);
        }
    }

    fn expire(&mut self, now_ns: u64, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let is_owned = connection.is_owned;
        match connection.state {
            ConnectionState::Timewait => {
                if is_owned {
                    connection.enter(ConnectionState::Idle);
                    let copy = connection.clone();
                    self.unlink(id, &copy);
                    self.tell(Event::TimewaitExit { id: CommId(id) });
                } else {
                    self.forget(id);
                }
            }
            ConnectionState::ReqSent
            | ConnectionState::MraReqReceived
            | ConnectionState::RepSent
            | ConnectionState::MraRepReceived
            | ConnectionState::DreqSent
            | ConnectionState::SidrReqSent => self.repeat_or_give_up(now_ns, id),
            other => debug_assert!(false, "a timer runs out in {other:?}, which waits for nothing"),
        }
    }

    fn repeat_or_give_up(&mut self, now_ns: u64, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        debug_assert!(connection.resend.is_some(), "an answer is awaited to no message");
        if connection.retries_left > 0 {
            connection.retries_left -= 1;
            connection.enter(connection.state.after_patience());
            let at = now_ns + connection.response_ns;
            let again = connection.resend.clone().map(|mad| (connection.peer.clone(), mad));
            self.arm(id, Some(at));
            if let Some((to, mad)) = again {
                self.send(to, mad);
            }
            return;
        }
        let is_owned = connection.is_owned;
        if connection.state == ConnectionState::DreqSent {
            self.enter_timewait(now_ns, id);
            if is_owned {
                self.tell(Event::Disconnected { id: CommId(id), is_unconfirmed: true });
            }
            return;
        }
        if is_owned {
            self.tell(Event::Unreachable { id: CommId(id) });
        }
        self.reset(id);
    }

    /// Sends a REJ for a message that is refused without a connection.
    fn refuse(&mut self, to: P, transaction: u64, remote_id: u32, about: u8, reason: u16) {
        let rej = Rej {
            local_id: 0,
            remote_id,
            about,
            reason,
            info_length: 0,
            info: [0; Rej::INFO_BYTES],
            private_data: [0; Rej::PRIVATE_BYTES],
        };
        self.send(to, Mad { transaction, message: Message::Rej(rej) });
    }
}
