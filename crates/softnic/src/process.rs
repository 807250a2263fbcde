//! This process as seen by its peers: its slot among the processes of the host, its shared segment,
//! its queue pairs, and what its threads share to make progress.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_ring::doorbell::{Doorbell, Event};
use rdmalab_ring::epoch::LaneSlots;
use rdmalab_ring::keytable::{KeyTable, KeyView};
use rdmalab_ring::mailbox::Mailbox;
use rdmalab_ring::seg::Segment;

use crate::armed::Armed;
use crate::buffer::Buffers;
use crate::handshake::PeerTable;
use crate::layout::{self, QPS_PER_PROCESS, QpWords};
use crate::multicast::Groups;
use crate::peer::Inbound;
use crate::profile;
use crate::progress_thread::ProgressThread;
use crate::qp::QpObject;
use crate::udp::Network;
use crate::udp::management::Management;

/// The process of this address space; null before the first device is opened, and in a child after
/// `fork`.
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());
static CREATION: Mutex<()> = Mutex::new(());

/// See the module's text.
pub(crate) struct Process {
    pub(crate) slot: u16,
    /// Tells this process apart from earlier holders of its slot.
    pub(crate) incarnation: u64,
    pub(crate) mailbox: Mailbox,
    pub(crate) segment: Segment,
    pub(crate) doorbell: Doorbell,
    /// What peers signal when the doorbell is armed.
    pub(crate) event: Event,
    pub(crate) lanes: LaneSlots,
    pub(crate) keys: Mutex<KeyTable>,
    pub(crate) key_view: KeyView,
    /// The region of each bound window, by index. Changed with `keys` locked.
    pub(crate) bindings: Mutex<BTreeMap<u32, u32>>,
    pub(crate) qp_words: QpWords,
    qps: Box<[AtomicPtr<QpObject>]>,
    free_qps: Mutex<VecDeque<u32>>,
    pub(crate) peer_table: RwLock<PeerTable>,
    pub(crate) mailbox_lock: Mutex<()>,
    inbound: AtomicPtr<Vec<Arc<Inbound>>>,
    pub(crate) timers: Mutex<Vec<&'static QpObject>>,
    /// Held by the one thread that looks at the timers.
    pub(crate) tick_lock: Mutex<()>,
    /// A QP came to `timers` since somebody looked.
    pub(crate) timers_changed: AtomicBool,
    blocked: Mutex<Vec<&'static QpObject>>,
    pub(crate) any_blocked: AtomicBool,
    /// When somebody must look at the timers, ns; `u64::MAX`: at leisure.
    pub(crate) deadline_ns: AtomicU64,
    /// When a caller next looks at the timers, ns.
    pub(crate) next_tick_ns: AtomicU64,
    pub(crate) progress_thread: ProgressThread,
    pub(crate) buffers: Buffers,
    pub(crate) groups: Groups,
    /// The network, where an interface was named.
    pub(crate) network: OnceLock<Network>,
    /// The host's socket and its lock, as another process sent them.
    pub(crate) socket_offer: Mutex<Option<(OwnedFd, OwnedFd)>>,
    pub(crate) management: Management,
    lane_off: AtomicBool,
    /// What captures or disturbs packets.
    pub(crate) armed: Option<&'static Armed>,
    /// Something may lie in the ring from this process to itself.
    pub(crate) has_self_traffic: AtomicBool,
    /// This is the copy of a process in a forked child: nothing of it may be used.
    defunct: AtomicBool,
    next_pd: AtomicU32,
    /// Memory regions and windows that are alive.
    pub(crate) keys_in_use: AtomicU32,
    /// Trains that were dropped.
    pub(crate) dropped: AtomicU64,
}

// SAFETY: the raw pointers are to objects that are never freed (QP places, lists of rings), or to
// the process's own segment, which lives as long as it.
unsafe impl Send for Process {}
// SAFETY: everything in it is atomic, locked, or immutable after creation.
unsafe impl Sync for Process {}

/// A verbs error of an operating system's error.
pub(crate) fn os_error(what: &str, error: &std::io::Error) -> VerbsError {
    let errno = error.raw_os_error().unwrap_or(VerbsError::ENOMEM);
    VerbsError::new(errno, format!("{what}: {error}"))
}

