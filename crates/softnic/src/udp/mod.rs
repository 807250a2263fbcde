//! The network: RoCEv2 over UDP to other hosts, where `RDMALAB_INTERFACE` opens it.
//!
//! All processes of a host (boot, network namespace, user) share one socket, bound to UDP 4791 on
//! that interface (a peer that talks alone may have another, see `connected`); its descriptor
//! travels in control messages. All of them send on it. One of them, its *reader*, reads it, and
//! gives packets for other processes' queue pairs to them through the rings; it drops what finds a
//! full one. Nothing waits for anything: a packet that is dropped is a packet that was lost.
//!
//! A word in shared memory says whose turn it is to read (`ownership`). Who has a lock that its
//! holder gives up when it exits, and that the kernel passes on when it dies, makes itself the
//! reader (`handover`); so does who finds that the reader leaves packets lying, since it was
//! stopped (`watchdog`, `stall_detector`).
//!
//! A caller inside a verb reads the socket itself; the progress thread waits for it when nobody
//! polls.
//!
//! Lock order: the receiver's buffers (only ever tried) -> QP -> the send batch.

pub(crate) mod adaptive_wakeup;
pub(crate) mod backoff;
mod cm_reject;
mod connect_policy;
mod connected;
mod connected_socket;
pub(crate) mod delayed_ack;
mod handover;
pub(crate) mod interface;
pub mod management;
pub mod management_c;
mod membership;
mod neighbour;
mod ownership;
mod path;
mod receive;
mod receive_batch;
mod send_batch;
pub(crate) mod socket;
mod stall_detector;
mod tentative;
mod watchdog;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU16, AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_engine::vocab::AhAttr;
use rdmalab_link::drops::Counters;
use rdmalab_link::path::{Path, address_of, destination_of};
use rdmalab_link::seam::Seam;
use rdmalab_wire::ids::Gid;

use crate::process::Process;
use interface::Interface;
use neighbour::NeighbourCache;
use ownership::Ownership;
pub(crate) use path::NetworkPath;
use receive::Receiver;
pub(crate) use receive::{Arrival, SocketState};
use send_batch::{Egress, SendBatch};
use socket::Route;

/// Packets that a reliable connection may have outstanding. Twice as many would still fit into the
/// receive buffer that a process without rights gets (425 984 bytes, packets of 1 KiB one by one).
pub(crate) const WINDOW_PACKETS: u32 = 128;

/// How long whoever is next on the way to a peer may take to answer, ns: the kernel asks three
/// times, a second apart.
const RESOLVE_NS: u64 = 3_500_000_000;

/// This process's share of the host's socket.
pub(crate) struct Network {
    pub(crate) interface: &'static Interface,
    /// -1 once closed in a forked child.
    socket: AtomicI32,
    /// Whose turn it is to read.
    ownership: Ownership,
    /// The thread that waits for our turn runs.
    has_standby: AtomicBool,
    /// The thread that watches whoever reads runs.
    has_watchdog: AtomicBool,
    /// How many packets were dropped when that was said last.
    reported_drops: AtomicU64,
    /// The process exits: it is for others to read, if there are any.
    is_exiting: AtomicBool,
    /// It has passed the socket on once while it exits.
    handed_over: AtomicBool,
    /// The slot of the process that passed something on last; 0: none did yet.
    forwarded_by: AtomicU16,
    /// How often callers looked for packets. Two that collide count once, which does no harm.
    caller_polls: AtomicU64,
    /// Packets that callers took. Two that collide count once, which does no harm.
    caller_packets: AtomicU64,
    /// One more than the index of the queue pair that owes an acknowledgement; 0: none does.
    delayed_ack_qp: AtomicU32,
    send_batch: Mutex<SendBatch>,
    receiver: Mutex<Receiver>,
    /// The socket of one peer that talks alone.
    connected: connected::ConnectedSocket,
    pub(crate) counters: Counters,
    /// Memberships in IP groups, by their GID.
    memberships: Mutex<BTreeMap<Gid, OwnedFd>>,
    /// To whom packets could leave lately, and who is not asked about again so soon.
    neighbours: Mutex<NeighbourCache>,
    /// Taps and fault rules.
    seam: OnceLock<Box<dyn Seam>>,
}

