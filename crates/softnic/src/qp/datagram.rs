//! Chooses the peer of a datagram.

use std::sync::Arc;

use super::QpInner;
use crate::datagram::PeerLookup;
use crate::peer::Peer;

impl QpInner {
    /// Chooses the peer whose ring gets the next datagram. Returns `false` while the handshake with
    /// that peer is not complete.
    pub(crate) fn choose_datagram_peer(&mut self, peer: &mut Option<Arc<Peer>>) -> bool {
        let address = *self.qp.sq.ud(self.qp.sq.begun);
        let slot = crate::layout::process_of(address.remote_qpn);
        if peer.as_ref().is_some_and(|peer| peer.slot == slot && !peer.is_unreachable()) {
            return true;
        }
        *peer = None;
        if crate::device::is_here(&address.ah) {
            match self.links.process.host.peer_for_datagram(slot) {
                PeerLookup::Known(found) => *peer = Some(found),
                PeerLookup::Pending => return false,
                PeerLookup::Absent => {}
            }
        }
        true
    }

    /// Whether datagrams to this peer, whose ring is full, are to be dropped. The peer has taken
    /// nothing for so long that it must be stopped, and other datagrams wait behind these.
    pub(crate) fn is_stuck(&self, peer: &Peer) -> bool {
        let consumed = peer.out.lock().consumed();
        self.links.is_datagram() && peer.ring_stall.is_stuck(consumed, crate::clock::now_ns())
    }
}
