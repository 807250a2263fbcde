//! One socket for all processes of a host: who reads it, and how it reaches the others.
//!
//! Whoever comes first binds the port. Who finds it taken asks the other processes of the host by
//! control message; the one that reads the socket answers with its descriptor, and with the
//! descriptor of a piece of memory whose lock makes its holder the reader. Everybody else waits for
//! that lock in a thread of its own, so that the kernel names the next reader when one dies.
//!
//! A process that is stopped keeps the lock, though another one reads meanwhile (`watchdog`). It
//! gives it up when it goes on, to somebody who then reads. So whoever has the lock and runs is the
//! reader, and if the reader dies without having had the lock, it is found out as if it was
//! stopped.
//!
//! A peer's own socket (`connected`) in a process that is stopped cannot be read by any other.
//! There is none where processes share the port, but for one that took longer than
//! `connected::JOIN_NS` from asking for the socket to saying that it uses it: if the reader is
//! stopped before it passes a packet on to it, packets of that one peer wait until it goes on. And
//! one that asks while the only process that has the socket is stopped is told that the port is
//! taken.

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::MutexGuard;
use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_engine::train::{Train, TrainKind};
use rdmalab_link::drops::Drop;
use rdmalab_link::path::{Below, Path};
use rdmalab_ring::mailbox;
use rdmalab_wire::ids::{PathMtu, Psn, Qpn};

use super::connect_policy::Action;
use super::interface::{self, Interface};
use super::ownership::Ownership;
use super::receive::{Arrival, Receiver};
use super::{Network, socket};
use crate::armed::network_seam::NetworkSeam;
use crate::control::{ControlKind, ControlMessage};
use crate::error::os_error;
use crate::peer::Peer;
use crate::poll::wait_readable;
use crate::process::Process;
use crate::ring_push;
use crate::signals::{block_signals, restore_signals};

/// How long whoever has the socket may take to answer, ns.
const ANSWER_NS: u64 = 2_000_000_000;
/// How long only its reader is asked, ns. Then it may be stopped. (Of the others few are asked at
/// first: what a second answer brings is never closed.)
const READER_NS: u64 = 500_000_000;
/// A control message may be lost in a full mailbox: it is sent again after so long, ns.
const ASK_AGAIN_NS: u64 = 100_000_000;
/// What a process that exits waits for a thread that is reading, or sending.
pub(super) const EXIT_WAIT: std::time::Duration = std::time::Duration::from_millis(20);
/// How long a process that exits waits for a standby to take the socket, ns. It does so in
/// microseconds, unless its thread does not get a processor: on a busy machine that takes up to
/// seconds. Nobody waits where there is no standby; one that is stopped costs this time once.
const HANDOVER_NS: u64 = 2_000_000_000;
/// The same for one that reads in the place of another, which has the lock and is stopped: others
/// find out that it does not read any more if something comes meanwhile, ns.
const STALL_FOUND_NS: u64 = 600_000_000;
/// How long one who gives the lock up, because it is not the reader any more, waits for somebody to
/// take it before it stands in line itself, ms.
const LOCK_TAKEN_MS: u64 = 100;
/// The byte of the memory whose lock makes its holder the reader.
const OWNER_BYTE: i64 = 0;
/// The byte that everybody has a read lock on who uses the socket, and would inherit it.
const USER_BYTE: i64 = 1;
/// What a standby gives those that it does not know to answer before it reads, ms.
pub(super) const HANDSHAKE_MS: u64 = 50;
/// What precedes a packet that is passed on: its addresses and ports, class and hops.
const PREFIX_BYTES: usize = 40;