/// Processes of different versions of what they would share have nothing in common, not even who
/// reads the host's port: to each other they are not there, which looks like a peer that never
/// answers.
fn warn_of_other_versions() {
    // SAFETY: takes and touches nothing.
    let uid = unsafe { libc::getuid() };
    let live = rdmalab_ring::mailbox::list_live_slots().unwrap_or_default();
    let mine = layout::VERSION;
    let Some(other) = live.iter().find(|live| live.uid == uid && live.version != mine) else {
        return;
    };
    crate::warn(&format!(
        "a program with another version of rdmalab runs on this host ({} of what processes share; \
         this one has {mine}): the two do not see each other. Run all with one version.",
        other.version
    ));
}

impl Process {
    /// The process, made at the first call.
    pub(crate) fn get() -> VerbsResult<&'static Process> {
        if let Some(process) = Process::existing() {
            return Ok(process);
        }
        let _creation = CREATION.lock();
        if let Some(process) = Process::existing() {
            return Ok(process);
        }
        let process: &'static Process = Box::leak(Box::new(Process::create()?));
        process.add_self_peer()?;
        process.open_network().inspect_err(|_| process.mailbox.close_in_child())?;
        process.progress_thread.start(process)?;
        PROCESS.store(std::ptr::from_ref(process).cast_mut(), Ordering::Release);
        register_fork_handler();
        Ok(process)
    }

    /// The process, if a device was opened.
    pub(crate) fn existing() -> Option<&'static Process> {
        // SAFETY: the pointer is null or was leaked.
        unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
    }

    fn create() -> VerbsResult<Process> {
        rdmalab_ring::fence::register();
        rdmalab_ring::fence::register_private();
        let mailbox = Mailbox::claim(layout::VERSION)
            .map_err(|error| os_error("cannot join the processes of this host", &error))?;
        warn_of_other_versions();
        let segment =
            Segment::create(c"rdmalab-nic", layout::SEGMENT_BYTES, layout::PREFAULT_BYTES)
                .map_err(|error| os_error("cannot make the shared segment", &error))?;
        segment.lock_owner().map_err(|error| os_error("cannot lock the segment", &error))?;
        let event = Event::create().map_err(|error| os_error("cannot make an event", &error))?;
        let base = segment.ptr();
        let entries = rdmalab_ring::keytable::ENTRIES;
        // SAFETY: the offsets lie within the fresh, zeroed segment, which the process keeps; each
        // part is used by its module only.
        let (doorbell, lanes, keys, qp_words) = unsafe {
            (
                Doorbell::create(base.add(layout::DOORBELL_AT)),
                LaneSlots::create(base.add(layout::LANE_AT)),
                private_keys(base.add(layout::KEYS_AT), entries)?,
                QpWords::attach(base),
            )
        };
        // SAFETY: processes are leaked, so their segments stay mapped for ever.
        let stamp = unsafe { layout::stamp_of(base) };
        let usable = usable_qps(mailbox.slot());
        let armed = Armed::from_environment()?;
        let lane_off = std::env::var_os("RDMALAB_LANE").is_some_and(|value| value == "off");
        Ok(Process {
            slot: mailbox.slot(),
            incarnation: random_u64(),
            mailbox,
            segment,
            doorbell,
            event,
            lanes,
            key_view: keys.view(),
            keys: Mutex::new(keys),
            bindings: Mutex::default(),
            qp_words,
            qps: (0..QPS_PER_PROCESS).map(|_| AtomicPtr::default()).collect(),
            free_qps: Mutex::new((0..usable).collect()),
            peer_table: RwLock::default(),
            mailbox_lock: Mutex::new(()),
            inbound: AtomicPtr::new(Box::into_raw(Box::default())),
            timers: Mutex::new(Vec::new()),
            tick_lock: Mutex::new(()),
            timers_changed: AtomicBool::new(false),
            blocked: Mutex::new(Vec::new()),
            any_blocked: AtomicBool::new(false),
            deadline_ns: AtomicU64::new(u64::MAX),
            next_tick_ns: AtomicU64::new(0),
            progress_thread: ProgressThread::new(stamp)?,
            buffers: Buffers::default(),
            groups: Groups::default(),
            network: OnceLock::new(),
            socket_offer: Mutex::default(),
            management: Management::default(),
            lane_off: AtomicBool::new(lane_off || armed.is_some()),
            armed,
            has_self_traffic: AtomicBool::new(false),
            defunct: AtomicBool::new(false),
            next_pd: AtomicU32::new(1),
            keys_in_use: AtomicU32::new(0),
            dropped: AtomicU64::new(0),
        })
    }

    /// Whether this is a forked child's copy.
    #[inline]
    pub(crate) fn is_defunct(&self) -> bool {
        self.defunct.load(Ordering::Relaxed)
    }

    /// Refuses verbs in a forked child's copy.
    pub(crate) fn check_usable(&self) -> VerbsResult<()> {
        if self.is_defunct() {
            return Err(VerbsError::new(
                VerbsError::ENODEV,
                "objects made before fork() belong to the parent: open the device in the child",
            ));
        }
        Ok(())
    }

    /// The network, where an interface was named.
    #[inline]
    pub(crate) fn network(&self) -> Option<&Network> {
        self.network.get()
    }

    /// Whether one-sided operations may be executed by the initiator.
    #[inline]
    pub(crate) fn lane_enabled(&self) -> bool {
        !self.lane_off.load(Ordering::Relaxed)
    }

    /// When a device is closed: writes what was captured, and says how many trains were dropped
    /// since this was asked before.
    pub(crate) fn report_dropped(&self) {
        if let Some(armed) = self.armed {
            armed.flush();
        }
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            crate::debug(&format!(
                "{dropped} arrived packets were dropped: their QP was gone, not ready, not theirs, \
                 or a UD QP without a receive or with another Q_Key"
            ));
        }
        if let Some(sentence) = self.network().and_then(crate::udp::drops_in_words) {
            crate::debug(&sentence);
        }
    }

    /// A number for a new protection domain.
    pub(crate) fn allocate_pd(&self) -> u32 {
        // The lane's QP word has 24 bits for it.
        self.next_pd.fetch_add(1, Ordering::Relaxed) & 0xff_ffff
    }

    /// Takes a place for a QP.
    pub(crate) fn allocate_qp(&'static self) -> VerbsResult<&'static QpObject> {
        let most = profile::limits().max_qp;
        let mut free = self.free_qps.lock();
        let in_use = usable_qps(self.slot) - free.len() as u32;
        let index = if in_use < most { free.pop_front() } else { None }.ok_or_else(|| {
            VerbsError::no_room(format!(
                "a process can have {most} QPs on soft devices{}: destroy some first",
                profile::whose()
            ))
        })?;
        drop(free);
        let place = &self.qps[index as usize];
        let mut object = place.load(Ordering::Acquire);
        if object.is_null() {
            object = Box::into_raw(Box::new(QpObject::new(self, index)));
            place.store(object, Ordering::Release);
        }
        // SAFETY: places are never freed.
        Ok(unsafe { &*object })
    }

    /// Gives a place back; it is used again only after all others.
    pub(crate) fn free_qp(&self, object: &QpObject) {
        self.free_qps.lock().push_back(object.index);
    }

    /// The place of a QP by its index, if one ever lived there.
    #[inline]
    pub(crate) fn qp_at(&self, index: usize) -> Option<&'static QpObject> {
        // SAFETY: places are never freed.
        unsafe { self.qps[index & (QPS_PER_PROCESS - 1)].load(Ordering::Acquire).as_ref() }
    }

    /// Every place where a QP lives or ever lived.
    pub(crate) fn all_qps(&self) -> impl Iterator<Item = &'static QpObject> + '_ {
        // SAFETY: places are never freed.
        self.qps.iter().filter_map(|place| unsafe { place.load(Ordering::Acquire).as_ref() })
    }

    /// The rings that peers fill.
    #[inline]
    pub(crate) fn inbound(&self) -> &[Arc<Inbound>] {
        // SAFETY: lists are replaced, never changed or freed.
        unsafe { &*self.inbound.load(Ordering::Acquire) }
    }

    /// Adds a ring that a peer fills. Called under the acquaintances' lock.
    pub(crate) fn push_inbound(&self, inbound: Inbound) {
        let mut list: Vec<Arc<Inbound>> =
            self.inbound().iter().filter(|known| !known.is_retired()).cloned().collect();
        list.push(Arc::new(inbound));
        // The old list is leaked on purpose: a poller may be walking it. It is one pointer for
        // each peer, once for each new peer.
        self.inbound.store(Box::into_raw(Box::new(list)), Ordering::Release);
    }

    /// The descriptor that is readable while mail waits.
    pub(crate) fn mailbox_fd(&self) -> i32 {
        self.mailbox.raw_fd()
    }

    /// The descriptor that peers make readable when the doorbell was armed.
    pub(crate) fn event_fd(&self) -> i32 {
        std::os::fd::AsRawFd::as_raw_fd(&self.event.as_fd())
    }

    /// Watches the timer of a QP from now on.
    #[cold]
    pub(crate) fn watch_timer(&self, object: &'static QpObject) {
        if !object.in_timers.swap(true, Ordering::AcqRel) {
            self.timers.lock().push(object);
            self.timers_changed.store(true, Ordering::Release);
            self.progress_thread.wake_if_asleep();
        }
    }

    /// Somebody must look at the timers at `at_ns`.
    pub(crate) fn set_deadline(&self, at_ns: u64) {
        self.deadline_ns.fetch_min(at_ns, Ordering::AcqRel);
        self.progress_thread.wake_if_asleep();
    }

    /// A QP found its peer's ring full: it tries again with everybody's progress.
    #[cold]
    pub(crate) fn block(&self, object: &'static QpObject) {
        if !object.in_blocked.swap(true, Ordering::AcqRel) {
            self.blocked.lock().push(object);
            self.any_blocked.store(true, Ordering::Release);
            self.progress_thread.wake_if_asleep();
        }
    }

    /// Takes the QPs that wait for room in a ring.
    pub(crate) fn take_blocked(&self) -> Vec<&'static QpObject> {
        let mut blocked = self.blocked.lock();
        self.any_blocked.store(false, Ordering::Release);
        std::mem::take(&mut *blocked)
    }

    /// Waits until nobody copies by what the key table said before this call: neither a thread of
    /// this process, which does so under a QP's lock, nor an initiator in our lane. The caller
    /// holds no QP's lock.
    ///
    /// # Errors
    /// As [`Process::wait_for_lanes`].
    pub(crate) fn wait_for_copies(&self) -> VerbsResult<()> {
        for object in self.all_qps() {
            drop(object.inner.lock());
        }
        self.wait_for_lanes()
    }

    /// Waits until no other process executes a one-sided operation that began before this call;
    /// what was retracted from the tables before is out of use there then.
    ///
    /// # Errors
    /// `EBUSY` when an initiator is stopped in the middle of one for too long.
    pub(crate) fn wait_for_lanes(&self) -> VerbsResult<()> {
        let give_up_ns = crate::clock::now_ns() + LANE_WAIT_NS;
        let alive = |slot| self.initiator_alive(slot);
        self.lanes.wait_quiescent(alive, || crate::clock::now_ns() > give_up_ns).map_err(|_| {
            VerbsError::busy(
                "another process has been stopped in the middle of a copy into this memory for \
                 10 s: let it run (SIGCONT) or kill it, then try again",
            )
        })
    }
}

