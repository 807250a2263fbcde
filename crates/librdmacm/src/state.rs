//! Everything that this process knows of connections, under one lock.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockResult};

use rdmalab_engine::cm::{CommId, Config, MAX_CONNECTIONS, Manager, Output};
use rdmalab_ring::mad_socket;
use rdmalab_wire::cm::port_space;
use rdmalab_wire::ids::{Gid, Psn, Qpn};

use crate::channel::Queue;
use crate::device::{self, Device};
use crate::errno::{CallResult, errno_of, failed};
use crate::gsi::Gsi;
use crate::id::CmId;
use crate::lookups::Lookups;
use crate::mad_transport::{MadTransport, Peer};

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

/// The path to the peer and the numbers of a connection, for the queue target's states.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnParams {
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
    pub params: ConnParams,
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
pub enum EventParam {
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
pub struct QueuedEvent {
    pub event: u32,
    pub status: i32,
    /// The id.
    pub id: u64,
    /// The listener, of a request.
    pub listener: Option<u64>,
    pub param: EventParam,
}

/// What is under the lock.
pub struct CmState {
    pub manager: Manager<Peer>,
    pub transport: MadTransport,
    pub ids: BTreeMap<u64, IdState>,
    by_comm: BTreeMap<CommId, u64>,
    listeners: BTreeMap<u64, Vec<u64>>,
    /// Ids by the port that they hold.
    ports: BTreeMap<u64, Vec<u64>>,
    next_id: u64,
    next_port: u16,
    /// The deadline that the thread sleeps until, as it last looked.
    pub sleeps_until_ns: Option<u64>,
    pub lookups: Lookups,
}

/// Everything of the process.
pub struct CmProcess {
    state: Mutex<CmState>,
    acknowledged: Condvar,
    devices: OnceLock<Vec<Device>>,
    opening: Mutex<()>,
}

/// The process of this address space; null before the first call, and in a child after `fork`.
static PROCESS: AtomicPtr<CmProcess> = AtomicPtr::new(std::ptr::null_mut());
static CREATION: Mutex<()> = Mutex::new(());

/// The process, if it was made.
pub fn existing() -> Option<&'static CmProcess> {
    // SAFETY: null, or leaked by `get`.
    unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
}

/// The process, made at the first call.
///
/// # Errors
/// `ENODEV` without our devices, else what the kernel says.
pub fn get() -> CallResult<&'static CmProcess> {
    if let Some(process) = existing() {
        return Ok(process);
    }
    let _creation = CREATION.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(process) = existing() {
        return Ok(process);
    }
    device::verbs()?;
    let gsi = Gsi::open()?;
    let transport = MadTransport::take_slot(random() as u16, gsi)
        .map_err(|error| failed(errno_of(&error).0, "rdma_cm", || error.to_string()))?;
    let config = Config {
        ca_guid: 0,
        id_base: u32::from(transport.slot()) << mad_socket::ID_BITS,
        id_mask: (1 << mad_socket::ID_BITS) - 1,
        first_id: random(),
        max_connections: MAX_CONNECTIONS,
    };
    let cm = CmState {
        manager: Manager::new(config),
        transport,
        ids: BTreeMap::new(),
        by_comm: BTreeMap::new(),
        listeners: BTreeMap::new(),
        ports: BTreeMap::new(),
        next_id: 1,
        sleeps_until_ns: None,
        lookups: Lookups::default(),
        next_port: (random() % u32::from(EPHEMERAL.end - EPHEMERAL.start)) as u16,
    };
    let process: &'static CmProcess = Box::leak(Box::new(CmProcess {
        state: Mutex::new(cm),
        acknowledged: Condvar::new(),
        devices: OnceLock::new(),
        opening: Mutex::new(()),
    }));
    start_thread("rdmalab-cm", move || crate::mad_transport::run(process))
        .map_err(|error| errno_of(&error))?;
    PROCESS.store(std::ptr::from_ref(process).cast_mut(), Ordering::Release);
    // SAFETY: the handler only stores to an atomic.
    unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) };
    Ok(process)
}

/// In a forked child the parent's connections are not ours: forget them.
extern "C" fn after_fork_in_child() {
    PROCESS.store(std::ptr::null_mut(), Ordering::Release);
}

