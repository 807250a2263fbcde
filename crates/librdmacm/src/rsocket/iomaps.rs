//! The memory that a socket has mapped for its peer (`riomap`).

use rdmalab_abi::ibv_mr;

use super::memory::Sge;
use super::protocol::{SGE_BYTES, SGL_ENTRIES};
use crate::device::verbs;

/// Bytes of an announced mapping: offset, address, key and length.
pub const BYTES: usize = 8 + SGE_BYTES;

/// Memory of ours that the peer may write to.
pub struct Mapping {
    pub offset: u64,
    pub mr: *mut ibv_mr,
    /// Index in the peer's table; `None` if the peer may not access the memory.
    pub index: Option<u32>,
    pub is_announced: bool,
    pub uses: u32,
}

/// The mappings of a socket.
#[derive(Default)]
pub struct Iomaps {
    pub own: Vec<Mapping>,
    /// The peer's table of our mappings, and the number of its entries.
    pub at_peer: Sge,
}

impl Iomaps {
    /// Sets the peer's table.
    pub fn set_peer(&mut self, at_peer: Sge) {
        self.at_peer = at_peer;
    }

    /// Deregisters all mappings.
    pub fn free(&mut self) {
        if let Ok(verbs) = verbs() {
            for mapping in self.own.drain(..) {
                // SAFETY: registered by `riomap`, deregistered once.
                unsafe { (verbs.dereg_mr)(mapping.mr) };
            }
        }
    }

    /// A free index in the peer's table.
    pub fn free_index(&self) -> Option<u32> {
        (0..self.at_peer.length).find(|index| self.own.iter().all(|m| m.index != Some(*index)))
    }
}

/// A mapping in the peer's byte order.
pub fn entry(offset: u64, addr: u64, key: u32, length: u32, swaps: bool) -> [u8; BYTES] {
    let (offset, addr, key, length) = match swaps {
        true => (offset.swap_bytes(), addr.swap_bytes(), key.swap_bytes(), length.swap_bytes()),
        false => (offset, addr, key, length),
    };
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(&offset.to_ne_bytes());
    bytes[8..16].copy_from_slice(&addr.to_ne_bytes());
    bytes[16..20].copy_from_slice(&key.to_ne_bytes());
    bytes[20..].copy_from_slice(&length.to_ne_bytes());
    bytes
}

const _: () = assert!(SGL_ENTRIES as usize * SGE_BYTES == 32);