impl Process {
    /// Opens the network, if an interface was named.
    ///
    /// # Errors
    /// That the interface does not exist or the port is taken, and what to do.
    pub(crate) fn open_network(&'static self) -> VerbsResult<()> {
        let Some(interface) = interface::named()? else { return Ok(()) };
        let began_ns = crate::clock::now_ns();
        let mut ask_at_ns = 0;
        loop {
            let now_ns = crate::clock::now_ns();
            match socket::open(interface) {
                Ok(socket) => {
                    let ownership = Ownership::create()
                        .map_err(|error| os_error("cannot make memory for a lock", &error))?;
                    // Nobody else has seen the memory: the lock is free, and so is the office.
                    if lock(ownership.fd(), false) {
                        ownership.begin(0);
                    }
                    return self.set_network(Network::new(interface, socket, ownership));
                }
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
                Err(error) => {
                    let (name, port) = (&interface.name, interface.port);
                    let what = format!("cannot open UDP port {port} on interface {name}");
                    return Err(os_error(&what, &error));
                }
            }
            if now_ns >= ask_at_ns {
                ask_at_ns = now_ns + ASK_AGAIN_NS;
                let waited_ns = (now_ns - began_ns).checked_sub(READER_NS);
                self.request_socket(interface, waited_ns.map(|ns| (ns / ASK_AGAIN_NS) as u32));
            }
            wait_readable(&[self.mailbox_fd()], 10);
            self.read_mailbox();
            if let Some((socket, memory)) = self.socket_offer.lock().take() {
                let ownership = Ownership::join(memory)
                    .map_err(|error| os_error("cannot share the socket", &error))?;
                return self.set_network(Network::new(interface, socket, ownership));
            }
            if now_ns >= began_ns + ANSWER_NS {
                return Err(port_taken(interface));
            }
        }
    }

    fn set_network(&'static self, network: Network) -> VerbsResult<()> {
        let reads = network.ownership.is_ours();
        register_standby(network.ownership_fd());
        if let Some(armed) = self.armed {
            let _ = network.seam.set(Box::new(NetworkSeam::new(armed)));
        }
        let _ = self.network.set(network);
        hand_over_at_exit();
        if reads {
            return Ok(());
        }
        // Whoever reads the socket, now or later, passes on only to those that it knows.
        self.exchange_hellos();
        let Some(network) = self.network() else { return Ok(()) };
        network.ownership.request_lock();
        self.start_standby(network)
    }

    /// Asks whoever reads the socket for it; and of those who do not one in turn 0, and twice as
    /// many others in each turn after it: one answer is enough, but most may not have the socket,
    /// or be stopped.
    fn request_socket(&self, interface: &Interface, round: Option<u32>) {
        let (key, other_slots) = (socket_key(interface), self.other_slots());
        let chosen = round.map_or(0..0, |round| asked_in_round(round, other_slots.len()));
        for (index, slot) in other_slots.into_iter().enumerate() {
            let kind = match chosen.contains(&index) {
                true => ControlKind::AnySocketRequest,
                false => ControlKind::SocketRequest,
            };
            let message = ControlMessage::new(kind, self.slot, self.incarnation, 0, key);
            let _ = self.mailbox.send(slot, &message.to_bytes(), &[]);
        }
    }

    /// The slots of the other processes of this host.
    pub(super) fn other_slots(&self) -> Vec<u16> {
        // SAFETY: takes and touches nothing.
        let user = unsafe { libc::getuid() };
        let live = mailbox::list_live_slots().unwrap_or_default();
        let ours = live.iter().filter(|live| {
            live.uid == user && live.version == crate::layout::VERSION && live.slot != self.slot
        });
        ours.map(|live| live.slot).collect()
    }

