//! One socket for all processes of a host: who reads it, and how it reaches the others.
//!
//! Whoever comes first binds the port. Who finds it taken asks the other processes of the host by
//! letter; the one that reads the socket answers with its descriptor, and with the descriptor of a
//! piece of memory whose lock makes its holder the reader. Everybody else waits for that lock in a
//! thread of its own, so that the kernel names the next reader when one dies.
//!
//! A process that is stopped keeps the lock, though another one reads meanwhile (`watch`). It gives
//! it up when it goes on, to somebody who then reads. So whoever has the lock and runs is the
//! reader, and if the reader dies without having had the lock, it is found out as if it was
//! stopped.
//!
//! A peer's own socket (`flow`) in a process that is stopped cannot be read by any other. There is
//! none where processes share the port, but for one that took longer than `flow::JOIN_NS` from
//! asking for the socket to saying that it uses it: if the reader is stopped before it passes a
//! packet on to it, packets of that one peer wait until it goes on. And one that asks while the
//! only process that has the socket is stopped is told that the port is taken.

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::MutexGuard;
use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_engine::train::{Train, TrainKind};
use rdmalab_link::drops::Drop;
use rdmalab_link::path::{IpFields, Path};
use rdmalab_ring::mailbox;
use rdmalab_wire::ids::{PathMtu, Psn, Qpn};

use super::course::Wish;
use super::interface::{self, Interface};
use super::office::Office;
use super::receive::{Arrival, Receiver};
use super::{Wire, socket};
use crate::armed::network::NetworkHook;
use crate::helper::{block_signals, restore_signals, wait_readable};
use crate::mail::{Letter, LetterKind};
use crate::peer::Peer;
use crate::process::{Process, os_error};
use crate::transmit;

/// How long whoever has the socket may take to answer, ns.
const ANSWER_NS: u64 = 2_000_000_000;
/// How long only its reader is asked, ns. Then it may be stopped. (Of the others few are asked at
/// first: what a second answer brings is never closed.)
const READER_NS: u64 = 500_000_000;
/// A letter may be lost in a full letter box: it is sent again after so long, ns.
const ASK_AGAIN_NS: u64 = 100_000_000;
/// What a process that exits waits for a thread that is reading, or sending.
pub(super) const EXIT_WAIT: std::time::Duration = std::time::Duration::from_millis(20);
/// How long a process that exits waits for an heir to take the socket, ns. It does so in
/// microseconds, unless its thread does not get a processor: on a busy machine that takes up to
/// seconds. Nobody waits where there is no heir; one that is stopped costs this time once.
const HEIR_NS: u64 = 2_000_000_000;
/// The same for one that reads in the place of another, which has the lock and is stopped: others
/// find out that it does not read any more if something comes meanwhile, ns.
const FINDING_NS: u64 = 600_000_000;
/// How long one who gives the lock up, because it is not the reader any more, waits for somebody to
/// take it before it stands in line itself, ms.
const VACANCY_MS: u64 = 100;
/// The byte of the memory whose lock makes its holder the reader.
const OWNER_BYTE: i64 = 0;
/// The byte that everybody has a read lock on who uses the socket, and would inherit it.
const USER_BYTE: i64 = 1;
/// What an heir gives those that it does not know to answer before it reads, ms.
pub(super) const INTRODUCTION_MS: u64 = 50;
/// What precedes a packet that is passed on: its addresses and ports, class and hops.
const PREFIX_BYTES: usize = 40;

