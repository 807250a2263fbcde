//! The local lane: one-sided operations that the initiator executes itself in its peer's memory,
//! so that they complete when the target never calls its library.
//!
//! The initiator takes a seat in the target's lane, looks at the target's QP word and key table,
//! has the engine check rights exactly as the responder would, copies, and leaves. Whoever takes a
//! region, window or QP away first retracts it from the tables and then waits until every seat that
//! was taken before is empty (`rdmalab_ring::epoch`). Whatever the lane cannot do, or would refuse,
//! goes through the ring instead, where the responder answers it.

use std::sync::atomic::Ordering;

use rdmalab_engine::mr::{self, KeyEntry};
use rdmalab_engine::qp::send_queue::SendWqe;
use rdmalab_engine::vocab::{Access, PdId, QpType, Sge, WrOpcode};

use crate::copy::{self, vm};
use crate::device::MAX_SGE;
use crate::layout;
use crate::peer::{MappedMemory, Peer, key_entry};
use crate::qp::QpInner;
use crate::transmit::local_address;

/// Executes the WQE at `position`; `false` when it has to take the ring.
#[inline]
pub(crate) fn execute(inner: &mut QpInner, peer: &Peer, position: u32) -> bool {
    let wqe = inner.qp.sq.wqe(position);
    if peer.known_dead() || !inner.links.process.lane_enabled() {
        return false;
    }
    if inner.qp.qp_type == QpType::Uc && inner.links.pushed != 0 {
        if peer.out.lock().consumed() < inner.links.pushed {
            return false;
        }
        inner.links.pushed = 0;
    }
    // Within one process the QP's lock, which we hold, is what the taking back of regions waits
    // for (`Process::wait_for_copies`).
    let guard = if peer.is_self { None } else { peer.lane.enter() };
    if guard.is_none() && !peer.is_self {
        return false;
    }
    let found = find(inner, peer, wqe);
    let Some((place, mapped)) = found else { return false };
    let local = Local { inner, wqe, position, pd: inner.qp.pd };
    let done = match place {
        Place::Nothing => true,
        Place::Mapped(remote) => local.run_mapped(remote),
        Place::Foreign(host_addr) => local.run_foreign(peer, host_addr),
    };
    drop(guard);
    if mapped.is_some() {
        inner.links.mapped = mapped;
    }
    if done {
        inner.qp.retire_lane(position, &mut inner.links);
    }
    done
}

/// Checks the operation as the responder would, and finds its memory; `None` when it has to take
/// the ring. Also says which mapping to remember.
#[inline]
fn find(inner: &QpInner, peer: &Peer, wqe: &SendWqe) -> Option<(Place, Option<MappedMemory>)> {
    let qp = &inner.qp;
    let word = peer.qps.load(layout::index_of(qp.remote_qpn));
    let (need, bytes) = match wqe.opcode {
        WrOpcode::Write => (Access::REMOTE_WRITE, wqe.length as u64),
        WrOpcode::Read => (Access::REMOTE_READ, wqe.length as u64),
        _ => (Access::REMOTE_ATOMIC, 8),
    };
    if !word.can_receive || word.remote_qpn != qp.qpn || !word.access.contains(need) {
        return None;
    }
    if bytes == 0 {
        return Some((Place::Nothing, None));
    }
    let entry = peer.keys.lookup(wqe.rkey).and_then(key_entry)?;
    let (rkey, addr) = (wqe.rkey, wqe.remote_addr);
    let checked = mr::check_remote(Some(&entry), rkey, word.pd, qp.remote_qpn, need, addr, bytes);
    let host_addr = checked.ok()?;
    if entry.on_demand {
        return None;
    }
    if peer.is_self {
        return Some((Place::Mapped(host_addr as *mut u8), None));
    }
    if entry.backing.segment != 0
        && let Some((at, mapped)) = in_mapping(inner, peer, &entry, addr, bytes)
    {
        return Some((Place::Mapped(at), mapped));
    }
    let denied = peer.memory_denied.load(Ordering::Relaxed);
    (!denied).then_some((Place::Foreign(host_addr), None))
}

/// Where `addr` of the peer lies in our address space, if we have mapped its memory.
#[inline]
fn in_mapping(
    inner: &QpInner,
    peer: &Peer,
    entry: &KeyEntry,
    addr: u64,
    bytes: u64,
) -> Option<(*mut u8, Option<MappedMemory>)> {
    let id = entry.backing.segment;
    let remembered = inner.links.mapped.as_ref().filter(|mapped| mapped.id == id);
    let place = |mapped: &MappedMemory| (mapped.segment.ptr(), mapped.segment.len() as u64);
    let ((at, length), fresh) = match remembered {
        Some(mapped) => (place(mapped), None),
        None => match peer.mapped(id) {
            Some(mapped) => (place(&mapped), Some(mapped)),
            None => {
                if peer.should_request() {
                    inner.links.process.request_memory(peer.slot, id);
                }
                return None;
            }
        },
    };
    let offset = entry.backing.offset.checked_add(addr.wrapping_sub(entry.iova))?;
    let inside = offset.checked_add(bytes).is_some_and(|end| end <= length);
    inside.then(|| (at.wrapping_add(offset as usize), fresh))
}

