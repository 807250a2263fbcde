//! What an adapter reads from memory and writes to it, at the time of the read or write.

use crate::kernel::World;
use crate::memory::{self, DmaWrite};

impl World {
    /// Shows the present time in the word that the program has restamped, before it is read.
    pub(crate) fn restamp(&self, node: usize) {
        if let Some(addr) = self.nodes[node].restamped {
            memory::write(addr, &self.now.0.to_ne_bytes());
        }
    }

    /// The bytes of a write are in memory.
    pub(crate) fn write_memory(&mut self, done: DmaWrite) {
        self.note(done.node, || format!("{} bytes are in memory", done.payload.len()));
        for piece in &done.pieces {
            let from = match piece.from {
                Some(at) => &done.payload[at..at + piece.bytes],
                None => &done.header[..piece.bytes],
            };
            // A program that panics does not wait for writes before it gives up its memory.
            if self.nodes[done.node].keys.contains_key(&piece.key) {
                memory::write(piece.addr, from);
            }
        }
        self.happened(done.node);
    }
}
