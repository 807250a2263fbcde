//! A peer: another process of this host, or this process as a peer of itself.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rdmalab_engine::mr::{Backing, KeyEntry, KeyKind};
use rdmalab_engine::vocab::{Access, PdId};
use rdmalab_ring::doorbell::{Bell, Event};
use rdmalab_ring::epoch::{Inside, LanePass, WORDS_PER_INITIATOR};
use rdmalab_ring::keytable::{Entry, KeyView};
use rdmalab_ring::seg::Segment;
use rdmalab_ring::spsc::{Consumer, Producer};
use rdmalab_wire::ids::Qpn;

use crate::cancel::NoCancel;
use crate::copy::vm;
use crate::layout::{self, QpWords};
use crate::ring_stall::RingStall;
use rdmalab_ring::biased::{BiasedGuard, BiasedLock};

/// Printed once, to explain why one-sided operations need the target's help.
pub(crate) const MEMORY_DENIED: &str = concat!(
    "the kernel does not let us into our peer's memory (ptrace scope, seccomp, or another pid ",
    "namespace): one-sided operations into memory that is not shared take the ring, and need the ",
    "peer to make progress",
);

/// How often a ring is checked for damage at most, ns. A check reads every slot in use.
const RING_CHECK_NS: u64 = 20_000_000;

/// Why requests to a peer that is alive fail.
const RING_DAMAGED: &str = concat!(
    "the ring to a peer was damaged: another process of this user wrote into our shared memory. ",
    "Requests to this peer fail until one of the two processes is started again",
);

/// Printed once, to tell runs with shared memory from others.
const MEMORY_MAPPED: &str =
    "memory of a peer is mapped here: one-sided operations on it are plain copies";

/// How long a peer that was found alive counts as alive, ns.
const LATELY_NS: u64 = 50_000;

/// A peer is asked for its memory once in this time at most, ns.
const REQUEST_NS: u64 = 2_000_000;

/// Number of buffers of one peer that are mapped at the same time.
const MAX_MAPPINGS: usize = 256;

/// Proof that this thread is inside a target's lane, with the word that it uses there.
pub(crate) struct LaneGuard<'a> {
    // Dropped in this order: first leave the lane, then let other threads use the word.
    _inside: Inside<'a>,
    _word: BiasedGuard<'a, ()>,
}

/// Access to a target's lane.
pub(crate) struct LaneAccess {
    lane: LanePass,
    words: [BiasedLock<()>; WORDS_PER_INITIATOR],
}

impl LaneAccess {
    /// Opens the lane of the segment at `segment` for the process slot `initiator`.
    ///
    /// # Safety
    /// As [`LanePass::attach`], for the lane in a segment of this layout.
    pub(crate) unsafe fn attach(segment: *mut u8, initiator: u16) -> Option<LaneAccess> {
        // SAFETY: the lane lies at LANE_AT of every segment; the caller promises the rest.
        let lane = unsafe { LanePass::attach(segment.add(layout::LANE_AT), initiator) }?;
        Some(LaneAccess { lane, words: [const { BiasedLock::new(()) }; WORDS_PER_INITIATOR] })
    }

    /// Enters the lane; `None` if every word is in use.
    #[inline]
    pub(crate) fn enter(&self) -> Option<LaneGuard<'_>> {
        for (index, word) in self.words.iter().enumerate() {
            if let Some(word) = word.try_lock()
                && let Some(inside) = self.lane.enter(index)
            {
                return Some(LaneGuard { _inside: inside, _word: word });
            }
        }
        None
    }
}

/// Memory of the peer that is mapped here, and stays mapped as long as this exists.
#[derive(Clone)]
pub(crate) struct MappedMemory {
    pub(crate) id: u32,
    pub(crate) segment: Arc<Segment>,
}

/// The engine's view of an entry of a key table.
#[inline]
pub(crate) fn key_entry(entry: Entry) -> Option<KeyEntry> {
    let kind = match entry.kind & 0xff {
        1 => KeyKind::Region,
        2 => KeyKind::WindowType1,
        3 => KeyKind::WindowType2,
        _ => return None,
    };
    Some(KeyEntry {
        key: entry.key,
        kind,
        iova: entry.addr,
        length: entry.length,
        host_delta: entry.host_delta as u64,
        access: Access(entry.access),
        pd: PdId(entry.pd),
        qpn: Qpn::new(entry.qpn),
        on_demand: entry.kind & 0x100 != 0,
        backing: Backing { segment: entry.mem_id, offset: entry.mem_offset },
    })
}

