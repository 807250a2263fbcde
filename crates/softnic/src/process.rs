//! This process as its threads and peers see it. It composes parts; each part owns its state and
//! has a file of its own.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_ring::epoch::LaneSlots;
use rdmalab_ring::seg::Segment;

use crate::blocked::BlockedQueue;
use crate::buffer::Buffers;
use crate::control::ControlPort;
use crate::groups::Groups;
use crate::hooks::Hooks;
use crate::keys::KeyRegistry;
use crate::peer_table::PeerTable;
use crate::progress_thread::ProgressThread;
use crate::qp::QpObject;
use crate::qp_table::QpTable;
use crate::timers::Timers;
use crate::udp::mad_queue::Management;
use crate::udp::network::{self, Network, NetworkPort};
use crate::wakeup::Wakeup;

/// The process of this address space; null before the first device is opened, and in a child after
/// `fork`.
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());

/// See the module's text.
pub(crate) struct Process {
    /// The slot of this process among those of the host: the upper bits of its QPNs.
    pub(crate) slot: u16,
    /// Messages to and from the control sockets of other processes.
    pub(crate) control: ControlPort,
    /// The memory that peers map: QP words, key table, lane and doorbell.
    pub(crate) segment: Segment,
    /// The doorbell and the event that peers wake this process with.
    pub(crate) wakeup: Wakeup,
    /// Which initiators of other processes are executing one-sided operations here.
    pub(crate) lanes: LaneSlots,
    /// Keys of memory regions and windows.
    pub(crate) keys: KeyRegistry,
    pub(crate) qps: QpTable<QpObject>,
    pub(crate) peers: PeerTable,
    pub(crate) timers: Timers,
    pub(crate) blocked: BlockedQueue,
    pub(crate) progress_thread: ProgressThread,
    /// Memory that peers can map.
    pub(crate) buffers: Buffers,
    /// Multicast groups of this process's QPs.
    pub(crate) groups: Groups,
    /// The way to other hosts.
    pub(crate) network: NetworkPort,
    /// Datagrams for the connection manager.
    pub(crate) management: Management,
    /// One-sided operations take the ring and not the lane.
    pub(crate) lane_off: AtomicBool,
    /// What captures or disturbs packets.
    pub(crate) hooks: Option<&'static Hooks>,
    /// This is the copy of a process in a forked child: nothing of it may be used.
    pub(crate) defunct: AtomicBool,
    /// The number of the next protection domain.
    pub(crate) next_pd: AtomicU32,
    /// Trains that were dropped.
    pub(crate) dropped: AtomicU64,
}

// SAFETY: the raw pointers are to objects that are never freed (QP places, lists of rings), or to
// the process's own segment, which lives as long as it.
unsafe impl Send for Process {}
// SAFETY: everything in it is atomic, locked, or immutable after creation.
unsafe impl Sync for Process {}

impl Process {
    /// Makes this the process of the address space; it is leaked.
    pub(crate) fn publish(&'static self) {
        PROCESS.store(std::ptr::from_ref(self).cast_mut(), Ordering::Release);
    }

    /// Takes the process from the address space: in a forked child.
    pub(crate) fn withdraw() -> Option<&'static Process> {
        let process = PROCESS.swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: null or leaked.
        unsafe { process.as_ref() }
    }

    /// The process, if a device was opened.
    pub(crate) fn existing() -> Option<&'static Process> {
        // SAFETY: the pointer is null or was leaked.
        unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
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
        self.network.opened.get()
    }

    /// Whether one-sided operations may be executed by the initiator.
    #[inline]
    pub(crate) fn lane_enabled(&self) -> bool {
        !self.lane_off.load(Ordering::Relaxed)
    }

    /// When a device is closed: writes what was captured, and says how many trains were dropped
    /// since this was asked before.
    pub(crate) fn report_dropped(&self) {
        if let Some(hooks) = self.hooks {
            hooks.flush();
        }
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            crate::debug(&format!(
                "{dropped} arrived packets were dropped: their QP was gone, not ready, not theirs, \
                 or a UD QP without a receive or with another Q_Key"
            ));
        }
        if let Some(sentence) = self.network().and_then(network::drops_in_words) {
            crate::debug(&sentence);
        }
    }

    /// A number for a new protection domain.
    pub(crate) fn allocate_pd(&self) -> u32 {
        // The lane's QP word has 24 bits for it.
        self.next_pd.fetch_add(1, Ordering::Relaxed) & 0xff_ffff
    }

    /// The descriptor that is readable while control messages wait.
    pub(crate) fn control_socket_fd(&self) -> i32 {
        self.control.fd()
    }

    /// The descriptor that peers make readable when the doorbell was armed.
    pub(crate) fn event_fd(&self) -> i32 {
        self.wakeup.fd()
    }

    /// Watches the timer of a QP from now on.
    #[cold]
    pub(crate) fn watch_timer(&self, object: &'static QpObject) {
        if !object.in_timers.swap(true, Ordering::AcqRel) {
            self.timers.watch(object.index);
            self.progress_thread.wake_if_asleep();
        }
    }

    /// Some thread must check the timers at `at_ns`.
    pub(crate) fn set_deadline(&self, at_ns: u64) {
        self.timers.deadline_ns.fetch_min(at_ns, Ordering::AcqRel);
        self.progress_thread.wake_if_asleep();
    }

    /// A QP found its peer's ring full: every thread that makes progress tries again.
    #[cold]
    pub(crate) fn block(&self, object: &'static QpObject) {
        if !object.in_blocked.swap(true, Ordering::AcqRel) {
            self.blocked.add(object.index);
            self.progress_thread.wake_if_asleep();
        }
    }

    /// Waits until nobody copies by what the key table said before this call: neither a thread of
    /// this process, which does so under a QP's lock, nor an initiator in our lane. The caller
    /// holds no QP's lock.
    ///
    /// # Errors
    /// As [`Process::wait_for_lanes`].
    pub(crate) fn wait_for_copies(&self) -> VerbsResult<()> {
        for object in self.qps.all() {
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
        let alive = |slot| self.peers.initiator_alive(slot);
        self.lanes.wait_quiescent(alive, || crate::clock::now_ns() > give_up_ns).map_err(|_| {
            VerbsError::busy(
                "another process has been stopped in the middle of a copy into this memory for \
                 10 s: let it run (SIGCONT) or kill it, then try again",
            )
        })
    }
}

/// How long `dereg_mr` and the like wait for an initiator that is in the middle of a copy, ns.
const LANE_WAIT_NS: u64 = 10_000_000_000;
