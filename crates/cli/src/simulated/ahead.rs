//! Points are simulated ahead, on all processors that this process may use: they do not disturb
//! each other, since their time is virtual.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rdmalab_experiments::Point;
use rdmalab_measure::limits::available_cores;

use super::job::{Done, Setup};

/// How many results may wait to be taken, for each thread.
pub const WAITING_PER_THREAD: usize = 2;

/// Most stacks of ranks at a time: each has two mappings, and Linux allows 65 530 of them unless
/// `vm.max_map_count` says otherwise.
const STACKS: usize = 16_000;

/// How many simulations of so many ranks may run at a time on these processors.
pub fn threads(cores: usize, ranks: usize) -> usize {
    cores.min(STACKS / ranks.max(1)).max(1)
}

/// Threads that simulate points in their order.
pub struct Ahead {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    tasks: Vec<(Arc<Setup>, Point)>,
    state: Mutex<PointQueue>,
    changed: Condvar,
    /// Set when nobody wants results any more: simulations that are under way end early.
    is_over: Arc<AtomicBool>,
    /// Most results that may wait.
    most: usize,
}

#[derive(Default)]
struct PointQueue {
    /// The next point to begin, and the next to be taken.
    next: usize,
    taken: usize,
    done: BTreeMap<usize, Done>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, PointQueue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next point to simulate, once there is room for its result.
    fn begin(&self) -> Option<usize> {
        let mut state = self.lock();
        loop {
            if self.is_over.load(Ordering::Relaxed) || state.next == self.tasks.len() {
                return None;
            }
            if state.next < state.taken + self.most {
                state.next += 1;
                return Some(state.next - 1);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(&self) {
        while let Some(index) = self.begin() {
            let (setup, point) = &self.tasks[index];
            let simulated =
                AssertUnwindSafe(|| setup.simulate_until(point, None, self.is_over.clone()));
            // Whoever waits for the result must get one.
            let done = catch_unwind(simulated).unwrap_or_else(|_| Done {
                why: Some("the simulation panicked: this is a bug in rdmalab".to_owned()),
                ..Done::default()
            });
            self.lock().done.insert(index, done);
            self.changed.notify_all();
        }
    }
}

impl Ahead {
    /// Begins to simulate these points, each as its setup says.
    pub fn new(tasks: Vec<(Arc<Setup>, Point)>) -> Ahead {
        let cores = available_cores().map_or(1, |cores| cores.len());
        let ranks = tasks.iter().map(|(setup, _)| setup.ranks).max().unwrap_or(1);
        let count = threads(cores, ranks).min(tasks.len().max(1));
        let shared = Arc::new(Shared {
            tasks,
            state: Mutex::default(),
            changed: Condvar::new(),
            is_over: Arc::default(),
            most: count * (1 + WAITING_PER_THREAD),
        });
        let thread = |_| {
            let shared = shared.clone();
            std::thread::Builder::new().name("simulate".to_owned()).spawn(move || shared.work())
        };
        // With fewer threads it takes longer; without one, `take` finds nothing.
        let threads = (0..count).map(thread).filter_map(Result::ok).collect();
        Ahead { shared, threads }
    }

    /// Waits for the result of the next point, which must be this one; `None` if it is another one.
    pub fn take(&self, point: &Point) -> Option<Done> {
        let mut state = self.shared.lock();
        let index = state.taken;
        let is_next = self.shared.tasks.get(index).is_some_and(|(_, next)| next == point);
        if self.threads.is_empty() || !is_next {
            return None;
        }
        loop {
            if let Some(done) = state.done.remove(&index) {
                state.taken += 1;
                self.shared.changed.notify_all();
                return Some(done);
            }
            if self.threads.iter().all(JoinHandle::is_finished) {
                return None;
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Ends the points that have begun.
impl Drop for Ahead {
    fn drop(&mut self) {
        // Under the lock, so that no thread begins to wait meanwhile.
        let state = self.shared.lock();
        self.shared.is_over.store(true, Ordering::Relaxed);
        drop(state);
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A panic of a simulation has told itself.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use rdmalab_experiments::{Experiment, sweep};

    use super::*;

    /// Else this test would take years.
    #[test]
    fn points_that_nobody_wants_any_more_end_early() {
        let mut setup = Setup::unmeasured(rdmalab_sim::find("ideal").unwrap());
        setup.ranks = 2;
        let setup = Arc::new(setup);
        let point = |messages| {
            let options = [("messages", messages), ("warm-up", "0"), ("runs", "1")];
            (setup.clone(), sweep(Experiment::BLAST, &options).unwrap().remove(0))
        };
        let short = point("10");
        let ahead = Ahead::new(vec![short.clone(), point("100G"), point("100G")]);
        assert!(ahead.take(&short.1).is_some_and(|done| done.why.is_none()));
    }
}
