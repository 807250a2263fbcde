//! The peers: the processes of the host that this process knows, and the rings that they fill.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use parking_lot::{Mutex, RwLock};
use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_ring::control_socket::{self, LiveSlot};
use rdmalab_ring::seg::Segment;
use rdmalab_ring::spsc::Consumer;

use crate::peer::{Inbound, Peer};

/// A handshake in progress: when it began, and when the next hello is due.
#[derive(Clone, Copy)]
pub(crate) struct HelloAttempt {
    pub(crate) since_ns: u64,
    pub(crate) hello_at_ns: u64,
}

/// The peers by slot, and the hellos that were sent to them.
#[derive(Default)]
pub(crate) struct Entries {
    pub(crate) peers: BTreeMap<u16, Arc<Peer>>,
    /// The rings that were sent with our hellos, for the peers to fill.
    pub(crate) sent_rings: BTreeMap<u16, Arc<Segment>>,
    /// Handshakes that datagrams wait for, or have waited for in vain.
    pub(crate) hello_attempts: BTreeMap<u16, HelloAttempt>,
}

/// A round of handshakes with all processes of the host.
#[derive(Default)]
pub(crate) struct HandshakeRound {
    /// Time when the processes were last listed, ns; 0: never.
    pub(crate) at_ns: u64,
    /// Slots of the processes whose handshake is not complete.
    pub(crate) pending: Vec<u16>,
    /// In one round all processes have answered, or were found not to answer.
    pub(crate) is_complete: bool,
}

/// The peers of this process.
pub(crate) struct PeerTable {
    own_slot: u16,
    pub(crate) entries: RwLock<Entries>,
    inbound: AtomicPtr<Vec<Arc<Inbound>>>,
    pub(crate) round: Mutex<HandshakeRound>,
    /// Inodes of the control sockets of processes that left a hello unanswered.
    pub(crate) unresponsive: Mutex<BTreeSet<u64>>,
    /// The ring from this process to itself may hold messages.
    pub(crate) has_self_traffic: AtomicBool,
    /// Memory of a peer is or was mapped here. A program that only writes there makes no progress,
    /// and gets completions after the peer's death too.
    pub(crate) has_mapped_memory: AtomicBool,
    /// Queue pairs may still have the memory of a dead peer mapped.
    pub(crate) has_memory_of_dead: AtomicBool,
}

impl PeerTable {
    /// An empty table of the process at `own_slot`.
    pub(crate) fn new(own_slot: u16) -> PeerTable {
        PeerTable {
            own_slot,
            entries: RwLock::default(),
            inbound: AtomicPtr::new(Box::into_raw(Box::default())),
            round: Mutex::default(),
            unresponsive: Mutex::default(),
            has_self_traffic: AtomicBool::new(false),
            has_mapped_memory: AtomicBool::new(false),
            has_memory_of_dead: AtomicBool::new(false),
        }
    }

    /// The peer at `slot`, if it said hello and is reachable.
    pub(crate) fn get(&self, slot: u16) -> Option<Arc<Peer>> {
        if slot == self.own_slot {
            self.has_self_traffic.store(true, Ordering::Release);
        }
        let known = self.entries.read().peers.get(&slot).cloned()?;
        (!known.is_unreachable()).then_some(known)
    }

    /// Whether the process at `slot` is alive, but the ring to it is damaged, which a new handshake
    /// does not change.
    pub(crate) fn is_cut_off(&self, slot: u16) -> bool {
        let known = self.entries.read().peers.get(&slot).cloned();
        known.is_some_and(|peer| peer.is_unreachable() && peer.is_alive())
    }

    /// All peers that said hello and are reachable.
    pub(crate) fn known(&self) -> Vec<Arc<Peer>> {
        let entries = self.entries.read();
        entries.peers.values().filter(|peer| !peer.is_unreachable()).cloned().collect()
    }

    /// Whether the process that entered our lane as `slot` is alive. If its hello was lost, this
    /// process does not know it; then the kernel's list of sockets decides.
    pub(crate) fn initiator_alive(&self, slot: u16) -> bool {
        let known = self.entries.read().peers.get(&slot).cloned();
        known.map_or_else(|| slot_is_held(slot), |peer| peer.is_alive())
    }