    /// Another process asks for the socket: whoever reads it answers, or anybody if that one does
    /// not, and greets the process that it will pass packets to.
    pub(crate) fn answer_socket_request(&self, message: &ControlMessage) {
        let Some(network) = self.network() else { return };
        let asks_us = network.ownership.is_ours() || message.kind == ControlKind::AnySocketRequest;
        if message.memory_id != socket_key(network.interface) || !asks_us {
            return;
        }
        // From now on there may be one who reads while we are stopped. (While we are being made,
        // the question will come again.)
        let Some(process) = Process::existing() else { return };
        // Without the threads we are no standby afterwards, and no more.
        let _ = process.network().map(|network| process.start_standby(network));
        // What it may want to know of packets is known of those in the socket for all alone.
        network.connected.forbid_for_a_while();
        let _ = self.send_hello(message.slot);
        let mut reply = *message;
        reply.kind = ControlKind::Socket;
        reply.slot = self.slot;
        reply.incarnation = self.incarnation;
        // SAFETY: the descriptor stays open as long as the process does; in a forked child, where
        // the socket is closed, nobody reads mail.
        let fds = unsafe { [BorrowedFd::borrow_raw(network.fd()), network.ownership.as_fd()] };
        let _ = self.mailbox.send(message.slot, &reply.to_bytes(), &fds);
    }

    /// The socket came.
    pub(crate) fn take_socket_offer(&self, fds: Vec<OwnedFd>) {
        let Ok([socket, ownership]) = <[OwnedFd; 2]>::try_from(fds) else { return };
        let mut offer = self.socket_offer.lock();
        if self.network().is_none() && offer.is_none() {
            *offer = Some((socket, ownership));
        } else {
            // A second answer. Closing the memory's descriptor would drop a lock that we may have
            // on it through the first.
            std::mem::forget(ownership);
        }
    }

    /// Starts the threads of a standby, unless they run: one waits for the lock, one watches
    /// whoever reads.
    fn start_standby(&'static self, network: &'static Network) -> VerbsResult<()> {
        let start = |has: &AtomicBool, name: &str, run: fn(&Process, &Network)| {
            if has.swap(true, Ordering::SeqCst) {
                return Ok(());
            }
            let thread = std::thread::Builder::new().name(name.into()).stack_size(128 * 1024);
            let spawned = thread.spawn(move || run(self, network));
            has.store(spawned.is_ok(), Ordering::SeqCst);
            spawned.map(std::mem::drop)
        };
        let before = block_signals();
        // One that watches does no harm without one that waits.
        let started = start(&network.has_watchdog, "rdmalab-watch", Process::watch_owner)
            .and_then(|()| start(&network.has_standby, "rdmalab-heir", Process::serve_as_standby));
        restore_signals(&before);
        started.map_err(|error| os_error("cannot start a thread", &error))
    }

