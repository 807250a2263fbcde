//! Packets sorted into conversations, with notes on each.

mod model;
mod notes;
pub(crate) mod pairing;

pub use model::{Conversation, Direction, Endpoint, Note, Row};
pub use pairing::SHARERS_MAX;

use crate::file::Frame;
use crate::packet::{Icrc, Seen};
use crate::stream::Tally;

/// A capture, sorted.
#[derive(Debug, Default)]
pub struct Trace {
    /// In the order of their first packets.
    pub conversations: Vec<Conversation>,
    /// PSNs that more than [`SHARERS_MAX`] directions between two addresses used: they are not used
    /// to find which directions belong together.
    pub crowded_psns: usize,
    /// The frames, and those among them that are no packets.
    pub tally: Tally,
    pending: Vec<Seen>,
}

impl Trace {
    /// Adds a frame.
    pub fn take(&mut self, frame: &Frame) {
        self.pending.extend(self.tally.take(frame));
    }

    /// Sorts the packets of all added frames into conversations.
    pub fn finish(&mut self) {
        let mut packets = std::mem::take(&mut self.pending);
        // Captures of several interfaces are not always in order.
        packets.sort_by_key(|packet| packet.at_ns);
        (self.conversations, self.crowded_psns) = pairing::sort(packets);
        for conversation in &mut self.conversations {
            conversation.mtu_bytes = mtu(conversation);
            notes::annotate(conversation);
        }
        self.conversations.sort_by_key(|c| c.rows.first().map(|row| row.packet.at_ns));
    }

    /// The time of the first packet; 0 when there is none.
    #[must_use]
    pub fn start_ns(&self) -> u64 {
        let first = |c: &Conversation| c.rows.first().map(|row| row.packet.at_ns);
        self.conversations.iter().filter_map(first).min().unwrap_or(0)
    }
}

/// The path MTU: the largest of the inner packets.
fn mtu(conversation: &Conversation) -> Option<u32> {
    conversation.rows.iter().filter_map(|row| inner_bytes(&row.packet)).max()
}

/// The payload of a packet that is not the last of its message, which has the length of the path
/// MTU (IBA 9.7.2.1). A packet of an invalid length is damaged and is ignored.
pub fn inner_bytes(packet: &Seen) -> Option<u32> {
    let opcode = packet.headers.bth.opcode;
    let is_inner = opcode.has_payload() && !opcode.ends_message() && packet.icrc != Icrc::Bad;
    let bytes = packet.payload_bytes as u32;
    (is_inner && (256..=4096).contains(&bytes) && bytes.is_power_of_two()).then_some(bytes)
}
