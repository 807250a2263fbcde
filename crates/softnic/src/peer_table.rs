//! The processes of the host that this one knows, and the rings that they fill.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use parking_lot::{Mutex, RwLock};
use rdmalab_ring::seg::Segment;

use crate::peer::{Inbound, Peer};

/// Attempts to meet a process.
#[derive(Clone, Copy)]
pub(crate) struct HelloAttempt {
    pub(crate) since_ns: u64,
    pub(crate) hello_at_ns: u64,
}

/// The peers by slot, and what was sent to them.
#[derive(Default)]
pub(crate) struct Entries {
    pub(crate) peers: BTreeMap<u16, Arc<Peer>>,
    /// The rings that went with our hellos, for the peers to fill.
    pub(crate) sent_rings: BTreeMap<u16, Arc<Segment>>,
    /// Processes that datagrams wait for, or have waited for in vain.
    pub(crate) hello_attempts: BTreeMap<u16, HelloAttempt>,
}

/// The processes of the host that are to be met.
#[derive(Default)]
pub(crate) struct HandshakeRound {
    /// When they were last looked up, ns; 0: never.
    pub(crate) at_ns: u64,
    /// Slots of those that are still being met.
    pub(crate) pending: Vec<u16>,
    /// All that there were at one time have been met, or do not answer.
    pub(crate) is_complete: bool,
}

/// See the module's text.
pub(crate) struct PeerTable {
    pub(crate) entries: RwLock<Entries>,
    inbound: AtomicPtr<Vec<Arc<Inbound>>>,
    pub(crate) round: Mutex<HandshakeRound>,
    /// Sockets of processes that did not answer a hello. They find it when they go on.
    pub(crate) unresponsive: Mutex<BTreeSet<u64>>,
    /// Something may lie in the ring from this process to itself.
    pub(crate) has_self_traffic: AtomicBool,
}

impl Default for PeerTable {
    fn default() -> PeerTable {
        PeerTable {
            entries: RwLock::default(),
            inbound: AtomicPtr::new(Box::into_raw(Box::default())),
            round: Mutex::default(),
            unresponsive: Mutex::default(),
            has_self_traffic: AtomicBool::new(false),
        }
    }
}

impl PeerTable {
    /// The rings that peers fill.
    #[inline]
    pub(crate) fn inbound(&self) -> &[Arc<Inbound>] {
        // SAFETY: lists are replaced, never changed or freed.
        unsafe { &*self.inbound.load(Ordering::Acquire) }
    }

    /// Adds a ring that a peer fills. Called with the entries locked.
    pub(crate) fn push_inbound(&self, inbound: Inbound) {
        let mut list: Vec<Arc<Inbound>> =
            self.inbound().iter().filter(|known| !known.is_retired()).cloned().collect();
        list.push(Arc::new(inbound));
        // The old list is leaked on purpose: a poller may be walking it. It is one pointer for
        // each peer, once for each new peer.
        self.inbound.store(Box::into_raw(Box::new(list)), Ordering::Release);
    }
}