/// The table of keys in memory of our own, with a copy for peers at `shown`: their mistakes must
/// not decide what our own work requests and our responder may touch.
///
/// # Safety
/// As [`KeyTable::create`] for `shown`.
unsafe fn private_keys(shown: *mut u8, entries: usize) -> VerbsResult<KeyTable> {
    let bytes = entries * rdmalab_ring::keytable::ENTRY_BYTES;
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice; pages come when touched.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rw, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        let error = std::io::Error::last_os_error();
        return Err(os_error("cannot make the table of memory keys", &error));
    }
    // SAFETY: fresh zeroed pages that are never unmapped; the copy by the contract.
    unsafe {
        let mut keys = KeyTable::create(base.cast(), entries);
        keys.show_at(shown);
        Ok(keys)
    }
}

/// How long `dereg_mr` and the like wait for an initiator that is in the middle of a copy, ns.
const LANE_WAIT_NS: u64 = 10_000_000_000;

/// QP indices of a slot; the very last QPN is the multicast QP (IBA vol. 1, 10.5.2), and the first
/// two of slot 0 would be the management QPs, but nobody has slot 0.
fn usable_qps(slot: u16) -> u32 {
    let all = QPS_PER_PROCESS as u32;
    let last = (slot as u32) << layout::QP_INDEX_BITS | (all - 1);
    if last == rdmalab_wire::ids::MASK_24 { all - 1 } else { all }
}

fn random_u64() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: eight writable bytes on our stack.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got == 8 { u64::from_ne_bytes(bytes) | 1 } else { crate::clock::now_ns() | 1 }
}

/// In a forked child the parent's rings, locks and helper are not ours: forget them all.
extern "C" fn after_fork_in_child() {
    let process = PROCESS.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: null or leaked; the child has its own copy.
    if let Some(process) = unsafe { process.as_ref() } {
        process.defunct.store(true, Ordering::Release);
        process.mailbox.close_in_child();
        if let Some(armed) = process.armed {
            armed.close_in_child();
        }
        if let Some(network) = process.network() {
            network.close_in_child();
        }
    }
}

fn register_fork_handler() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only stores to atomics and closes a descriptor.
        unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) };
    });
}
