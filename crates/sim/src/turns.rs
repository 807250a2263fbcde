//! The queue pairs of an adapter that want to send, and the order of their turns.

use std::collections::BTreeMap;
use std::sync::Weak;

use crate::ids::QpId;
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
