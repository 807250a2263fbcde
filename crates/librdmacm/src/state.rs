//! The ids, ports and connections of this process. One lock protects all of them (`process`).

mod incoming;
mod ports;
mod resolution;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rdmalab_engine::cm::{CommId, Config, MAX_CONNECTIONS, Manager, Output};
use rdmalab_ring::mad_socket;
use rdmalab_wire::cm::service_id;

use crate::cm_id::CmId;
use crate::conn_params::ConnParams;
use crate::errno::{CallResult, Errno};
use crate::event_queue::{EventParam, EventQueue, QueuedEvent};
use crate::lookups::Lookups;
use crate::mad_transport::{MadTransport, Peer};
use crate::os::{now_ns, random};

/// The ephemeral ports, as in Linux.
const EPHEMERAL: Range<u16> = 32_768..60_999;

/// The service id of a port.
pub fn service_of(ps: u32, port: u16) -> u64 {
    service_id(ps as u16, port)
}

/// The state of one id.
pub struct IdState {
    /// The id in C. Null while the program has not fetched the connection request that made it.
    pub c: *mut CmId,
    pub queue: Arc<EventQueue>,
    pub ps: u32,
    pub qp_type: u32,
    pub source: Option<SocketAddr>,
    pub destination: Option<SocketAddr>,
    /// The device's place in the list of devices.
    pub device: Option<usize>,
    pub peer: Option<Peer>,
    pub comm: Option<CommId>,
    /// The service of the port that the id is bound to.
    pub bound: Option<u64>,
    /// Shows other processes that the id is bound to the wildcard address.
    pub wildcard: Option<OwnedFd>,
    /// The service that the id listens on.
    pub listening: Option<u64>,
    pub params: ConnParams,
    pub reuse_address: bool,
    /// Whether the id is for its address family only, if the program said so.
    pub is_family_only: Option<bool>,
    pub ack_timeout: Option<u8>,
    pub tos: u8,
    /// Events that the program fetched.
    pub fetched: u64,
    /// Events that the program acknowledged.
    pub acknowledged: u64,
}

// SAFETY: this type only hands the pointer out to the program's own threads, and never follows it.
unsafe impl Send for IdState {}

impl IdState {
    /// The state of an id that is not bound.
    pub fn new(queue: Arc<EventQueue>, ps: u32, qp_type: u32) -> Self {
        Self {
            c: std::ptr::null_mut(),
            queue,
            ps,
            qp_type,
            source: None,
            destination: None,
            device: None,
            peer: None,
            comm: None,
            bound: None,
            wildcard: None,
            listening: None,
            params: ConnParams::default(),
            reuse_address: false,
            is_family_only: None,
            ack_timeout: None,
            tos: 0,
            fetched: 0,
            acknowledged: 0,
        }
    }
}

/// The state under the lock.
pub struct CmState {
    /// The state machine of the connection protocol.
    pub manager: Manager<Peer>,
    pub transport: MadTransport,
    pub ids: BTreeMap<u64, IdState>,
    /// The id of each connection.
    by_comm: BTreeMap<CommId, u64>,
    /// The listeners of each service.
    listeners: BTreeMap<u64, Vec<u64>>,
    /// The ids that are bound to each port.
    ports: BTreeMap<u64, Vec<u64>>,
    next_id: u64,
    next_port: u16,
    /// The deadline that the thread sleeps until.
    pub sleeps_until_ns: Option<u64>,
    pub lookups: Lookups,
}

impl CmState {
    /// The state of a process without ids.
    pub fn new(transport: MadTransport) -> Self {
        let config = Config {
            ca_guid: 0,
            id_base: u32::from(transport.slot()) << mad_socket::ID_BITS,
            id_mask: (1 << mad_socket::ID_BITS) - 1,
            first_id: random(),
            max_connections: MAX_CONNECTIONS,
        };
        Self {
            manager: Manager::new(config),
            transport,
            ids: BTreeMap::new(),
            by_comm: BTreeMap::new(),
            listeners: BTreeMap::new(),
            ports: BTreeMap::new(),
            next_id: 1,
            next_port: (random() % u32::from(EPHEMERAL.end - EPHEMERAL.start)) as u16,
            sleeps_until_ns: None,
            lookups: Lookups::default(),
        }
    }

    /// Adds an id; returns its number.
    pub fn add(&mut self, state: IdState) -> u64 {
        let number = self.next_id;
        self.next_id += 1;
        self.ids.insert(number, state);
        number
    }

    /// The state of an id; `EINVAL` if there is none.
    pub fn id(&mut self, number: u64) -> CallResult<&mut IdState> {
        self.ids.get_mut(&number).ok_or(Errno(libc::EINVAL))
    }

    /// Attaches a connection to an id.
    pub fn attach(&mut self, number: u64, comm: CommId) {
        self.by_comm.insert(comm, number);
        if let Some(id) = self.ids.get_mut(&number) {
            id.comm = Some(comm);
        }
    }

    /// Detaches the connection of an id and destroys it.
    pub fn detach(&mut self, number: u64) {
        if let Some(comm) = self.ids.get_mut(&number).and_then(|id| id.comm.take()) {
            self.by_comm.remove(&comm);
            self.manager.destroy(now_ns(), comm);
        }
    }

    /// Detaches and destroys all connections.
    pub fn detach_all(&mut self) {
        let ids: Vec<u64> = self.by_comm.values().copied().collect();
        ids.into_iter().for_each(|id| self.detach(id));
    }

    /// Removes an id with its connection, its port and its pending lookup.
    pub fn remove(&mut self, number: u64) {
        self.detach(number);
        self.stop_listening(number);
        self.release_port(number);
        self.lookups.cancel(number);
        self.ids.remove(&number);
    }

    /// Handles the outputs of the protocol: sends datagrams, queues events. Also feeds the protocol
    /// with loopback datagrams and with peers that are gone.
    pub fn process_outputs(&mut self) {
        loop {
            if let Some(output) = self.manager.output() {
                match output {
                    Output::Send { to, mad } => self.transport.send(to, *mad),
                    Output::Tell(event) => self.handle_cm_event(event),
                }
            } else if let Some((from, mad)) = self.transport.next_loopback() {
                self.manager.receive(now_ns(), from, mad);
            } else if let Some(peer) = self.transport.next_gone() {
                self.manager.peer_gone(now_ns(), &peer);
            } else {
                break;
            }
        }
        // The outputs may have set an earlier deadline.
        self.update_deadline();
    }

    /// The time when the thread must run, even if no datagram comes.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.manager.next_deadline_ns().into_iter().chain(self.lookups.next_deadline_ns()).min()
    }

    /// Wakes the thread if it sleeps until another deadline.
    pub fn update_deadline(&self) {
        if self.next_deadline_ns() != self.sleeps_until_ns {
            self.transport.wake();
        }
    }

    /// Queues an event for the program, on the channel of its owner.
    pub fn queue_event(&mut self, queued: QueuedEvent) {
        if let Some(id) = self.ids.get(&queued.owner()) {
            id.queue.push(queued);
        }
    }

    /// Queues an event of a connection, unless its id is gone.
    fn queue_comm_event(&mut self, comm: CommId, event: u32, status: i32, param: EventParam) {
        if let Some(&id) = self.by_comm.get(&comm) {
            self.queue_event(QueuedEvent { event, status, id, listener: None, param });
        }
    }
}
