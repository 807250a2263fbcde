//! What paths have done so far, for a thread that asks while they run. A path that is not asked
//! only reads a flag.

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
    is_over: AtomicBool,
    latest: Mutex<Option<PathReport>>,
}

impl LivePath {
    fn latest(&self) -> MutexGuard<'_, Option<PathReport>> {
        self.0.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the path: answers if it was asked.
    #[inline]
    pub fn answer(&self, report: impl FnOnce() -> PathReport) {
        if self.0.is_asked.load(Ordering::Relaxed) {
            self.put(report());
        }
    }

    /// For the path: what it has done when it ends.
    pub fn end(&self, report: PathReport) {
        self.put(report);
        self.0.is_over.store(true, Ordering::Release);
    }

    fn put(&self, report: PathReport) {
        *self.latest() = Some(report);
        self.0.is_asked.store(false, Ordering::Release);
    }

    /// Whether it was asked and can still answer.
    fn is_waited_for(&self) -> bool {
        self.0.is_asked.load(Ordering::Acquire) && !self.0.is_over.load(Ordering::Acquire)
    }
}

/// What all paths of a gateway have done so far.
#[derive(Clone, Debug)]
pub struct Live(Vec<LivePath>);

impl Live {
    pub(crate) fn of(paths: Vec<LivePath>) -> Self {
        Self(paths)
    }

    /// Whether a path has ended, by its number.
    #[must_use]
    pub fn has_ended(&self, path: usize) -> bool {
        self.0.get(path).is_some_and(|path| path.0.is_over.load(Ordering::Acquire))
    }

    /// Asks all paths, and waits at most so long. Of a path that does not answer in time, or has
    /// ended, what it said last; of one that has not begun, nothing. An answer costs a path some
    /// tens of microseconds. Each with its number, from 0.
    #[must_use]
    pub fn ask(&self, limit: Duration) -> Vec<(usize, PathReport)> {
        let until = Instant::now() + limit;
        self.0.iter().for_each(|path| path.0.is_asked.store(true, Ordering::Release));
        while self.0.iter().any(LivePath::is_waited_for) && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        let numbered = self.0.iter().enumerate();
        numbered.filter_map(|(number, path)| Some((number, path.latest().clone()?))).collect()
    }
}