    /// Waits for the lock whenever this process does not read. While the process exits, it passes
    /// the socket on once, if it may.
    fn serve_as_standby(&self, network: &Network) {
        loop {
            network.ownership.wait_for_lock_request();
            self.give_up_lock(network);
            while !lock(network.ownership_fd(), true) {
                // A deadlock with the program's own record locks, or no memory for the lock.
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            let mut unmet = Vec::new();
            while !network.ownership.is_ours() {
                let term = network.ownership.term();
                unmet = self.exchange_hellos_within(HANDSHAKE_MS);
                self.begin_to_read(network, term);
            }
            // Twice would be for ever, among processes that all exit.
            let passes_on = network.is_exiting()
                && !network.handed_over.load(Ordering::SeqCst)
                && self.hand_over(network);
            if !passes_on && !unmet.is_empty() {
                self.exchange_hellos();
            }
        }
    }

    /// Reads from now on, unless somebody else has begun to since the term was seen. What comes
    /// meanwhile waits in the socket. Who reads it knows whom to pass it on to, as the caller has
    /// seen to: a packet for a stranger is dropped, and a datagram is not sent again. But one that
    /// does not answer (it may be stopped) must not keep it from those that are known.
    pub(super) fn begin_to_read(&self, network: &Network, term: u64) -> bool {
        let begun = network.ownership.begin(term);
        if begun {
            // It sleeps without the socket, as callers may that sleep for long: it looks after
            // those.
            self.progress_thread.wake();
        }
        begun
    }

    /// Gives up what this process still has of the time when it read: the lock, for whose next
    /// holder it waits a while, and a peer's own socket.
    fn give_up_lock(&self, network: &Network) {
        if network.has_connected() {
            self.close_flow(network);
        }
        let fd = network.ownership_fd();
        if is_locked_elsewhere(fd) {
            return;
        }
        unlock(fd);
        for _ in 0..LOCK_TAKEN_MS {
            if is_locked_elsewhere(fd) || !has_standby(fd) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Closes a peer's own socket, and keeps other threads from reading. No lock is waited for that
    /// a thread may have been cancelled with, and so nothing is read: what lies there is lost.
    fn close_flow<'a>(&self, network: &'a Network) -> Option<MutexGuard<'a, Receiver>> {
        let mut receiver_guard = network.receiver.try_lock_for(EXIT_WAIT);
        match &mut receiver_guard {
            Some(receiver) => self.apply_policy(network, &mut receiver.policy, Action::Close),
            None => network.connected.request_close(),
        }
        receiver_guard
    }

    /// Stops reading, if another process goes on: a thread that ends with the process between
    /// reading packets and passing them on takes them along, and what a program does in its last
    /// handlers may take long. Returns whether another process reads now.
    fn hand_over(&self, network: &Network) -> bool {
        let fd = network.ownership_fd();
        if !network.ownership.is_ours() || !has_standby(fd) {
            return false;
        }
        let receiver_guard = self.close_flow(network);
        let Some(ended) = network.ownership.resign() else { return false };
        // Else one has it that was stopped, and we read in its place.
        let is_locked = !is_locked_elsewhere(fd);
        unlock(fd);
        std::mem::drop(receiver_guard);
        let taken = || !network.ownership.is_now(ended) || is_locked && is_locked_elsewhere(fd);
        let timeout_ns = if is_locked { HANDOVER_NS } else { STALL_FOUND_NS };
        let give_up_ns = crate::clock::now_ns() + timeout_ns;
        // The last standby may end meanwhile.
        while !taken() && crate::clock::now_ns() < give_up_ns && has_standby(fd) {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        // If nobody took it, there is no standby any more, or it is stopped.
        let is_back = !taken() && (lock(fd, false) || !is_locked) && network.ownership.begin(ended);
        if !is_back {
            network.handed_over.store(true, Ordering::SeqCst);
            network.ownership.request_lock();
        }
        !is_back
    }

    /// Passes a packet on to the process that it is for.
    pub(super) fn forward(&self, arrival: &Arrival<'_>, slot: u16) -> Result<(), Drop> {
        if arrival.forwarded || slot == 0 {
            return Err(Drop::NoSuchQp);
        }
        if let Some(network) = self.network() {
            network.connected.close_if_open();
        }
        let peer = self.peer(slot).ok_or(Drop::Forward)?;
        if push(&peer, arrival) { Ok(()) } else { Err(Drop::Forward) }
    }

    /// Passes a packet on to every other process that is known.
    pub(super) fn forward_to_all(&self, arrival: &Arrival<'_>) {
        if let Some(network) = self.network() {
            network.connected.close_if_open();
        }
        for peer in self.known_peers() {
            if !peer.is_self {
                push(&peer, arrival);
            }
        }
    }
}

/// A process that exits leaves the socket to its standby, if there is one. What the program does in
/// handlers that come later goes on as in any process that does not read the socket.
fn hand_over_at_exit() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler touches only what lives as long as the process.
        unsafe { libc::atexit(at_exit) };
    });
}

extern "C" fn at_exit() {
    let Some(process) = Process::existing() else { return };
    // In a forked child the socket is the parent's.
    let Some(network) = process.network().filter(|network| network.fd() >= 0) else { return };
    process.send_delayed_ack_at_exit(network);
    network.is_exiting.store(true, Ordering::SeqCst);
    // The standby may go before we do.
    if process.hand_over(network) && process.start_standby(network).is_err() {
        // Without the thread nobody may count on us.
        set_lock(network.ownership_fd(), libc::F_UNLCK, USER_BYTE, false);
    }
}

