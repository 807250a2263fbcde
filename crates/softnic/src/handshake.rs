//! The handshake of two processes of a host: each sends a hello to the other's control socket.
//!
//! A hello carries descriptors of the sender's segment, of its event, and of the ring that the
//! *receiver* shall fill. So a process that has read a peer's hello can send to it, and a process
//! that has sent a hello can receive.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_ring::control_socket::{Datagram, SendError};
use rdmalab_ring::doorbell::Event;
use rdmalab_ring::keytable::KeyView;
use rdmalab_ring::seg::Segment;
use rdmalab_ring::spsc::{self, Geometry, Producer};

use crate::control::{ControlKind, ControlMessage};
use crate::error::os_error;
use crate::host::HostPeers;
use crate::peer::{Hello, Peer};

/// How long the setup of a connection waits for the other process's hello. Its progress thread
/// answers unless the process is stopped. Giving up is harmless: the QP's own time-outs follow.
pub(crate) const CONNECT_WAIT_MS: u64 = 2000;
/// After this time without an answer the hello is sent again: a control socket holds ten messages,
/// and the answer is lost if it is full.
pub(crate) const HELLO_RETRY_NS: u64 = 20_000_000;

fn new_ring() -> VerbsResult<Arc<Segment>> {
    let geometry = Geometry::DEFAULT;
    let ring = Segment::create(c"rdmalab-ring", geometry.region_bytes(), geometry.data_at())
        .map_err(|error| os_error("cannot make a ring", &error))?;
    // SAFETY: a new segment that is not shared yet.
    unsafe { spsc::format(ring.ptr(), ring.len(), geometry) }
        .map_err(|error| VerbsError::no_room(error.to_string()))?;
    Ok(Arc::new(ring))
}

impl HostPeers {
    /// Makes this process a peer of itself, so that QPs within it need no special case.
    pub(crate) fn add_self_peer(&self, keys: KeyView) -> VerbsResult<()> {
        let ring = new_ring()?;
        let event = self.wakeup.event.as_fd().try_clone_to_owned();
        let event = event.and_then(Event::from_fd).map_err(|error| os_error("event", &error))?;
        // SAFETY: the ring's consumer keeps the memory for ever; the ring has one producer.
        let producer = unsafe { Producer::attach(ring.ptr(), ring.len()) }
            .map_err(|error| VerbsError::no_room(error.to_string()))?;
        let pid = std::process::id() as i32;
        // SAFETY: this segment lives as long as the process. Its own lane slot is not used:
        // operations on this process itself do not enter the lane, see `lane::execute`.
        let peer = unsafe {
            let base = self.segment.ptr();
            Peer::assemble(
                self.slot,
                self.control.incarnation,
                pid,
                base,
                self.slot,
                producer,
                event,
            )
        };
        let mut peer = peer.ok_or_else(|| VerbsError::no_room("process slot out of range"))?;
        peer.keys = keys;
        self.peers.add_inbound(self.slot, &ring)?;
        self.peers.entries.write().peers.insert(self.slot, Arc::new(peer));
        Ok(())
    }

    /// Sends a hello to the process at `slot` and waits up to `wait_ms` for its hello. `None` if
    /// there is no such process, or it does not answer.
    pub(crate) fn connect(&self, slot: u16, wait_ms: u64) -> Option<Arc<Peer>> {
        let mut now_ns = crate::clock::now_ns();
        let deadline_ns = now_ns + wait_ms * 1_000_000;
        if self.peers.is_cut_off(slot) {
            return None;
        }
        let mut hello_at_ns = 0;
        loop {
            if let Some(peer) = self.peer(slot)
                && peer.is_alive()
            {
                return Some(peer);
            }
            if now_ns >= hello_at_ns {
                match self.send_hello(slot) {
                    Ok(()) => hello_at_ns = now_ns + HELLO_RETRY_NS,
                    Err(SendError::Full) => {}
                    Err(_) => return None,
                }
            }
            self.read_control_socket();
            now_ns = crate::clock::now_ns();
            if now_ns >= deadline_ns {
                return self.peer(slot);
            }
            crate::poll::wait_readable(&[self.control_socket_fd()], 1);
        }
    }

    /// Sends a hello to the process at `slot`. Each repetition carries the same ring.
    pub(crate) fn send_hello(&self, slot: u16) -> Result<(), SendError> {
        self.send_hello_message(slot, false)
    }

    /// Sends a hello that also asks a peer that knows us already for an answer. The answer proves
    /// that the peer has read our hello ([`Peer::has_read_our_hello`]).
    pub(crate) fn request_hello(&self, slot: u16) -> Result<(), SendError> {
        self.send_hello_message(slot, true)
    }

