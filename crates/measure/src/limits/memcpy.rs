//! Copies by one thread.

use std::hint::black_box;

use super::limit::{Limit, Unsupported, median_ns_per_call};
use crate::clock::Clock;
use crate::quantity::Quantity;

/// Bytes that one run copies, and one batch at least.
const RUN_BYTES: usize = 64 << 20;
const BATCH_BYTES: usize = 64 << 10;
const PAGE: usize = 4096;

/// Bytes per second that one thread copies from memory to memory, with the library's `memcpy`.
/// Source and destination are page-aligned and touched.
pub struct Memcpy {
    clock: Clock,
    size_bytes: usize,
    pairs: Vec<Pair>,
}

struct Pair {
    from: Aligned,
    to: Aligned,
}

/// A buffer that starts at a page's border.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
    size_bytes: usize,
}

impl Aligned {
    fn new(size_bytes: usize, fill: u8) -> Self {
        let memory = vec![fill; size_bytes + PAGE];
        let start = memory.as_ptr().align_offset(PAGE);
        Self { memory, start, size_bytes }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.size_bytes]
    }
}

impl Memcpy {
    /// Copies of `size_bytes` (at least 1) each. With one pair of buffers both are as hot as their
    /// size allows; with more, copies go round them, so that `pairs * 2 * size_bytes` decides
    /// which cache they come from.
    #[must_use]
    pub fn new(clock: Clock, size_bytes: usize, pairs: usize) -> Self {
        let size_bytes = size_bytes.max(1);
        let pair = |i| Pair {
            from: Aligned::new(size_bytes, i as u8 | 1),
            to: Aligned::new(size_bytes, 0),
        };
        Self { clock, size_bytes, pairs: (0..pairs.max(1)).map(pair).collect() }
    }
}

impl Limit for Memcpy {
    fn name(&self) -> String {
        match self.pairs.len() {
            1 => format!("memcpy, {} B, hot", self.size_bytes),
            n => format!("memcpy, {} B, {n} pairs of buffers in turn", self.size_bytes),
        }
    }

    fn quantity(&self) -> Quantity {
        Quantity::Bandwidth
    }

    fn run(&mut self) -> Result<f64, Unsupported> {
        let per_batch = BATCH_BYTES.div_ceil(self.size_bytes);
        let batches = (RUN_BYTES / (per_batch * self.size_bytes)).clamp(16, 2000);
        let count = self.pairs.len();
        let mut turn = 0;
        let mut copy = || {
            let Pair { from, to } = &mut self.pairs[turn];
            turn = (turn + 1) % count;
            to.bytes().copy_from_slice(black_box(from.bytes()));
            black_box(to.bytes());
            Ok(())
        };
        for _ in 0..count {
            copy()?;
        }
        let ns = median_ns_per_call(&self.clock, batches, per_batch, &mut copy)?;
        match self.pairs.iter_mut().all(|p| p.from.bytes() == p.to.bytes()) {
            true => Ok(self.size_bytes as f64 * 1e9 / ns),
            false => Err(Unsupported("a copy differs from its source".to_owned())),
        }
    }
}
