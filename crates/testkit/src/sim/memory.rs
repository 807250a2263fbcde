//! The memory of a simulated process: an arena that begins at some virtual address.

use rdmalab_engine::vocab::Sge;

/// Bytes at virtual addresses `base ..`. Touching anything else panics: the engine's checks must
/// have refused it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    base: u64,
    bytes: Vec<u8>,
}

impl Memory {
    /// An empty arena at `base`.
    pub fn new(base: u64) -> Self {
        Memory { base, bytes: Vec::new() }
    }

    /// Its first address.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// How many bytes there are.
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// `length` new zero bytes, aligned to 64; returns their address.
    pub fn allocate(&mut self, length: usize) -> u64 {
        let start = self.bytes.len().next_multiple_of(64);
        self.bytes.resize(start + length, 0);
        self.base + start as u64
    }

    fn index(&self, addr: u64, length: usize) -> core::ops::Range<usize> {
        let start = addr.checked_sub(self.base).expect("address below the arena") as usize;
        start..start + length
    }

    /// The bytes at `addr`.
    pub fn read(&self, addr: u64, length: usize) -> &[u8] {
        &self.bytes[self.index(addr, length)]
    }

    /// Stores `bytes` at `addr`.
    pub fn write(&mut self, addr: u64, bytes: &[u8]) {
        let range = self.index(addr, bytes.len());
        self.bytes[range].copy_from_slice(bytes);
    }

    /// The 8-byte word at `addr`, in host order.
    pub fn word(&self, addr: u64) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(self.read(addr, 8));
        u64::from_ne_bytes(word)
    }
}

/// A contiguous part of a scatter/gather list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The touched part, as an element of its own.
    pub sge: Sge,
    /// Where it lies in the bytes that are moved.
    pub from: usize,
}

/// The parts of `sges` that `bytes` bytes from byte `offset` on touch, in order.
pub fn pieces(sges: &[Sge], offset: u64, bytes: u64) -> Vec<Piece> {
    let mut out = Vec::new();
    let (mut begin, end) = (0u64, offset + bytes);
    for sge in sges {
        let after = begin + sge.length as u64;
        let (from, to) = (begin.max(offset), after.min(end));
        if from < to {
            let part =
                Sge { addr: sge.addr + (from - begin), length: (to - from) as u32, lkey: sge.lkey };
            out.push(Piece { sge: part, from: (from - offset) as usize });
        }
        begin = after;
    }
    assert!(begin >= end, "a list of {begin} bytes was asked for byte {end}");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cross_elements() {
        let sge = |addr, length| Sge { addr, length, lkey: 1 };
        let list = [sge(100, 10), sge(200, 0), sge(300, 10)];
        let touched = pieces(&list, 8, 5);
        assert_eq!(touched[0], Piece { sge: sge(108, 2), from: 0 });
        assert_eq!(touched[1], Piece { sge: sge(300, 3), from: 2 });
        assert_eq!(touched.len(), 2);
    }
}