impl Network {
    fn new(interface: &'static Interface, socket: OwnedFd, ownership: Ownership) -> Network {
        Network {
            interface,
            socket: AtomicI32::new(std::os::fd::IntoRawFd::into_raw_fd(socket)),
            ownership,
            has_standby: AtomicBool::new(false),
            has_watchdog: AtomicBool::new(false),
            reported_drops: AtomicU64::new(0),
            is_exiting: AtomicBool::new(false),
            handed_over: AtomicBool::new(false),
            forwarded_by: AtomicU16::new(0),
            caller_polls: AtomicU64::new(0),
            caller_packets: AtomicU64::new(0),
            delayed_ack_qp: AtomicU32::new(0),
            send_batch: Mutex::new(SendBatch::new()),
            receiver: Mutex::new(Receiver::new(interface.port)),
            connected: connected::ConnectedSocket::default(),
            counters: Counters::default(),
            memberships: Mutex::default(),
            neighbours: Mutex::default(),
            seam: OnceLock::new(),
        }
    }

    pub(crate) fn fd(&self) -> i32 {
        self.socket.load(Ordering::Relaxed)
    }

    /// The descriptor to wait on; -1 when another process reads.
    pub(crate) fn fd_to_poll(&self) -> i32 {
        if self.ownership.is_ours() { self.fd() } else { -1 }
    }

    /// Whether the socket tells too little: a thread has the receiver's buffers, and has them for
    /// long if it lost its processor, or a peer has a socket of its own.
    pub(crate) fn is_being_read(&self) -> bool {
        self.receiver.is_locked() || self.has_connected()
    }

    /// Whether a peer has a socket of its own.
    pub(crate) fn has_connected(&self) -> bool {
        self.connected.is_open()
    }

    /// The memory whose lock makes its holder the reader.
    pub(crate) fn ownership_fd(&self) -> i32 {
        self.ownership.fd()
    }

    /// Closes the socket in the child of a fork, where it would keep the port.
    pub(crate) fn close_in_child(&self) {
        self.connected.close();
        let fd = self.socket.swap(-1, Ordering::Relaxed);
        if fd >= 0 {
            // SAFETY: the descriptor was ours, and the swap made us the only one to close it.
            unsafe { libc::close(fd) };
        }
    }

    /// A caller looks for packets.
    #[inline]
    pub(crate) fn note_caller(&self) {
        let caller_polls = self.caller_polls.load(Ordering::Relaxed).wrapping_add(1);
        self.caller_polls.store(caller_polls, Ordering::Relaxed);
    }

    /// A caller took packets.
    #[inline]
    pub(crate) fn note_taken(&self, packets: u32) {
        let caller_packets =
            self.caller_packets.load(Ordering::Relaxed).wrapping_add(packets.into());
        self.caller_packets.store(caller_packets, Ordering::Relaxed);
    }

    /// Whether the process exits, and its handlers have left the socket to others.
    fn is_exiting(&self) -> bool {
        self.is_exiting.load(Ordering::SeqCst)
    }