/// Starts a thread with every signal blocked: signals are the program's.
///
/// # Errors
/// What the kernel says.
pub fn start_thread(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    // SAFETY: signal sets are plain data, which these functions fill.
    let before = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let spawned = std::thread::Builder::new().name(name.into()).stack_size(256 * 1024).spawn(body);
    // SAFETY: the set that was just saved.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    spawned.map(drop)
}

impl CmProcess {
    /// Takes the lock.
    pub fn lock(&self) -> MutexGuard<'_, CmState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock if nobody has it.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, CmState>> {
        self.state.try_lock()
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
            self.lock().manager.set_guid(devices[0].guid);
            let _first = self.devices.set(devices);
        }
        Ok(self.devices.get().map_or(&[], Vec::as_slice))
    }

    /// The device of a number that came from this list.
    pub fn device(&self, index: usize) -> CallResult<&Device> {
        self.devices()?.get(index).ok_or(crate::errno::Errno(libc::ENODEV))
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
        let mut cm = self.lock();
        if let Some(id) = cm.ids.get_mut(&owner) {
            id.acknowledged += 1;
        }
        drop(cm);
        self.acknowledged.notify_all();
    }

    /// Waits until the program has given back all events of an id that it fetched.
    pub fn wait_for_acknowledgements(&self, id: u64) {
        let mut cm = self.lock();
        while cm.ids.get(&id).is_some_and(|id| id.acknowledged < id.fetched) {
            cm = self.acknowledged.wait(cm).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl CmState {
    /// A new id.
    pub fn add(&mut self, state: IdState) -> u64 {
        let number = self.next_id;
        self.next_id += 1;
        self.ids.insert(number, state);
        number
    }

    /// An id of the program's; `EINVAL` if it is not one.
    pub fn id(&mut self, number: u64) -> CallResult<&mut IdState> {
        self.ids.get_mut(&number).ok_or(crate::errno::Errno(libc::EINVAL))
    }

    /// Joins an id and its connection.
    pub fn attach(&mut self, number: u64, comm: CommId) {
        self.by_comm.insert(comm, number);
        if let Some(id) = self.ids.get_mut(&number) {
            id.comm = Some(comm);
        }
    }

    /// Lets go of an id's connection.
    pub fn detach(&mut self, number: u64) {
        if let Some(comm) = self.ids.get_mut(&number).and_then(|id| id.comm.take()) {
            self.by_comm.remove(&comm);
            self.manager.destroy(now_ns(), comm);
        }
    }

    /// Lets go of all connections.
    pub fn detach_all(&mut self) {
        let ids: Vec<u64> = self.by_comm.values().copied().collect();
        ids.into_iter().for_each(|id| self.detach(id));
    }

    /// Forgets an id with everything that it holds.
    pub fn remove(&mut self, number: u64) {
        self.detach(number);
        self.stop_listening(number);
        self.release_port(number);
        self.lookups.forget(number);
        self.ids.remove(&number);
    }

    /// Does everything that follows from what was just done.
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
        // Not as it was when this began: what was just asked for may have set one before.
        self.update_deadline();
    }

    /// When the thread has to lookup, whatever comes.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.manager.next_deadline_ns().into_iter().chain(self.lookups.next_deadline_ns()).min()
    }

    /// Wakes the thread if it sleeps until another time.
    pub fn update_deadline(&self) {
        if self.next_deadline_ns() != self.sleeps_until_ns {
            self.transport.wake();
        }
    }

    /// Queues an event for the program.
    pub fn queue_event(&mut self, queued: QueuedEvent) {
        let on = queued.listener.unwrap_or(queued.id);
        if let Some(id) = self.ids.get(&on) {
            id.queue.push(queued);
        }
    }

    fn queue_comm_event(&mut self, comm: CommId, event: u32, status: i32, param: EventParam) {
        if let Some(&id) = self.by_comm.get(&comm) {
            self.queue_event(QueuedEvent { event, status, id, listener: None, param });
        }
    }
}

mod incoming;
mod ports;
pub use ports::service_of;

/// Whether ids of a port space connect by questions for a service.
pub fn is_datagram(ps: u32) -> bool {
    ps == u32::from(port_space::UDP) || ps == u32::from(port_space::IPOIB)
}
