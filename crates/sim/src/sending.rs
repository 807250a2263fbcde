//! What the send engine knows of a queue pair: requests and responses are a stream each, which
//! departs in the order in which the engine took it.

use std::collections::BTreeMap;
use std::sync::Weak;

use crate::packets::Packets;
use crate::time::Ps;
use crate::way::Arrival;

/// What the send engine knows of a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    /// Whether it waits for its turn at the send engine.
    pub(crate) is_queued: bool,
    /// It gets no turn before that, since what it sent waits for the bus or the link.
    pub(crate) turn_after: Ps,
    /// When the bus has moved what it sent.
    pub(crate) bus_until: Ps,
    /// When the link has taken what it sent, at the least.
    pub(crate) link_until: Ps,
    /// How long what it sent last was on its way to the link.
    pub(crate) to_link: Ps,
    pub(crate) requests: Stream,
    pub(crate) responses: Stream,
}

/// The requests of a queue pair, or its responses.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) departures: Departures,
    /// When the last ones depart, as it was known when the engine took them.
    pub(crate) departs: Ps,
    /// The last ones that others may have to wait for.
    pub(crate) last: Weak<Arrival>,
    /// The place on the bus of the read for the message that is being sent.
    pub(crate) place: usize,
    /// Bytes of the present turn, which is one train, or several if they are short.
    pub(crate) turn_bytes: u32,
}

/// The numbers of packets in the order in which the engine took them, which is also the order in
/// which they depart.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    taken: u64,
    departed: u64,
    /// Packets whose time has come before that of others in front of them; `None` for those that
    /// will not be sent.
    held: BTreeMap<u64, Option<Box<Packets>>>,
}

impl Departures {
    /// The engine takes packets: their number.
    pub(crate) fn take(&mut self) -> u64 {
        self.taken += 1;
        self.taken - 1
    }

    /// The time of packets has come; returns them if all before them have left.
    pub(crate) fn try_depart(&mut self, packets: Box<Packets>) -> Option<Box<Packets>> {
        if packets.number > self.departed {
            self.held.insert(packets.number, Some(packets));
            return None;
        }
        Some(packets)
    }

    /// Packets have left, or will not be sent; returns those whose turn it is then.
    pub(crate) fn departed(&mut self, number: u64) -> Option<Box<Packets>> {
        if number > self.departed {
            self.held.insert(number, None);
            return None;
        }
        self.departed = self.departed.max(number + 1);
        while let Some(next) = self.held.remove(&self.departed) {
            if next.is_some() {
                return next;
            }
            self.departed += 1;
        }
        None
    }

    /// Nothing that was taken will leave.
    pub(crate) fn clear(&mut self) {
        self.departed = self.taken;
        self.held.clear();
    }
}

impl Sending {
    /// The stream of responses, or of requests.
    pub(crate) fn stream(&mut self, is_response: bool) -> &mut Stream {
        if is_response { &mut self.responses } else { &mut self.requests }
    }

    /// The queue pair was reset: nothing of it is under way.
    pub(crate) fn reset(&mut self) {
        for stream in [&mut self.requests, &mut self.responses] {
            stream.departures.clear();
            stream.departs = Ps::ZERO;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_sent_lets_others_go_only_in_its_turn() {
        let mut departures = Departures::default();
        let numbers = [(); 4].map(|()| departures.take());
        assert_eq!(numbers, [0, 1, 2, 3]);
        // Number 1 will not be sent, which is known before number 0 has left.
        assert!(departures.departed(1).is_none());
        assert_eq!(departures.departed, 0);
        assert!(departures.departed(0).is_none());
        assert_eq!(departures.departed, 2);
        departures.clear();
        assert_eq!((departures.departed, departures.held.len()), (4, 0));
    }
}
