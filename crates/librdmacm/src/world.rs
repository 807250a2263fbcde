//! Everything that this process knows of connections, under one lock.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use rdmalab_abi::*;
use rdmalab_engine::cm::{CommId, Config, Event, MAX_CONNECTIONS, Manager, Output};
use rdmalab_ring::madbox;
use rdmalab_wire::cm::{IpHeader, Rej, Rep, Req, SidrRep, SidrReq, port_space, reason};
use rdmalab_wire::ids::{Gid, Psn, Qpn};

use crate::channel::Queue;
use crate::debug::{CallResult, errno_of, failed};
use crate::device::{self, Device};
use crate::door::Door;
use crate::id::CmId;
use crate::office::{Office, Peer};

/// Ports that are given to who does not name one, as in Linux.
const EPHEMERAL: std::ops::Range<u16> = 32_768..60_999;
/// Packet life time of every path as a code: 4.096 us x 2^18, the kernel's for RoCE.
pub const PACKET_LIFE_TIME: u8 = 18;

/// The time, ns.
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to a live structure; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// 32 random bits.
pub fn random() -> u32 {
    let mut bytes = [0u8; 4];
    // SAFETY: writes at most four bytes to a live array. If the kernel has none yet, the time does:
    // these numbers only keep old and new connections apart.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), 4, libc::GRND_NONBLOCK) };
    if got == 4 { u32::from_ne_bytes(bytes) } else { now_ns() as u32 }
}

/// The way to the peer and the numbers of a connection, for the queue pair's states.
#[derive(Clone, Copy, Debug, Default)]
pub struct Link {
    pub sgid_index: u8,
    pub local_gid: Gid,
    pub remote_gid: Gid,
    pub remote_lid: u16,
    pub remote_qpn: Qpn,
    pub rq_psn: Psn,
    pub sq_psn: Psn,
    pub mtu: u8,
    pub initiator_depth: u8,
    pub responder_resources: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub ack_timeout: u8,
    pub traffic_class: u8,
    /// The peer's Q_Key, of datagrams.
    pub qkey: u32,
}

/// One id, as far as the thread must know it.
pub struct IdState {
    /// The id in C; null until the program has fetched the request that made it.
    pub c: *mut CmId,
    pub queue: Arc<Queue>,
    pub ps: u32,
    pub qp_type: u32,
    pub source: Option<SocketAddr>,
    pub destination: Option<SocketAddr>,
    pub device: Option<usize>,
    pub peer: Option<Peer>,
    pub comm: Option<CommId>,
    /// The port that this id holds, as a service.
    pub bound: Option<u64>,
    /// The service that it listens for.
    pub listening: Option<u64>,
    pub link: Link,
    pub reuse_address: bool,
    pub ack_timeout: Option<u8>,
    pub tos: u8,
    /// Events that the program fetched, and those that it gave back.
    pub fetched: u64,
    pub acknowledged: u64,
}

// SAFETY: the pointer is only handed out to the program's own threads, never followed here.
unsafe impl Send for IdState {}

/// What an event tells.
#[derive(Clone, Debug)]
pub enum Param {
    /// Nothing.
    None,
    /// Of a connection.
    Conn {
        responder_resources: u8,
        initiator_depth: u8,
        flow_control: bool,
        retry_count: u8,
        rnr_retry_count: u8,
        srq: bool,
        qp_num: u32,
        private_data: Vec<u8>,
    },
    /// Of datagrams; the path is that of the id.
    Ud { qp_num: u32, qkey: u32, private_data: Vec<u8> },
    /// Of a joined group.
    Group { number: u64, mgid: Gid, mlid: u16, qkey: u32 },
}

/// An event that the program has not fetched.
#[derive(Clone, Debug)]
pub struct Posted {
    pub event: u32,
    pub status: i32,
    /// The id.
    pub id: u64,
    /// The listener, of a request.
    pub listener: Option<u64>,
    pub param: Param,
}

/// What is under the lock.
pub struct Inner {
    pub cm: Manager<Peer>,
    pub office: Office,
    pub ids: BTreeMap<u64, IdState>,
    by_comm: BTreeMap<CommId, u64>,
    listeners: BTreeMap<u64, Vec<u64>>,
    /// Ids by the port that they hold.
    ports: BTreeMap<u64, Vec<u64>>,
    next_id: u64,
    next_port: u16,
    /// The deadline that the thread sleeps until, as it last looked.
    pub sleeps_until_ns: Option<u64>,
}

/// Everything of the process.
pub struct World {
    inner: Mutex<Inner>,
    acknowledged: Condvar,
    devices: OnceLock<Vec<Device>>,
    opening: Mutex<()>,
}

/// The world of this address space; null before the first call, and in a child after `fork`.
static WORLD: AtomicPtr<World> = AtomicPtr::new(std::ptr::null_mut());
static CREATION: Mutex<()> = Mutex::new(());

