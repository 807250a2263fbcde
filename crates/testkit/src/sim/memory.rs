//! The memory of a simulated process: an arena that begins at some virtual address.

use rdmalab_engine::qp::AtomicOp;

/// Bytes at virtual addresses `base ..`. An access to any other address panics, because the engine
/// must have refused it.
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

    /// The bytes at `addr`, to be written.
    pub fn slice_mut(&mut self, addr: u64, length: usize) -> &mut [u8] {
        let range = self.index(addr, length);
        &mut self.bytes[range]
    }

    /// Stores `bytes` at `addr`.
    pub fn write(&mut self, addr: u64, bytes: &[u8]) {
        self.slice_mut(addr, bytes.len()).copy_from_slice(bytes);
    }

    /// The 8-byte word at `addr`, in host order.
    pub fn word(&self, addr: u64) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(self.read(addr, 8));
        u64::from_ne_bytes(word)
    }

    /// Executes an atomic on the word at `addr`; returns the value before it.
    pub fn atomic(&mut self, addr: u64, op: AtomicOp) -> u64 {
        let original = self.word(addr);
        let new = match op {
            AtomicOp::CmpSwap { compare, swap } if compare == original => swap,
            AtomicOp::CmpSwap { .. } => original,
            AtomicOp::FetchAdd { add } => original.wrapping_add(add),
        };
        self.write(addr, &new.to_ne_bytes());
        original
    }
}
