//! A task sleeps until an event of a completion channel comes, and needs some time to wake up.

use crate::component::Component;
use crate::kernel::{Sim, World};
use crate::task::TaskId;
use crate::time::Ps;

/// What a task waits for here.
const WHAT: &str = "an event of a completion channel";

impl World {
    /// An event of a completion queue.
    pub(crate) fn raise(&mut self, node: usize, channel: usize, cookie: u64) {
        let Some(found) = self.nodes[node].channels[channel].as_mut() else { return };
        found.events.push_back(cookie);
        if let Some((task, since)) = found.sleepers.pop_front() {
            self.wake(task, since);
        }
    }

    /// Wakes a task that has slept since a time.
    pub(crate) fn wake(&mut self, task: TaskId, since: Ps) {
        let all = &self.parameters;
        let idle = self.now - since;
        let is_cold = all.wake_cold_after_ns > Ps::ZERO && idle > all.wake_cold_after_ns;
        let wake = if is_cold { all.wake_cold_ns } else { all.wake_ns };
        self.tasks[task.0].system += wake;
        self.resume_at(task, self.now + wake);
    }

    /// Drops the events of a completion queue that is destroyed.
    pub(crate) fn drop_events(&mut self, node: usize, channel: usize, cookie: u64) {
        if let Some(found) = self.nodes[node].channels[channel].as_mut() {
            found.events.retain(|event| *event != cookie);
        }
    }
}

/// The next event of a channel; waits for it until `until` (`None`: as long as it takes).
pub(crate) fn wait(sim: &Sim, node: usize, channel: usize, until: Option<Ps>) -> Option<u64> {
    let next = |world: &mut World| world.nodes[node].channels[channel].as_mut()?.events.pop_front();
    // A look for an event takes time: a loop of them would never end otherwise.
    sim.work(sim.parameters.memory_look_ns);
    loop {
        if let Some(cookie) = sim.with(next) {
            return Some(cookie);
        }
        let now = sim.now();
        let task = sim.running()?;
        if until.is_some_and(|until| now >= until) || sim.with(|world| world.stopped().is_some()) {
            return None;
        }
        sim.with(|world| {
            if let Some(found) = world.nodes[node].channels[channel].as_mut() {
                found.sleepers.push_back((task, now));
            }
        });
        match until {
            Some(until) => sim.block_until(until, WHAT),
            None => sim.block(WHAT),
        }
        sim.note(node, Component::WakeUp, "the processor is awake");
        sim.with(|world| {
            if let Some(found) = world.nodes[node].channels[channel].as_mut() {
                found.sleepers.retain(|(sleeper, _)| *sleeper != task);
            }
        });
    }
}