/// The table's view of an entry of the engine.
pub(crate) fn table_entry(entry: &KeyEntry) -> Entry {
    Entry {
        key: entry.key,
        addr: entry.iova,
        length: entry.length,
        access: entry.access.0,
        pd: entry.pd.0,
        kind: entry.kind as u32 | (entry.on_demand as u32) << 8,
        mem_id: entry.backing.segment,
        mem_offset: entry.backing.offset,
        qpn: entry.qpn.get(),
        aux: 0,
        host_delta: entry.host_delta as i64,
    }
}

/// A ring that a peer fills and this process empties.
pub(crate) struct Inbound {
    /// The peer's process slot.
    pub(crate) from: u16,
    /// `None` after the peer died and everything that it sent was taken.
    pub(crate) ring: BiasedLock<Option<InboundRing>>,
    /// Address of the segment, to tell this ring from others of the same slot.
    at: *const Segment,
    retired: AtomicBool,
}

// SAFETY: the address is only compared, never dereferenced.
unsafe impl Send for Inbound {}
// SAFETY: as above; everything else in it is locked or atomic.
unsafe impl Sync for Inbound {}

/// The ring and the memory that it lies in.
pub(crate) struct InboundRing {
    pub(crate) consumer: Consumer,
    _segment: Arc<Segment>,
}

impl Inbound {
    pub(crate) fn new(from: u16, consumer: Consumer, segment: Arc<Segment>) -> Inbound {
        let at = Arc::as_ptr(&segment);
        let ring = BiasedLock::new(Some(InboundRing { consumer, _segment: segment }));
        Inbound { from, ring, at, retired: AtomicBool::new(false) }
    }

    /// Whether this ring was sent with a hello.
    pub(crate) fn is_of(&self, sent_ring: &Arc<Segment>) -> bool {
        std::ptr::eq(self.at, Arc::as_ptr(sent_ring))
    }

    /// Whether the ring holds a message, or may, because another thread has locked it.
    pub(crate) fn may_hold_messages(&self) -> bool {
        match self.ring.try_lock() {
            Some(ring) => ring.as_ref().is_some_and(|ring| !ring.consumer.is_empty()),
            None => true,
        }
    }

    /// Tells the peer if its next message can never be taken, because the ring is damaged.
    pub(crate) fn close_if_damaged(&self) {
        if let Some(ring) = self.ring.try_lock()
            && let Some(InboundRing { consumer, .. }) = ring.as_ref()
            && !consumer.is_intact()
        {
            consumer.set_closed();
        }
    }

    /// Whether another thread has locked the ring.
    pub(crate) fn is_being_read(&self) -> bool {
        self.ring.try_lock().is_none()
    }

    /// Frees the ring of a dead peer, unless messages are left in it. Returns whether it was empty.
    pub(crate) fn retire(&self) -> bool {
        let Some(mut ring) = self.ring.try_lock() else { return false };
        let empty = ring.as_ref().is_none_or(|ring| ring.consumer.is_empty());
        if empty {
            *ring = None;
            self.retired.store(true, Ordering::Release);
        }
        empty
    }

    /// Whether the ring was freed.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }
}

/// A peer that has sent a hello.
pub(crate) struct Peer {
    pub(crate) slot: u16,
    pub(crate) incarnation: u64,
    pub(crate) pid: i32,
    /// Whether the peer is this process itself.
    pub(crate) is_self: bool,
    pub(crate) out: BiasedLock<Producer>,
    pub(crate) keys: KeyView,
    pub(crate) qps: QpWords,
    pub(crate) lane: LaneAccess,
    bell: Bell,
    event: Event,
    mapped: Mutex<VecDeque<MappedMemory>>,
    request_at_ns: AtomicU64,
    /// The kernel refuses access to its memory.
    pub(crate) memory_denied: AtomicBool,
    dead: AtomicBool,
    /// The process is dead, or a third process has damaged the ring to it.
    unreachable: AtomicBool,
    ring_checked_at_ns: AtomicU64,
    /// It has read our hello.
    has_read_our_hello: AtomicBool,
    alive_at_ns: AtomicU64,
    /// Measures how long its ring stays full while datagrams wait.
    pub(crate) ring_stall: RingStall,
    _ring_segment: Option<Segment>,
    segment: Option<Segment>,
}

