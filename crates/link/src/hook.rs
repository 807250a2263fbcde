//! A hook on the UDP path: taps look at each packet here, and fault injection decides about it.
//!
//! A verdict may depend only on the [`PacketContext`], on what passed before it on its flow, and on
//! a seed, so that the timing of threads cannot change it. Packets of one flow pass in order; two
//! flows may pass at the same time.

use rdmalab_wire::ids::{Psn, Qpn};

use crate::faults::Payload;
use crate::path::{IpFields, Path};

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
    pub path: Path,
    /// The rest of the network header. On the way in the identification is not known.
    pub ip: IpFields,
    /// The flow, with the addresses: the destination's queue pair.
    pub destination_qp: Qpn,
    /// The packet's number in its flow.
    pub psn: Psn,
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

/// How often recent packets of a flow were sent. Bounded: it remembers the last 1024 numbers,
/// which is more than a sender may have outstanding.
#[derive(Debug, Default)]
pub struct Transmissions {
    seen: Vec<(u32, u32)>,
}

/// Numbers that [`Transmissions`] remembers; a power of two.
const REMEMBERED: usize = 1024;
/// No PSN has this number.
const NONE: u32 = u32::MAX;

impl Transmissions {
    /// Counts a transmission of `psn` and says how many there were before.
    pub fn next(&mut self, psn: Psn) -> u32 {
        if self.seen.is_empty() {
            self.seen = vec![(NONE, 0); REMEMBERED];
        }
        let entry = &mut self.seen[psn.get() as usize % REMEMBERED];
        if entry.0 != psn.get() {
            *entry = (psn.get(), 0);
        }
        let before = entry.1;
        entry.1 = before.saturating_add(1);
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transmissions_are_counted_for_each_number() {
        let mut sent = Transmissions::default();
        assert_eq!((sent.next(Psn::new(5)), sent.next(Psn::new(6))), (0, 0));
        assert_eq!((sent.next(Psn::new(5)), sent.next(Psn::new(5))), (1, 2));
        // A number that falls into the same place takes it over.
        assert_eq!(sent.next(Psn::new(5 + 1024)), 0);
        assert_eq!(sent.next(Psn::new(5)), 0);
    }
}
