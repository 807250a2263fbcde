//! Which locks are taken, and who waits for them.

use std::collections::VecDeque;

use crate::ids::QpId;
use crate::task::TaskId;
use crate::time::Ps;

/// What a lock protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protects {
    /// The send queue of a queue pair.
    SendQueue(QpId),
    /// The receive queue of a queue pair.
    RecvQueue(QpId),
    /// A shared receive queue: its node and index.
    SharedRecvQueue(usize, usize),
    /// A completion queue: its node and index.
    CompletionQueue(usize, usize),
    /// State of an experiment: the address of its monitor, which is only compared.
    State(usize),
}

/// A lock that a task holds, and who waits for it.
#[derive(Debug)]
struct Taken {
    what: Protects,
    waiting: VecDeque<TaskId>,
}

/// All locks that are taken, and who sleeps until another thread wakes it.
#[derive(Debug, Default)]
pub(crate) struct LockTable {
    taken: Vec<Taken>,
    /// The address of the monitor, the task, and since when.
    sleepers: Vec<(usize, TaskId, Ps)>,
}

impl LockTable {
    fn find(&mut self, what: Protects) -> Option<&mut Taken> {
        self.taken.iter_mut().find(|taken| taken.what == what)
    }

    /// Takes a lock; if it is taken, the task waits for it from now on, and this is false.
    pub(crate) fn take(&mut self, what: Protects, task: TaskId) -> bool {
        match self.find(what) {
            Some(taken) => {
                taken.waiting.push_back(task);
                false
            }
            None => {
                self.taken.push(Taken { what, waiting: VecDeque::new() });
                true
            }
        }
    }

    /// Whether a task still waits; otherwise it has the lock.
    pub(crate) fn is_waiting(&mut self, what: Protects, task: TaskId) -> bool {
        self.find(what).is_some_and(|taken| taken.waiting.contains(&task))
    }

    /// A task does not wait any more.
    pub(crate) fn give_up(&mut self, what: Protects, task: TaskId) {
        if let Some(taken) = self.find(what) {
            taken.waiting.retain(|waiting| *waiting != task);
        }
    }

    /// Gives a lock to the task that has waited longest, and returns that.
    pub(crate) fn release(&mut self, what: Protects) -> Option<TaskId> {
        let at = self.taken.iter().position(|taken| taken.what == what)?;
        let next = self.taken[at].waiting.pop_front();
        if next.is_none() {
            self.taken.swap_remove(at);
        }
        next
    }

    pub(crate) fn is_free(&self, what: Protects) -> bool {
        self.taken.iter().all(|taken| taken.what != what)
    }

    /// A task sleeps from now on.
    pub(crate) fn sleep(&mut self, monitor: usize, task: TaskId, now: Ps) {
        self.sleepers.push((monitor, task, now));
    }

    /// A task sleeps no more, for whatever reason.
    pub(crate) fn is_awake(&mut self, task: TaskId) {
        self.sleepers.retain(|(_, sleeper, _)| *sleeper != task);
    }

    /// The tasks that sleep at a monitor, and since when. They do not sleep any more.
    pub(crate) fn wake(&mut self, monitor: usize) -> Vec<(TaskId, Ps)> {
        let woken = self.sleepers.extract_if(.., |(at, ..)| *at == monitor);
        woken.map(|(_, task, since)| (task, since)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: Protects = Protects::CompletionQueue(0, 1);

    #[test]
    fn a_lock_goes_to_who_has_waited_longest() {
        let mut table = LockTable::default();
        let asked = [0, 1, 2, 3].map(|task| table.take(QUEUE, TaskId(task)));
        assert_eq!(asked, [true, false, false, false]);
        assert!(table.take(Protects::CompletionQueue(0, 2), TaskId(1)), "another lock");
        table.give_up(QUEUE, TaskId(2));
        assert_eq!(table.release(QUEUE), Some(TaskId(1)));
        assert!(!table.is_waiting(QUEUE, TaskId(1)) && table.is_waiting(QUEUE, TaskId(3)));
        assert_eq!([(); 2].map(|()| table.release(QUEUE)), [Some(TaskId(3)), None]);
        assert!(table.is_free(QUEUE));
    }

    #[test]
    fn those_who_sleep_elsewhere_are_not_woken() {
        let mut table = LockTable::default();
        for (monitor, task) in [(8, 0), (16, 1), (8, 2), (8, 3)] {
            table.sleep(monitor, TaskId(task), Ps(task as u64));
        }
        table.is_awake(TaskId(2));
        assert_eq!(table.wake(8), [(TaskId(0), Ps(0)), (TaskId(3), Ps(3))]);
        assert_eq!((table.wake(8), table.wake(16)), (vec![], vec![(TaskId(1), Ps(1))]));
    }
}