/// The world, made at the first call.
///
/// # Errors
/// `ENODEV` without our devices, else what the kernel says.
pub fn get() -> CallResult<&'static World> {
    // SAFETY: null, or leaked by the code below.
    if let Some(world) = unsafe { WORLD.load(Ordering::Acquire).as_ref() } {
        return Ok(world);
    }
    let _creation = CREATION.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: as above.
    if let Some(world) = unsafe { WORLD.load(Ordering::Acquire).as_ref() } {
        return Ok(world);
    }
    device::verbs()?;
    let door = Door::open()?;
    let office = Office::take_slot(random() as u16, door)
        .map_err(|error| failed(errno_of(&error).0, "rdma_cm", || error.to_string()))?;
    let config = Config {
        ca_guid: 0,
        id_base: u32::from(office.slot()) << madbox::ID_BITS,
        id_mask: (1 << madbox::ID_BITS) - 1,
        first_id: random(),
        max_connections: MAX_CONNECTIONS,
    };
    let inner = Inner {
        cm: Manager::new(config),
        office,
        ids: BTreeMap::new(),
        by_comm: BTreeMap::new(),
        listeners: BTreeMap::new(),
        ports: BTreeMap::new(),
        next_id: 1,
        sleeps_until_ns: None,
        next_port: (random() % u32::from(EPHEMERAL.end - EPHEMERAL.start)) as u16,
    };
    let world: &'static World = Box::leak(Box::new(World {
        inner: Mutex::new(inner),
        acknowledged: Condvar::new(),
        devices: OnceLock::new(),
        opening: Mutex::new(()),
    }));
    start_thread(world)?;
    WORLD.store(std::ptr::from_ref(world).cast_mut(), Ordering::Release);
    // SAFETY: the handler only stores to an atomic.
    unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) };
    Ok(world)
}

/// In a forked child the parent's connections are not ours: forget them.
extern "C" fn after_fork_in_child() {
    WORLD.store(std::ptr::null_mut(), Ordering::Release);
}

/// Starts the thread with every signal blocked: signals are the program's.
fn start_thread(world: &'static World) -> CallResult<()> {
    // SAFETY: signal sets are plain data, which these functions fill.
    let before = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let spawned = std::thread::Builder::new()
        .name("rdmalab-cm".into())
        .stack_size(256 * 1024)
        .spawn(move || crate::office::run(world));
    // SAFETY: the set that was just saved.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    spawned.map(drop).map_err(|error| errno_of(&error))
}

impl World {
    /// Takes the lock.
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The devices, opened at the first call.
    ///
    /// # Errors
    /// As [`device::open_all`].
    pub fn devices(&self) -> CallResult<&[Device]> {
        if let Some(devices) = self.devices.get() {
            return Ok(devices);
        }
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if self.devices.get().is_none() {
            let devices = device::open_all()?;
            self.lock().cm.set_guid(devices[0].guid);
            let _first = self.devices.set(devices);
        }
        Ok(self.devices.get().map_or(&[], Vec::as_slice))
    }

    /// The device of a number that came from this list.
    pub fn device(&self, index: usize) -> CallResult<&Device> {
        self.devices()?.get(index).ok_or(crate::debug::Errno(libc::ENODEV))
    }

    /// The device that has an address of this host, and its GID there: the one whose port bears it,
    /// else the first.
    pub fn device_of(&self, ip: IpAddr) -> CallResult<(usize, u8, Gid)> {
        let wanted = Gid::of_ip(crate::address::plain(ip));
        let devices = self.devices()?;
        for (index, device) in devices.iter().enumerate() {
            if let Some(at) = device.index_of(wanted) {
                return Ok((index, at, wanted));
            }
        }
        let (at, gid) = devices[0].own_gid();
        Ok((0, at, gid))
    }

    /// The program gives an event of an id back.
    pub fn acknowledge(&self, owner: u64) {
        let mut inner = self.lock();
        if let Some(id) = inner.ids.get_mut(&owner) {
            id.acknowledged += 1;
        }
        drop(inner);
        self.acknowledged.notify_all();
    }

