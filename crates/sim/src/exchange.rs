//! What the ranks give each other.

use std::sync::Arc;

use crate::task::TaskId;

/// Where all ranks exchange bytes.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    pub(crate) given: Vec<Option<Vec<u8>>>,
    /// The bytes of the last exchange.
    pub(crate) got: Arc<Vec<Vec<u8>>>,
    pub(crate) rounds: u64,
    pub(crate) waiting: Vec<TaskId>,
}

impl Exchange {
    /// A rank takes back what it gave in this round, and does not wait any more.
    pub(crate) fn withdraw(&mut self, rank: usize, task: Option<TaskId>) {
        if let Some(given) = self.given.get_mut(rank) {
            *given = None;
        }
        self.waiting.retain(|waiting| Some(*waiting) != task);
    }
}
