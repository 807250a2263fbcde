//! A rank of a simulation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rdmalab_measure::{Clock, Stamp};
use rdmalab_rank::{CpuTime, Rank, Stopped};

use crate::component::Component;
use crate::idle_calls::IdleCall;
use crate::kernel::{LookLimit, Sim, World};
use crate::task::TaskId;
use crate::time::Ps;

/// How long a rank waits for a message that does not come.
const PATIENCE_NS: u64 = 60_000_000_000;

/// One end of an experiment in virtual time.
pub struct SimRank {
    pub(crate) sim: Arc<Sim>,
    pub(crate) index: usize,
    pub(crate) count: usize,
    pub(crate) clock: Clock,
}

impl World {
    /// A rank gives its bytes; the last one lets all others go at this instant.
    fn give(&mut self, rank: usize, count: usize, bytes: &[u8]) -> bool {
        let exchange = &mut self.exchange;
        exchange.given.resize(count, None);
        exchange.given[rank] = Some(bytes.to_vec());
        if exchange.given.iter().any(Option::is_none) {
            return false;
        }
        let given = exchange.given.iter_mut().map(|bytes| bytes.take().unwrap_or_default());
        exchange.got = Arc::new(given.collect());
        exchange.rounds += 1;
        let now = self.now;
        for task in std::mem::take(&mut self.exchange.waiting) {
            self.resume_at(task, now);
        }
        true
    }
}

impl SimRank {
    fn exchanged(&self, bytes: &[u8], to_end: bool) -> Result<Vec<Vec<u8>>, Stopped> {
        let round = self.sim.with(|world| world.exchange.rounds);
        let is_last = self.sim.with(|world| world.give(self.index, self.count, bytes));
        while !is_last && self.sim.with(|world| world.exchange.rounds == round) {
            let task = self.sim.running();
            if let Err(why) = self.check(to_end) {
                self.sim.with(|world| world.exchange.withdraw(self.index, task));
                return Err(why);
            }
            self.sim.with(|world| world.exchange.waiting.extend(task));
            self.sim.block("the other ranks, to exchange what they know");
        }
        self.sim.note(self.index, Component::Ranks, "all ranks have exchanged what they know");
        let got = self.sim.with(|world| world.exchange.got.clone());
        Ok(got.to_vec())
    }

    /// Fails if all ranks have to end. With `to_end`, a request to stop is no reason.
    pub(crate) fn check(&self, to_end: bool) -> Result<(), Stopped> {
        self.sim.with(|world| match world.stopped() {
            Some(Stopped::Asked) if to_end => Ok(()),
            Some(why) => Err(why.clone()),
            None => Ok(()),
        })
    }

    /// Looks until something is found, at most until `deadline`, which is that of `limit`; then
    /// `None`.
    fn look_for<T>(
        &self,
        limit: LookLimit,
        deadline: Ps,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>, Stopped> {
        loop {
            let seen = self.sim.seen();
            let (began, stolen) = (self.sim.now(), self.sim.stolen());
            if let Some(found) = look() {
                if self.sim.now() == began {
                    self.sim.note_look(self.index);
                }
                return Ok(Some(found));
            }
            if self.sim.now() == began {
                // It called no verb: it looked at memory.
                self.sim.work_in_vain(self.sim.parameters.memory_look_ns, IdleCall::Look);
            }
            if self.sim.now() >= deadline {
                self.sim.note(self.index, Component::Pause, "the program has waited long enough");
                return self.check(false).map(|()| None);
            }
            self.check(false)?;
            // Most looks have no interrupt.
            let period = self.sim.now() - began - (self.sim.stolen() - stolen);
            self.sim.look_again(seen, period, limit);
        }
    }
}

impl Rank for SimRank {
    fn index(&self) -> usize {
        self.index
    }

    fn count(&self) -> usize {
        self.count
    }

