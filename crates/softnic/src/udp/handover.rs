//! How ownership of the shared socket passes from process to process.
//!
//! The owner holds a record lock. Every other process waits for that lock in a thread of its own,
//! its *standby* thread. When the owner dies, the kernel gives the lock to one of them, which
//! becomes the owner. When the owner exits, it hands over in its exit handlers.
//!
//! A process that is stopped keeps the lock, though another one has taken ownership (`watchdog`).
//! It gives the lock up when it continues. So a running process that holds the lock is the owner.
//! If an owner without the lock dies, the watchdogs find it stalled.
//!
//! No other process can read the connected socket (`connected`) of a stopped process. There is none
//! where processes share the port, with one exception: a process may take longer than
//! `connected_socket::JOIN_NS` from asking for the socket to registering as standby. If the owner
//! is stopped before it forwards the first packet to that process, packets of the one peer wait
//! until the owner continues.
//!
//! A process that asks for the socket while the only process that has it is stopped gets the error
//! that the port is taken.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::MutexGuard;
use rdmalab_engine::backend::VerbsResult;

use super::Network;
use super::connect_policy::Action;
use super::receiver::Receiver;
use super::record_lock::{USER_BYTE, has_standby, is_locked_elsewhere, lock, set_lock, unlock};
use crate::error::os_error;
use crate::process::Process;
use crate::signals::{block_signals, restore_signals};

/// How long a process that exits waits for a thread that is reading or sending.
pub(super) const EXIT_WAIT: std::time::Duration = std::time::Duration::from_millis(20);
/// How long a process that exits waits for a standby to take the socket, ns. It does so in
/// microseconds, unless its thread does not get a processor: on a busy machine that takes up to
/// seconds. Nobody waits where there is no standby; one that is stopped costs this time once.
const HANDOVER_NS: u64 = 2_000_000_000;
/// The same for one that reads in the place of another, which has the lock and is stopped: others
/// find out that it does not read any more if something comes meanwhile, ns.
const STALL_FOUND_NS: u64 = 600_000_000;
/// How long a former owner that gives the lock up waits for another process to take it, before it
/// waits for the lock itself, ms.
const LOCK_TAKEN_MS: u64 = 100;
/// What a standby gives those that it does not know to answer before it reads, ms.
pub(super) const HANDSHAKE_MS: u64 = 50;

impl Process {
    /// Starts the threads of a standby, unless they run: one waits for the lock, one watches
    /// whoever reads.
    pub(super) fn start_standby(&'static self, network: &'static Network) -> VerbsResult<()> {
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
        // A watchdog thread does no harm without a standby thread.
        let started =
            start(&network.has_watchdog, "rdmalab-watch", Process::watch_owner).and_then(|()| {
                start(&network.has_standby, "rdmalab-standby", Process::serve_as_standby)
            });
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
            self.close_peer_socket(network);
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
    fn close_peer_socket<'a>(&self, network: &'a Network) -> Option<MutexGuard<'a, Receiver>> {
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
        let receiver_guard = self.close_peer_socket(network);
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
}

/// A process that exits leaves the socket to its standby, if there is one. What the program does in
/// handlers that come later goes on as in any process that does not read the socket.
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
    process.send_delayed_ack_at_exit(network);
    network.is_exiting.store(true, Ordering::SeqCst);
    // The standby may go before we do.
    if process.hand_over(network) && process.start_standby(network).is_err() {
        // Without the thread nobody may count on us.
        set_lock(network.ownership_fd(), libc::F_UNLCK, USER_BYTE, false);
    }
}
