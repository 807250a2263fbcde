//! A packet as fault rules and quirks see it, whatever carries it.

use std::net::IpAddr;

use rdmalab_wire::aeth::Syndrome;
use rdmalab_wire::ids::{Psn, Qpn};
use rdmalab_wire::opcode::{Opcode, Operation};

/// What carries a packet.
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

    /// Its bit in a set of classes.
    pub(crate) const fn bit(self) -> u16 {
        1 << self as u8
    }
}

/// The packets of one queue pair to another, those of requests and of responses by themselves:
/// their numbers run independently.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Flow {
    /// The sender's address.
    pub source: IpAddr,
    /// The receiver's address.
    pub destination: IpAddr,
    /// The receiving queue pair.
    pub destination_qp: Qpn,
    /// The sending queue pair of a datagram; 0 for connections, where the other determines it.
    pub source_qp: Qpn,
    /// Whether these are responses.
    pub is_response: bool,
}

/// What a packet carries, and where its sender took it from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Payload {
    /// How much.
    pub bytes: u32,
    /// It lay in the work request (`IBV_SEND_INLINE`). Otherwise the device read it in the
    /// program's memory as it sent the packet.
    pub is_inline: bool,
}

/// A packet that is about to leave a device, or has arrived at one.
///
/// Within a host, packets of one message that arrive together may come as one: `psn` is the first
/// one's, and `psns` counts them. A sender with fault rules or quirks sends packets one by one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketInfo {
    /// Its flow.
    pub flow: Flow,
    /// The queue pair of this device that sends it or receives it.
    pub local_qp: Qpn,
    /// What carries it.
    pub medium: Medium,
    /// What it is.
    pub class: Class,
    /// Its number in the flow.
    pub psn: Psn,
    /// PSNs that it takes: of a READ request those of its response, otherwise 1 for each packet.
    pub psns: u32,
    /// How often a packet of this number left, or arrived, before. `None`: the driver did not
    /// count, and [`crate::quirk::Chain`] does.
    pub transmission: Option<u32>,
    /// Of a request that arrived: the responder has everything before it. A NAK acknowledges all
    /// that was sent before (IBA vol. 1, 9.7.5.1.2), so no other request may be answered with one.
    pub in_order: bool,
    /// Bytes on the wire, for a rate.
    pub bytes: u32,
    /// Its payload.
    pub payload: Payload,
}

impl PacketInfo {
    /// Whether a packet of this number left, or arrived, before.
    pub fn is_repeated(&self) -> bool {
        self.transmission.is_some_and(|before| before > 0)
    }
}