/// How the target's memory can be reached.
enum Place {
    /// There is none: zero bytes.
    Nothing,
    /// It is in our address space.
    Mapped(*mut u8),
    /// Through the kernel, at this address of the target.
    Foreign(u64),
}

const EMPTY_PIECE: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

fn piece(addr: u64, bytes: usize) -> libc::iovec {
    libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: bytes }
}

/// The initiator's side of an operation.
struct Local<'a> {
    inner: &'a QpInner,
    wqe: &'a SendWqe,
    position: u32,
    pd: PdId,
}

impl Local<'_> {
    fn run_mapped(&self, remote: *mut u8) -> bool {
        match self.wqe.opcode {
            WrOpcode::Write => self.write_mapped(remote),
            WrOpcode::Read => self.read_mapped(remote),
            _ => self.atomic_mapped(remote),
        }
    }

    fn write_mapped(&self, remote: *mut u8) -> bool {
        let sq = &self.inner.qp.sq;
        if self.wqe.is_inline() {
            let from = sq.inline(self.position);
            // SAFETY: the target range was checked against the peer's region and is mapped; the
            // copy survives memory that is not there (our own heap, when the peer is ourselves).
            return unsafe { copy::copy(remote, from.as_ptr(), from.len()) }.is_ok();
        }
        self.each_piece(false, remote, |remote, host, bytes| {
            // SAFETY: both ranges were checked against their regions; the copy survives memory
            // that is not there.
            unsafe { copy::copy(remote, host as *const u8, bytes) }.is_ok()
        })
    }

    fn read_mapped(&self, remote: *mut u8) -> bool {
        self.each_piece(true, remote, |remote, host, bytes| {
            // SAFETY: as for writing.
            unsafe { copy::copy(host as *mut u8, remote, bytes) }.is_ok()
        })
    }

    /// Walks the local scatter/gather list beside the remote range. Our own regions stay, because
    /// the QP's lock is held.
    fn each_piece(
        &self,
        write_local: bool,
        mut remote: *mut u8,
        mut copy: impl FnMut(*mut u8, u64, usize) -> bool,
    ) -> bool {
        let process = self.inner.links.process;
        for sge in self.inner.qp.sq.sges(self.position) {
            let Ok(host) = local_address(&process.keys.view, self.pd, sge, write_local) else {
                return false;
            };
            if !copy(remote, host, sge.length as usize) {
                return false;
            }
            remote = remote.wrapping_add(sge.length as usize);
        }
        true
    }

    fn atomic_mapped(&self, remote: *mut u8) -> bool {
        if !(remote as u64).is_multiple_of(8) || !self.wqe.remote_addr.is_multiple_of(8) {
            return false;
        }
        let process = self.inner.links.process;
        // The result must have somewhere to go before the memory changes.
        let first = self.inner.qp.sq.sges(self.position).first();
        let Some(sge) = first.filter(|sge| sge.length >= 8) else { return false };
        let sge = Sge { length: 8, ..*sge };
        let Ok(host) = local_address(&process.keys.view, self.pd, &sge, true) else { return false };
        let mut before = [0u8; 8];
        let probe = before.as_mut_ptr();
        // SAFETY: a local range that was checked, and the adapter's until the completion; the copy
        // survives memory that is not there. Writing what it holds finds out whether it can be.
        let probed = unsafe {
            copy::copy(probe, host as *const u8, 8)
                .and_then(|()| copy::copy(host as *mut u8, probe, 8))
        };
        if probed.is_err() {
            return false;
        }
        let remote = remote.cast::<u64>();
        // SAFETY: eight aligned bytes that were checked against the peer's region and are mapped.
        let original = unsafe {
            match self.wqe.opcode {
                WrOpcode::CmpSwap => copy::cmp_swap(remote, self.wqe.compare_add, self.wqe.swap),
                _ => copy::fetch_add(remote, self.wqe.compare_add),
            }
        };
        let Ok(original) = original else { return false };
        let from = (&raw const original).cast::<u8>();
        // SAFETY: as for the probe above. A fault now can only mean that the program took its
        // result buffer away this very moment; the operation itself is done.
        let _ = unsafe { copy::copy(host as *mut u8, from, 8) };
        true
    }

    fn run_foreign(&self, peer: &Peer, host_addr: u64) -> bool {
        let sq = &self.inner.qp.sq;
        let process = self.inner.links.process;
        let (mut pieces, mut count) = ([EMPTY_PIECE; MAX_SGE as usize], 0);
        if self.wqe.is_inline() {
            let from = sq.inline(self.position);
            pieces[0] = piece(from.as_ptr() as u64, from.len());
            count = 1;
        } else {
            let write_local = self.wqe.opcode == WrOpcode::Read;
            for sge in sq.sges(self.position) {
                let Ok(host) = local_address(&process.keys.view, self.pd, sge, write_local) else {
                    return false;
                };
                pieces[count] = piece(host, sge.length as usize);
                count += 1;
            }
        }
        // The pid must still be the process that published the region, not one that was given its
        // number, or another program in its place.
        if !peer.was_alive_lately() {
            return false;
        }
        let (local, bytes) = (&pieces[..count], self.wqe.length as usize);
        // SAFETY: the local pieces were checked against their regions, or lie in the queue; the
        // kernel survives memory that is not there, on both sides.
        let result = unsafe {
            match self.wqe.opcode {
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
}