    fn send_hello_message(&self, slot: u16, wants_answer: bool) -> Result<(), SendError> {
        let failed = |_| SendError::Io(std::io::ErrorKind::OutOfMemory.into());
        let mut peer_table = self.peers.entries.write();
        if peer_table.peers.get(&slot).is_some_and(|peer| !peer.is_alive()) {
            peer_table.peers.remove(&slot);
            peer_table.sent_rings.remove(&slot);
        }
        let known = peer_table.peers.get(&slot).filter(|_| !wants_answer);
        let echo = known.map_or(0, |peer| peer.incarnation);
        let known = peer_table.sent_rings.get(&slot).cloned();
        let is_first = known.is_none();
        let ring = match known {
            Some(ring) => ring,
            None => {
                let ring = new_ring().map_err(failed)?;
                self.peers.add_inbound(slot, &ring).map_err(failed)?;
                peer_table.sent_rings.insert(slot, ring.clone());
                ring
            }
        };
        drop(peer_table);
        let message = self.control.message(ControlKind::Hello, echo, 0);
        let fds: [BorrowedFd<'_>; 3] =
            [self.segment.as_fd(), self.wakeup.event.as_fd(), ring.as_fd()];
        let sent = self.control.send(slot, &message, &fds);
        if is_first && !matches!(sent, Ok(()) | Err(SendError::Full)) {
            // There is no such process, so no process has the ring. `retire_dead_rings` frees it.
            self.peers.entries.write().sent_rings.remove(&slot);
        }
        sent
    }

    /// Asks a peer for the descriptor of its memory `id`.
    pub(crate) fn request_memory(&self, slot: u16, id: u32) {
        let message = self.control.message(ControlKind::MemoryRequest, 0, id);
        let _ = self.control.send(slot, &message, &[]);
    }

    /// Handles every control message in the socket.
    pub(crate) fn read_control_socket(&self) {
        self.control.read(|message, datagram| self.handle_control_message(message, datagram));
    }

    fn handle_control_message(&self, message: &ControlMessage, datagram: Datagram) {
        match message.kind {
            ControlKind::Hello => self.handle_hello(message, datagram),
            ControlKind::MemoryRequest => {
                let Some(fd) = self.buffers.descriptor(message.memory_id) else { return };
                let reply =
                    self.control.message(ControlKind::Memory, message.echo, message.memory_id);
                let _ = self.control.send(message.slot, &reply, &[fd.as_fd()]);
            }
            ControlKind::MemoryFreed => {
                let peer = self.peer(message.slot);
                if let Some(peer) = peer.filter(|peer| peer.incarnation == message.incarnation) {
                    peer.forget_mapped(message.memory_id);
                }
            }
            ControlKind::Memory => {
                let (Some(peer), Some(fd)) =
                    (self.peer(message.slot), datagram.fds.into_iter().next())
                else {
                    return;
                };
                if peer.incarnation == message.incarnation {
                    peer.add_mapped(message.memory_id, fd);
                    self.peers.has_mapped_memory.store(true, Ordering::Relaxed);
                    self.pass_on(message, Vec::new());
                }
            }
            ControlKind::SocketRequest | ControlKind::AnySocketRequest | ControlKind::Socket => {
                self.pass_on(message, datagram.fds);
            }
        }
    }

    fn pass_on(&self, message: &ControlMessage, fds: Vec<OwnedFd>) {
        if let Some(handle) = self.others.get() {
            handle(message, fds);
        }
    }

    fn handle_hello(&self, message: &ControlMessage, datagram: Datagram) {
        if message.slot == self.slot {
            return;
        }
        let known = self.peers.entries.read().peers.get(&message.slot).map(|peer| peer.incarnation);
        if known != Some(message.incarnation) {
            let Ok([segment, event, ring]) = <[OwnedFd; 3]>::try_from(datagram.fds) else { return };
            let (slot, incarnation, pid) = (message.slot, message.incarnation, datagram.pid);
            let hello = Hello { slot, incarnation, pid, segment, event, ring };
            let Ok(peer) = Peer::from_hello(hello, self.slot) else { return };
            let mut peer_table = self.peers.entries.write();
            if known.is_some() {
                // A new process took the slot of a dead one, to which the earlier hello had gone.
                peer_table.sent_rings.remove(&message.slot);
            }
            peer_table.hello_attempts.remove(&message.slot);
            if let Some(old) = peer_table.peers.insert(message.slot, Arc::new(peer)) {
                old.mark_dead();
            }
        }
        if message.echo != self.control.incarnation {
            // The sender does not know this process. If its control socket is full, it will ask
            // again.
            let _ = self.send_hello(message.slot);
        } else if let Some(peer) = self.peer(message.slot) {
            peer.note_hello_read();
        }
    }

    /// Tells all peers that memory was freed. A peer that misses this keeps a mapping without
    /// pages.
    pub(crate) fn announce_memory_freed(&self, id: u32) {
        let message = self.control.message(ControlKind::MemoryFreed, 0, id);
        let known: Vec<u16> = self.peers.entries.read().peers.keys().copied().collect();
        for slot in known.into_iter().filter(|slot| *slot != self.slot) {
            let _ = self.control.send(slot, &message, &[]);
        }
    }

    /// The peer of a connection; waits for its hello.
    pub(crate) fn peer_for_connection(&self, slot: u16) -> Option<Arc<Peer>> {
        self.connect(slot, CONNECT_WAIT_MS)
    }
}
