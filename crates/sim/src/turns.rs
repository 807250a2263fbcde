//! The queue pairs of an adapter that want to send, and the order of their turns.

use std::collections::BTreeMap;
use std::sync::Weak;

use crate::ids::QpId;
use crate::packets::Packets;
use crate::time::Ps;
use crate::way::Arrival;

/// What the send engine knows of a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    pub(crate) requests: Departures,
    pub(crate) responses: Departures,
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
    /// The last requests that were sent, while others have to wait for them.
    pub(crate) last_request: Weak<Arrival>,
    /// The same of responses.
    pub(crate) last_response: Weak<Arrival>,
    /// When its last request left the send engine, since requests stay in order.
    pub(crate) request_departs: Ps,
    /// The same of responses.
    pub(crate) response_departs: Ps,
    /// The place on the bus of the read for the request that is being sent.
    pub(crate) request_place: usize,
    /// The same for the response.
    pub(crate) response_place: usize,
    /// Bytes of the present turn of requests. A turn is one train, or several if they are short.
    pub(crate) request_turn_bytes: u32,
    /// The same of responses.
    pub(crate) response_turn_bytes: u32,
}

/// Requests, or responses, of a queue pair leave in the order in which the engine took them.
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
    /// The departures of responses, or of requests.
    pub(crate) fn departures(&mut self, is_response: bool) -> &mut Departures {
        if is_response { &mut self.responses } else { &mut self.requests }
    }

    /// The queue pair was reset: nothing of it is under way.
    pub(crate) fn reset(&mut self) {
        self.requests.clear();
        self.responses.clear();
        (self.request_departs, self.response_departs) = (Ps::ZERO, Ps::ZERO);
    }
}

/// Queue pairs that want a turn: who may have one first is first, and then who came first.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    waiting: BTreeMap<(Ps, u64), QpId>,
    came: u64,
}

impl Turns {
    /// A queue pair wants a turn, not before `after`.
    pub(crate) fn add(&mut self, id: QpId, after: Ps) {
        self.came += 1;
        self.waiting.insert((after, self.came), id);
    }

    /// When the next queue pair may have its turn; `None` if there is none.
    pub(crate) fn next_after(&self) -> Option<Ps> {
        self.waiting.keys().next().map(|(after, _)| *after)
    }

    /// Takes the next queue pair.
    pub(crate) fn take(&mut self) -> Option<QpId> {
        self.waiting.pop_first().map(|(_, id)| id)
    }

    /// Whether no queue pair waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_go_yet_lets_others_pass() {
        let id = |index| QpId { node: 0, index, generation: 0 };
        let mut turns = Turns::default();
        for (index, after) in [(1, 50), (2, 10), (3, 10), (4, 70)] {
            turns.add(id(index), Ps(after));
        }
        assert_eq!(turns.next_after(), Some(Ps(10)));
        let order = std::iter::from_fn(|| turns.take()).map(|id| id.index).collect::<Vec<_>>();
        assert_eq!(order, [2, 3, 1, 4]);
        assert!(turns.is_empty());
    }
}
