//! Looks up the peer of a datagram: known, in a handshake, or absent.
//!
//! A datagram may be lost, so nothing waits long for one: neither for a process that does not
//! answer a hello, nor for a stopped process that does not empty its ring. The QP is not locked
//! during these waits: each thread that makes progress tries it again.

use std::sync::Arc;

use rdmalab_engine::vocab::QpState;
use rdmalab_ring::control_socket::SendError;
use rdmalab_wire::ids::Qpn;

use crate::cancel::NoCancel;
use crate::handshake::HELLO_RETRY_NS;
use crate::host::HostPeers;
use crate::peer::Peer;
use crate::peer_table::HelloAttempt;
use crate::poll::wait_readable;
use crate::qp::QpObject;
use crate::ring_stall::STUCK_NS;

/// How long datagrams wait for a process to answer a hello, ns. Its progress thread answers unless
/// the process is stopped.
const HELLO_WAIT_NS: u64 = 200_000_000;
/// After a process did not answer, datagrams do not wait for it again for this time, ns.
const SILENCE_NS: u64 = 1_000_000_000;

/// The result of the lookup of a datagram's peer.
pub(crate) enum PeerLookup {
    /// The peer is known.
    Known(Arc<Peer>),
    /// A hello was sent, and the process has not answered yet.
    Pending,
    /// There is no such process, or it does not answer.
    Absent,
}

impl HostPeers {
    /// Looks up the peer of a datagram, and sends a hello if it is not known yet. Does not wait.
    pub(crate) fn peer_for_datagram(&self, slot: u16) -> PeerLookup {
        if let Some(peer) = self.peer(slot) {
            return PeerLookup::Known(peer);
        }
        if self.peers.is_cut_off(slot) {
            return PeerLookup::Absent;
        }
        let _no_cancel = NoCancel::new();
        let now_ns = crate::clock::now_ns();
        let attempt = self.peers.entries.read().hello_attempts.get(&slot).copied();
        let started = attempt.filter(|known| now_ns < known.since_ns + SILENCE_NS);
        let attempt = started.unwrap_or(HelloAttempt { since_ns: now_ns, hello_at_ns: 0 });
        if now_ns >= attempt.since_ns + HELLO_WAIT_NS {
            return PeerLookup::Absent;
        }
        if now_ns >= attempt.hello_at_ns {
            let next = match self.send_hello(slot) {
                Ok(()) => HelloAttempt { hello_at_ns: now_ns + HELLO_RETRY_NS, ..attempt },
                Err(SendError::Full) => attempt,
                // No process holds the slot. A later holder must not find an old attempt.
                Err(_) => {
                    self.peers.entries.write().hello_attempts.remove(&slot);
                    return PeerLookup::Absent;
                }
            };
            self.peers.entries.write().hello_attempts.insert(slot, next);
        }
        self.read_control_socket();
        self.peer(slot).map_or(PeerLookup::Pending, PeerLookup::Known)
    }
}

/// How long a QP that is being destroyed tries to send its datagrams, ns: as long as both waits
/// together.
const LINGER_NS: u64 = HELLO_WAIT_NS + STUCK_NS;

/// Sends datagrams that were posted before their QP is destroyed. An adapter sends them within
/// microseconds, so programs do not wait for it. Here a datagram may wait for a handshake.
pub(crate) fn linger(object: &'static QpObject, qpn: Qpn) {
    let process = object.process;
    let give_up_ns = crate::clock::now_ns() + LINGER_NS;
    let _no_cancel = NoCancel::new();
    loop {
        {
            let mut guard = object.inner.lock();
            let Some(inner) = guard.as_mut().filter(|inner| inner.qp.qpn == qpn) else { return };
            let can_send = inner.links.is_datagram() && inner.qp.state == QpState::Rts;
            if !can_send || !inner.qp.may_send() {
                return;
            }
            inner.transmit();
            if !inner.qp.may_send() {
                return;
            }
        }
        if crate::clock::now_ns() >= give_up_ns {
            return;
        }
        wait_readable(&[process.host.control_socket_fd()], 1);
    }
}
