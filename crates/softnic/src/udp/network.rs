//! The network of one process: its use of the host's shared socket.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU16, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_engine::vocab::AhAttr;
use rdmalab_link::address::{FourTuple, IpFields, address_of, destination_of};
use rdmalab_link::drops::Counters;
use rdmalab_wire::ids::Gid;

use super::connected_socket::ConnectedSocket;
use super::delayed_qps::DelayedQps;
use super::interface::Interface;
use super::neighbour::{self, NeighbourCache};
use super::ownership::Ownership;
use super::packet_path::ArmedHook;
use super::receiver::Receiver;
use super::send_batch::{Egress, SendBatch};
use super::socket::{self, Route};
use super::tentative;

/// How long the next hop to a peer may take to answer a solicitation, ns: the kernel sends three, a
/// second apart.
const RESOLVE_NS: u64 = 3_500_000_000;

/// The network of a process, before and after it is opened.
#[derive(Default)]
pub(crate) struct NetworkPort {
    /// The network, where an interface was named.
    pub(crate) opened: OnceLock<Network>,
    /// The shared socket and the memory with its lock, as another process sent them.
    pub(super) offer: Mutex<Option<(OwnedFd, OwnedFd)>>,
}

/// The network of one process: its use of the host's shared socket.
pub(crate) struct Network {
    pub(crate) interface: &'static Interface,
    /// -1 once closed in a forked child.
    pub(super) socket: AtomicI32,
    /// Which process owns the socket.
    pub(super) ownership: Ownership,
    /// The standby thread runs.
    pub(super) has_standby: AtomicBool,
    /// The watchdog thread runs.
    pub(super) has_watchdog: AtomicBool,
    /// How many drops were reported so far.
    pub(super) reported_drops: AtomicU64,
    /// The process exits: another process should own the socket, if there is one.
    pub(super) is_exiting: AtomicBool,
    /// The process has handed ownership over while it exits.
    pub(super) handed_over: AtomicBool,
    /// The slot of the process that forwarded a packet last; 0: none did yet.
    pub(super) forwarded_by: AtomicU16,
    /// How often callers polled for packets. Two polls at once may count as one, which is harmless.
    pub(super) caller_polls: AtomicU64,
    /// Packets that callers took. Two updates at once may count as one, which is harmless.
    pub(super) caller_packets: AtomicU64,
    /// The queue pairs that delay an acknowledgement or requests.
    pub(super) delayed: DelayedQps,
    pub(super) send_batch: Mutex<SendBatch>,
    pub(super) receiver: Mutex<Receiver>,
    /// The connected socket of one peer.
    pub(super) connected: ConnectedSocket,
    pub(crate) counters: Counters,
    /// Memberships in IP groups, by their GID.
    pub(super) memberships: Mutex<BTreeMap<Gid, OwnedFd>>,
    /// Next hops that were resolved lately.
    pub(super) neighbours: Mutex<NeighbourCache>,
    /// Taps and fault rules.
    pub(super) hook: OnceLock<ArmedHook>,
}