/// What tells one socket of a host from another.
fn socket_key(interface: &Interface) -> u32 {
    interface.index << 16 | u32::from(interface.port)
}

/// Which of so many are asked in a turn: as many as in all turns before and one, then everybody.
fn asked_in_round(round: u32, count: usize) -> std::ops::Range<usize> {
    let from = 1_usize.checked_shl(round).unwrap_or(usize::MAX) - 1;
    match from < count {
        true => from..from.saturating_mul(2).saturating_add(1).min(count),
        false => 0..count,
    }
}

fn port_taken(interface: &Interface) -> VerbsError {
    let Interface { name, port, .. } = interface;
    VerbsError::new(
        libc::EADDRINUSE,
        format!(
            "UDP port {port} on interface {name} is taken by another user's programs, by the \
             kernel's rdma_rxe, or by programs of yours that are stopped or of another version: \
             choose another port for both ends (RDMALAB_PORT, --udp-port), \
             another interface, or a network namespace of your own"
        ),
    )
}

/// A record lock of one byte, of a kind.
fn record_lock(kind: i32, byte: i64) -> libc::flock {
    // SAFETY: all-zero is a valid value of this plain C structure.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    (lock.l_start, lock.l_len) = (byte as libc::off_t, 1);
    lock
}

/// Sets a record lock, which the kernel drops when this process ends, or executes another program;
/// waits for it if asked to. Returns whether it was set.
fn set_lock(fd: i32, kind: i32, byte: i64, wait: bool) -> bool {
    let lock = record_lock(kind, byte);
    let command = if wait { libc::F_SETLKW } else { libc::F_SETLK };
    // SAFETY: the kernel reads a live structure.
    unsafe { libc::fcntl(fd, command, &raw const lock) == 0 }
}

/// Takes the lock of the reader; waits for it if asked to. Returns whether this process has it.
fn lock(fd: i32, wait: bool) -> bool {
    set_lock(fd, libc::F_WRLCK, OWNER_BYTE, wait)
}

/// Gives it up: whoever waits for it has it.
fn unlock(fd: i32) {
    set_lock(fd, libc::F_UNLCK, OWNER_BYTE, false);
}

/// Whether another process has a lock on a byte.
fn is_held_elsewhere(fd: i32, byte: i64) -> bool {
    let mut lock = record_lock(libc::F_WRLCK, byte);
    // SAFETY: the kernel reads and writes a live structure.
    let asked = unsafe { libc::fcntl(fd, libc::F_GETLK, &raw mut lock) };
    asked == 0 && i32::from(lock.l_type) != libc::F_UNLCK
}

/// Whether another process has it.
fn is_locked_elsewhere(fd: i32) -> bool {
    is_held_elsewhere(fd, OWNER_BYTE)
}

/// From now on others know that somebody would inherit from them.
fn register_standby(fd: i32) {
    // Nobody's lock of this byte is in the way of another one's.
    set_lock(fd, libc::F_RDLCK, USER_BYTE, false);
}

/// Whether another process would inherit the socket.
pub(super) fn has_standby(fd: i32) -> bool {
    is_held_elsewhere(fd, USER_BYTE)
}

/// Puts a packet into a peer's ring, behind what the network said of it. Returns whether it had
/// room.
pub(super) fn push(peer: &Peer, arrival: &Arrival<'_>) -> bool {
    let mut train = Train::new(TrainKind::Send, Qpn::new(0), Qpn::new(0), Psn::new(0));
    train.payload_bytes = (PREFIX_BYTES + arrival.bytes.len()) as u32;
    let mut out = peer.out.lock();
    if ring_push::room_in(&mut out, PathMtu::Mtu4096.bytes(), 1 + ring_push::ANSWER_SLOTS).is_none()
    {
        return false;
    }
    let prefix = prefix_of(arrival);
    let pushed = ring_push::push(&mut out, &train, false, |to| {
        // SAFETY: the ring made room for exactly these two pieces.
        unsafe {
            to.copy_from_nonoverlapping(prefix.as_ptr(), PREFIX_BYTES);
            let after = to.add(PREFIX_BYTES);
            after.copy_from_nonoverlapping(arrival.bytes.as_ptr(), arrival.bytes.len());
        }
        Ok(())
    });
    drop(out);
    peer.ring_bell();
    pushed.is_some()
}

