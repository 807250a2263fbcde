//! The other processes of this host: what this process knows of them, and what it shares with them.

use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use rdmalab_ring::seg::Segment;

use crate::buffer::Buffers;
use crate::control::{ControlMessage, ControlPort};
use crate::peer::Peer;
use crate::peer_table::PeerTable;
use crate::wakeup::Wakeup;

/// Handles a control message that concerns another part of the process, with its descriptors.
type Handler = Box<dyn Fn(&ControlMessage, Vec<OwnedFd>) + Send + Sync>;

/// See the module's text.
pub(crate) struct HostPeers {
    /// The slot of this process among those of the host: the upper bits of its QPNs.
    pub(crate) slot: u16,
    /// Messages to and from the control sockets of other processes.
    pub(crate) control: ControlPort,
    /// The memory that peers map: QP words, key table, lane and doorbell.
    pub(crate) segment: Segment,
    /// The doorbell and the event by which peers wake this process.
    pub(crate) wakeup: Wakeup,
    pub(crate) peers: PeerTable,
    /// Memory that peers can map.
    pub(crate) buffers: Buffers,
    /// Gets the control messages that concern other parts of the process.
    pub(crate) others: OnceLock<Handler>,
}

impl HostPeers {
    /// The peer at `slot`, if it said hello and is reachable.
    pub(crate) fn peer(&self, slot: u16) -> Option<Arc<Peer>> {
        self.peers.get(slot)
    }

    /// The descriptor that is readable while control messages wait.
    pub(crate) fn control_socket_fd(&self) -> i32 {
        self.control.fd()
    }

    /// The descriptor of the event that peers signal when the doorbell is armed.
    pub(crate) fn event_fd(&self) -> i32 {
        self.wakeup.fd()
    }
}
