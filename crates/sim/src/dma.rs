//! What an adapter reads from memory and writes to it, at the time of the read or write.

use rdmalab_engine::mr::{KeyEntry, KeyKind};

use crate::event::Event;
use crate::kernel::World;
use crate::memory::{self, From, Piece, covers};

impl World {
    /// Shows the present time in the word that the program has restamped, before it is read.
    pub(crate) fn restamp(&self, node: usize) {
        if let Some(addr) = self.nodes[node].restamped {
            memory::write(addr, &self.now.0.to_ne_bytes());
        }
    }

    /// The bytes of the oldest write of a node are in memory, unless reads have delayed it.
    pub(crate) fn write_memory(&mut self, node: usize) {
        let done = match self.nodes[node].writes.take_done(self.now) {
            Ok(Some(done)) => done,
            Ok(None) => return,
            Err(at) => return self.queue.push(at, Event::Write { node }),
        };
        self.note_write(node, done.payload.len());
        for piece in &done.pieces {
            let from = match piece.from {
                From::Payload(at) => &done.payload[at..at + piece.bytes],
                From::Header(at) => &done.header[at..at + piece.bytes],
            };
            // A program that panics does not wait for writes before it gives up its memory.
            let key = self.nodes[node].keys.get(&piece.key);
            if key.is_some_and(|key| may_write(key, piece)) {
                memory::write(piece.addr, from);
            }
        }
        self.happened(node);
        self.buffers.give(done.payload);
    }
}

/// Whether a key still stands for the memory of a piece: that of a region may have been changed. A
/// window may be unbound meanwhile; its region is not gone.
fn may_write(key: &KeyEntry, piece: &Piece) -> bool {
    key.kind != KeyKind::Region || covers(key, piece.addr, piece.bytes)
}
