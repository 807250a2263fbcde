//! Implements for the driver the memory, the windows and the headers of a queue pair's process.

use std::marker::PhantomData;

use rdmalab_driver::{Host, Memory};
use rdmalab_engine::mr::KeyEntry;
use rdmalab_engine::qp::{AtomicOp, CopyError, GRH_BYTES, Qp};
use rdmalab_engine::train::Train;
use rdmalab_engine::vocab::WrOpcode;

use super::{Invalidation, QpLinks};
use crate::copiers::Copiers;
use crate::copy;
use crate::keys::KeyUsers;
use crate::layout;
use crate::memory_watch::Copying;

/// The destination of a payload.
pub(crate) struct Destination<'a> {
    at: *mut u8,
    memory: PhantomData<&'a mut [u8]>,
}

impl Destination<'_> {
    /// # Safety
    /// All bytes that will be put there must lie at `at`, and no Rust reference may cover them.
    #[inline(always)]
    pub(crate) unsafe fn new(at: *mut u8) -> Self {
        Destination { at, memory: PhantomData }
    }

    /// A place in memory of this process.
    #[inline(always)]
    pub(crate) fn of(bytes: &mut [u8]) -> Destination<'_> {
        Destination { at: bytes.as_mut_ptr(), memory: PhantomData }
    }

    /// The first byte, which may be read after it was written.
    pub(crate) fn start(&self) -> *const u8 {
        self.at
    }
}

/// Payload that arrived.
pub(crate) struct Arrived<'a> {
    at: *const u8,
    memory: PhantomData<&'a [u8]>,
}

impl Arrived<'_> {
    /// # Safety
    /// The whole payload of the train must lie at `at`. Other threads and processes may write
    /// there.
    #[inline(always)]
    pub(crate) unsafe fn new(at: *const u8) -> Self {
        Arrived { at, memory: PhantomData }
    }
}

/// Executes an atomic and returns the former value. Memory that is not mapped is an error.
///
/// # Safety
/// As for [`copy::cmp_swap`].
pub(crate) unsafe fn execute_atomic(at: *mut u64, op: AtomicOp) -> Result<u64, copy::Fault> {
    // SAFETY: by the contract above.
    unsafe {
        match op {
            AtomicOp::CmpSwap { compare, swap } => copy::cmp_swap(at, compare, swap),
            AtomicOp::FetchAdd { add } => copy::fetch_add(at, add),
        }
    }
}

impl Memory for QpLinks {
    type Destination<'a> = Destination<'a>;
    type Bytes<'a> = Arrived<'a>;

    #[inline(always)]
    fn bytes(bytes: &[u8]) -> Arrived<'_> {
        Arrived { at: bytes.as_ptr(), memory: PhantomData }
    }

    #[inline(always)]
    fn skip(bytes: &mut Arrived<'_>, count: u32) {
        bytes.at = bytes.at.wrapping_add(count as usize);
    }

    #[inline(always)]
    fn put(bytes: &[u8], to: &mut Destination<'_>) -> Result<(), CopyError> {
        // SAFETY: the maker of the place promised that it has room; the copy reports unmapped
        // memory, which a peer's may be.
        unsafe { copy::copy(to.at, bytes.as_ptr(), bytes.len()) }.map_err(|_| CopyError::Fault)?;
        to.at = to.at.wrapping_add(bytes.len());
        Ok(())
    }

    #[inline(always)]
    fn read(
        &self,
        region: &KeyEntry,
        host_addr: u64,
        bytes: u32,
        to: &mut Destination<'_>,
    ) -> Result<(), CopyError> {
        let _copying = self.copying(region);
        // SAFETY: the driver checked the source against its region just now, and the copy reports
        // unmapped memory; the maker of the place promised that it has room.
        unsafe { copy::copy(to.at, host_addr as *const u8, bytes as usize) }
            .map_err(|_| CopyError::Fault)?;
        to.at = to.at.wrapping_add(bytes as usize);
        Ok(())
    }

    #[inline(always)]
    fn write(
        &mut self,
        region: &KeyEntry,
        host_addr: u64,
        bytes: u32,
        from: &mut Arrived<'_>,
    ) -> Result<(), CopyError> {
        let _copying = self.copying(region);
        // SAFETY: the target was checked against its region just now, which cannot go away while
        // the QP's lock is held; the maker of `from` promised that the bytes are there; the copy
        // reports unmapped memory.
        unsafe { copy::copy(host_addr as *mut u8, from.at, bytes as usize) }
            .map_err(|_| CopyError::Fault)?;
        from.at = from.at.wrapping_add(bytes as usize);
        Ok(())
    }

    fn atomic(
        &mut self,
        region: &KeyEntry,
        host_addr: u64,
        op: AtomicOp,
    ) -> Result<u64, CopyError> {
        let _copying = self.copying(region);
        // SAFETY: eight aligned bytes that were checked against their region just now.
        unsafe { execute_atomic(host_addr as *mut u64, op) }.map_err(|_| CopyError::Fault)
    }
}

impl Host for QpLinks {
    fn execute_local(&mut self, qp: &Qp, position: u32) -> Option<bool> {
        let begun = self.invalidation.take().filter(|begun| begun.position == position);
        let Some(mut invalidation) = begun.or_else(|| self.change_window(qp, position)) else {
            return Some(false);
        };
        if Copiers::of(self.process).is_invalidated(&mut invalidation) {
            return Some(true);
        }
        self.invalidation = Some(invalidation);
        None
    }

    fn routing_header(&self, train: &Train) -> [u8; GRH_BYTES as usize] {
        self.grh.unwrap_or_else(|| crate::device::grh_of(train, self.pd.context.device))
    }
}

impl QpLinks {
    /// Keeps pages of an on-demand region from being taken away during a copy.
    #[inline(always)]
    fn copying(&self, region: &KeyEntry) -> Option<Copying<'static>> {
        region.on_demand.then(|| self.process.paging.watch.copying())
    }

    /// Changes the key table for the bind or local invalidate at `position`, and begins to wait for
    /// the threads that may still use the former binding. `None` if the change is not allowed.
    fn change_window(&self, qp: &Qp, position: u32) -> Option<Box<Invalidation>> {
        let (process, object) = (self.process, self.object);
        let wqe = qp.sq.wqe(position);
        let users = match wqe.opcode {
            WrOpcode::LocalInv => {
                if !process.keys.retract_window(wqe.imm_or_rkey, qp.qpn) {
                    return None;
                }
                // A type 2 window belongs to this QP, so only this QP's peer uses it.
                let peer = layout::process_of(qp.remote_qpn);
                KeyUsers::Peer(peer, layout::index_of(qp.remote_qpn))
            }
            _ => {
                let bind = *qp.sq.bind(position)?;
                match process.keys.bind_window(&bind, qp.pd, qp.qpn)? {
                    true => KeyUsers::Everybody,
                    false => KeyUsers::Nobody,
                }
            }
        };
        Some(Box::new(Copiers::of(process).begin_invalidation(users, object, position)))
    }
}
