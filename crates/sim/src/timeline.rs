//! What happens to one message, step by step.

use rdmalab_engine::train::TrainKind;
use serde::{Deserialize, Serialize};

use crate::time::Ps;

/// Most steps that are kept.
const MAX_STEPS: usize = 200;

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// When it happened.
    pub at: Ps,
    /// The rank on whose side it happened.
    pub rank: usize,
    /// What happened.
    pub what: String,
}

/// The steps between a post of rank 0 and its next one.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    /// Which post of rank 0 it begins with, from 0.
    wanted: u64,
    /// Posts of rank 0 so far.
    pub(crate) posts: u64,
    pub(crate) steps: Vec<Step>,
}

impl Timeline {
    pub(crate) fn of_message(wanted: u64) -> Timeline {
        Timeline { wanted, ..Timeline::default() }
    }

    /// Whether the wanted post has begun and the next one has not.
    pub(crate) fn is_open(&self) -> bool {
        self.posts.checked_sub(1) == Some(self.wanted) && self.steps.len() < MAX_STEPS
    }

    pub(crate) fn into_steps(mut self) -> Vec<Step> {
        if self.steps.len() == MAX_STEPS
            && let Some(last) = self.steps.last_mut()
        {
            last.what = format!("the first {MAX_STEPS} steps end here");
        }
        self.steps
    }
}

/// The name of packets, for people.
pub(crate) fn kind_name(kind: TrainKind) -> &'static str {
    match kind {
        TrainKind::Send => "SEND",
        TrainKind::Write => "WRITE",
        TrainKind::ReadRequest => "READ request",
        TrainKind::ReadResponse => "READ response",
        TrainKind::CmpSwap | TrainKind::FetchAdd => "atomic request",
        TrainKind::AtomicResponse => "atomic response",
        TrainKind::Ack => "acknowledgement",
    }
}