    /// Waits until the program has given back all events of an id that it fetched.
    pub fn wait_for_acknowledgements(&self, id: u64) {
        let mut inner = self.lock();
        while inner.ids.get(&id).is_some_and(|id| id.acknowledged < id.fetched) {
            inner = self.acknowledged.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Inner {
    /// A new id.
    pub fn add(&mut self, state: IdState) -> u64 {
        let number = self.next_id;
        self.next_id += 1;
        self.ids.insert(number, state);
        number
    }

    /// An id of the program's; `EINVAL` if it is not one.
    pub fn id(&mut self, number: u64) -> CallResult<&mut IdState> {
        self.ids.get_mut(&number).ok_or(crate::debug::Errno(libc::EINVAL))
    }

    /// Joins an id and its connection.
    pub fn link(&mut self, number: u64, comm: CommId) {
        self.by_comm.insert(comm, number);
        if let Some(id) = self.ids.get_mut(&number) {
            id.comm = Some(comm);
        }
    }

    /// Lets go of an id's connection.
    pub fn unlink(&mut self, number: u64) {
        if let Some(comm) = self.ids.get_mut(&number).and_then(|id| id.comm.take()) {
            self.by_comm.remove(&comm);
            self.cm.destroy(now_ns(), comm);
        }
    }

    /// Forgets an id with everything that it holds.
    pub fn remove(&mut self, number: u64) {
        self.unlink(number);
        self.stop_listening(number);
        self.release_port(number);
        self.ids.remove(&number);
    }

    /// Does everything that follows from what was just done.
    pub fn flush(&mut self) {
        loop {
            if let Some(output) = self.cm.output() {
                match output {
                    Output::Send { to, mad } => self.office.post(to, *mad),
                    Output::Tell(event) => self.on_event(event),
                }
            } else if let Some((from, mad)) = self.office.next_inside() {
                self.cm.receive(now_ns(), from, mad);
            } else if let Some(peer) = self.office.next_lost() {
                self.cm.peer_gone(now_ns(), &peer);
            } else {
                break;
            }
        }
        // Not as it was when this began: what was just asked for may have set one before.
        if self.cm.next_deadline_ns() != self.sleeps_until_ns {
            self.office.wake();
        }
    }

    /// Queues an event for the program.
    pub fn post(&mut self, posted: Posted) {
        let on = posted.listener.unwrap_or(posted.id);
        if let Some(id) = self.ids.get(&on) {
            id.queue.push(posted);
        }
    }

    fn tell(&mut self, comm: CommId, event: u32, status: i32, param: Param) {
        if let Some(&id) = self.by_comm.get(&comm) {
            self.post(Posted { event, status, id, listener: None, param });
        }
    }

    fn on_event(&mut self, event: Event<Peer>) {
        match event {
            Event::Request { id, peer, req } => self.on_request(id, peer, &req),
            Event::Reply { id, rep } => self.on_reply(id, &rep),
            Event::Rejected { id, rej } => {
                let param = conn_with(rej.private_data.to_vec());
                self.tell(id, RDMA_CM_EVENT_REJECTED, i32::from(rej.reason), param);
            }
            Event::Established { id } => {
                self.tell(id, RDMA_CM_EVENT_ESTABLISHED, 0, Param::None);
            }
            Event::Unreachable { id } => {
                self.tell(id, RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT, Param::None);
            }
            Event::Disconnected { id, is_unconfirmed } => {
                let status = if is_unconfirmed { -libc::ETIMEDOUT } else { 0 };
                self.tell(id, RDMA_CM_EVENT_DISCONNECTED, status, Param::None);
            }
            Event::TimewaitExit { id } => {
                self.tell(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, Param::None);
            }
            Event::SidrRequest { id, peer, req } => self.on_sidr_request(id, peer, &req),
            Event::SidrReply { id, rep } => self.on_sidr_reply(id, &rep),
        }
    }

    /// The listener for a request: one that is bound to the address, or to any.
    fn listener_for(&self, service: u64, header: &IpHeader) -> Option<u64> {
        let ids = self.listeners.get(&service)?;
        let asked = crate::address::plain(header.destination);
        let fits = |number: &&u64| {
            let source = self.ids.get(number).and_then(|id| id.source);
            let Some(at) = source.map(|source| crate::address::plain(source.ip())) else {
                return true;
            };
            at.is_unspecified() || at == asked
        };
        ids.iter().find(fits).copied()
    }

    /// A new id for a request, and its listener; or the request is refused.
    fn requested(
        &mut self,
        comm: CommId,
        peer: Peer,
        service: u64,
        private_data: &[u8],
    ) -> Option<(u64, u64)> {
        let listener = IpHeader::parse(private_data).and_then(|header| {
            let listener = self.listener_for(service, &header)?;
            Some((listener, self.ids.get(&listener)?, header))
        });
        let Some((listener, on, header)) = listener else {
            let _told = failed(libc::ECONNREFUSED, "rdma_cm", || {
                let asked = IpHeader::parse(private_data).map(|header| header.destination);
                format!("refused: nobody listens for service {service:#x} at {asked:?}")
            });
            let nothing = [0; Rej::PRIVATE_BYTES];
            // Questions for datagram services have no reasons: letting go of one answers it.
            let _answered = self.cm.reject(comm, reason::INVALID_SERVICE_ID, nothing);
            self.cm.destroy(now_ns(), comm);
            return None;
        };
        let state = IdState {
            c: std::ptr::null_mut(),
            queue: on.queue.clone(),
            ps: on.ps,
            qp_type: on.qp_type,
            source: Some(SocketAddr::new(header.destination, service as u16)),
            destination: Some(SocketAddr::new(header.source, header.source_port)),
            device: None,
            peer: Some(peer),
            comm: None,
            bound: None,
            listening: None,
            link: Link::default(),
            reuse_address: false,
            ack_timeout: on.ack_timeout,
            tos: on.tos,
            fetched: 0,
            acknowledged: 0,
        };
        let id = self.add(state);
        self.link(id, comm);
        Some((id, listener))
    }

    fn on_request(&mut self, comm: CommId, peer: Peer, req: &Req) {
        let Some((id, listener)) = self.requested(comm, peer, req.service_id, &req.private_data)
        else {
            return;
        };
        if let Some(state) = self.ids.get_mut(&id) {
            state.link = Link {
                sgid_index: 0,
                local_gid: req.path.remote_gid,
                remote_gid: req.path.local_gid,
                remote_lid: req.path.local_lid,
                remote_qpn: req.qpn,
                rq_psn: Psn::new(random()),
                sq_psn: req.starting_psn,
                mtu: req.path_mtu,
                initiator_depth: req.responder_resources,
                responder_resources: req.initiator_depth,
                retry_count: req.retry_count,
                rnr_retry_count: req.rnr_retry_count,
                ack_timeout: req.path.ack_timeout,
                traffic_class: req.path.traffic_class,
                qkey: 0,
            };
        }
        let param = Param::Conn {
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
            flow_control: req.flow_control,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            srq: req.srq,
            qp_num: req.qpn.get(),
            private_data: req.private_data[IpHeader::BYTES..].to_vec(),
        };
        let event = RDMA_CM_EVENT_CONNECT_REQUEST;
        self.post(Posted { event, status: 0, id, listener: Some(listener), param });
    }

    fn on_sidr_request(&mut self, comm: CommId, peer: Peer, req: &SidrReq) {
        let Some((id, listener)) = self.requested(comm, peer, req.service_id, &req.private_data)
        else {
            return;
        };
        let private_data = req.private_data[IpHeader::BYTES..].to_vec();
        let param = Param::Ud { qp_num: 0, qkey: 0, private_data };
        let event = RDMA_CM_EVENT_CONNECT_REQUEST;
        self.post(Posted { event, status: 0, id, listener: Some(listener), param });
    }

    fn on_reply(&mut self, comm: CommId, rep: &Rep) {
        let Some(&id) = self.by_comm.get(&comm) else { return };
        if let Some(state) = self.ids.get_mut(&id) {
            let link = &mut state.link;
            link.remote_qpn = rep.qpn;
            link.sq_psn = rep.starting_psn;
            link.initiator_depth = rep.responder_resources;
            link.responder_resources = rep.initiator_depth;
            link.rnr_retry_count = rep.rnr_retry_count;
            state.peer = self.cm.peer(comm).copied();
        }
        let param = Param::Conn {
            responder_resources: rep.initiator_depth,
            initiator_depth: rep.responder_resources,
            flow_control: rep.flow_control,
            retry_count: 0,
            rnr_retry_count: rep.rnr_retry_count,
            srq: rep.srq,
            qp_num: rep.qpn.get(),
            private_data: rep.private_data.to_vec(),
        };
        self.tell(comm, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, param);
    }

    fn on_sidr_reply(&mut self, comm: CommId, rep: &SidrRep) {
        if rep.status != 0 {
            let status = i32::from(rep.status);
            self.tell(comm, RDMA_CM_EVENT_UNREACHABLE, status, Param::None);
            return;
        }
        let private_data = rep.private_data.to_vec();
        let (qp_num, qkey) = (rep.qpn.get(), rep.qkey);
        if let Some(state) = self.by_comm.get(&comm).and_then(|id| self.ids.get_mut(id)) {
            state.link.remote_qpn = rep.qpn;
            state.link.qkey = rep.qkey;
        }
        let param = Param::Ud { qp_num, qkey, private_data };
        self.tell(comm, RDMA_CM_EVENT_ESTABLISHED, 0, param);
    }
}

/// Parameters of which only the private data counts.
fn conn_with(private_data: Vec<u8>) -> Param {
    Param::Conn {
        responder_resources: 0,
        initiator_depth: 0,
        flow_control: false,
        retry_count: 0,
        rnr_retry_count: 0,
        srq: false,
        qp_num: 0,
        private_data,
    }
}

mod ports;
pub use ports::service_of;

/// Whether ids of a port space connect by questions for a service.
pub fn is_datagram(ps: u32) -> bool {
    ps == u32::from(port_space::UDP) || ps == u32::from(port_space::IPOIB)
}
