//! A task looks for something again and again. It is not resumed for looks that would find nothing.

use crate::event::Event;
use crate::kernel::{LookLimit, Sim, Task, TaskState, World};
use crate::task::TaskId;
use crate::time::Ps;

/// What a task knew when it began a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// How often something happened before that it may look for.
    happenings: u64,
    /// How many time stamps it took before. A look that takes one may find something at any time.
    stamps: u64,
}

fn seen_by(task: &Task) -> Seen {
    Seen { happenings: task.happenings, stamps: task.row.stamps }
}

impl Sim {
    /// The caller begins a look.
    pub(crate) fn seen(&self) -> Seen {
        let nothing = Seen { happenings: 0, stamps: 0 };
        self.running()
            .map_or(nothing, |TaskId(task)| self.with(|world| seen_by(&world.tasks[task])))
    }

    /// Waits until something happened at the caller's node since it began a look that found
    /// nothing, as a loop does that looks every `period`; at most until `limit`. The processor
    /// works.
    pub(crate) fn look_again(&self, seen: Seen, period: Ps, limit: LookLimit) {
        let Some(task) = self.running() else { return };
        let began = self.now();
        let waits = self.with(|world| world.begin_looks(task, seen, period, limit));
        if waits {
            self.suspend();
            let spent = self.now() - began;
            self.with(|world| world.tasks[task.0].user += spent);
        }
    }
}

impl World {
    /// Begins the wait of [`Sim::look_again`]; false if there is something to look at already.
    fn begin_looks(&mut self, task: TaskId, seen: Seen, period: Ps, limit: LookLimit) -> bool {
        let since = self.now;
        let found = &mut self.tasks[task.0];
        let now = seen_by(found);
        if now.stamps == seen.stamps {
            found.row.end();
        }
        if now != seen || self.stopped().is_some() {
            return false;
        }
        self.tasks[task.0].state = TaskState::Looks { since, period, limit };
        if let Some(time) = limit.time() {
            self.schedule_look_limit(task, time);
        }
        true
    }

    /// Schedules the end of a task's looks, unless an earlier event will do that. There are many
    /// looks, with limits that are hardly ever reached, so there is not an event for each.
    fn schedule_look_limit(&mut self, task: TaskId, limit: Ps) {
        let scheduled = &mut self.tasks[task.0].look_limit;
        if scheduled.is_none_or(|earlier| earlier > limit) {
            *scheduled = Some(limit);
            self.queue.push(limit.max(self.now), Event::LookLimit { task });
        }
    }

    /// The limit of a task's looks may be reached.
    pub(crate) fn look_limit(&mut self, task: TaskId) {
        let found = &mut self.tasks[task.0];
        if found.look_limit.is_none_or(|limit| limit > self.now) {
            return; // An earlier event has taken its place.
        }
        found.look_limit = None;
        if let TaskState::Looks { since, period, limit } = found.state
            && let Some(until) = limit.time()
        {
            match until <= self.now {
                true => self.resume_at(task, end_of_look(since, period, self.now)),
                false => self.schedule_look_limit(task, until),
            }
        }
    }

    /// A task that looks may find something at the first look that ends after `now`.
    pub(crate) fn wake_looker(&mut self, task: usize, now: Ps) {
        if let Some(Task { state: TaskState::Looks { since, period, .. }, .. }) =
            self.tasks.get(task)
        {
            let at = end_of_look(*since, *period, now);
            self.resume_at(TaskId(task), at);
        }
    }

    /// Whether nothing is to come but that tasks lose their patience. `first` is the task of the
    /// next event: mostly it tells already that more is to come.
    pub(crate) fn is_only_patience_left(&self, first: TaskId) -> bool {
        let waits = |task: &Task| match task.state {
            TaskState::Looks { limit, .. } => !matches!(limit, LookLimit::At(_)),
            TaskState::Blocked(_) | TaskState::Ended => true,
            TaskState::Active | TaskState::Sleeps(_) => false,
        };
        // Then each event that resumes a task is void.
        waits(&self.tasks[first.0])
            && self.tasks.iter().all(waits)
            && self.queue.events().all(Event::is_of_tasks)
    }
}

/// When the first look after `time` ends that a loop makes, whose looks take `period` and began at
/// `since`.
fn end_of_look(since: Ps, period: Ps, time: Ps) -> Ps {
    let looks = (time - since).0.div_ceil(period.0.max(1));
    since + Ps(period.0.max(1)) * looks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_ends_at_a_multiple_of_its_time() {
        let end = |time| end_of_look(Ps(100), Ps(30), Ps(time)).0;
        assert_eq!([end(90), end(100), end(101), end(130), end(131)], [100, 100, 130, 130, 160]);
    }
}
