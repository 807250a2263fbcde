//! Tells a stream of messages from a ping-pong.

use rdmalab_ring::spsc::Producer;

/// How many slots ahead of itself a sender asks its cache to own: beyond what a receiver that
/// spins on the next slot looks at, and far enough for the answer to be there in time.
const PREFETCH_SLOTS: u64 = 12;

/// Posts in a row that make a stream. Who waits for an answer to each message would pay for lines
/// that it does not need now.
const STREAM_POSTS: u32 = 8;

/// Posts that sent something since the peer's latest message: tells a stream from a talk.
#[derive(Default)]
pub(crate) struct StreamDetector(u32);

impl StreamDetector {
    /// After a push: asks for slots ahead in a stream.
    #[inline(always)]
    pub(crate) fn note_push(&mut self, out: &Producer) {
        self.0 = self.0.saturating_add(1);
        if self.0 >= STREAM_POSTS {
            out.prefetch(PREFETCH_SLOTS);
        }
    }
}
