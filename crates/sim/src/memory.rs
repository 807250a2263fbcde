//! The memory of the programs, as adapters read and write it.
//!
//! All tasks of a simulation run on one thread, so nothing else reads or writes meanwhile. The
//! addresses are those of regions that were registered and not deregistered: a program that unmaps
//! registered memory fails here as it would if it read the memory itself.

use std::ptr;

use rdmalab_engine::mr::KeyEntry;
use rdmalab_engine::qp::AtomicOp;

use crate::way::Due;

/// Bytes that an adapter writes to memory at once.
#[derive(Debug)]
pub(crate) struct DmaWrite {
    /// When they are in memory.
    pub(crate) done: Due,
    /// The places in order.
    pub(crate) pieces: Vec<Piece>,
    /// The payload that arrived.
    pub(crate) payload: Vec<u8>,
    /// Bytes that are not in the payload: the header before a datagram, the result of an atomic.
    pub(crate) header: Vec<u8>,
}

/// Where bytes for memory are, and from which one on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum From {
    Payload(usize),
    Header(usize),
}

/// A place in memory that an adapter writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) addr: u64,
    pub(crate) bytes: usize,
    pub(crate) from: From,
    /// The region that the place belongs to.
    pub(crate) key: u32,
}

/// Whether a key covers these bytes of memory.
pub(crate) fn covers(key: &KeyEntry, host_addr: u64, bytes: usize) -> bool {
    let offset = host_addr.wrapping_sub(key.host_address(key.iova));
    offset <= key.length && bytes as u64 <= key.length - offset
}

/// Copies bytes of a registered region.
pub(crate) fn read(addr: u64, to: &mut [u8]) {
    // SAFETY: the engine has checked that a region of the program covers these bytes, which are
    // mapped as long as it is registered; `to` is memory of the simulator, and so apart.
    unsafe { ptr::copy_nonoverlapping(addr as *const u8, to.as_mut_ptr(), to.len()) }
}

/// Copies bytes that are no region: the inline data of a request that is being posted.
///
/// # Safety
/// The bytes can be read.
pub(crate) unsafe fn read_inline(addr: u64, to: &mut [u8]) {
    // SAFETY: by the contract; `to` is memory of the simulator, and so apart.
    unsafe { ptr::copy_nonoverlapping(addr as *const u8, to.as_mut_ptr(), to.len()) }
}

/// Writes bytes to a registered region.
pub(crate) fn write(addr: u64, bytes: &[u8]) {
    // SAFETY: as for `read`; the engine has checked that the region may be written.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), addr as *mut u8, bytes.len()) }
}

/// Executes an atomic on eight bytes of a registered region; returns the value before it.
pub(crate) fn atomic(addr: u64, op: AtomicOp) -> u64 {
    let mut word = [0; 8];
    read(addr, &mut word);
    let before = u64::from_ne_bytes(word);
    let after = match op {
        AtomicOp::CmpSwap { compare, swap } if compare == before => swap,
        AtomicOp::CmpSwap { .. } => before,
        AtomicOp::FetchAdd { add } => before.wrapping_add(add),
    };
    write(addr, &after.to_ne_bytes());
    before
}
