//! Completion channels.

use std::collections::VecDeque;

use crate::task::TaskId;
use crate::time::Ps;

/// A completion channel.
#[derive(Debug, Default)]
pub(crate) struct Channel {
    /// Cookies of the completion queues whose events wait.
    pub(crate) events: VecDeque<u64>,
    /// The tasks that sleep until one comes, and since when.
    pub(crate) sleepers: VecDeque<(TaskId, Ps)>,
    pub(crate) users: usize,
}
