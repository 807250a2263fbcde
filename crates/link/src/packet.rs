//! The view of a packet that fault rules and quirks get, the same for all media.

use std::net::IpAddr;

use rdmalab_engine::qp::Standing;
use rdmalab_wire::aeth::Syndrome;
use rdmalab_wire::ids::{Psn, Qpn};
use rdmalab_wire::opcode::{Opcode, Operation};

/// The medium that carries a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Medium {
    /// Shared memory of a host.
    Memory,
    /// A network.
    Network,
}

/// Kinds of packets that rules tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Class {
    /// SEND, of any variant.
    Send,
    /// RDMA WRITE, of any variant.
    Write,
    /// RDMA READ request.
    Read,
    /// Atomic request.
    Atomic,
    /// RDMA READ response.
    ReadResponse,
    /// Atomic response.
    AtomicResponse,
    /// Acknowledgement.
    Ack,
    /// Negative acknowledgement, RNR too.
    Nak,
    /// Anything else.
    Other,
}

impl Class {
    /// The class of a packet with this opcode and, where it has one, this syndrome.
    pub const fn of(opcode: Opcode, syndrome: Option<Syndrome>) -> Class {
        match opcode.operation() {
            Operation::Send => Class::Send,
            Operation::Write => Class::Write,
            Operation::ReadRequest => Class::Read,
            Operation::CompareSwap | Operation::FetchAdd => Class::Atomic,
            Operation::ReadResponse => Class::ReadResponse,
            Operation::AtomicAcknowledge => Class::AtomicResponse,
            Operation::Acknowledge => match syndrome {
                Some(Syndrome::Ack { .. }) | None => Class::Ack,
                _ => Class::Nak,
            },
            Operation::CongestionNotification => Class::Other,
        }
    }

    /// The bit of this class in a set of classes.
    pub(crate) const fn bit(self) -> u16 {
        1 << self as u8
    }
}

/// The packets that one queue pair sends to another. Requests and responses are two flows, because
/// their PSNs run independently.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Flow {
    /// The sender's address.
    pub source: IpAddr,
    /// The receiver's address.
    pub destination: IpAddr,
    /// The receiving queue pair.
    pub destination_qp: Qpn,
    /// The sending queue pair of a datagram; 0 on a connection, where `destination_qp` implies it.
    pub source_qp: Qpn,
    /// Whether these are responses.
    pub is_response: bool,
}

/// The size of a packet's payload, and where the sender took the payload from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Payload {
    /// Bytes of payload.
    pub bytes: u32,
    /// It was part of the work request (`IBV_SEND_INLINE`). Otherwise the device read it from the
    /// program's memory when it sent the packet.
    pub is_inline: bool,
}

/// A packet that is about to leave a device, or has arrived at one.
///
/// Within a host, packets of one message that arrive together may be reported as one `PacketInfo`:
/// `psn` is the PSN of the first one, and `psns` their number. A sender with fault rules or quirks
/// sends packets one by one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketInfo {
    /// Its flow.
    pub flow: Flow,
    /// The queue pair of this device that sends it or receives it.
    pub local_qp: Qpn,
    /// The medium that carries it.
    pub medium: Medium,
    /// Its kind.
    pub class: Class,
    /// Its PSN.
    pub psn: Psn,
    /// How many PSNs it takes: for a READ request those of its response, otherwise 1 for each
    /// packet.
    pub psns: u32,
    /// How often a packet with this PSN left, or arrived, before. `None` if the driver did not
    /// count; then [`crate::quirk::Chain`] does.
    pub transmission: Option<u32>,
    /// Where it stands for the responder; `None` unless it is a request of a reliable connection
    /// that arrived.
    pub standing: Option<Standing>,
    /// Bytes on the wire; rate rules need them.
    pub bytes: u32,
    /// Its payload.
    pub payload: Payload,
}

impl PacketInfo {
    /// Whether a packet with this PSN left, or arrived, before.
    pub fn is_repeated(&self) -> bool {
        self.transmission.is_some_and(|before| before > 0)
    }

    /// Whether it is a request that arrived, and the responder has received every request before
    /// it. A NAK acknowledges all earlier requests (IBA vol. 1, 9.7.5.1.2), so only such a request
    /// may be answered with a NAK.
    pub fn is_in_order(&self) -> bool {
        self.standing.is_some_and(|standing| standing != Standing::Ahead)
    }
}
