//! Handshakes with all processes of the host, for messages that go to each of them.

use std::sync::Arc;

use rdmalab_ring::control_socket::{LiveSlot, SendError};

use crate::cancel::NoCancel;
use crate::datagram::PeerLookup;
use crate::handshake::{CONNECT_WAIT_MS, HELLO_RETRY_NS};
use crate::host::HostPeers;
use crate::peer::Peer;
use crate::peer_table::live_slots;
use crate::poll::wait_readable;

/// How often the list of processes is searched for new ones, ns.
const RESCAN_NS: u64 = 500_000_000;

impl HostPeers {
    /// Advances the handshakes with all processes of this host. Returns whether all are complete.
    pub(crate) fn advance_handshakes(&self) -> bool {
        let now_ns = crate::clock::now_ns();
        let mut handshake_round = self.peers.round.lock();
        if handshake_round.at_ns == 0 || now_ns > handshake_round.at_ns + RESCAN_NS {
            handshake_round.at_ns = now_ns;
            handshake_round.pending =
                live_slots().unwrap_or_default().iter().map(|live| live.slot).collect();
        }
        handshake_round
            .pending
            .retain(|slot| matches!(self.peer_for_datagram(*slot), PeerLookup::Pending));
        handshake_round.is_complete |= handshake_round.pending.is_empty();
        handshake_round.pending.is_empty()
    }

    /// Every peer on this host and this process; `None` until the first round of handshakes is
    /// over.
    pub(crate) fn multicast_peers(&self) -> Option<Vec<Arc<Peer>>> {
        let is_complete = self.advance_handshakes() || self.peers.round.lock().is_complete;
        is_complete.then(|| {
            // Marks the ring of this process to itself as used, so that it is read.
            drop(self.peer(self.slot));
            self.peers.known()
        })
    }

    /// Makes sure that every process of the host has read our hello, so that its messages reach us.
    /// A process that does not answer in time (it must be stopped) is not waited for again.
    pub(crate) fn exchange_hellos(&self) {
        let unresponsive = self.exchange_hellos_within(CONNECT_WAIT_MS);
        self.peers.unresponsive.lock().extend(unresponsive.iter().map(|live| live.inode));
    }

    /// The same within `wait_ms`; returns the processes that did not answer so far.
    pub(crate) fn exchange_hellos_within(&self, wait_ms: u64) -> Vec<LiveSlot> {
        let _no_cancel = NoCancel::new();
        let live = live_slots().unwrap_or_default();
        let has_read_our_hello = |slot| match self.peer(slot) {
            Some(peer) => peer.has_read_our_hello(),
            None => self.peers.is_cut_off(slot),
        };
        let mut unmet: Vec<LiveSlot> = {
            let mut unresponsive = self.peers.unresponsive.lock();
            unresponsive.retain(|inode| live.iter().any(|live| live.inode == *inode));
            let is_unmet = |live: &&LiveSlot| {
                !has_read_our_hello(live.slot) && !unresponsive.contains(&live.inode)
            };
            live.iter().filter(is_unmet).copied().collect()
        };
        let mut now_ns = crate::clock::now_ns();
        let give_up_ns = now_ns + wait_ms * 1_000_000;
        let mut again_at_ns = 0;
        while !unmet.is_empty() && now_ns < give_up_ns {
            if now_ns >= again_at_ns {
                again_at_ns = now_ns + HELLO_RETRY_NS;
                unmet.retain(|live| {
                    matches!(self.request_hello(live.slot), Ok(()) | Err(SendError::Full))
                });
            }
            wait_readable(&[self.control_socket_fd()], 1);
            self.read_control_socket();
            unmet.retain(|live| !has_read_our_hello(live.slot));
            now_ns = crate::clock::now_ns();
        }
        unmet
    }
}
