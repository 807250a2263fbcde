//! Distinguishes a stream of messages from a ping-pong.

use rdmalab_ring::spsc::Producer;

/// How many slots ahead a streaming sender prefetches for writing: more than a receiver that spins
/// on the next slot reads ahead, and early enough for the cache line to be there in time.
const PREFETCH_SLOTS: u64 = 12;

/// Posts in a row that make a stream. A ping-pong would pay for lines that it does not need yet.
const STREAM_POSTS: u32 = 8;

/// Number of pushes since the peer's latest message.
#[derive(Default)]
pub(crate) struct StreamDetector(u32);

impl StreamDetector {
    /// Called after a push; prefetches slots in a stream.
    #[inline(always)]
    pub(crate) fn note_push(&mut self, out: &Producer) {
        self.0 = self.0.saturating_add(1);
        if self.0 >= STREAM_POSTS {
            out.prefetch(PREFETCH_SLOTS);
        }
    }
}
