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
use crate::peer::{Peer, Seat, key_entry};
use crate::qp::QpInner;
use crate::transmit::local_address;

/// Executes the WQE at `position`; `false` when it has to take the ring.
#[inline]
pub(crate) fn execute(inner: &mut QpInner, position: u32) -> bool {
    let Some(peer) = &inner.links.peer else { return false };
    let wqe = inner.qp.sq.wqe(position);
    if peer.known_dead() || !inner.links.process.lane_enabled() {
        return false;
    }
    if inner.qp.qp_type == QpType::Uc && !inner.carried() {
        return false;
    }
    // One's own lane is entered through one's own pass: a slot has one user.
    let process = inner.links.process;
    let pass = if peer.is_self { &process.own_pass } else { &peer.pass };
    let Some(seat) = pass.enter() else { return false };
    let done = run(inner, peer, wqe, position, &seat);
    drop(seat);
    if done {
        inner.qp.retire_lane(position, &mut inner.links);
    }
    done
}

fn run(inner: &QpInner, peer: &Peer, wqe: &SendWqe, position: u32, _seat: &Seat<'_>) -> bool {
    let qp = &inner.qp;
    let index = layout::index_of(qp.remote_qpn);
    let word = peer.qps.load(index);
    if !word.can_receive || word.remote_qpn != qp.qpn {
        return false;
    }
    let (need, bytes) = match wqe.opcode {
        WrOpcode::Write => (Access::REMOTE_WRITE, wqe.length as u64),
        WrOpcode::Read => (Access::REMOTE_READ, wqe.length as u64),
        _ => (Access::REMOTE_ATOMIC, 8),
    };
    if !word.access.contains(need) {
        return false;
    }
    if bytes == 0 {
        return true;
    }
    let Some(entry) = peer.keys.lookup(wqe.rkey).and_then(key_entry) else { return false };
    let checked = mr::check_remote(
        Some(&entry),
        wqe.rkey,
        word.pd,
        qp.remote_qpn,
        need,
        wqe.remote_addr,
        bytes,
    );
    let Ok(host_addr) = checked else { return false };
    if entry.on_demand {
        return false;
    }
    let local = Local { inner, wqe, position, pd: qp.pd };
    match place(inner, peer, &entry, wqe.remote_addr, host_addr, bytes) {
        Place::Mapped(remote) => local.run_mapped(remote),
        Place::Foreign(host_addr) => local.run_foreign(peer, host_addr),
        Place::Ring => false,
    }
}

/// How the target's memory can be reached.
enum Place {
    /// It is in our address space.
    Mapped(*mut u8),
    /// Through the kernel, at this address of the target.
    Foreign(u64),
    /// Only by the target.
    Ring,
}

fn place(
    inner: &QpInner,
    peer: &Peer,
    entry: &KeyEntry,
    addr: u64,
    host_addr: u64,
    bytes: u64,
) -> Place {
    if peer.is_self {
        return Place::Mapped(host_addr as *mut u8);
    }
    let id = entry.backing.segment;
    if id != 0 {
        let offset = entry.backing.offset.wrapping_add(addr.wrapping_sub(entry.iova));
        if let Some(remote) = peer.mapped_at(id, offset, bytes) {
            return Place::Mapped(remote);
        }
        if peer.should_request(id) {
            inner.links.process.request_memory(peer.slot, id);
        }
    }
    if peer.memory_denied.load(Ordering::Relaxed) {
        return Place::Ring;
    }
    Place::Foreign(host_addr)
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
    /// Keeps our own regions from going away; the seat in our own lane does that already when the
    /// peer is ourselves.
    fn own_seat(&self) -> Option<Seat<'_>> {
        let links = &self.inner.links;
        let is_self = links.peer.as_ref().is_some_and(|peer| peer.is_self);
        (!is_self).then(|| links.process.own_pass.enter_waiting())
    }

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

    /// Walks the local scatter/gather list beside the remote range, holding our own regions.
    fn each_piece(
        &self,
        write_local: bool,
        mut remote: *mut u8,
        mut copy: impl FnMut(*mut u8, u64, usize) -> bool,
    ) -> bool {
        let process = self.inner.links.process;
        let _own = self.own_seat();
        for sge in self.inner.qp.sq.sges(self.position) {
            let Ok(host) = local_address(&process.key_view, self.pd, sge, write_local) else {
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
        let _own = self.own_seat();
        // The result must have somewhere to go before the memory changes.
        let first = self.inner.qp.sq.sges(self.position).first();
        let Some(sge) = first.filter(|sge| sge.length >= 8) else { return false };
        let sge = Sge { length: 8, ..*sge };
        let Ok(host) = local_address(&process.key_view, self.pd, &sge, true) else { return false };
        let probe = [0u8; 8];
        let mut before = probe;
        // SAFETY: a local range that was checked; the copy survives memory that is not there.
        if unsafe { copy::copy(before.as_mut_ptr(), host as *const u8, 8) }.is_err() {
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
        // SAFETY: as for the probe above. A fault now can only mean that the program unmapped its
        // result buffer this very moment; the operation itself is done.
        let _ = unsafe { copy::copy(host as *mut u8, from, 8) };
        true
    }

    fn run_foreign(&self, peer: &Peer, host_addr: u64) -> bool {
        let sq = &self.inner.qp.sq;
        let process = self.inner.links.process;
        let (mut pieces, mut count) = ([EMPTY_PIECE; MAX_SGE as usize], 0);
        let _own;
        if self.wqe.is_inline() {
            let from = sq.inline(self.position);
            pieces[0] = piece(from.as_ptr() as u64, from.len());
            count = 1;
        } else {
            _own = self.own_seat();
            let write_local = self.wqe.opcode == WrOpcode::Read;
            for sge in sq.sges(self.position) {
                let Ok(host) = local_address(&process.key_view, self.pd, sge, write_local) else {
                    return false;
                };
                pieces[count] = piece(host, sge.length as usize);
                count += 1;
            }
        }
        // The pid must still be the process that published the region, not one that was given its
        // number, or another program in its place.
        if !peer.is_alive() {
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
            crate::say_once(
                "the kernel does not let us into our peer's memory (ptrace scope or seccomp): \
                 one-sided operations take the ring, and need the peer to make progress",
            );
        }
        result.is_ok()
    }
}
