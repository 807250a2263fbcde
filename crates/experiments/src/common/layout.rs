//! The layout of the memory of an end. Both ends compute the same layout from the same point, so
//! that each knows the offsets at the other end.

use rdmalab_verbs::UD_GRH_BYTES;

use crate::common::params::{Common, Transport};

/// Alignment of a message: a cache line.
const LINE: usize = 64;
/// Alignment of the control words that peers write.
const PAGE: usize = 4096;
/// Memory for messages that need places of their own.
const PLACES_BYTES: usize = 64 << 20;

/// The layout: control words, outgoing messages, incoming messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bytes of a message.
    pub size: usize,
    /// Bytes from one place to the next.
    pub stride: usize,
    /// Places for messages going out.
    pub out_places: usize,
    /// Places for messages coming in.
    pub in_places: usize,
    /// Unused bytes of a place before its message.
    pub lead: usize,
    /// Bytes for the GRH, which UD puts before a received message.
    pub grh: usize,
    /// Whether each receive has a place of its own.
    pub is_apart: bool,
    words: usize,
}

impl Layout {
    /// A layout with this many places, in which several receives may share a place.
    pub fn new(common: &Common, out_places: usize, in_places: usize) -> Self {
        let size = common.size_bytes as usize;
        let grh = grh_bytes(common);
        let stride = stride(common);
        // One word for each queue pair, and one that says that the measurement is over.
        let words = common.qps as usize + 1;
        Self { size, stride, out_places, in_places, lead: 0, grh, words, is_apart: false }
    }

    /// The same layout, in which no two receives share a place if `is_apart`. This is needed if a
    /// message has to be read before the next one overwrites it.
    pub fn apart(self, is_apart: bool) -> Self {
        Self { is_apart, ..self }
    }

    /// The same layout with each message ending in an aligned word, which the receiver polls.
    pub fn ending_in_a_word(self) -> Self {
        Self { lead: self.stride - self.size, ..self }
    }

    /// The most places that fit into memory, if each message needs its own place.
    pub fn most_places(common: &Common) -> usize {
        (PLACES_BYTES / stride(common)).max(1)
    }

    /// A word that the peer writes; one for each queue pair.
    pub fn credit_in_at(&self, index: usize) -> usize {
        8 * index
    }

    /// The word that the peer writes when the measurement is over.
    pub fn done_at(&self) -> usize {
        8 * (self.words - 1)
    }

    /// The local word that a WRITE copies to the peer's [`Layout::credit_in_at`].
    pub fn credit_out_at(&self, index: usize) -> usize {
        self.control() / 2 + 8 * index
    }

    fn control(&self) -> usize {
        2 * (8 * self.words).next_multiple_of(PAGE)
    }

    /// A message going out.
    pub fn out_at(&self, place: usize) -> usize {
        self.control() + place * self.stride + self.lead
    }

    fn in_start(&self) -> usize {
        (self.control() + self.out_places * self.stride).next_multiple_of(PAGE)
    }

    /// Where a receive of that place begins.
    pub fn recv_at(&self, place: usize) -> usize {
        self.in_start() + place * self.stride
    }

    /// Where a message that came in begins.
    pub fn in_at(&self, place: usize) -> usize {
        self.recv_at(place) + self.lead + self.grh
    }

    /// Bytes of a receive.
    pub fn recv_bytes(&self) -> usize {
        self.size + self.grh
    }

    /// The bytes of the whole layout.
    pub fn bytes(&self) -> usize {
        self.in_start() + self.in_places * self.stride
    }
}

/// Bytes in front of a message that was received: the GRH of UD.
fn grh_bytes(common: &Common) -> usize {
    if common.transport == Transport::Ud { UD_GRH_BYTES } else { 0 }
}

/// Bytes from one place to the next.
fn stride(common: &Common) -> usize {
    (common.size_bytes as usize + grh_bytes(common)).next_multiple_of(LINE)
}
