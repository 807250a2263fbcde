//! Conversations, their packets, and notes on these.

use std::fmt;

use rdmalab_wire::aeth::NakCode;
use rdmalab_wire::opcode::Transport;

use crate::packet::{Address, Seen};

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
