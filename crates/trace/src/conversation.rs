//! Packets sorted into conversations, with notes on each.

mod notes;
pub(crate) mod pairing;

use std::fmt;

use rdmalab_wire::aeth::NakCode;
use rdmalab_wire::opcode::Transport;

pub use pairing::SHARERS_MAX;

use crate::file::Frame;
use crate::packet::{Address, Icrc, Seen};
use crate::stream::Tally;

/// A queue pair as seen in packets. Its number is unknown if no packet carries it: a packet of a
/// connected transport names its receiver only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// Address of its port.
    pub address: Address,
    /// Its number.
    pub qpn: Option<u32>,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.qpn {
            Some(qpn) => write!(f, "{} QP {qpn:#x}", self.address),
            None => write!(f, "{} QP ?", self.address),
        }
    }
}

/// Which way a packet went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From [`Conversation::a`] to [`Conversation::b`].
    Forward,
    /// The other way.
    Back,
}

/// A fact about a packet that its headers alone do not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A retransmission: its PSN was sent before.
    Repeated {
        /// Time since this PSN was last sent; 0 if the capture does not have that packet.
        after_ns: u64,
    },
    /// PSNs before it are missing: lost, or not captured. They are as many packets, or fewer: a
    /// READ takes a PSN for each packet of its response.
    Gap {
        /// Number of missing PSNs.
        psns: u32,
    },
    /// It is the response to a request.
    Answers {
        /// Time since the request packet with this PSN was last sent.
        after_ns: u64,
    },
    /// It responds to no request in the capture.
    Stale,
    /// A NAK for a PSN sequence error: the requester has to go back to this PSN.
    GoBack,
    /// An RNR NAK: the receiver had no receive posted.
    NotReady {
        /// The least time to wait.
        wait_ns: u64,
    },
    /// The responder refused.
    Refused(NakCode),
    /// The CRC is wrong: a receiver drops it.
    BadIcrc,
    /// A message of the connection manager, by its name in the specification.
    Cm(&'static str),
    /// The capture's comment on the packet.
    Comment(String),
}

/// A packet of a conversation.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which way it went.
    pub direction: Direction,
    /// The packet.
    pub packet: Seen,
    /// Notes on it.
    pub notes: Vec<Note>,
}

/// The packets between two queue pairs, in order of time.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// The transport of its packets.
    pub transport: Transport,
    /// The end that sent the first packet.
    pub a: Endpoint,
    /// The other one.
    pub b: Endpoint,
    /// The packets.
    pub rows: Vec<Row>,
    /// The largest payload of a packet that was not the last of its message: the path MTU. `None`
    /// if no message has several packets.
    pub mtu_bytes: Option<u32>,
}

impl Conversation {
    /// Bytes of payload, including retransmissions.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.rows.iter().map(|row| row.packet.payload_bytes as u64).sum()
    }

    /// How many rows have a note for which `is` returns true.
    pub fn rows_with(&self, is: impl Fn(&Note) -> bool) -> usize {
        self.rows.iter().filter(|row| row.notes.iter().any(&is)).count()
    }
}

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