fn prefix_of(arrival: &Arrival<'_>) -> [u8; PREFIX_BYTES] {
    let octets = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let Arrival { path, below, .. } = arrival;
    let mut prefix = [0; PREFIX_BYTES];
    prefix[..16].copy_from_slice(&octets(path.source));
    prefix[16..32].copy_from_slice(&octets(path.destination));
    prefix[32..34].copy_from_slice(&path.source_port.to_le_bytes());
    prefix[34..36].copy_from_slice(&path.destination_port.to_le_bytes());
    (prefix[36], prefix[37]) = (below.traffic_class, below.hop_limit);
    prefix
}

/// Reads what [`push`] wrote; `None` when it makes no sense.
pub(super) fn read_forwarded(bytes: &[u8]) -> Option<Arrival<'_>> {
    let (prefix, bytes) = bytes.split_first_chunk::<PREFIX_BYTES>()?;
    let address = |at: usize| {
        let octets: [u8; 16] = std::array::from_fn(|i| prefix[at + i]);
        Ipv6Addr::from(octets).to_canonical()
    };
    let word = |at: usize| u16::from_le_bytes([prefix[at], prefix[at + 1]]);
    let path = Path {
        source: address(0),
        destination: address(16),
        source_port: word(32),
        destination_port: word(34),
    };
    let below = Below { traffic_class: prefix[36], hop_limit: prefix[37], identification: 0 };
    path.is_sound().then_some(Arrival { path, below, bytes, forwarded: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_asked_within_a_second_and_a_half_and_few_at_first() {
        let rounds = ((ANSWER_NS - READER_NS) / ASK_AGAIN_NS) as u32;
        assert_eq!([0, 1, 2, 3].map(|round| asked_in_round(round, 100)), [0..1, 1..3, 3..7, 7..15]);
        for count in [0, 1, 2, 3, 40, 4096] {
            let asked: std::collections::BTreeSet<usize> =
                (0..rounds).flat_map(|round| asked_in_round(round, count)).collect();
            assert_eq!(asked, (0..count).collect(), "{count}");
        }
        assert_eq!(asked_in_round(u32::MAX, 5), 0..5);
    }

    #[test]
    fn what_is_passed_on_arrives() {
        let path = Path {
            source: "10.0.0.1".parse().unwrap(),
            destination: "10.0.0.2".parse().unwrap(),
            source_port: 0xc001,
            destination_port: 4791,
        };
        let below = Below { traffic_class: 3, hop_limit: 64, identification: 0 };
        let arrival = Arrival { path, below, bytes: b"packet", forwarded: false };
        let mut bytes = prefix_of(&arrival).to_vec();
        bytes.extend_from_slice(arrival.bytes);
        let read = read_forwarded(&bytes).unwrap();
        assert_eq!((read.path, read.below, read.bytes), (path, below, &b"packet"[..]));
        assert!(read.forwarded);
        assert!(read_forwarded(&bytes[..PREFIX_BYTES - 1]).is_none());
        bytes[0] = 1;
        assert!(read_forwarded(&bytes).is_none(), "two families");
    }

    #[test]
    fn a_lock_is_had_once() {
        let ownership = Ownership::create().unwrap();
        let fd = ownership.fd();
        assert!(lock(fd, false));
        // The holder may take it again; another process may not, which the tests with processes
        // show.
        assert!(lock(fd, false));
        assert!(!is_locked_elsewhere(fd), "it is ours");
        unlock(fd);
        assert!(!is_locked_elsewhere(fd));
        register_standby(fd);
        assert!(!has_standby(fd), "nobody is his own heir");
    }
}
