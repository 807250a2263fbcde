//! Loops that a program makes itself, around calls that find nothing. They are simulated call by
//! call: right, and slow.

use serde::{Deserialize, Serialize};

use crate::kernel::{Task, World};

/// A loop of a rank around calls that found nothing, outside of [`Rank::spin`] and
/// [`Rank::busy_until`], which simulate such calls in one step.
///
/// [`Rank::spin`]: rdmalab_rank::Rank::spin
/// [`Rank::busy_until`]: rdmalab_rank::Rank::busy_until
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawLoop {
    /// The rank that called.
    pub rank: usize,
    /// What it called.
    pub call: String,
    /// How often in a row.
    pub calls: u64,
}

/// Loops of fewer calls in a row are not reported.
pub(crate) const LEAST_CALLS: u64 = 10_000;

impl World {
    /// The longest raw loop of each rank that has a long one.
    pub(crate) fn raw_loops(&mut self) -> Vec<RawLoop> {
        let of_rank = |rank: usize| {
            let tasks = self.tasks.iter_mut().filter(|task: &&mut Task| task.node == rank);
            let longest = tasks.map(|task| task.row.longest()).max_by_key(|(calls, _)| *calls);
            let (calls, call) = longest.filter(|(calls, _)| *calls >= LEAST_CALLS)?;
            Some(RawLoop { rank, call: call.to_owned(), calls })
        };
        (0..self.nodes.len()).filter_map(of_rank).collect()
    }
}
