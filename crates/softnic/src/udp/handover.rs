//! How ownership of the shared socket passes from process to process.
//!
//! The owner holds a record lock. Every other process waits for that lock in a thread of its own,
//! its *standby* thread. When the owner dies, the kernel gives the lock to one of them, which
//! becomes the owner. When the owner exits, it hands over in its exit handlers.
//!
//! A stopped process keeps the lock, although another process may have taken ownership
//! (`watchdog`). It releases the lock when it continues. So a running process that holds the lock
//! is the owner. If an owner without the lock dies, the watchdogs find that it stalled.
//!
//! No other process can read the connected socket (`connected`) of a stopped process. While
//! processes share the port there is no connected socket, with one exception: a process may take
//! longer than `connected_socket::JOIN_NS` from its request for the socket to its registration as
//! standby. If the owner is stopped before it forwards the first packet to that process, packets of
//! the one peer wait until the owner continues.
//!
//! If the only process that has the socket is stopped, a process that asks for it gets the error
//! that the port is taken.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::MutexGuard;
use rdmalab_engine::backend::VerbsResult;

use super::connect_policy::Action;
use super::io::UdpIo;
use super::receiver::Receiver;
use super::record_lock::{USER_BYTE, has_standby, is_locked_elsewhere, lock, set_lock, unlock};
use crate::error::os_error;
use crate::process::Process;
use crate::signals::{block_signals, restore_signals};

/// How long an exiting process waits for a thread that is reading or sending.
pub(super) const EXIT_WAIT: std::time::Duration = std::time::Duration::from_millis(20);
/// How long an exiting process waits for a standby to take ownership, ns. A standby takes it in
/// microseconds, but on a busy machine its thread may get a processor only after seconds. Without a
/// standby the process does not wait. A stopped standby costs this time once.
const HANDOVER_NS: u64 = 2_000_000_000;
/// The same for an owner without the lock, which a stopped process holds, ns. In this time the
/// watchdogs of others find that nobody reads, if packets come.
const STALL_FOUND_NS: u64 = 600_000_000;
/// How long a former owner that released the lock waits for another process to take it, ms. After
/// that it waits for the lock itself.
const LOCK_TAKEN_MS: u64 = 100;
/// How long a standby waits for the hellos of unknown processes before it reads, ms.
pub(super) const HANDSHAKE_MS: u64 = 50;

impl UdpIo<'static> {
    /// Starts the threads of a standby, unless they run: one waits for the lock, the other one
    /// watches the owner.
    pub(super) fn start_standby(self) -> VerbsResult<()> {
        let network = self.network;
        let start = |has: &AtomicBool, name: &str, run: fn(UdpIo<'static>)| {
            if has.swap(true, Ordering::SeqCst) {
                return Ok(());
            }
            let thread = std::thread::Builder::new().name(name.into()).stack_size(128 * 1024);
            let spawned = thread.spawn(move || run(self));
            has.store(spawned.is_ok(), Ordering::SeqCst);
            spawned.map(std::mem::drop)
        };
        let before = block_signals();
        // A watchdog thread does no harm without a standby thread.
        let started = start(&network.has_watchdog, "rdmalab-watch", UdpIo::watch_owner)
            .and_then(|()| start(&network.has_standby, "rdmalab-standby", UdpIo::serve_as_standby));
        restore_signals(&before);
        started.map_err(|error| os_error("cannot start a thread", &error))
    }
}

impl UdpIo<'_> {
    /// The body of the standby thread. Waits for the lock whenever this process is not the owner,
    /// then takes ownership. While the process exits, hands ownership over, unless it has done so.
    fn serve_as_standby(self) {
        let UdpIo { process, network } = self;
        loop {
            network.ownership.wait_for_lock_request();
            self.give_up_lock();
            while !lock(network.ownership_fd(), true) {
                // The kernel found a deadlock with the program's own record locks, or has no memory
                // for the lock.
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            let mut unmet = Vec::new();
            while !network.ownership.is_ours() {
                let term = network.ownership.term();
                unmet = process.host.exchange_hellos_within(HANDSHAKE_MS);
                self.begin_to_read(term);
            }
            // Only once: processes that all exit would hand over to each other for ever.
            let passes_on = network.is_exiting()
                && !network.handed_over.load(Ordering::SeqCst)
                && self.hand_over();
            if !passes_on && !unmet.is_empty() {
                process.host.exchange_hellos();
            }
        }
    }

    /// Makes this process the owner, unless another process has begun a term since `term` was seen.
    /// Packets that came meanwhile wait in the socket. Before this call the caller exchanges
    /// hellos, because the owner drops packets for processes that it does not know, and datagrams
    /// are not sent again. A process that does not answer (it may be stopped) must not keep packets
    /// from the known ones.
    pub(super) fn begin_to_read(self, term: u64) -> bool {
        let begun = self.network.ownership.begin(term);
        if begun {
            // The progress thread does not poll the socket yet, and callers that sleep for long may
            // not either: it must read for them.
            self.process.progress_thread.wake();
        }
        begun
    }

    /// Gives up what a former owner still has: the connected socket, and the lock. Waits a while
    /// for another process to take the lock.
    fn give_up_lock(self) {
        let network = self.network;
        if network.has_connected() {
            self.close_peer_socket();
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

    /// Closes the connected socket. The guard keeps other threads from reading. Reading what lies
    /// in the socket would need locks that a cancelled thread may hold, so these packets are lost.
    fn close_peer_socket(&self) -> Option<MutexGuard<'_, Receiver>> {
        let network = self.network;
        let mut receiver_guard = network.receiver.try_lock_for(EXIT_WAIT);
        match &mut receiver_guard {
            Some(receiver) => self.apply_policy(&mut receiver.policy, Action::Close),
            None => network.connected.request_close(),
        }
        receiver_guard
    }

    /// Hands ownership over, if there is a standby. Otherwise the exit could end a thread between
    /// reading packets and forwarding them, and the program's exit handlers may take long. Returns
    /// whether another process owns the socket now.
    fn hand_over(self) -> bool {
        let network = self.network;
        let fd = network.ownership_fd();
        if !network.ownership.is_ours() || !has_standby(fd) {
            return false;
        }
        let receiver_guard = self.close_peer_socket();
        let Some(ended) = network.ownership.resign() else { return false };
        // If another process holds the lock, it is stopped, and this one owns the socket.
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
        // If no process took ownership, there is no standby any more, or it is stopped.
        let is_back = !taken() && (lock(fd, false) || !is_locked) && network.ownership.begin(ended);
        if !is_back {
            network.handed_over.store(true, Ordering::SeqCst);
            network.ownership.request_lock();
        }
        !is_back
    }
}

/// Makes an exiting process hand ownership over, if there is a standby. Exit handlers that run
/// later find the device as in any process that does not own the socket.
pub(super) fn hand_over_at_exit() {
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
    network.is_exiting.store(true, Ordering::SeqCst);
    let udp = UdpIo { process, network };
    udp.send_delayed_at_exit();
    // The new owner may end before this process does, which must then be a standby.
    if udp.hand_over() && udp.start_standby().is_err() {
        // Without the threads this process cannot become the owner: others must not count on it.
        set_lock(network.ownership_fd(), libc::F_UNLCK, USER_BYTE, false);
    }
}
