//! Buffers for the payload of packets, used again: clearing new ones took a tenth of the time of
//! long messages.

/// Most buffers that are kept.
const KEPT: usize = 64;

/// Buffers that are not in use.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Vec<Vec<u8>>);

impl Buffers {
    /// A buffer of this many bytes, whose contents mean nothing.
    pub(crate) fn take(&mut self, bytes: usize) -> Vec<u8> {
        if bytes == 0 {
            return Vec::new();
        }
        let mut buffer = self.0.pop().unwrap_or_default();
        buffer.resize(bytes, 0);
        buffer
    }

    /// A buffer is no longer in use.
    pub(crate) fn give(&mut self, buffer: Vec<u8>) {
        if self.0.len() < KEPT && !buffer.is_empty() {
            self.0.push(buffer);
        }
    }
}