    fn now(&self) -> Stamp {
        self.sim.work_in_vain(self.sim.parameters.stamp_ns, IdleCall::Stamp);
        Stamp(self.sim.now().0)
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn clock_error_ns(&self, _other: usize) -> Option<f64> {
        Some(0.0)
    }

    fn sleep(&self, ns: u64) -> Result<(), Stopped> {
        self.sim.sleep_until(self.sim.now() + Ps::from_whole_ns(ns));
        self.sim.note(self.index, Component::Pause, "the pause ends");
        self.check(false)
    }

    fn think(&self, ns: u64) -> Result<(), Stopped> {
        self.sim.work(Ps::from_whole_ns(ns));
        self.check(false)
    }

    fn spin<T>(&self, look: impl FnMut() -> Option<T>) -> Result<T, Stopped> {
        let deadline = self.sim.now() + Ps::from_whole_ns(PATIENCE_NS);
        let found = self.look_for(LookLimit::Patience(deadline), deadline, look)?;
        found.ok_or_else(|| {
            Stopped::TimedOut(format!(
                "rank {} waited {} virtual seconds, and nothing arrived",
                self.index,
                PATIENCE_NS / 1_000_000_000
            ))
        })
    }

    fn spin_for<T>(
        &self,
        limit_ns: u64,
        look: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>, Stopped> {
        let deadline = self.sim.now() + Ps::from_whole_ns(limit_ns);
        self.look_for(LookLimit::At(deadline), deadline, look)
    }

    fn busy_until(
        &self,
        until: Stamp,
        mut meanwhile: impl FnMut() -> Result<bool, Stopped>,
    ) -> Result<Stamp, Stopped> {
        let stamp_ps = self.sim.parameters.stamp_ns;
        loop {
            let (began, stolen) = (self.sim.now(), self.sim.stolen());
            let now = self.now();
            if now >= until {
                return Ok(now);
            }
            let seen = self.sim.seen();
            let has_more = meanwhile()?;
            self.check(false)?;
            if !has_more {
                let period = self.sim.now() - began - (self.sim.stolen() - stolen);
                // The last stamp of the bare loop begins at this time or after it.
                let limit = LookLimit::At(Ps(until.0.saturating_sub(stamp_ps.0)));
                self.sim.look_again(seen, period, limit);
            }
        }
    }

    fn poll_memory(&self, word: &AtomicU64, old: u64) -> Result<u64, Stopped> {
        self.spin(|| Some(word.load(Ordering::Acquire)).filter(|new| *new != old))
    }

    fn restamping<T>(&self, word: &AtomicU64, body: impl FnOnce() -> T) -> Result<T, Stopped> {
        /// Ends the restamping, also if the body panics.
        struct EndOnDrop<'a>(&'a SimRank);
        impl Drop for EndOnDrop<'_> {
            fn drop(&mut self) {
                self.0.sim.with(|world| world.nodes[self.0.index].restamped = None);
            }
        }
        let addr = word.as_ptr() as u64;
        self.sim.with(|world| world.nodes[self.index].restamped = Some(addr));
        let _end = EndOnDrop(self);
        Ok(body())
    }

    fn copied(&self, bytes: u64) {
        self.sim.work(self.sim.parameters.copy_mb_per_s.time(bytes));
    }

    fn spawn<T: Send>(
        &self,
        bodies: Vec<Box<dyn FnOnce() -> T + Send + '_>>,
    ) -> Result<Vec<T>, Stopped> {
        crate::threads::run(&self.sim, self.index, bodies)
    }

    fn patience_ns(&self) -> u64 {
        PATIENCE_NS
    }

    fn is_asked_to_stop(&self) -> bool {
        self.sim.with(|world| matches!(world.stopped(), Some(Stopped::Asked)))
    }

    fn exchange(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Stopped> {
        self.check(false)?;
        self.exchanged(bytes, false)
    }

    fn exchange_to_end(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Stopped> {
        self.check(true)?;
        self.exchanged(bytes, true)
    }

    fn stamp_cost(&self, samples: usize) -> rdmalab_measure::StampCost {
        let cost = self.clock.cost_of(samples, || self.now());
        if let Some(TaskId(task)) = self.sim.running() {
            self.sim.with(|world| world.tasks[task].row.forget());
        }
        cost
    }

    fn cpu_time(&self) -> CpuTime {
        self.sim.with(|world| {
            let tasks = || world.tasks.iter().filter(|task| task.node == self.index);
            CpuTime {
                user_ns: tasks().map(|task| task.user.whole_ns()).sum(),
                system_ns: tasks().map(|task| task.system.whole_ns()).sum(),
            }
        })
    }
}
