//! The wire: RoCEv2 over UDP to other hosts, where `RDMALAB_INTERFACE` opens it.
//!
//! All processes of a host (boot, network namespace, user) share one socket, bound to UDP 4791 on
//! that interface (a peer that talks alone may have another, see `flow`); its descriptor travels in
//! letters. All of them send on it. One of them, its *reader*, reads it, and gives packets for
//! other processes' queue pairs to them through the rings; it drops what finds a full one. Nothing
//! waits for anything: a packet that is dropped is a packet that was lost.
//!
//! A word in shared memory says whose turn it is to read (`office`). Who has a lock that its holder
//! gives up when it exits, and that the kernel passes on when it dies, makes itself the reader
//! (`share`); so does who finds that the reader leaves packets lying, since it was stopped
//! (`watch`, `stall`).
//!
//! A caller inside a verb reads the socket itself; the helper waits for it when nobody polls.
//!
//! Lock order: the receiver's buffers (only ever tried) -> QP -> the outbox.

mod course;
pub(crate) mod debt;
mod flow;
mod flow_socket;
mod inbox;
pub(crate) mod interface;
pub mod management;
pub mod management_c;
mod members;
mod neighbour;
mod office;
mod onset;
mod outbox;
pub(crate) mod patience;
mod receive;
mod refuse;
mod send;
mod share;
mod socket;
mod stall;
pub(crate) mod vigil;
mod watch;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU16, AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_engine::vocab::AhAttr;
use rdmalab_link::drops::Counters;
use rdmalab_link::hook::PacketHook;
use rdmalab_link::path::{Path, address_of, destination_of};
use rdmalab_wire::ids::Gid;

use crate::process::Process;
use interface::Interface;
use neighbour::Answered;
use office::Office;
use outbox::{Exit, Outbox};
pub(crate) use receive::Left;
use receive::Receiver;
pub(crate) use socket::Route;

/// Packets that a reliable connection may have outstanding. Twice as many would still fit into the
/// receive buffer that a process without rights gets (425 984 bytes, packets of 1 KiB one by one).
pub(crate) const WINDOW_PACKETS: u32 = 128;

/// How long whoever is next on the way to a peer may take to answer, ns: the kernel asks three
/// times, a second apart.
const NEIGHBOUR_NS: u64 = 3_500_000_000;

/// This process's share of the host's socket.
pub(crate) struct Wire {
    pub(crate) interface: &'static Interface,
    /// -1 once closed in a forked child.
    socket: AtomicI32,
    /// Whose turn it is to read.
    office: Office,
    /// The thread that waits for our turn runs.
    has_heir: AtomicBool,
    /// The thread that watches whoever reads runs.
    has_watch: AtomicBool,
    /// How many packets were dropped when that was said last.
    told: AtomicU64,
    /// The process exits: it is for others to read, if there are any.
    is_leaving: AtomicBool,
    /// It has passed the socket on once while it exits.
    passed_on: AtomicBool,
    /// The slot of the process that passed something on last; 0: none did yet.
    read_by: AtomicU16,
    /// How often callers looked for packets. Two that collide count once, which does no harm.
    looks: AtomicU64,
    /// Packets that callers took. Two that collide count once, which does no harm.
    taken: AtomicU64,
    /// One more than the index of the queue pair that owes an acknowledgement; 0: none does.
    owing: AtomicU32,
    outbox: Mutex<Outbox>,
    receiver: Mutex<Receiver>,
    /// The socket of one peer that talks alone.
    flow: flow::Shared,
    pub(crate) counters: Counters,
    /// Memberships in IP groups, by their GID.
    memberships: Mutex<BTreeMap<Gid, OwnedFd>>,
    /// To whom packets could leave lately, and who is not asked about again so soon.
    answered: Mutex<Answered>,
    /// Taps and fault rules.
    hook: OnceLock<Box<dyn PacketHook>>,
}

impl Wire {
    fn new(interface: &'static Interface, socket: OwnedFd, office: Office) -> Wire {
        Wire {
            interface,
            socket: AtomicI32::new(std::os::fd::IntoRawFd::into_raw_fd(socket)),
            office,
            has_heir: AtomicBool::new(false),
            has_watch: AtomicBool::new(false),
            told: AtomicU64::new(0),
            is_leaving: AtomicBool::new(false),
            passed_on: AtomicBool::new(false),
            read_by: AtomicU16::new(0),
            looks: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            owing: AtomicU32::new(0),
            outbox: Mutex::new(Outbox::new()),
            receiver: Mutex::new(Receiver::new(interface.port)),
            flow: flow::Shared::default(),
            counters: Counters::default(),
            memberships: Mutex::default(),
            answered: Mutex::default(),
            hook: OnceLock::new(),
        }
    }

    pub(crate) fn fd(&self) -> i32 {
        self.socket.load(Ordering::Relaxed)
    }

    /// The descriptor to wait on; -1 when another process reads.
    pub(crate) fn fd_to_poll(&self) -> i32 {
        if self.office.is_ours() { self.fd() } else { -1 }
    }

    /// Whether the socket tells too little: a thread has the receiver's buffers, and has them for
    /// long if it lost its processor, or a peer has a socket of its own.
    pub(crate) fn is_being_read(&self) -> bool {
        self.receiver.is_locked() || self.has_flow()
    }

