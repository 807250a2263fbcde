//! The local lane: the initiator executes one-sided operations itself in the memory of its peer, so
//! that they complete even if the target never calls the library.
//!
//! The initiator enters the target's lane, and reads the target's QP word and key table. The engine
//! checks the rights exactly as the responder would. Then the initiator copies and leaves the lane.
//! A thread that removes a region, window or QP first retracts it from the tables. Then it waits
//! until every initiator that was in the lane has left (`rdmalab_ring::epoch`). Operations that the
//! lane cannot execute, or would refuse, go through the ring, where the responder answers them.

use std::sync::atomic::Ordering;

use rdmalab_driver as driver;
use rdmalab_driver::lane::{self, Granted, Lane, Target};
use rdmalab_engine::mr::KeyEntry;
use rdmalab_engine::qp::Qp;
use rdmalab_engine::vocab::{QpType, Sge, WrOpcode};
use rdmalab_wire::opcode::Transport;

use crate::copy::{self, vm};
use crate::device::MAX_SGE;
use crate::layout::{self, QpWord};
use crate::peer::{Peer, key_entry};
use crate::qp::{Arrived, Destination, QpInner, QpLinks, execute_atomic};

/// How many WQEs are executed between entering the lane and leaving it.
const WQES_PER_ENTRY: u32 = 16;

/// A WQE that copies more bytes is not executed in an entry that others began, because a thread of
/// the target that removes a region waits until the lane is left.
const SMALL_BYTES: u32 = 4096;

/// Executes the WQE at `position`, and those after it that can be executed now. `false` if the
/// first of them must go through the ring.
#[inline]
pub(crate) fn execute(inner: &mut QpInner, peer: &Peer, position: u32) -> bool {
    if peer.is_unreachable() || !inner.links.process.lane_enabled() {
        return false;
    }
    if inner.qp.qp_type == QpType::Uc && inner.links.pushed != 0 {
        if peer.out.lock().consumed() < inner.links.pushed {
            return false;
        }
        inner.links.pushed = 0;
    }
    // Within one process there is no lane: a thread that removes a region waits for the QP's lock,
    // which this thread holds (`Copiers::wait_for_copies`).
    let guard = if peer.is_self { None } else { peer.lane.enter() };
    if guard.is_none() && !peer.is_self {
        return false;
    }
    let mut executed = 0;
    let mut next = position;
    let mut lane = PeerMemory { peer, service: inner.links.service };
    while lane::execute(&mut inner.qp, &mut lane, &mut inner.links, next) {
        executed += 1;
        match inner.qp.lane_candidate() {
            Some(position) if executed < WQES_PER_ENTRY => next = position,
            _ => break,
        }
        if inner.qp.sq.wqe(next).length > SMALL_BYTES {
            break;
        }
    }
    drop(guard);
    executed > 0
}

/// The memory of a peer's process, as this process reaches it.
struct PeerMemory<'a> {
    peer: &'a Peer,
    service: Transport,
}

impl Lane<QpLinks> for PeerMemory<'_> {
    #[inline(always)]
    fn target(&self, qp: &Qp) -> Target {
        let word = self.peer.qps.load(layout::index_of(qp.remote_qpn));
        let QpWord { pd, access, remote_qpn, .. } = word;
        // The responder drops packets of another service, so they are sent there.
        Target { can_receive: word.receives(self.service), pd, access, remote_qpn }
    }

    #[inline(always)]
    fn key(&self, rkey: u32) -> Option<KeyEntry> {
        self.peer.keys.lookup(rkey).and_then(key_entry)
    }

    #[inline(always)]
    fn move_bytes(
        &mut self,
        qp: &Qp,
        links: &mut QpLinks,
        position: u32,
        granted: &Granted,
    ) -> bool {
        match find(qp, links, self.peer, position, granted) {
            Some(Remote::Mapped(at)) => run_mapped(qp, links, position, at),
            Some(Remote::Foreign(host_addr)) => {
                run_foreign(qp, links, self.peer, position, host_addr)
            }
            None => false,
        }
    }
}

/// Finds the memory of an operation; `None` if it must go through the ring.
#[inline]
fn find(
    qp: &Qp,
    links: &mut QpLinks,
    peer: &Peer,
    position: u32,
    granted: &Granted,
) -> Option<Remote> {
    let Granted { host_addr, bytes, entry } = granted;
    if entry.on_demand {
        return None;
    }
    if peer.is_self {
        return Some(Remote::Mapped(*host_addr as *mut u8));
    }
    let addr = qp.sq.wqe(position).remote_addr;
    if entry.backing.segment != 0
        && let Some(at) = in_mapping(links, peer, entry, addr, *bytes)
    {
        return Some(Remote::Mapped(at));
    }
    let denied = peer.memory_denied.load(Ordering::Relaxed);
    (!denied).then_some(Remote::Foreign(*host_addr))
}

