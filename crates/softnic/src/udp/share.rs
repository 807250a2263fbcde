//! One socket for all processes of a host: who reads it, and how it reaches the others.
//!
//! Whoever comes first binds the port. Who finds it taken asks the other processes of the host by
//! letter; the one that reads the socket answers with its descriptor, and with the descriptor of a
//! piece of memory whose lock makes its holder the owner. Everybody else waits for that lock in a
//! thread of its own, so that the kernel names the next owner when one dies.

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_engine::train::{Train, TrainKind};
use rdmalab_link::drops::Drop;
use rdmalab_link::path::{Below, Path};
use rdmalab_ring::mailbox;
use rdmalab_wire::ids::{PathMtu, Psn, Qpn};

use super::course::Wish;
use super::interface::{self, Interface};
use super::receive::Arrival;
use super::{Wire, socket};
use crate::armed::network::NetworkSeam;
use crate::helper::{block_signals, restore_signals, wait_readable};
use crate::mail::{Letter, LetterKind};
use crate::peer::Peer;
use crate::process::{Process, os_error};
use crate::transmit;

/// How long the owner of the port may take to answer, ns.
const ANSWER_NS: u64 = 2_000_000_000;
/// A letter may be lost in a full letter box: it is sent again after so long, ns.
const ASK_AGAIN_NS: u64 = 100_000_000;
/// What a process that exits waits for a thread that is reading.
const EXIT_WAIT: std::time::Duration = std::time::Duration::from_millis(20);
/// How long a process that exits waits for an heir to take the socket, ns. It does so in
/// microseconds, unless its thread does not get a processor: on a busy machine that takes up to
/// seconds. Nobody waits where there is no heir; one that is stopped costs this time once.
const HEIR_NS: u64 = 2_000_000_000;
/// The byte of the memory whose lock makes its holder the owner.
const OWNER_BYTE: i64 = 0;
/// The byte that everybody has a read lock on who uses the socket, and would inherit it.
const USER_BYTE: i64 = 1;
/// What an heir gives those that it does not know to answer before it reads, ms.
const INTRODUCTION_MS: u64 = 50;
/// What precedes a packet that is passed on: its addresses and ports, class and hops.
const PREFIX_BYTES: usize = 40;