    /// Frees dead peers and their rings. A ring is freed if its peer is known to be dead, or if its
    /// slot has another ring now, or none. Connected QPs keep their peer.
    pub(crate) fn retire_dead_rings(&self) {
        for inbound in self.inbound() {
            if inbound.is_retired() || inbound.from == self.own_slot {
                continue;
            }
            let entries = self.entries.read();
            let known = entries.peers.get(&inbound.from).cloned();
            let sent_ring = entries.sent_rings.get(&inbound.from);
            let is_current = sent_ring.is_some_and(|sent_ring| inbound.is_of(sent_ring));
            drop(entries);
            let dead = known.filter(|peer| !peer.is_alive());
            if (is_current && dead.is_none()) || !inbound.retire() {
                continue;
            }
            if self.has_mapped_memory.load(Ordering::Relaxed) {
                self.has_memory_of_dead.store(true, Ordering::Relaxed);
            }
            if let (true, Some(dead)) = (is_current, dead) {
                let mut entries = self.entries.write();
                let now = entries.peers.get(&inbound.from);
                if now.is_some_and(|now| now.incarnation == dead.incarnation) {
                    entries.peers.remove(&inbound.from);
                    entries.sent_rings.remove(&inbound.from);
                }
            }
        }
    }

    /// Adds the ring that the process at `from` fills. The caller has locked the entries.
    pub(crate) fn add_inbound(&self, from: u16, ring: &Arc<Segment>) -> VerbsResult<()> {
        // SAFETY: this process is the ring's only consumer; the memory is kept beside it.
        let consumer = unsafe { Consumer::attach(ring.ptr(), ring.len()) }
            .map_err(|error| VerbsError::no_room(error.to_string()))?;
        self.push_inbound(Inbound::new(from, consumer, ring.clone()));
        Ok(())
    }

    /// The slot of this process.
    pub(crate) fn own_slot(&self) -> u16 {
        self.own_slot
    }

    /// The rings that peers fill.
    #[inline]
    pub(crate) fn inbound(&self) -> &[Arc<Inbound>] {
        // SAFETY: lists are replaced, never changed or freed.
        unsafe { &*self.inbound.load(Ordering::Acquire) }
    }

    /// Whether any ring holds messages, or may, because another thread has locked it.
    pub(crate) fn rings_may_hold_messages(&self) -> bool {
        self.inbound().iter().any(|inbound| inbound.may_hold_messages())
    }

    /// Whether another thread has locked a ring, perhaps for long if it has lost its processor.
    pub(crate) fn a_ring_is_being_read(&self) -> bool {
        self.inbound().iter().any(|inbound| inbound.is_being_read())
    }

    /// Whether the ring of one process holds messages, or may.
    pub(crate) fn ring_may_hold_messages(&self, from: u16) -> bool {
        self.inbound().iter().any(|inbound| inbound.from == from && inbound.may_hold_messages())
    }

    /// Adds a ring that a peer fills. The caller has locked the entries.
    fn push_inbound(&self, inbound: Inbound) {
        let mut list: Vec<Arc<Inbound>> =
            self.inbound().iter().filter(|known| !known.is_retired()).cloned().collect();
        list.push(Arc::new(inbound));
        // The old list is leaked, because a poller may be reading it: one pointer for each peer,
        // once for each new peer.
        self.inbound.store(Box::into_raw(Box::new(list)), Ordering::Release);
    }
}

/// The live processes of this host that can be peers: same user and version, this one included.
/// `None` if the kernel does not list them.
pub(crate) fn live_slots() -> Option<Vec<LiveSlot>> {
    // SAFETY: takes and touches nothing.
    let user = unsafe { libc::getuid() };
    let mut slots = control_socket::list_live_slots().ok()?;
    slots.retain(|live| live.uid == user && live.version == crate::layout::VERSION);
    Some(slots)
}

/// Whether a live process holds the slot; `true` if the kernel does not list the processes.
fn slot_is_held(slot: u16) -> bool {
    live_slots().is_none_or(|live| live.iter().any(|held| held.slot == slot))
}
