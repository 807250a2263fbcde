//! Why packets are dropped, and how often.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! drops {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why a packet was dropped.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Drop {
            $($(#[$doc])* $name,)*
        }

        impl Drop {
            /// Every reason.
            pub const ALL: &[Drop] = &[$(Drop::$name,)*];

            /// The reason in words, for a table.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Drop::$name => $text,)*
                }
            }
        }
    };
}

drops! {
    /// Too short, too long, a bad pad, or a payload that its opcode cannot have.
    Malformed = "malformed",
    /// An opcode that is not implemented.
    Opcode = "unknown opcode",
    /// Another version of the transport protocol.
    TransportVersion = "transport version",
    /// No queue pair has the destination's number.
    NoSuchQp = "no such queue pair",
    /// The queue pair cannot receive in its state.
    State = "queue pair not ready to receive",
    /// The packet's transport service is not the queue pair's.
    Transport = "other transport service",
    /// The source or the destination is not an address of the connection.
    Address = "not from the connected peer",
    /// Another partition.
    PKey = "partition key",
    /// Another queue key.
    QKey = "queue key",
    /// The invariant CRC is wrong: the packet was damaged or forged.
    Icrc = "invariant CRC",
    /// The engine dropped it: out of order, no receive posted, a duplicate.
    Engine = "not accepted by the queue pair",
    /// For another process of the host, which has exited or whose ring is full.
    Forward = "not forwarded",
    /// Another process took over the socket while this one was stopped after it read the packet.
    Turn = "read after another process took over the socket",
    /// The kernel truncated the datagram, or did not report its addresses.
    Kernel = "truncated, or without its addresses",
    /// Sending failed: no route, a full device queue, or a path MTU that is too small.
    Send = "not sent",
    /// A fault rule or a quirk dropped it.
    Hook = "dropped by a rule or quirk",
    /// The management queue is full, or no process reads it.
    Management = "management queue full",
}

/// A counter for each reason. The counters are relaxed atomics: only their sums are exact.
#[derive(Debug, Default)]
pub struct Counters {
    counts: [AtomicU64; Drop::ALL.len()],
}

impl Counters {
    /// Counts one packet.
    #[cold]
    pub fn count(&self, reason: Drop) {
        self.add(reason, 1);
    }

    /// Counts several packets.
    #[cold]
    pub fn add(&self, reason: Drop, packets: u64) {
        self.counts[reason as usize].fetch_add(packets, Ordering::Relaxed);
    }

    /// Packets dropped for a reason.
    pub fn of(&self, reason: Drop) -> u64 {
        self.counts[reason as usize].load(Ordering::Relaxed)
    }

    /// Packets dropped for any reason.
    pub fn total(&self) -> u64 {
        Drop::ALL.iter().map(|reason| self.of(*reason)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_counter() {
        let counters = Counters::default();
        for (index, reason) in Drop::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index);
            for _ in 0..=index {
                counters.count(*reason);
            }
        }
        for (index, reason) in Drop::ALL.iter().enumerate() {
            assert_eq!(counters.of(*reason), index as u64 + 1);
        }
        let all = Drop::ALL.len() as u64;
        assert_eq!(counters.total(), all * (all + 1) / 2);
    }
}