impl Process {
    /// Opens the wire, if an interface was named.
    ///
    /// # Errors
    /// That the interface does not exist or the port is taken, and what to do.
    pub(crate) fn open_wire(&'static self) -> VerbsResult<()> {
        let Some(interface) = interface::named()? else { return Ok(()) };
        let give_up_ns = crate::clock::now_ns() + ANSWER_NS;
        let mut ask_at_ns = 0;
        loop {
            let now_ns = crate::clock::now_ns();
            match socket::open(interface) {
                Ok(socket) => {
                    let wire = Wire::new(interface, socket, ownership()?);
                    // Nobody else has seen the memory: the lock is free.
                    wire.is_owner.store(lock(wire.ownership_fd(), false), Ordering::Release);
                    return self.keep_wire(wire);
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
                self.ask_for_wire(interface);
            }
            wait_readable(&[self.mail_fd()], 10);
            self.read_mail();
            if let Some((socket, ownership)) = self.wire_offer.lock().take() {
                let wire = Wire::new(interface, socket, ownership);
                return self.keep_wire(wire);
            }
            if now_ns >= give_up_ns {
                return Err(port_taken(interface));
            }
        }
    }

    fn keep_wire(&'static self, wire: Wire) -> VerbsResult<()> {
        let owns = wire.is_owner.load(Ordering::Relaxed);
        stand_by(wire.ownership_fd());
        if let Some(armed) = self.armed {
            let _ = wire.seam.set(Box::new(NetworkSeam::new(armed)));
        }
        let _ = self.wire.set(wire);
        leave_the_rest_at_exit();
        if owns {
            return Ok(());
        }
        // Whoever reads the socket, now or later, passes on only to those that it knows.
        self.introduce_to_everybody();
        self.start_heir(true)
    }

    fn ask_for_wire(&self, interface: &Interface) {
        let key = wire_key(interface);
        for slot in self.neighbours() {
            let letter = Letter::new(LetterKind::WireRequest, self.slot, self.incarnation, 0, key);
            let _ = self.mailbox.send(slot, &letter.to_bytes(), &[]);
        }
    }

    /// The slots of the other processes of this host.
    pub(super) fn neighbours(&self) -> Vec<u16> {
        // SAFETY: takes and touches nothing.
        let user = unsafe { libc::getuid() };
        let live = mailbox::list_live_slots().unwrap_or_default();
        let ours = live.iter().filter(|live| {
            live.uid == user && live.version == crate::layout::VERSION && live.slot != self.slot
        });
        ours.map(|live| live.slot).collect()
    }

    /// Another process asks for the socket: whoever reads it answers, and greets the process that
    /// it will pass packets to.
    pub(crate) fn answer_wire_request(&self, letter: &Letter) {
        let Some(wire) = self.wire() else { return };
        if letter.memory_id != wire_key(wire.interface) || !wire.is_owner.load(Ordering::Acquire) {
            return;
        }
        // What it may want to know of packets is known of those in the socket for all alone.
        wire.flow.make_way();
        let _ = self.greet(letter.slot);
        let mut reply = *letter;
        reply.kind = LetterKind::Wire;
        reply.slot = self.slot;
        reply.incarnation = self.incarnation;
        // SAFETY: both descriptors stay open as long as the process does; in a forked child, where
        // the socket is closed, nobody reads mail.
        let fds = unsafe {
            [BorrowedFd::borrow_raw(wire.fd()), BorrowedFd::borrow_raw(wire.ownership_fd())]
        };
        let _ = self.mailbox.send(letter.slot, &reply.to_bytes(), &fds);
    }

    /// The socket came.
    pub(crate) fn take_wire_offer(&self, fds: Vec<OwnedFd>) {
        let Ok([socket, ownership]) = <[OwnedFd; 2]>::try_from(fds) else { return };
        let mut offer = self.wire_offer.lock();
        if self.wire().is_none() && offer.is_none() {
            *offer = Some((socket, ownership));
        } else {
            // A second answer. Closing the memory's descriptor would drop a lock that we may have
            // on it through the first.
            std::mem::forget(ownership);
        }
    }

    /// Starts the thread that waits to inherit the socket. While the process exits, it passes it
    /// on once, if it may.
    fn start_heir(&'static self, passes_on: bool) -> VerbsResult<()> {
        let before = block_signals();
        let spawned = std::thread::Builder::new()
            .name("rdmalab-heir".into())
            .stack_size(128 * 1024)
            .spawn(move || self.inherit(passes_on));
        restore_signals(&before);
        spawned.map(std::mem::drop).map_err(|error| os_error("cannot start a thread", &error))
    }

    fn inherit(&self, mut passes_on: bool) {
        let Some(wire) = self.wire() else { return };
        loop {
            while !lock(wire.ownership_fd(), true) {
                // A deadlock with the program's own record locks, or no memory for the lock.
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            // What comes meanwhile waits in the socket. Who reads it knows whom to pass it on to: a
            // packet for a stranger is dropped, and a datagram is not sent again. But one that does
            // not answer (it may be stopped) must not keep it from those that are known.
            let strangers = self.introduce_within(INTRODUCTION_MS);
            wire.is_owner.store(true, Ordering::SeqCst);
            // It sleeps without the socket, as callers may that sleep for long: it looks after
            // those.
            self.helper.wake();
            // Twice would be for ever, among processes that all exit.
            if !std::mem::take(&mut passes_on)
                || !wire.is_leaving.load(Ordering::SeqCst)
                || !self.hand_over(wire)
            {
                if !strangers.is_empty() {
                    self.introduce_to_everybody();
                }
                return;
            }
        }
    }

    /// Stops reading, if another process goes on: a thread that ends with the process between
    /// reading packets and passing them on takes them along, and what a program does in its last
    /// handlers may take long. Returns whether another process reads now.
    fn hand_over(&self, wire: &Wire) -> bool {
        if !has_heir(wire.ownership_fd()) {
            return false;
        }
        // Whoever has it may be a thread that was cancelled there.
        let mut calm = wire.receiver.try_lock_for(EXIT_WAIT);
        match &mut calm {
            // No lock is waited for here, and so nothing is read: what lies there is lost.
            Some(receiver) => self.fulfil(wire, &mut receiver.course, Wish::Close),
            None => wire.flow.ask_to_end(),
        }
        if !wire.is_owner.swap(false, Ordering::SeqCst) {
            return false;
        }
        unlock(wire.ownership_fd());
        std::mem::drop(calm);
        let give_up_ns = crate::clock::now_ns() + HEIR_NS;
        // The last heir may end meanwhile.
        while crate::clock::now_ns() < give_up_ns && has_heir(wire.ownership_fd()) {
            if is_locked_elsewhere(wire.ownership_fd()) {
                return true;
            }
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        // There is none any more, or it is stopped.
        let is_back = lock(wire.ownership_fd(), false);
        wire.is_owner.store(is_back, Ordering::SeqCst);
        !is_back
    }

    /// Passes a packet on to the process that it is for.
    pub(super) fn forward(&self, arrival: &Arrival<'_>, slot: u16) -> Result<(), Drop> {
        if arrival.forwarded || slot == 0 {
            return Err(Drop::NoSuchQp);
        }
        if let Some(wire) = self.wire() {
            wire.flow.ask_to_end();
        }
        let peer = self.peer(slot).ok_or(Drop::Forward)?;
        if push(&peer, arrival) { Ok(()) } else { Err(Drop::Forward) }
    }

    /// Passes a packet on to every other process that is known.
    pub(super) fn forward_to_all(&self, arrival: &Arrival<'_>) {
        if let Some(wire) = self.wire() {
            wire.flow.ask_to_end();
        }
        for peer in self.known_peers() {
            if !peer.is_self {
                push(&peer, arrival);
            }
        }
    }
}

/// A process that exits leaves the socket to its heir, if there is one. What the program does in
/// handlers that come later goes on as in any process that does not read the socket.
fn leave_the_rest_at_exit() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler touches only what lives as long as the process.
        unsafe { libc::atexit(at_exit) };
    });
}

