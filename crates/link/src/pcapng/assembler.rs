//! Makes the blocks of a file from what waits in a queue.

use std::io;

use super::template::{Definition, Definitions, SHORT_FORM};
use super::{BLOCK_OVERHEAD, Checksums, word};

/// Bytes that are written to the file at a time. They stay in the second-level cache.
const BATCH_BYTES: usize = 256 << 10;
/// The longest frame.
const FRAME_BYTES: usize = 65_535;

/// Makes the blocks of a file from blocks without checksums and packets in short form
/// ([`super::Template`]).
#[derive(Debug)]
pub struct Assembler {
    definitions: Definitions,
    checksums: Checksums,
    batch: Box<[u8]>,
}

impl Default for Assembler {
    fn default() -> Assembler {
        let batch = vec![0; BATCH_BYTES + BLOCK_OVERHEAD + FRAME_BYTES].into_boxed_slice();
        Assembler { definitions: Definitions::default(), checksums: Checksums::default(), batch }
    }
}

impl Assembler {
    /// Gives the blocks of `queue` to `write`, many at a time. `fresh` are the definitions since
    /// the last call ([`super::Templates::take_fresh`]).
    ///
    /// # Errors
    /// The first error of `write`; nothing is written after it. Or the queue is damaged; then what
    /// lies before the damage is written.
    pub fn assemble(
        &mut self,
        queue: &mut [u8],
        fresh: Vec<Definition>,
        mut write: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut fresh = fresh.into_iter();
        let (mut at, mut used) = (0, 0);
        while let Some((written, taken)) = self.next(&mut queue[at..], used, &mut fresh) {
            at += taken;
            used += written;
            if used >= BATCH_BYTES {
                write(&self.batch[..used])?;
                used = 0;
            }
        }
        fresh.for_each(|definition| self.definitions.add(definition));
        if used > 0 {
            write(&self.batch[..used])?;
        }
        match at == queue.len() {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "the queue is damaged")),
        }
    }

    /// Adds the next block to the batch. Returns its length, and how many bytes of the queue it
    /// took.
    #[inline]
    fn next(
        &mut self,
        queue: &mut [u8],
        used: usize,
        fresh: &mut impl Iterator<Item = Definition>,
    ) -> Option<(usize, usize)> {
        let place = self.batch.get_mut(used..)?;
        if word(queue, 0)? & SHORT_FORM != 0 {
            return self.definitions.expand(queue, place, fresh);
        }
        let bytes = word(queue, 4)? as usize;
        let block = queue.get_mut(..bytes).filter(|block| !block.is_empty())?;
        self.checksums.finish(block);
        place.get_mut(..bytes)?.copy_from_slice(block);
        Some((bytes, bytes))
    }
}
