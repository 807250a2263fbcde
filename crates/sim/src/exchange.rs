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