/// The contents of a hello.
pub(crate) struct Hello {
    pub(crate) slot: u16,
    pub(crate) incarnation: u64,
    pub(crate) pid: i32,
    pub(crate) segment: OwnedFd,
    pub(crate) event: OwnedFd,
    pub(crate) ring: OwnedFd,
}

// SAFETY: the views point into the segment that the peer keeps mapped, where all is atomic.
unsafe impl Send for Peer {}
// SAFETY: as above; everything else in it is locked, atomic or immutable.
unsafe impl Sync for Peer {}

impl Peer {
    /// Makes a peer from its hello; `own_slot` is the process slot of this process.
    pub(crate) fn from_hello(hello: Hello, own_slot: u16) -> std::io::Result<Peer> {
        let segment = Segment::from_fd(hello.segment, layout::SEGMENT_BYTES)?;
        let ring_bytes = rdmalab_ring::spsc::Geometry::DEFAULT.region_bytes();
        let ring = Segment::from_fd(hello.ring, ring_bytes)?;
        // SAFETY: the peer object keeps the ring's memory beside the producer, and this process is
        // the only producer: the peer made the ring for it.
        let producer = unsafe { Producer::attach(ring.ptr(), ring.len()) };
        let producer = producer.map_err(std::io::Error::other)?;
        let base = segment.ptr();
        let event = Event::from_fd(hello.event)?;
        // SAFETY: the peer object keeps the segment. Lane slot `own_slot` belongs to this process,
        // which holds the control socket of that number.
        let peer = unsafe {
            Peer::assemble(
                hello.slot,
                hello.incarnation,
                hello.pid,
                base,
                own_slot,
                producer,
                event,
            )
        };
        let mut peer = peer.ok_or_else(|| std::io::Error::other("process slot out of range"))?;
        // A process in a PID namespace that is not visible here has the number 0.
        let reachable = match peer.pid {
            0 => Err(vm::VmError::Gone),
            pid => vm::probe(pid),
        };
        if reachable.is_err() {
            peer.memory_denied.store(true, Ordering::Relaxed);
            crate::debug_once(MEMORY_DENIED);
        }
        peer.segment = Some(segment);
        peer._ring_segment = Some(ring);
        Ok(peer)
    }

    /// Makes a peer from the segment at `base`.
    ///
    /// # Safety
    /// `base` must point to a segment of [`layout::SEGMENT_BYTES`] that outlives the peer, and
    /// whose lane slot `own_slot` belongs to this process.
    pub(crate) unsafe fn assemble(
        slot: u16,
        incarnation: u64,
        pid: i32,
        base: *mut u8,
        own_slot: u16,
        producer: Producer,
        event: Event,
    ) -> Option<Peer> {
        // SAFETY: as promised by the caller; the offsets are within the segment.
        unsafe {
            Some(Peer {
                slot,
                incarnation,
                pid,
                is_self: slot == own_slot,
                out: BiasedLock::new(producer),
                keys: KeyView::attach(base.add(layout::KEYS_AT), rdmalab_ring::keytable::ENTRIES),
                qps: QpWords::attach(base),
                lane: LaneAccess::attach(base, own_slot)?,
                bell: Bell::attach(base.add(layout::DOORBELL_AT)),
                event,
                mapped: Mutex::default(),
                request_at_ns: AtomicU64::new(0),
                memory_denied: AtomicBool::new(false),
                dead: AtomicBool::new(false),
                unreachable: AtomicBool::new(false),
                ring_checked_at_ns: AtomicU64::new(0),
                has_read_our_hello: AtomicBool::new(slot == own_slot),
                alive_at_ns: AtomicU64::new(0),
                ring_stall: RingStall::default(),
                _ring_segment: None,
                segment: None,
            })
        }
    }

    /// Wakes the peer after a push, if it sleeps. This includes the own process: the thread that
    /// pushed may not be the one that waits for the message, and may not make progress again.
    #[inline]
    pub(crate) fn ring_bell(&self) {
        if self.bell.ring_needed() {
            let _no_cancel = NoCancel::new();
            self.bell.ring(|| self.event.signal());
        }
    }