    /// Whether a peer has a socket of its own.
    pub(crate) fn has_flow(&self) -> bool {
        self.flow.is_open()
    }

    /// The memory whose lock makes its holder the reader.
    pub(crate) fn ownership_fd(&self) -> i32 {
        self.office.fd()
    }

    /// Closes the socket in the child of a fork, where it would keep the port.
    pub(crate) fn close_in_child(&self) {
        self.flow.close();
        let fd = self.socket.swap(-1, Ordering::Relaxed);
        if fd >= 0 {
            // SAFETY: the descriptor was ours, and the swap made us the only one to close it.
            unsafe { libc::close(fd) };
        }
    }

    /// A caller looks for packets.
    #[inline]
    pub(crate) fn note_caller(&self) {
        let looks = self.looks.load(Ordering::Relaxed).wrapping_add(1);
        self.looks.store(looks, Ordering::Relaxed);
    }

    /// A caller took packets.
    #[inline]
    pub(crate) fn note_taken(&self, packets: u32) {
        let taken = self.taken.load(Ordering::Relaxed).wrapping_add(packets.into());
        self.taken.store(taken, Ordering::Relaxed);
    }

    /// Whether the process exits, and its handlers have left the socket to others.
    fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::SeqCst)
    }

    /// The outbox; a process that exits, perhaps in the midst of a verb, waits only so long for it.
    fn outbox_within(&self, at_exit: std::time::Duration) -> Option<MutexGuard<'_, Outbox>> {
        match self.is_leaving() {
            true => self.outbox.try_lock_for(at_exit),
            false => Some(self.outbox.lock()),
        }
    }

    fn exit(&self) -> Exit<'_> {
        let hook = self.hook.get().map(|hook| &**hook);
        Exit { fd: self.fd(), counters: &self.counters, hook }
    }

    /// Datagrams will be received, which come with the header below them.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn expect_datagrams(&self) -> VerbsResult<()> {
        let asked = socket::ask_for_headers(self.fd());
        // After it: who opens one looks in this order, too.
        self.flow.ask_to_end();
        asked.map_err(|error| crate::process::os_error("cannot ask for packet headers", &error))
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
    pub(crate) fn send_deferred(&self, route: &Route, packet: &[u8], intact: bool) {
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
        self.check_address_within(ah, onset::ONSET_NS)?;
        let Some(route) = self.route(ah) else { return Ok(()) };
        let destination = route.path.destination;
        if !self.answered.lock().knows(destination, crate::clock::now_ns()) {
            neighbour::wait_for(self.interface, destination, NEIGHBOUR_NS)?;
            self.answered.lock().note(destination, crate::clock::now_ns());
        }
        Ok(())
    }

    /// The same, with so much patience for a new address.
    fn check_address_within(&self, ah: &AhAttr, patience_ns: u64) -> VerbsResult<()> {
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
        onset::wait_until_usable(&self.interface.name, route.path.source, patience_ns)?;
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
    /// That there is no such source GID, or as [`Wire::check_address`].
    pub(crate) fn check_address(&self, ah: &AhAttr) -> VerbsResult<()> {
        let (index, gids) = (u32::from(ah.sgid_index), crate::device::gid_count());
        if ah.is_global && index >= gids {
            return Err(VerbsError::invalid(format!(
                "sgid_index {index}: the port has {gids} GIDs, from 0"
            )));
        }
        self.wire().map_or(Ok(()), |wire| wire.check_address(ah))
    }
}

/// Puts a tap or fault rules into the way of every packet of this process, for good.
///
/// # Errors
/// That no interface is open, or that there is a hook already.
pub fn set_packet_hook(hook: Box<dyn PacketHook>) -> VerbsResult<()> {
    let wire = Process::existing().and_then(|process| process.wire());
    let wire = wire.ok_or_else(|| {
        VerbsError::invalid("no network is open: name an interface, and open a device first")
    })?;
    let set = wire.hook.set(hook);
    wire.flow.ask_to_end();
    set.map_err(|_| VerbsError::busy("the network has a hook already"))
}

/// Packets that this process dropped, by reason, since it opened the wire; empty without one.
pub fn wire_drops() -> Vec<(&'static str, u64)> {
    let wire = Process::existing().and_then(|process| process.wire());
    wire.map(drops_of).unwrap_or_default()
}

fn drops_of(wire: &Wire) -> Vec<(&'static str, u64)> {
    let all = rdmalab_link::drops::Drop::ALL.iter();
    all.map(|reason| (reason.text(), wire.counters.of(*reason))).collect()
}

/// What was dropped so far of what came over the wire, or was to leave by it; `None` if nothing was
/// since this was asked before.
pub(crate) fn drops_in_words(wire: &Wire) -> Option<String> {
    let drops = drops_of(wire);
    let all: u64 = drops.iter().map(|(_, count)| count).sum();
    if wire.told.swap(all, Ordering::Relaxed) == all {
        return None;
    }
    let some = drops.iter().filter(|(_, count)| *count > 0);
    let some: Vec<String> = some.map(|(reason, count)| format!("{count} ({reason})")).collect();
    Some(format!("packets dropped between hosts, sent or received: {}", some.join(", ")))
}