/// Finds the peer's address `addr` in this process, if the peer's memory is mapped here.
#[inline]
fn in_mapping(
    links: &mut QpLinks,
    peer: &Peer,
    entry: &KeyEntry,
    addr: u64,
    bytes: u64,
) -> Option<*mut u8> {
    let id = entry.backing.segment;
    if links.mapped.as_ref().is_none_or(|mapped| mapped.id != id) {
        find_mapping(links, peer, id)?;
    }
    let segment = &links.mapped.as_ref()?.segment;
    let offset = entry.backing.offset.checked_add(addr.wrapping_sub(entry.iova))?;
    let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= segment.len() as u64);
    is_inside.then(|| segment.ptr().wrapping_add(offset as usize))
}

/// Remembers the mapping of the peer's memory `id`, or asks the peer for that memory.
#[cold]
fn find_mapping(links: &mut QpLinks, peer: &Peer, id: u32) -> Option<()> {
    let found = peer.mapped(id);
    if found.is_none() && peer.should_request() {
        links.process.host.request_memory(peer.slot, id);
    }
    links.mapped = Some(found?);
    Some(())
}

/// The way to reach the target's memory.
enum Remote {
    /// By a mapping in this process.
    Mapped(*mut u8),
    /// Through the kernel, at this address in the target.
    Foreign(u64),
}

const EMPTY_PIECE: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

fn piece(addr: u64, bytes: usize) -> libc::iovec {
    libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: bytes }
}

fn run_mapped(qp: &Qp, links: &mut QpLinks, position: u32, remote: *mut u8) -> bool {
    let wqe = qp.sq.wqe(position);
    let moved = match wqe.opcode {
        WrOpcode::Write => {
            // SAFETY: the target range was checked against the peer's region, and is mapped.
            let to = unsafe { Destination::new(remote) };
            driver::read_wqe(qp, links, position, 0..wqe.length, to)
        }
        WrOpcode::Read => {
            // SAFETY: as for writing.
            let mut from = unsafe { Arrived::new(remote) };
            driver::scatter(links, qp.pd, qp.sq.sges(position), 0, wqe.length, &mut from)
        }
        _ => return atomic_mapped(qp, links, position, remote),
    };
    moved.is_ok()
}

fn atomic_mapped(qp: &Qp, links: &QpLinks, position: u32, remote: *mut u8) -> bool {
    if !(remote as u64).is_multiple_of(8) {
        return false;
    }
    // The result buffer must be writable before the target memory changes.
    let first = qp.sq.sges(position).first();
    let Some(sge) = first.filter(|sge| sge.length >= 8) else { return false };
    let sge = Sge { length: 8, ..*sge };
    let Ok((_, host)) = driver::local_address(links, qp.pd, &sge, true) else { return false };
    let mut before = [0u8; 8];
    let probe = before.as_mut_ptr();
    // SAFETY: a checked local range, which belongs to the adapter until the completion; the copy
    // reports unmapped memory. Writing back the old bytes tests whether the range is writable.
    let probed = unsafe {
        copy::copy(probe, host as *const u8, 8).and_then(|()| copy::copy(host as *mut u8, probe, 8))
    };
    if probed.is_err() {
        return false;
    }
    let remote = remote.cast::<u64>();
    // SAFETY: eight aligned bytes that were checked against the peer's region and are mapped.
    let original = unsafe { execute_atomic(remote, lane::atomic_of(qp, position)) };
    let Ok(original) = original else { return false };
    let from = (&raw const original).cast::<u8>();
    // SAFETY: as for the probe above. A fault here means that the program unmapped its result
    // buffer after the probe; the operation itself is done.
    let _ = unsafe { copy::copy(host as *mut u8, from, 8) };
    true
}

fn run_foreign(qp: &Qp, links: &QpLinks, peer: &Peer, position: u32, host_addr: u64) -> bool {
    let wqe = qp.sq.wqe(position);
    let (mut pieces, mut count) = ([EMPTY_PIECE; MAX_SGE as usize], 0);
    if wqe.is_inline() {
        let from = qp.sq.inline(position);
        pieces[0] = piece(from.as_ptr() as u64, from.len());
        count = 1;
    } else {
        let write_local = wqe.opcode == WrOpcode::Read;
        for sge in qp.sq.sges(position) {
            let Ok((_, host)) = driver::local_address(links, qp.pd, sge, write_local) else {
                return false;
            };
            pieces[count] = piece(host, sge.length as usize);
            count += 1;
        }
    }
    // The process ID must still belong to the process that published the region: the ID may have
    // been reused, or that process may run another program now.
    if !peer.was_alive_lately() {
        return false;
    }
    let (local, bytes) = (&pieces[..count], wqe.length as usize);
    // SAFETY: the local pieces were checked against their regions, or lie in the queue; the kernel
    // reports unmapped memory on both sides.
    let result = unsafe {
        match wqe.opcode {
            WrOpcode::Write => vm::vm_write(peer.pid, local, host_addr, bytes),
            WrOpcode::Read => vm::vm_read(peer.pid, local, host_addr, bytes),
            _ => return false,
        }
    };
    if let Err(vm::VmError::Denied) = result {
        peer.memory_denied.store(true, Ordering::Relaxed);
        crate::debug_once(crate::peer::MEMORY_DENIED);
    }
    result.is_ok()
}
