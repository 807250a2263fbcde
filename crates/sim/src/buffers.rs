//! Buffers for the payload of packets, used again: clearing new ones took a tenth of the time of
//! long messages.

/// Most bytes of buffers that are kept.
const KEPT_BYTES: usize = 128 << 20;

/// Buffers that are not in use.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    free: Vec<Vec<u8>>,
    /// Their bytes.
    bytes: usize,
}

impl Buffers {
    /// A buffer of this many bytes, whose contents mean nothing.
    pub(crate) fn take(&mut self, bytes: usize) -> Vec<u8> {
        if bytes == 0 {
            return Vec::new();
        }
        let mut buffer = self.free.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer.resize(bytes, 0);
        buffer
    }

    /// A buffer is no longer in use.
    pub(crate) fn give(&mut self, buffer: Vec<u8>) {
        if self.bytes + buffer.capacity() <= KEPT_BYTES && !buffer.is_empty() {
            self.bytes += buffer.capacity();
            self.free.push(buffer);
        }
    }
}
