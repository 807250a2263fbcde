//! What paths have done so far, for who asks while they run. A path that nobody asks does nothing
//! for it but read a flag.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::summary::PathReport;

/// Time between two looks for an answer.
const LOOK: Duration = Duration::from_millis(1);

/// What one path has done so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct LivePath(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_asked: AtomicBool,
    latest: Mutex<Option<PathReport>>,
}

impl LivePath {
    fn latest(&self) -> MutexGuard<'_, Option<PathReport>> {
        self.0.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the path: answers if somebody has asked.
    #[inline]
    pub fn answer(&self, report: impl FnOnce() -> PathReport) {
        if self.0.is_asked.load(Ordering::Relaxed) {
            self.put(report());
        }
    }

    /// For the path: its last word.
    pub fn put(&self, report: PathReport) {
        *self.latest() = Some(report);
        self.0.is_asked.store(false, Ordering::Release);
    }
}

/// What all paths of a gateway have done so far.
#[derive(Clone, Debug)]
pub struct Live(Vec<LivePath>);

impl Live {
    pub(crate) fn of(paths: Vec<LivePath>) -> Self {
        Self(paths)
    }

    /// Asks all paths, and waits at most so long. Of a path that does not answer in time, or has
    /// ended, what it said last; of one that has not begun, nothing. An answer costs a path some
    /// tens of microseconds.
    #[must_use]
    pub fn ask(&self, limit: Duration) -> Vec<PathReport> {
        let until = Instant::now() + limit;
        self.0.iter().for_each(|path| path.0.is_asked.store(true, Ordering::Release));
        let waits = |path: &LivePath| path.0.is_asked.load(Ordering::Acquire);
        while self.0.iter().any(waits) && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        self.0.iter().filter_map(|path| path.latest().clone()).collect()
    }
}
