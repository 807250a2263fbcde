//! The first device of a process creates the parts that all devices share. A fork disables them in
//! the child.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use rdmalab_engine::backend::VerbsResult;
use rdmalab_ring::control_socket::ControlSocket;
use rdmalab_ring::doorbell::{Doorbell, Event};
use rdmalab_ring::epoch::LaneSlots;
use rdmalab_ring::seg::Segment;

use crate::blocked::BlockedQueue;
use crate::buffer::Buffers;
use crate::control::{ControlKind, ControlMessage, ControlPort};
use crate::counters::Counters;
use crate::error::os_error;
use crate::groups::Groups;
use crate::hooks::{Hooks, deferred};
use crate::host::HostPeers;
use crate::keys::{self, KeyRegistry};
use crate::layout::{self, QpWords};
use crate::paging::ProcessPaging;
use crate::peer_table::PeerTable;
use crate::process::Process;
use crate::progress_loop;
use crate::progress_thread::ProgressThread;
use crate::qp_table::QpTable;
use crate::quota::Quotas;
use crate::timers::Timers;
use crate::udp::mad_queue::Management;
use crate::udp::network::NetworkPort;
use crate::udp::{UdpIo, open_network};
use crate::wakeup::Wakeup;

static CREATION: Mutex<()> = Mutex::new(());

/// Processes with different versions of the shared layout do not find each other, and share no
/// socket. The user would only notice that the peer never answers.
fn warn_of_other_versions() {
    // SAFETY: takes and touches nothing.
    let uid = unsafe { libc::getuid() };
    let live = rdmalab_ring::control_socket::list_live_slots().unwrap_or_default();
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
    /// The device state of this process, created at the first call.
    pub(crate) fn get() -> VerbsResult<&'static Process> {
        if let Some(process) = Process::existing() {
            return Ok(process);
        }
        let _creation = CREATION.lock();
        if let Some(process) = Process::existing() {
            return Ok(process);
        }
        let process: &'static Process = Box::leak(Box::new(Process::create()?));
        let handler = move |message: &ControlMessage, fds| handle_message(process, message, fds);
        let _ = process.host.others.set(Box::new(handler));
        process.host.add_self_peer(process.keys.view)?;
        open_network(process).inspect_err(|_| process.host.control.close_in_child())?;
        process.progress_thread.start(move || progress_loop::run(process))?;
        process.publish();
        register_fork_handler();
        Ok(process)
    }

    fn create() -> VerbsResult<Process> {
        rdmalab_ring::fence::register();
        rdmalab_ring::fence::register_private();
        let control_socket = ControlSocket::claim(layout::VERSION)
            .map_err(|error| os_error("cannot join the processes of this host", &error))?;
        warn_of_other_versions();
        let segment =
            Segment::create(c"rdmalab-nic", layout::SEGMENT_BYTES, layout::PREFAULT_BYTES)
                .map_err(|error| os_error("cannot make the shared segment", &error))?;
        segment.lock_owner().map_err(|error| os_error("cannot lock the segment", &error))?;
        let event = Event::create().map_err(|error| os_error("cannot make an event", &error))?;
        let base = segment.ptr();
        let entries = rdmalab_ring::keytable::ENTRIES;
        // SAFETY: the offsets lie within the new, zeroed segment, which the process keeps; each
        // part is used by its module only.
        let (doorbell, lanes, keys, qp_words) = unsafe {
            (
                Doorbell::create(base.add(layout::DOORBELL_AT)),
                LaneSlots::create(base.add(layout::LANE_AT)),
                keys::private_keys(base.add(layout::KEYS_AT), entries)?,
                QpWords::attach(base),
            )
        };
        // SAFETY: the segment stays mapped for ever, because the `Process` is leaked.
        let stamp = unsafe { layout::stamp_of(base) };
        let slot = control_socket.slot();
        let hooks = Hooks::from_environment()?;
        // Seeded rules decide by the index of a queue pair, so a run can be repeated only if the
        // indices are the same.
        let has_faults = hooks.is_some_and(|hooks| hooks.faults.is_some());
        let seed = (!has_faults).then(random_u64);
        if has_faults {
            deferred::start()?;
        }
        let lane_off = std::env::var_os("RDMALAB_LANE").is_some_and(|value| value == "off");
        Ok(Process {
            host: HostPeers {
                slot,
                control: ControlPort::new(control_socket, random_u64()),
                segment,
                wakeup: Wakeup { doorbell, event },
                peers: PeerTable::new(slot),
                buffers: Buffers::default(),
                others: OnceLock::new(),
            },
            lanes,
            keys: KeyRegistry::new(keys),
            qps: QpTable::new(qp_words, slot, seed),
            timers: Timers::default(),
            paging: ProcessPaging::new(slot),
            blocked: BlockedQueue::default(),
            progress_thread: ProgressThread::new(stamp)?,
            groups: Groups::default(),
            network: NetworkPort::default(),
            management: Management::default(),
            // Without the lane every access is seen, and may be a page fault.
            lane_off: AtomicBool::new(
                lane_off || hooks.is_some() || crate::profile::pages_may_be_missing(),
            ),
            hooks,
            defunct: AtomicBool::new(false),
            in_use: Quotas::default(),
            next_pd: AtomicU32::new(1),
            counters: Counters::from_environment(),
        })
    }
}

/// Handles a control message for a part of the process that needs more than its peers.
fn handle_message(process: &'static Process, message: &ControlMessage, fds: Vec<OwnedFd>) {
    match message.kind {
        // From now on the progress thread has to look for the peer's death.
        ControlKind::Memory => process.progress_thread.wake_if_asleep(),
        ControlKind::SocketRequest | ControlKind::AnySocketRequest => {
            if let Some(udp) = UdpIo::of(process) {
                udp.answer_socket_request(message);
            }
        }
        ControlKind::Socket => process.network.take_offer(fds),
        ControlKind::Hello | ControlKind::MemoryRequest | ControlKind::MemoryFreed => {}
    }
}

fn random_u64() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: eight writable bytes on our stack.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got == 8 { u64::from_ne_bytes(bytes) | 1 } else { crate::clock::now_ns() | 1 }
}

/// Disables the device state in a forked child, because all parts belong to the parent.
extern "C" fn after_fork_in_child() {
    if let Some(process) = Process::withdraw() {
        process.defunct.store(true, Ordering::Release);
        process.host.control.close_in_child();
        if let Some(hooks) = process.hooks {
            hooks.close_in_child();
        }
        deferred::close_in_child();
        process.paging.watch.close_in_child();
        if let Some(network) = process.network() {
            network.close_in_child();
        }
    }
}

extern "C" fn after_fork_in_parent() {
    if let Some(process) = Process::existing() {
        process.paging.forked();
    }
}

fn register_fork_handler() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handlers only store to atomics and short lists, and close descriptors.
        unsafe {
            libc::pthread_atfork(None, Some(after_fork_in_parent), Some(after_fork_in_child))
        };
    });
}
