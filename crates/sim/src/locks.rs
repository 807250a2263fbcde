//! Locks between the threads of a rank, in virtual time: those of an experiment, and those that a
//! driver holds during a post or a poll. Taking a lock that is free takes no time. A thread that
//! waits for one keeps its processor busy. Threads get a lock in the order in which they asked for
//! it, so that none waits for ever where all come back at once.

use rdmalab_rank::{Locks, Monitor, Stopped};

use crate::component::Component;
use crate::kernel::{Sim, World};
use crate::lock_table::Protects;
use crate::rank::SimRank;

/// A lock that the caller holds until this is dropped; nothing, where a rank has one thread.
pub(crate) struct Held<'a>(Option<(&'a Sim, Protects)>);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let Some((sim, what)) = self.0 else { return };
        sim.with(|world| {
            if let Some(next) = world.locks.release(what) {
                world.resume_at(next, world.now);
            }
        });
    }
}

impl Sim {
    /// Waits for a lock, and takes it.
    ///
    /// # Errors
    /// All ranks end before the caller has it.
    pub(crate) fn lock(&self, what: Protects) -> Result<Held<'_>, Stopped> {
        let Some(task) = self.running().filter(|_| self.has_threads()) else {
            return Ok(Held(None));
        };
        if self.with(|world| world.locks.take(what, task)) {
            return Ok(Held(Some((self, what))));
        }
        let began = self.now();
        loop {
            self.block("a lock that another thread of the rank holds");
            let ends = self.with(|world| {
                if !world.locks.is_waiting(what, task) {
                    world.tasks[task.0].user += world.now - began;
                    return Some(Ok(()));
                }
                // Who holds it lets it go, also if all were asked to stop.
                let why = world.stopped().filter(|why| **why != Stopped::Asked).cloned();
                let is_unwound = std::thread::panicking();
                let why = why.or_else(|| is_unwound.then(|| Stopped::Failed("a panic".into())))?;
                world.locks.give_up(what, task);
                Some(Err(why))
            });
            if let Some(ends) = ends {
                self.note(self.own_node(), Component::Lock, "the lock is free");
                return ends.map(|()| Held(Some((self, what))));
            }
        }
    }

    /// The same for a driver's call, which goes on without the lock when all ranks end.
    pub(crate) fn lock_or_end(&self, what: Protects) -> Held<'_> {
        self.lock(what).unwrap_or(Held(None))
    }

    /// Takes a lock if it is free.
    fn try_lock(&self, what: Protects) -> Option<Held<'_>> {
        let Some(task) = self.running().filter(|_| self.has_threads()) else {
            return Some(Held(None));
        };
        let is_free = self.with(|world| world.locks.is_free(what) && world.locks.take(what, task));
        is_free.then_some(Held(Some((self, what))))
    }

    /// Sleeps until another thread wakes all that sleep at a monitor.
    fn sleep_at(&self, monitor: usize) {
        let Some(task) = self.running() else { return };
        self.with(|world| world.locks.sleep(monitor, task, world.now));
        self.block("another thread of the rank to wake it");
        self.with(|world| world.locks.is_awake(task));
    }
}

impl World {
    fn wake_sleepers(&mut self, monitor: usize) {
        for (task, since) in self.locks.wake(monitor) {
            self.wake(task, since);
        }
    }
}

fn address<S>(monitor: &Monitor<S>) -> usize {
    std::ptr::from_ref(monitor).addr()
}

fn of<S>(monitor: &Monitor<S>) -> Protects {
    Protects::State(address(monitor))
}

/// Uses a state whose lock the caller holds in virtual time.
fn enter<S, T>(monitor: &Monitor<S>, act: impl FnOnce(&mut S) -> T) -> Result<T, Stopped> {
    let broken = || Stopped::Failed("two threads of a rank use a state at once".to_owned());
    monitor.try_lock().map(|mut state| act(&mut state)).ok_or_else(broken)
}

impl Locks for SimRank {
    fn locked<S, T>(
        &self,
        monitor: &Monitor<S>,
        act: impl FnOnce(&mut S) -> T,
    ) -> Result<T, Stopped> {
        let _held = self.sim.lock(of(monitor))?;
        enter(monitor, act)
    }

    fn try_locked<S, T>(&self, monitor: &Monitor<S>, act: impl FnOnce(&mut S) -> T) -> Option<T> {
        let _held = self.sim.try_lock(of(monitor))?;
        enter(monitor, act).ok()
    }

    fn locked_or_sleep<S, T>(
        &self,
        monitor: &Monitor<S>,
        act: impl FnOnce(&mut S) -> Option<T>,
    ) -> Result<Option<T>, Stopped> {
        let held = self.sim.lock(of(monitor))?;
        let found = enter(monitor, act)?;
        drop(held);
        if found.is_none() {
            self.check(false)?;
            self.sim.sleep_at(address(monitor));
            self.check(false)?;
        }
        Ok(found)
    }

    fn wake_all<S>(&self, monitor: &Monitor<S>) {
        self.sim.with(|world| world.wake_sleepers(address(monitor)));
    }
}
