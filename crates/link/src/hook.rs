//! The hook on the UDP path: here a tap sees each packet, and fault injection decides about it.
//!
//! A verdict may depend only on the [`PacketContext`], on earlier packets of the same flow, and on
//! a seed. So the timing of threads cannot change a verdict. The packets of one flow pass in order;
//! packets of two flows may pass at the same time.

use rdmalab_wire::ids::{Psn, Qpn};

use crate::address::{FourTuple, IpFields};
use crate::packet::Payload;

/// The direction of a packet, seen from this process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// To the network.
    Out,
    /// From the network, before it is checked.
    In,
}

/// A packet that passes the hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketContext {
    /// The direction.
    pub direction: Direction,
    /// The addresses and ports.
    pub tuple: FourTuple,
    /// The other fields of the IP header. For an incoming packet the identification is not known.
    pub ip: IpFields,
    /// The queue pair of this process that sends or receives it.
    pub local_qp: Qpn,
    /// The destination's queue pair. Together with the addresses it identifies the flow.
    pub destination_qp: Qpn,
    /// The packet's PSN.
    pub psn: Psn,
    /// How many PSNs it takes: for an outgoing READ request those of its response, otherwise 1.
    pub psns: u32,
    /// How often a packet with this PSN was sent on this flow before, as far as the sender
    /// remembers; 0 for an incoming packet.
    pub transmission: u32,
    /// The payload, if the sender reports it; empty for an incoming packet.
    pub payload: Payload,
}

/// The decision about a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The packet goes on. The hook may have changed its bytes.
    Pass,
    /// It is dropped.
    Drop,
}

/// A tap, or fault injection. Called under locks: it must neither block nor call verbs.
pub trait PacketHook: Send + Sync {
    /// Looks at an outgoing packet (BTH to ICRC) and decides about it.
    fn outgoing(&self, context: &PacketContext, packet: &mut [u8]) -> Verdict;

    /// Looks at an incoming packet before it is checked.
    fn incoming(&self, _context: &PacketContext, _packet: &[u8]) {}
}
