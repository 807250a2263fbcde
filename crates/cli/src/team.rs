//! The processes of a run, which the parts of a study share.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdmalab_rank::process::WorkerGroup;

/// Processes that are up. They end when the last of its clones is dropped.
#[derive(Clone)]
pub struct Team(Arc<Mutex<WorkerGroup>>);

impl Team {
    /// A team of these workers.
    pub fn new(workers: WorkerGroup) -> Self {
        Self(Arc::new(Mutex::new(workers)))
    }

    /// The workers, for one user at a time.
    pub fn lock(&self) -> MutexGuard<'_, WorkerGroup> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The same text for all teams, since options that contain one are compared as texts.
impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Team")
    }
}