extern "C" fn at_exit() {
    let Some(process) = Process::existing() else { return };
    // In a forked child the socket is the parent's.
    let Some(wire) = process.wire().filter(|wire| wire.fd() >= 0) else { return };
    process.pay_debt_at_exit(wire);
    wire.is_leaving.store(true, Ordering::SeqCst);
    // The heir may go before we do.
    if process.hand_over(wire) && process.start_heir(false).is_err() {
        // Without the thread nobody may count on us.
        set_lock(wire.ownership_fd(), libc::F_UNLCK, USER_BYTE, false);
    }
}

/// What tells one socket of a host from another.
fn wire_key(interface: &Interface) -> u32 {
    interface.index << 16 | u32::from(interface.port)
}

fn port_taken(interface: &Interface) -> VerbsError {
    let Interface { name, port, .. } = interface;
    VerbsError::new(
        libc::EADDRINUSE,
        format!(
            "UDP port {port} on interface {name} is taken by another user's programs or by the \
             kernel's rdma_rxe: choose another port for both ends (RDMALAB_PORT, --udp-port), \
             another interface, or a network namespace of your own"
        ),
    )
}

/// Memory that only serves to be locked.
fn ownership() -> VerbsResult<OwnedFd> {
    // SAFETY: a C string and flags.
    let raw = unsafe { libc::memfd_create(c"rdmalab-wire".as_ptr(), libc::MFD_CLOEXEC) };
    if raw < 0 {
        let error = std::io::Error::last_os_error();
        return Err(os_error("cannot make memory for a lock", &error));
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
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

/// Becomes the owner; waits for that if asked to. Returns whether it is.
fn lock(fd: i32, wait: bool) -> bool {
    set_lock(fd, libc::F_WRLCK, OWNER_BYTE, wait)
}

/// Is owner no longer: whoever waits for that is.
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

/// Whether another process is the owner.
fn is_locked_elsewhere(fd: i32) -> bool {
    is_held_elsewhere(fd, OWNER_BYTE)
}

/// From now on others know that somebody would inherit from them.
fn stand_by(fd: i32) {
    // Nobody's lock of this byte is in the way of another one's.
    set_lock(fd, libc::F_RDLCK, USER_BYTE, false);
}

/// Whether another process would inherit the socket.
pub(super) fn has_heir(fd: i32) -> bool {
    is_held_elsewhere(fd, USER_BYTE)
}

/// Puts a packet into a peer's ring, behind what the network said of it. Returns whether it had
/// room.
pub(super) fn push(peer: &Peer, arrival: &Arrival<'_>) -> bool {
    let mut train = Train::new(TrainKind::Send, Qpn::new(0), Qpn::new(0), Psn::new(0));
    train.payload_bytes = (PREFIX_BYTES + arrival.bytes.len()) as u32;
    let mut out = peer.out.lock();
    if transmit::room_in(&mut out, PathMtu::Mtu4096.bytes(), 1 + transmit::ANSWER_SLOTS).is_none() {
        return false;
    }
    let prefix = prefix_of(arrival);
    let pushed = transmit::push(&mut out, &train, false, |to| {
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
    use std::os::fd::AsRawFd;

    use super::*;

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
        let memory = ownership().unwrap();
        assert!(lock(memory.as_raw_fd(), false));
        // The holder may take it again; another process may not, which the tests with processes
        // show.
        assert!(lock(memory.as_raw_fd(), false));
        assert!(!is_locked_elsewhere(memory.as_raw_fd()), "it is ours");
        unlock(memory.as_raw_fd());
        assert!(!is_locked_elsewhere(memory.as_raw_fd()));
        stand_by(memory.as_raw_fd());
        assert!(!has_heir(memory.as_raw_fd()), "nobody is his own heir");
    }
}
