//! Blocks of packets that differ from an earlier one of their flow in few places.

use rdmalab_wire::headers::Bth;
use rdmalab_wire::packet::ICRC_BYTES;

use super::{DATA_AT, KEPT_AT, PLAIN_END, STAMP_AT, TOTAL_AT};
use crate::address::FRAME_HEADER_BYTES;

/// Bytes of the BTH and of a word after it.
const HEAD_BYTES: usize = Bth::BYTES + 4;
/// At least the block up to the word after the BTH, in pieces of 16 bytes.
const START_BYTES: usize = (DATA_AT + FRAME_HEADER_BYTES + HEAD_BYTES).next_multiple_of(16);

/// A packet's block, for further packets that differ only in the time, the PSN, the word after the
/// BTH and the payload. So a capture copies what it would otherwise compute.
#[derive(Clone, Debug)]
pub struct Template {
    /// What the caller knows the packet by.
    key: u64,
    /// The key of the packet that [`Template::wants`] was asked about last.
    asked: u64,
    start: [u8; START_BYTES],
    end: [u8; PLAIN_END],
    bth_at: usize,
    payload_at: usize,
    payload_end: usize,
    frame_bytes: usize,
    block_bytes: usize,
}

impl Template {
    /// No packet, and no caller's key.
    pub const NONE: Template = Template {
        key: u64::MAX,
        asked: u64::MAX,
        start: [0; START_BYTES],
        end: [0; PLAIN_END],
        bth_at: 0,
        payload_at: 0,
        payload_end: 0,
        frame_bytes: 0,
        block_bytes: 0,
    };

    /// Whether this is the template of packets with this key.
    #[inline]
    pub fn is_of(&self, key: u64) -> bool {
        self.key == key
    }

    /// Whether to [`Template::learn`] a packet: if it is not known, and the one before had the
    /// same key. Packets that differ from each other get no template.
    pub fn wants(&mut self, key: u64) -> bool {
        std::mem::replace(&mut self.asked, key) == key && self.key != key
    }

    /// Keeps a packet whose block [`super::packet()`] wrote: `payload_bytes` after a BTH and up to
    /// one word more, `head_bytes` in all, after the headers of `below_bytes`. A block that is cut
    /// or has options besides the direction is not kept.
    pub fn learn(
        &mut self,
        key: u64,
        block: &[u8],
        (below_bytes, head_bytes, payload_bytes): (usize, usize, usize),
    ) {
        let mut start = [0; START_BYTES];
        for (to, from) in start.iter_mut().zip(block) {
            *to = *from;
        }
        let bth_at = DATA_AT + below_bytes;
        let payload_at = bth_at + head_bytes;
        let payload_end = payload_at + payload_bytes;
        let packet_bytes = (head_bytes + payload_bytes).next_multiple_of(4) + ICRC_BYTES;
        let frame_bytes = below_bytes + packet_bytes;
        let block_bytes = DATA_AT + frame_bytes.next_multiple_of(4) + PLAIN_END;
        let kept = (frame_bytes as u32).to_ne_bytes();
        let is_whole = block.len() == block_bytes && block[KEPT_AT..KEPT_AT + 4] == kept;
        let Some(end) = block.last_chunk().filter(|_| is_whole) else { return };
        let (end, asked) = (*end, key);
        *self = Template {
            key,
            asked,
            start,
            end,
            bth_at,
            payload_at,
            payload_end,
            frame_bytes,
            block_bytes,
        };
    }

    /// Bytes of the frame without pad and invariant CRC.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.payload_end - DATA_AT
    }

    /// Writes the block of a whole packet to the start of `out` and returns its length. `words` are
    /// the BTH's last word and the one after it, and `fill` writes the payload. `None` if it does
    /// not fit.
    #[inline]
    pub fn write(
        &self,
        out: &mut [u8],
        at_ns: u64,
        words: [[u8; 4]; 2],
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<usize> {
        self.write_as(out, at_ns, words, (self.payload_end, self.block_bytes), fill)
    }

    /// The same, but keeps no more than `snap` bytes of the frame ([`super::Capture::snap`]);
    /// `fill` writes what is kept of the payload.
    pub fn write_up_to(
        &self,
        snap: usize,
        out: &mut [u8],
        at_ns: u64,
        words: [[u8; 4]; 2],
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<usize> {
        if self.frame_bytes <= snap {
            return self.write(out, at_ns, words, fill);
        }
        let block_bytes = DATA_AT + snap.next_multiple_of(4) + PLAIN_END;
        let payload_end = self.payload_end.min(DATA_AT + snap);
        self.write_as(out, at_ns, words, (payload_end, block_bytes), fill)?;
        let block = out.get_mut(..block_bytes)?;
        let [total, kept] = [block_bytes, snap].map(|bytes| (bytes as u32).to_ne_bytes());
        block[TOTAL_AT..TOTAL_AT + 4].copy_from_slice(&total);
        block[KEPT_AT..KEPT_AT + 4].copy_from_slice(&kept);
        *block.last_chunk_mut()? = total;
        Some(block_bytes)
    }

    #[inline(always)]
    fn write_as(
        &self,
        out: &mut [u8],
        at_ns: u64,
        [psn, more]: [[u8; 4]; 2],
        (payload_end, block_bytes): (usize, usize),
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<usize> {
        let out = out.get_mut(..block_bytes.max(START_BYTES))?;
        let start = out.first_chunk_mut()?;
        *start = self.start;
        start[STAMP_AT..STAMP_AT + 8].copy_from_slice(&super::stamp(at_ns));
        let head = out.get_mut(self.bth_at..)?.first_chunk_mut::<HEAD_BYTES>()?;
        head[Bth::BYTES - 4..Bth::BYTES].copy_from_slice(&psn);
        // If the packet has no such word, what follows is written over it.
        head[Bth::BYTES..].copy_from_slice(&more);
        fill(out.get_mut(self.payload_at..payload_end)?);
        // Pad and ICRC are shorter than the block's end, which is written next.
        *out.get_mut(payload_end..)?.first_chunk_mut()? = [0; PLAIN_END];
        *out.get_mut(..block_bytes)?.last_chunk_mut()? = self.end;
        Some(block_bytes)
    }
}
