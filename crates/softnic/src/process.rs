//! This process as a device. It is composed of parts, each of which owns its state in its own file.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_ring::epoch::LaneSlots;

use crate::blocked::BlockedQueue;
use crate::counters::Counters;
use crate::groups::Groups;
use crate::hooks::Hooks;
use crate::host::HostPeers;
use crate::keys::KeyRegistry;
use crate::paging::ProcessPaging;
use crate::progress_thread::ProgressThread;
use crate::qp::QpObject;
use crate::qp_table::QpTable;
use crate::quota::Quotas;
use crate::timers::{Alarm, Timers};
use crate::udp::mad_queue::Management;
use crate::udp::network::{self, Network, NetworkPort};

/// The device state of this process; null before the first device is opened, and in a child after
/// `fork`.
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());

/// The device state of this process.
pub(crate) struct Process {
    /// The other processes of this host.
    pub(crate) host: HostPeers,
    /// The initiators in other processes that execute one-sided operations here now.
    pub(crate) lanes: LaneSlots,
    /// Keys of memory regions and windows.
    pub(crate) keys: KeyRegistry,
    pub(crate) qps: QpTable<QpObject>,
    pub(crate) timers: Timers,
    /// Pages of its on-demand regions.
    pub(crate) paging: ProcessPaging,
    pub(crate) blocked: BlockedQueue,
    pub(crate) progress_thread: ProgressThread,
    /// Multicast groups of this process's QPs.
    pub(crate) groups: Groups,
    /// The network path to other hosts.
    pub(crate) network: NetworkPort,
    /// Datagrams for the connection manager.
    pub(crate) management: Management,
    /// One-sided operations use the ring instead of the lane.
    pub(crate) lane_off: AtomicBool,
    /// The hooks that capture or disturb packets.
    pub(crate) hooks: Option<&'static Hooks>,
    /// This is a copy in a forked child: none of it may be used.
    pub(crate) defunct: AtomicBool,
    /// Objects that count against the device's attributes.
    pub(crate) in_use: Quotas,
    /// The number of the next protection domain.
    pub(crate) next_pd: AtomicU32,
    /// What this process counted.
    pub(crate) counters: Counters,
}

// SAFETY: the raw pointers refer to objects that are never freed (QP places, lists of rings), or to
// the process's own segment, which lives as long as this.
unsafe impl Send for Process {}
// SAFETY: everything in it is atomic, locked, or immutable after creation.
unsafe impl Sync for Process {}

impl Process {
    /// Publishes this as the device state of the process; it is never freed.
    pub(crate) fn publish(&'static self) {
        PROCESS.store(std::ptr::from_ref(self).cast_mut(), Ordering::Release);
    }

    /// Removes the published state, in a forked child.
    pub(crate) fn withdraw() -> Option<&'static Process> {
        let process = PROCESS.swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: null or leaked.
        unsafe { process.as_ref() }
    }

    /// The published state, if a device was opened.
    pub(crate) fn existing() -> Option<&'static Process> {
        // SAFETY: the pointer is null or was leaked.
        unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
    }

    /// Whether this is a copy in a forked child.
    #[inline]
    pub(crate) fn is_defunct(&self) -> bool {
        self.defunct.load(Ordering::Relaxed)
    }

    /// Refuses verbs in a forked child.
    pub(crate) fn check_usable(&self) -> VerbsResult<()> {
        if self.is_defunct() {
            return Err(VerbsError::new(
                VerbsError::ENODEV,
                "objects made before fork() belong to the parent: open the device in the child",
            ));
        }
        Ok(())
    }

    /// The network, if an interface was selected.
    #[inline]
    pub(crate) fn network(&self) -> Option<&Network> {
        self.network.opened.get()
    }

    /// Whether one-sided operations may be executed by the initiator.
    #[inline]
    pub(crate) fn lane_enabled(&self) -> bool {
        !self.lane_off.load(Ordering::Relaxed)
    }

    /// Called when a device is closed: writes the capture, and reports how many trains were dropped
    /// since the last call.
    pub(crate) fn report_dropped(&self) {
        if let Some(hooks) = self.hooks {
            hooks.flush();
        }
        let dropped = self.counters.take_dropped();
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

    /// Allocates the number of a new protection domain.
    pub(crate) fn allocate_pd(&self) -> u32 {
        // The lane's QP word has 24 bits for it.
        self.next_pd.fetch_add(1, Ordering::Relaxed) & 0xff_ffff
    }

    /// Watches the timer of a QP from now on.
    #[cold]
    pub(crate) fn watch_timer(&self, object: &'static QpObject) {
        if !object.in_timers.swap(true, Ordering::AcqRel) {
            self.timers.watch(object.index);
            self.progress_thread.wake_if_asleep();
        }
    }

    /// By which the parts of the process make some thread check the timers.
    pub(crate) fn alarm(&self) -> Alarm<'_> {
        Alarm { timers: &self.timers, progress_thread: &self.progress_thread }
    }

    /// Registers a QP that found a full ring: every thread that makes progress tries it again.
    #[cold]
    pub(crate) fn block(&self, object: &'static QpObject) {
        if !object.in_blocked.swap(true, Ordering::AcqRel) {
            self.blocked.add(object.index);
            self.progress_thread.wake_if_asleep();
        }
    }
}