    /// The outbox; a process that exits, perhaps in the midst of a verb, waits only so long for it.
    fn send_batch_within(&self, at_exit: std::time::Duration) -> Option<MutexGuard<'_, SendBatch>> {
        match self.is_exiting() {
            true => self.send_batch.try_lock_for(at_exit),
            false => Some(self.send_batch.lock()),
        }
    }

    fn egress(&self) -> Egress<'_> {
        let seam = self.seam.get().map(|seam| &**seam);
        Egress { fd: self.fd(), counters: &self.counters, seam }
    }

    /// Datagrams will be received, which come with the header below them.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn expect_datagrams(&self) -> VerbsResult<()> {
        let asked = socket::ask_for_headers(self.fd());
        // After it: who opens one looks in this order, too.
        self.connected.request_close();
        asked.map_err(|error| crate::error::os_error("cannot ask for packet headers", &error))
    }

    /// The route of an address vector that leads to another host; `None` when it has no GID, or
    /// its families do not agree.
    pub(crate) fn route(&self, ah: &AhAttr) -> Option<Route> {
        if !ah.is_global || crate::device::is_here(ah) {
            return None;
        }
        let source = *self.interface.gids.get(ah.sgid_index as usize)?;
        let path = Path {
            source: address_of(source),
            destination: destination_of(ah.dgid),
            source_port: self.interface.port,
            destination_port: self.interface.port,
        };
        path.is_sound().then(|| self.route_of(path, ah.traffic_class, ah.hop_limit))
    }

    /// The route of a path from this interface.
    pub(crate) fn route_of(&self, path: Path, traffic_class: u8, hop_limit: u8) -> Route {
        let say_source = !self.interface.is_usual_source(path.source, path.destination);
        let say_hops = !self.interface.is_usual(path.destination, hop_limit);
        let interface = self.interface.index;
        Route { path, say_source, say_hops, interface, traffic_class, hop_limit }
    }

    /// Sends a packet that a fault rule held back; `intact`: its invariant CRC is to be right.
    pub(crate) fn send_held(&self, route: &Route, packet: &[u8], intact: bool) {
        let mut packet = packet.to_vec();
        if intact {
            // Sent alone, it has no identification but zero.
            rdmalab_link::expand::seal(&route.path, 0, &mut packet);
        }
        if socket::send(self.fd(), route, &packet, 0).is_err() {
            self.counters.count(rdmalab_link::drops::Drop::Send);
        }
    }

    /// Refuses an address vector that can lead nowhere; waits for a new address of ours, and for
    /// the answer of whoever is next on the way.
    ///
    /// # Errors
    /// That its addresses are of two families, ours is not in use, that there is no route, or that
    /// nobody answers.
    pub(crate) fn check_address(&self, ah: &AhAttr) -> VerbsResult<()> {
        self.check_address_within(ah, tentative::DAD_NS)?;
        let Some(route) = self.route(ah) else { return Ok(()) };
        let destination = route.path.destination;
        if !self.neighbours.lock().is_fresh(destination, crate::clock::now_ns()) {
            neighbour::wait_until_resolved(self.interface, destination, RESOLVE_NS)?;
            self.neighbours.lock().note(destination, crate::clock::now_ns());
        }
        Ok(())
    }

    /// The same, with so much patience for a new address.
    fn check_address_within(&self, ah: &AhAttr, timeout_ns: u64) -> VerbsResult<()> {
        if !ah.is_global || crate::device::is_here(ah) {
            return Ok(());
        }
        let destination = destination_of(ah.dgid);
        let Some(route) = self.route(ah) else {
            return Err(VerbsError::invalid(format!(
                "the destination {destination} and the GID with index {} are not of one IP \
                 version: choose another sgid_index (perftest: -x; ibv_*_pingpong: -g)",
                ah.sgid_index
            )));
        };
        tentative::wait_until_usable(&self.interface.name, route.path.source, timeout_ns)?;
        // A socket that is bound to an interface sends to groups by it without a route.
        if destination.is_multicast() {
            return Ok(());
        }
        socket::check_route(&route).map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(VerbsError::EINVAL);
            let name = &self.interface.name;
            VerbsError::new(errno, format!("no way from {name} to {destination}: {error}"))
        })
    }
}

impl Process {
    /// Refuses an address vector that can lead nowhere.
    ///
    /// # Errors
    /// That there is no such source GID, or as [`Network::check_address`].
    pub(crate) fn check_address(&self, ah: &AhAttr) -> VerbsResult<()> {
        let (index, gids) = (u32::from(ah.sgid_index), crate::device::gid_count());
        if ah.is_global && index >= gids {
            return Err(VerbsError::invalid(format!(
                "sgid_index {index}: the port has {gids} GIDs, from 0"
            )));
        }
        self.network().map_or(Ok(()), |network| network.check_address(ah))
    }
}

/// Puts a tap or fault rules into the way of every packet of this process, for good.
///
/// # Errors
/// That no interface is open, or that there is a seam already.
pub fn set_network_seam(seam: Box<dyn Seam>) -> VerbsResult<()> {
    let network = Process::existing().and_then(|process| process.network());
    let network = network.ok_or_else(|| {
        VerbsError::invalid("no network is open: name an interface, and open a device first")
    })?;
    let set = network.seam.set(seam);
    network.connected.request_close();
    set.map_err(|_| VerbsError::busy("the network has a seam already"))
}

/// Packets that this process dropped, by reason, since it opened the network; empty without one.
pub fn network_drops() -> Vec<(&'static str, u64)> {
    let network = Process::existing().and_then(|process| process.network());
    network.map(drops_of).unwrap_or_default()
}

fn drops_of(network: &Network) -> Vec<(&'static str, u64)> {
    let all = rdmalab_link::drops::Drop::ALL.iter();
    all.map(|reason| (reason.text(), network.counters.of(*reason))).collect()
}

/// What was dropped so far of what came over the network, or was to leave by it; `None` if nothing
/// was since this was asked before.
pub(crate) fn drops_in_words(network: &Network) -> Option<String> {
    let drops = drops_of(network);
    let all: u64 = drops.iter().map(|(_, count)| count).sum();
    if network.reported_drops.swap(all, Ordering::Relaxed) == all {
        return None;
    }
    let some = drops.iter().filter(|(_, count)| *count > 0);
    let some: Vec<String> = some.map(|(reason, count)| format!("{count} ({reason})")).collect();
    Some(format!("packets dropped between hosts, sent or received: {}", some.join(", ")))
}