impl Process {
    /// Opens the wire, if an interface was named.
    ///
    /// # Errors
    /// That the interface does not exist or the port is taken, and what to do.
    pub(crate) fn open_wire(&'static self) -> VerbsResult<()> {
        let Some(interface) = interface::named()? else { return Ok(()) };
        let began_ns = crate::clock::now_ns();
        let mut ask_at_ns = 0;
        loop {
            let now_ns = crate::clock::now_ns();
            match socket::open(interface) {
                Ok(socket) => {
                    let office = Office::create()
                        .map_err(|error| os_error("cannot make memory for a lock", &error))?;
                    // Nobody else has seen the memory: the lock is free, and so is the office.
                    if lock(office.fd(), false) {
                        office.begin(0);
                    }
                    return self.keep_wire(Wire::new(interface, socket, office));
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
                self.ask_for_wire(interface, waited_ns.map(|ns| (ns / ASK_AGAIN_NS) as u32));
            }
            wait_readable(&[self.mail_fd()], 10);
            self.read_mail();
            if let Some((socket, memory)) = self.wire_offer.lock().take() {
                let office = Office::join(memory)
                    .map_err(|error| os_error("cannot share the socket", &error))?;
                return self.keep_wire(Wire::new(interface, socket, office));
            }
            if now_ns >= began_ns + ANSWER_NS {
                return Err(port_taken(interface));
            }
        }
    }

    fn keep_wire(&'static self, wire: Wire) -> VerbsResult<()> {
        let reads = wire.office.is_ours();
        stand_by(wire.ownership_fd());
        if let Some(armed) = self.armed {
            let _ = wire.hook.set(Box::new(NetworkHook::new(armed)));
        }
        let _ = self.wire.set(wire);
        leave_the_rest_at_exit();
        if reads {
            return Ok(());
        }
        // Whoever reads the socket, now or later, passes on only to those that it knows.
        self.introduce_to_everybody();
        let Some(wire) = self.wire() else { return Ok(()) };
        wire.office.stand_in_line();
        self.start_heir(wire)
    }

    /// Asks whoever reads the socket for it; and of those who do not one in turn 0, and twice as
    /// many others in each turn after it: one answer is enough, but most may not have the socket,
    /// or be stopped.
    fn ask_for_wire(&self, interface: &Interface, turn: Option<u32>) {
        let (key, neighbours) = (wire_key(interface), self.neighbours());
        let chosen = turn.map_or(0..0, |turn| whose_turn(turn, neighbours.len()));
        for (index, slot) in neighbours.into_iter().enumerate() {
            let kind = match chosen.contains(&index) {
                true => LetterKind::AnyWireRequest,
                false => LetterKind::WireRequest,
            };
            let letter = Letter::new(kind, self.slot, self.incarnation, 0, key);
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

    /// Another process asks for the socket: whoever reads it answers, or anybody if that one does
    /// not, and greets the process that it will pass packets to.
    pub(crate) fn answer_wire_request(&self, letter: &Letter) {
        let Some(wire) = self.wire() else { return };
        let asks_us = wire.office.is_ours() || letter.kind == LetterKind::AnyWireRequest;
        if letter.memory_id != wire_key(wire.interface) || !asks_us {
            return;
        }
        // From now on there may be one who reads while we are stopped. (While we are being made,
        // the question will come again.)
        let Some(process) = Process::existing() else { return };
        // Without the threads we are no heir afterwards, and no more.
        let _ = process.wire().map(|wire| process.start_heir(wire));
        // What it may want to know of packets is known of those in the socket for all alone.
        wire.flow.make_way();
        let _ = self.greet(letter.slot);
        let mut reply = *letter;
        reply.kind = LetterKind::Wire;
        reply.slot = self.slot;
        reply.incarnation = self.incarnation;
        // SAFETY: the descriptor stays open as long as the process does; in a forked child, where
        // the socket is closed, nobody reads mail.
        let fds = unsafe { [BorrowedFd::borrow_raw(wire.fd()), wire.office.as_fd()] };
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

    /// Starts the threads of an heir, unless they run: one waits for the lock, one watches whoever
    /// reads.
    fn start_heir(&'static self, wire: &'static Wire) -> VerbsResult<()> {
        let start = |has: &AtomicBool, name: &str, run: fn(&Process, &Wire)| {
            if has.swap(true, Ordering::SeqCst) {
                return Ok(());
            }
            let thread = std::thread::Builder::new().name(name.into()).stack_size(128 * 1024);
            let spawned = thread.spawn(move || run(self, wire));
            has.store(spawned.is_ok(), Ordering::SeqCst);
            spawned.map(std::mem::drop)
        };
        let before = block_signals();
        // One that watches does no harm without one that waits.
        let started = start(&wire.has_watch, "rdmalab-watch", Process::watch_reader)
            .and_then(|()| start(&wire.has_heir, "rdmalab-heir", Process::inherit));
        restore_signals(&before);
        started.map_err(|error| os_error("cannot start a thread", &error))
    }

    /// Waits for the lock whenever this process does not read. While the process exits, it passes
    /// the socket on once, if it may.
    fn inherit(&self, wire: &Wire) {
        loop {
            wire.office.wait_for_line();
            self.vacate(wire);
            while !lock(wire.ownership_fd(), true) {
                // A deadlock with the program's own record locks, or no memory for the lock.
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            let mut strangers = Vec::new();
            while !wire.office.is_ours() {
                let term = wire.office.term();
                strangers = self.introduce_within(INTRODUCTION_MS);
                self.begin_to_read(wire, term);
            }
            // Twice would be for ever, among processes that all exit.
            let passes_on =
                wire.is_leaving() && !wire.passed_on.load(Ordering::SeqCst) && self.hand_over(wire);
            if !passes_on && !strangers.is_empty() {
                self.introduce_to_everybody();
            }
        }
    }

    /// Reads from now on, unless somebody else has begun to since the term was seen. What comes
    /// meanwhile waits in the socket. Who reads it knows whom to pass it on to, as the caller has
    /// seen to: a packet for a stranger is dropped, and a datagram is not sent again. But one that
    /// does not answer (it may be stopped) must not keep it from those that are known.
    pub(super) fn begin_to_read(&self, wire: &Wire, term: u64) -> bool {
        let begun = wire.office.begin(term);
        if begun {
            // It sleeps without the socket, as callers may that sleep for long: it looks after
            // those.
            self.helper.wake();
        }
        begun
    }

    /// Gives up what this process still has of the time when it read: the lock, for whose next
    /// holder it waits a while, and a peer's own socket.
    fn vacate(&self, wire: &Wire) {
        if wire.has_flow() {
            self.close_flow(wire);
        }
        let fd = wire.ownership_fd();
        if is_locked_elsewhere(fd) {
            return;
        }
        unlock(fd);
        for _ in 0..VACANCY_MS {
            if is_locked_elsewhere(fd) || !has_heir(fd) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Closes a peer's own socket, and keeps other threads from reading. No lock is waited for that
    /// a thread may have been cancelled with, and so nothing is read: what lies there is lost.
    fn close_flow<'a>(&self, wire: &'a Wire) -> Option<MutexGuard<'a, Receiver>> {
        let mut calm = wire.receiver.try_lock_for(EXIT_WAIT);
        match &mut calm {
            Some(receiver) => self.fulfil(wire, &mut receiver.course, Wish::Close),
            None => wire.flow.ask_to_end(),
        }
        calm
    }

    /// Stops reading, if another process goes on: a thread that ends with the process between
    /// reading packets and passing them on takes them along, and what a program does in its last
    /// handlers may take long. Returns whether another process reads now.
    fn hand_over(&self, wire: &Wire) -> bool {
        let fd = wire.ownership_fd();
        if !wire.office.is_ours() || !has_heir(fd) {
            return false;
        }
        let calm = self.close_flow(wire);
        let Some(ended) = wire.office.resign() else { return false };
        // Else one has it that was stopped, and we read in its place.
        let is_locked = !is_locked_elsewhere(fd);
        unlock(fd);
        std::mem::drop(calm);
        let taken = || !wire.office.is_now(ended) || is_locked && is_locked_elsewhere(fd);
        let patience_ns = if is_locked { HEIR_NS } else { FINDING_NS };
        let give_up_ns = crate::clock::now_ns() + patience_ns;
        // The last heir may end meanwhile.
        while !taken() && crate::clock::now_ns() < give_up_ns && has_heir(fd) {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        // If nobody took it, there is no heir any more, or it is stopped.
        let is_back = !taken() && (lock(fd, false) || !is_locked) && wire.office.begin(ended);
        if !is_back {
            wire.passed_on.store(true, Ordering::SeqCst);
            wire.office.stand_in_line();
        }
        !is_back
    }

    /// Passes a packet on to the process that it is for.
    pub(super) fn forward(&self, arrival: &Arrival<'_>, slot: u16) -> Result<(), Drop> {
        if arrival.forwarded || slot == 0 {
            return Err(Drop::NoSuchQp);
        }
        if let Some(wire) = self.wire() {
            wire.flow.share();
        }
        let peer = self.peer(slot).ok_or(Drop::Forward)?;
        if push(&peer, arrival) { Ok(()) } else { Err(Drop::Forward) }
    }

    /// Passes a packet on to every other process that is known.
    pub(super) fn forward_to_all(&self, arrival: &Arrival<'_>) {
        if let Some(wire) = self.wire() {
            wire.flow.share();
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
    if process.hand_over(wire) && process.start_heir(wire).is_err() {
        // Without the thread nobody may count on us.
        set_lock(wire.ownership_fd(), libc::F_UNLCK, USER_BYTE, false);
    }
}

/// What tells one socket of a host from another.
fn wire_key(interface: &Interface) -> u32 {
    interface.index << 16 | u32::from(interface.port)
}

/// Which of so many are asked in a turn: as many as in all turns before and one, then everybody.
fn whose_turn(turn: u32, count: usize) -> std::ops::Range<usize> {
    let from = 1_usize.checked_shl(turn).unwrap_or(usize::MAX) - 1;
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
    let Arrival { path, ip, .. } = arrival;
    let mut prefix = [0; PREFIX_BYTES];
    prefix[..16].copy_from_slice(&octets(path.source));
    prefix[16..32].copy_from_slice(&octets(path.destination));
    prefix[32..34].copy_from_slice(&path.source_port.to_le_bytes());
    prefix[34..36].copy_from_slice(&path.destination_port.to_le_bytes());
    (prefix[36], prefix[37]) = (ip.traffic_class, ip.hop_limit);
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
    let ip = IpFields { traffic_class: prefix[36], hop_limit: prefix[37], identification: 0 };
    path.is_sound().then_some(Arrival { path, ip, bytes, forwarded: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_asked_within_a_second_and_a_half_and_few_at_first() {
        let turns = ((ANSWER_NS - READER_NS) / ASK_AGAIN_NS) as u32;
        assert_eq!([0, 1, 2, 3].map(|turn| whose_turn(turn, 100)), [0..1, 1..3, 3..7, 7..15]);
        for count in [0, 1, 2, 3, 40, 4096] {
            let asked: std::collections::BTreeSet<usize> =
                (0..turns).flat_map(|turn| whose_turn(turn, count)).collect();
            assert_eq!(asked, (0..count).collect(), "{count}");
        }
        assert_eq!(whose_turn(u32::MAX, 5), 0..5);
    }

    #[test]
    fn what_is_passed_on_arrives() {
        let path = Path {
            source: "10.0.0.1".parse().unwrap(),
            destination: "10.0.0.2".parse().unwrap(),
            source_port: 0xc001,
            destination_port: 4791,
        };
        let ip = IpFields { traffic_class: 3, hop_limit: 64, identification: 0 };
        let arrival = Arrival { path, ip, bytes: b"packet", forwarded: false };
        let mut bytes = prefix_of(&arrival).to_vec();
        bytes.extend_from_slice(arrival.bytes);
        let read = read_forwarded(&bytes).unwrap();
        assert_eq!((read.path, read.ip, read.bytes), (path, ip, &b"packet"[..]));
        assert!(read.forwarded);
        assert!(read_forwarded(&bytes[..PREFIX_BYTES - 1]).is_none());
        bytes[0] = 1;
        assert!(read_forwarded(&bytes).is_none(), "two families");
    }

    #[test]
    fn a_lock_is_had_once() {
        let office = Office::create().unwrap();
        let fd = office.fd();
        assert!(lock(fd, false));
        // The holder may take it again; another process may not, which the tests with processes
        // show.
        assert!(lock(fd, false));
        assert!(!is_locked_elsewhere(fd), "it is ours");
        unlock(fd);
        assert!(!is_locked_elsewhere(fd));
        stand_by(fd);
        assert!(!has_heir(fd), "nobody is his own heir");
    }
}
