//! A hook on the UDP path: taps look at each packet here, and fault injection decides about it.
//!
//! A verdict may depend only on the [`PacketContext`], on what passed before it on its flow, and on
//! a seed, so that the timing of threads cannot change it. Packets of one flow pass in order; two
//! flows may pass at the same time.

use rdmalab_wire::ids::{Psn, Qpn};

use crate::address::{FourTuple, IpFields};
use crate::packet::Payload;

/// Which way a packet travels, seen from this process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// To the network.
    Out,
    /// From the network, before it is checked.
    In,
}

/// A packet on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketContext {
    /// Which way.
    pub direction: Direction,
    /// Between which addresses.
    pub tuple: FourTuple,
    /// The rest of the network header. On the way in the identification is not known.
    pub ip: IpFields,
    /// The queue pair of this process that sends or receives it.
    pub local_qp: Qpn,
    /// The flow, with the addresses: the destination's queue pair.
    pub destination_qp: Qpn,
    /// The packet's number in its flow.
    pub psn: Psn,
    /// PSNs that it takes: of a READ request that leaves those of its response, otherwise 1.
    pub psns: u32,
    /// How often a packet of this number was sent on this flow before, as far as the sender still
    /// remembers; 0 on the way in.
    pub transmission: u32,
    /// The payload, where the sender says; nothing on the way in.
    pub payload: Payload,
}

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It goes on, with what the hook made of its bytes.
    Pass,
    /// It is dropped.
    Drop,
}

/// A tap, or fault injection. Called under locks: it must neither block nor call verbs.
pub trait PacketHook: Send + Sync {
    /// Looks at a packet (BTH to ICRC) on its way out and decides.
    fn outgoing(&self, context: &PacketContext, packet: &mut [u8]) -> Verdict;

    /// Looks at a packet of this process on its way in, before it is checked.
    fn incoming(&self, _context: &PacketContext, _packet: &[u8]) {}
}