impl Network {
    pub(super) fn new(
        interface: &'static Interface,
        socket: OwnedFd,
        ownership: Ownership,
    ) -> Network {
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
            delayed: DelayedQps::default(),
            send_batch: Mutex::new(SendBatch::new()),
            receiver: Mutex::new(Receiver::new(interface.port)),
            connected: ConnectedSocket::default(),
            counters: Counters::default(),
            memberships: Mutex::default(),
            neighbours: Mutex::default(),
            hook: OnceLock::new(),
        }
    }

    pub(crate) fn fd(&self) -> i32 {
        self.socket.load(Ordering::Relaxed)
    }

    /// The descriptor to wait on; -1 if another process owns the socket.
    pub(crate) fn fd_to_poll(&self) -> i32 {
        if self.ownership.is_ours() { self.fd() } else { -1 }
    }

    /// Whether packets may be outside of the shared socket: a thread is reading (for long, if it
    /// lost its processor), or a peer has a connected socket.
    pub(crate) fn is_being_read(&self) -> bool {
        self.receiver.is_locked() || self.has_connected()
    }

    /// Whether a peer has a connected socket.
    pub(crate) fn has_connected(&self) -> bool {
        self.connected.is_open()
    }

    /// The descriptor of the memory whose lock makes its holder the owner.
    pub(crate) fn ownership_fd(&self) -> i32 {
        self.ownership.fd()
    }

    /// Closes the socket in a forked child, where it would keep the port in use.
    pub(crate) fn close_in_child(&self) {
        self.connected.close();
        let fd = self.socket.swap(-1, Ordering::Relaxed);
        if fd >= 0 {
            // SAFETY: the descriptor was ours, and the swap made us the only one to close it.
            unsafe { libc::close(fd) };
        }
    }

    /// Counts a poll of a caller.
    #[inline]
    pub(crate) fn note_caller(&self) {
        let caller_polls = self.caller_polls.load(Ordering::Relaxed).wrapping_add(1);
        self.caller_polls.store(caller_polls, Ordering::Relaxed);
    }

    /// Counts packets that a caller took.
    #[inline]
    pub(crate) fn note_taken(&self, packets: u32) {
        let caller_packets =
            self.caller_packets.load(Ordering::Relaxed).wrapping_add(packets.into());
        self.caller_packets.store(caller_packets, Ordering::Relaxed);
    }

    /// Whether the process exits, so that another process should own the socket.
    pub(super) fn is_exiting(&self) -> bool {
        self.is_exiting.load(Ordering::SeqCst)
    }

    /// Locks the send batch. An exiting process waits at most `at_exit`, because it may exit inside
    /// a verb that holds the lock.
    pub(super) fn send_batch_within(
        &self,
        at_exit: std::time::Duration,
    ) -> Option<MutexGuard<'_, SendBatch>> {
        match self.is_exiting() {
            true => self.send_batch.try_lock_for(at_exit),
            false => Some(self.send_batch.lock()),
        }
    }

    pub(super) fn egress(&self) -> Egress<'_> {
        Egress { fd: self.fd(), counters: &self.counters }
    }

    /// Makes the kernel report the IP header fields that UD queue pairs deliver.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn expect_datagrams(&self) -> VerbsResult<()> {
        let asked = socket::ask_for_headers(self.fd());
        // Only now: a thread that opens a connected socket clears this request first, and then
        // checks whether header fields are reported. So it sees one of the two.
        self.connected.request_close();
        asked.map_err(|error| crate::error::os_error("cannot ask for packet headers", &error))
    }

    /// The route of an address vector to another host; `None` if it has no GID, or its addresses
    /// have different IP versions.
    pub(crate) fn route(&self, ah: &AhAttr) -> Option<Route> {
        if !ah.is_global || crate::device::is_here(ah) {
            return None;
        }
        let source = *self.interface.gids.get(ah.sgid_index as usize)?;
        let tuple = FourTuple {
            source: address_of(source),
            destination: destination_of(ah.dgid),
            source_port: self.interface.port,
            destination_port: self.interface.port,
        };
        let AhAttr { traffic_class, hop_limit, flow_label, .. } = *ah;
        let ip = IpFields { traffic_class, hop_limit, flow_label, identification: 0 };
        tuple.is_sound().then(|| self.route_of(tuple, &ip))
    }

    /// The route of a tuple from this interface, with these fields in its IP headers.
    pub(crate) fn route_of(&self, tuple: FourTuple, ip: &IpFields) -> Route {
        let IpFields { traffic_class, hop_limit, flow_label, .. } = *ip;
        let say_source = !self.interface.is_usual_source(tuple.source, tuple.destination);
        let say_hops = !self.interface.is_usual(tuple.destination, hop_limit);
        let interface = self.interface.index;
        Route { tuple, say_source, say_hops, interface, traffic_class, hop_limit, flow_label }
    }

    /// Sends a packet that a fault rule held back. `intact`: its invariant CRC shall be correct.
    pub(crate) fn send_deferred(&self, route: &Route, packet: &[u8], intact: bool) {
        let mut packet = packet.to_vec();
        if intact {
            // A packet that is sent alone has the identification 0.
            rdmalab_link::expand::seal(&route.tuple, 0, &mut packet);
        }
        if socket::send(self.fd(), route, &packet, 0).is_err() {
            self.counters.count(rdmalab_link::drops::Drop::Send);
        }
    }

    /// Refuses an address vector to which no packet can be sent. Waits until our address is not
    /// tentative any more, and until the next hop is resolved.
    ///
    /// # Errors
    /// Its addresses have different IP versions, ours is not in use, there is no route, or the next
    /// hop does not answer.
    pub(crate) fn check_address(&self, ah: &AhAttr) -> VerbsResult<()> {
        self.check_address_within(ah, tentative::DAD_NS)?;
        let Some(route) = self.route(ah) else { return Ok(()) };
        let destination = route.tuple.destination;
        if !self.neighbours.lock().is_fresh(destination, crate::clock::now_ns()) {
            neighbour::wait_until_resolved(self.interface, destination, RESOLVE_NS)?;
            self.neighbours.lock().note(destination, crate::clock::now_ns());
        }
        Ok(())
    }

    /// The same without the next hop; waits up to `timeout_ns` for a tentative address.
    pub(super) fn check_address_within(&self, ah: &AhAttr, timeout_ns: u64) -> VerbsResult<()> {
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
        tentative::wait_until_usable(&self.interface.name, route.tuple.source, timeout_ns)?;
        // A socket that is bound to an interface sends to groups by it without a route.
        if destination.is_multicast() {
            return Ok(());
        }
        socket::check_route(&route).map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(VerbsError::EINVAL);
            let name = &self.interface.name;
            VerbsError::new(
                errno,
                format!("no route from interface {name} to {destination}: {error}"),
            )
        })
    }
}

/// Packets that were dropped so far, by reason.
pub(super) fn drops_of(network: &Network) -> Vec<(&'static str, u64)> {
    let all = rdmalab_link::drops::Drop::ALL.iter();
    all.map(|reason| (reason.text(), network.counters.of(*reason))).collect()
}

/// The packets dropped so far, received or to be sent, as a text; `None` if none was dropped since
/// the last call.
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