    /// Whether the process was alive lately: [`Peer::is_alive`], checked once in 50 us at most.
    #[inline]
    pub(crate) fn was_alive_lately(&self) -> bool {
        let now_ns = crate::clock::now_ns();
        if now_ns.wrapping_sub(self.alive_at_ns.load(Ordering::Relaxed)) < LATELY_NS {
            return true;
        }
        let alive = self.is_alive();
        if alive {
            self.alive_at_ns.store(now_ns, Ordering::Relaxed);
        }
        alive
    }

    /// Whether the process is alive and runs the same program. A system call.
    pub(crate) fn is_alive(&self) -> bool {
        if self.dead.load(Ordering::Relaxed) {
            return false;
        }
        let alive = self.segment.as_ref().is_none_or(Segment::owner_alive);
        if !alive {
            self.mark_dead();
        }
        alive
    }

    /// Marks the peer as dead: its process ended, or another process holds its slot.
    pub(crate) fn mark_dead(&self) {
        self.dead.store(true, Ordering::Relaxed);
        self.unreachable.store(true, Ordering::Relaxed);
        // Its memory stays in use until the queue pairs that remember a mapping forget it, too.
        let former = std::mem::take(&mut *self.mapped.lock());
        drop(former);
    }

    /// Checks whether the ring to the peer is damaged, but not again for [`RING_CHECK_NS`]. Call it
    /// if the peer seems to take nothing. Returns whether the peer is reachable; with a damaged
    /// ring it never is again.
    pub(crate) fn check_ring(&self, now_ns: u64) -> bool {
        let checked_at_ns = self.ring_checked_at_ns.load(Ordering::Relaxed);
        if !self.is_unreachable() && now_ns.saturating_sub(checked_at_ns) >= RING_CHECK_NS {
            self.ring_checked_at_ns.store(now_ns, Ordering::Relaxed);
            if !self.out.lock().is_intact() {
                self.unreachable.store(true, Ordering::Relaxed);
                crate::warn(RING_DAMAGED);
            }
        }
        !self.is_unreachable()
    }

    /// Records that the peer has answered our hello.
    pub(crate) fn note_hello_read(&self) {
        self.has_read_our_hello.store(true, Ordering::Release);
    }

    /// Whether the peer is known to have read our hello, so that it can send to us at once.
    pub(crate) fn has_read_our_hello(&self) -> bool {
        self.has_read_our_hello.load(Ordering::Acquire)
    }

    /// Whether the peer is known to be dead, or the ring to it is damaged. No system call.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.unreachable.load(Ordering::Relaxed)
    }

    /// The peer's memory `id`, if it is mapped already.
    pub(crate) fn mapped(&self, id: u32) -> Option<MappedMemory> {
        self.mapped.lock().iter().find(|mapped| mapped.id == id).cloned()
    }

    /// Maps memory that the peer sent. Beyond [`MAX_MAPPINGS`] the oldest mapping is dropped, and
    /// requested again when it is needed. A thread that copies into it keeps it until then.
    pub(crate) fn add_mapped(&self, id: u32, fd: OwnedFd) {
        if let Ok(segment) = Segment::from_fd(fd, 1) {
            let mut mapped = self.mapped.lock();
            // What a dead peer sent would stay mapped.
            let is_new = mapped.iter().all(|known| known.id != id);
            if is_new && !self.dead.load(Ordering::Relaxed) {
                if mapped.len() >= MAX_MAPPINGS {
                    mapped.pop_front();
                }
                mapped.push_back(MappedMemory { id, segment: Arc::new(segment) });
                crate::debug_once(MEMORY_MAPPED);
            }
        }
    }

    /// Drops the mapping of memory that the peer has freed.
    pub(crate) fn forget_mapped(&self, id: u32) {
        self.mapped.lock().retain(|mapped| mapped.id != id);
    }

    /// Whether to request memory that is not mapped yet: not at every message, but again after a
    /// while, because the request or its answer may be lost.
    pub(crate) fn should_request(&self) -> bool {
        let now_ns = crate::clock::now_ns();
        let due = now_ns >= self.request_at_ns.load(Ordering::Relaxed);
        if due {
            self.request_at_ns.store(now_ns + REQUEST_NS, Ordering::Relaxed);
        }
        due
    }
}
