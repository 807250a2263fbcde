//! The order in which the queue pairs of an adapter get turns at the send engine.

use std::collections::BTreeMap;

use crate::ids::QpId;
use crate::time::Ps;

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
