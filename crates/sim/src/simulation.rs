//! Runs ranks in virtual time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rdmalab_measure::Clock;
use rdmalab_rank::Stopped;
use serde::{Deserialize, Serialize};

use crate::adapter::Node;
use crate::backend::SimBackend;
use crate::capture::{Capture, CaptureFile};
use crate::faults::Faults;
use crate::kernel::Sim;
use crate::packets::Bytes;
use crate::profile::Profile;
use crate::rank::SimRank;
use crate::raw_loops::RawLoop;
use crate::task::{Body, TaskStack, caught};
use crate::time::Ps;
use crate::timeline::{Breakdown, Step, Timeline};

/// A fabric with one adapter for each rank.
pub struct Simulation {
    sim: Arc<Sim>,
    ranks: usize,
    on_threads: bool,
}

/// What a simulation took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Events of adapters and of the fabric.
    pub events: u64,
    /// Virtual time.
    pub time: Ps,
    /// The steps of the message of [`Simulation::with_timeline`].
    pub timeline: Vec<Step>,
    /// Where the time of all messages of that rank went.
    pub breakdown: Breakdown,
    /// Payload that was sent, without multicasts.
    pub bytes: Bytes,
    /// How many packets of each rank one of the rules of [`Simulation::with_faults`] applied to.
    pub disturbed: Vec<u64>,
    /// What happened to pages of each rank's on-demand regions, as
    /// [`rdmalab_engine::odp::Counters::named`] has it.
    pub pages: Vec<Vec<(String, u64)>>,
    /// What the queue pairs of each rank counted, as [`rdmalab_engine::qp::Tally::named`] has it.
    pub counted: Vec<Vec<(String, u64)>>,
    /// Why a file of [`Simulation::with_capture`] is not whole.
    pub capture_error: Option<String>,
    /// Loops of ranks that are slow to simulate.
    pub raw_loops: Vec<RawLoop>,
}

impl Simulation {
    /// A simulation of `ranks` ranks, whose adapters are as the profile says. When `asked` is set,
    /// all ranks are asked to stop.
    #[must_use]
    pub fn new(profile: &Profile, ranks: usize, asked: Arc<AtomicBool>) -> Simulation {
        let name = format!("sim:{}", profile.name);
        let sim = Sim::new(&name, profile.parameters, ranks, asked);
        Simulation { sim, ranks, on_threads: false }
    }

    /// Runs each rank and each of its threads on a thread of the operating system, in place of
    /// coroutines: a slow way to the same results.
    #[must_use]
    pub fn on_threads(self) -> Simulation {
        Simulation { on_threads: true, ..self }
    }

    /// Asks all ranks to stop when `asked` is set, too.
    #[must_use]
    pub fn stopped_by(self, asked: Arc<AtomicBool>) -> Simulation {
        self.sim.with(|world| world.asked.push(asked));
        self
    }

    /// Ends all ranks after so many events, for this reason: as a request to stop does, or a rank
    /// that fails, but at a moment that can be repeated.
    #[must_use]
    pub fn ended_after(self, events: u64, why: Stopped) -> Simulation {
        self.sim.with(|world| world.end_after = Some((events, why)));
        self
    }

    /// The name of its devices.
    #[must_use]
    pub fn device_name(&self) -> &str {
        &self.sim.name
    }

    /// Seeds the noise, if the profile has some.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Simulation {
        self.sim.with(|world| world.seed = seed);
        self
    }

    /// Keeps the steps from the post number `message` of a rank, from 0, to its next post, and sums
    /// up where the time of all its messages goes.
    #[must_use]
    pub fn with_timeline(self, rank: usize, message: u64) -> Simulation {
        self.sim.has_timeline.store(true, Ordering::Relaxed);
        self.sim.with(|world| {
            world.queue.keep_causes();
            world.timeline = Some(Timeline::of_message(rank, message));
        });
        self
    }

    /// Injects faults into the packets of each adapter, as in `drop 1% of request`. What is drawn
    /// differs with the stream: one for each repetition.
    ///
    /// # Errors
    /// Which rule is wrong: one line.
    pub fn with_faults(self, rules: &str, stream: u64) -> Result<Simulation, String> {
        self.sim.with(|world| {
            world.nodes.iter_mut().try_for_each(|node| {
                node.faults = Some(Faults::parse(rules, stream)?);
                Ok::<(), String>(())
            })
        })?;
        Ok(self)
    }

    /// Writes what each adapter sends and receives to a file for each rank, behind its
    /// [`capture_head`]. The simulation begins at `begin_ns` of the time in the files.
    ///
    /// [`capture_head`]: crate::capture_head
    #[must_use]
    pub fn with_capture(self, files: Vec<CaptureFile>, begin_ns: u64) -> Simulation {
        assert_eq!(files.len(), self.ranks, "a file for each rank");
        let capture = Some(Box::new(Capture::new(files, begin_ns)));
        self.sim.with(|world| world.capture = capture);
        self
    }

    /// Its adapters, as a back end. Each rank opens its own one.
    #[must_use]
    pub fn backend(&self) -> Arc<SimBackend> {
        Arc::new(SimBackend(self.sim.clone()))
    }

    /// Runs `body` on every rank until all have ended; returns their results by rank, and what it
    /// took. If a rank fails, or waits for something that cannot come, all ranks end.
    pub fn run<T>(
        self,
        body: impl Fn(&SimRank) -> Result<T, Stopped>,
    ) -> (Vec<Result<T, Stopped>>, Report) {
        let results: Vec<_> = (0..self.ranks).map(|_| RefCell::new(None)).collect();
        let clock = Clock::virtual_time(self.sim.clock_ps);
        {
            let (body, results) = (&body, &results);
            let one = |index: usize| -> Box<dyn FnOnce() + '_> {
                let rank = SimRank { sim: self.sim.clone(), index, count: self.ranks, clock };
                Box::new(move || {
                    let result = caught(|| body(&rank)).unwrap_or_else(|panic| {
                        Err(Stopped::Failed(format!("rank {index} panicked: {panic}")))
                    });
                    let result = result.map_err(|why| with_others(&rank.sim, why));
                    if let Err(why) = &result {
                        fail(&rank.sim, index, why);
                    }
                    *results[index].borrow_mut() = Some(result);
                })
            };
            for index in 0..self.ranks {
                // SAFETY: `schedule` returns when every task has ended, or drops those that have
                // not: after that nothing refers to the body and its results.
                let body = unsafe { Body::outliving(one(index)) };
                self.sim.with(|world| world.add_task(index, None, body));
            }
            schedule(&self.sim, self.on_threads);
        }
        let none = || Err(Stopped::Failed("the rank did not start".to_owned()));
        let result = |result: RefCell<Option<_>>| result.into_inner().unwrap_or_else(none);
        let results = results.into_iter().map(result).collect();
        let report = self.sim.with(|world| {
            let closed = world.timeline.take().map(Timeline::close).unwrap_or_default();
            let (timeline, breakdown) = closed;
            Report {
                events: world.events,
                time: world.now,
                timeline,
                breakdown,
                bytes: world.bytes,
                disturbed: world.nodes.iter().map(Node::disturbed_packets).collect(),
                pages: world.nodes.iter().map(|node| owned(node.page_counters().named())).collect(),
                counted: world.nodes.iter().map(|node| owned(node.tally().named())).collect(),
                capture_error: world.capture.take().and_then(|capture| capture.close()),
                raw_loops: world.raw_loops(),
            }
        });
        (results, report)
    }
}

/// Numbers with names that another process can be sent.
fn owned(named: impl IntoIterator<Item = (&'static str, u64)>) -> Vec<(String, u64)> {
    named.into_iter().map(|(name, number)| (name.to_owned(), number)).collect()
}

/// Adds what the other ranks wait for, if one has waited for too long.
fn with_others(sim: &Sim, why: Stopped) -> Stopped {
    match (why, sim.with(|world| world.waiting())) {
        (Stopped::TimedOut(why), others) if !others.is_empty() => {
            Stopped::TimedOut(format!("{why}; meanwhile {others}"))
        }
        (why, _) => why,
    }
}

/// A rank has failed: all others end.
fn fail(sim: &Sim, rank: usize, why: &Stopped) {
    let why = match why {
        Stopped::Asked => Stopped::Asked,
        Stopped::Other(why) => Stopped::Other(why.clone()),
        why => Stopped::Other(format!("rank {rank}: {why}")),
    };
    sim.with(|world| world.stop(why));
}

/// The stacks of the tasks that have not ended, by number. Those that are left are dropped in
/// reverse order: threads before their rank, whose memory they use.
#[derive(Default)]
struct Stacks(BTreeMap<usize, TaskStack>);

impl Drop for Stacks {
    fn drop(&mut self) {
        while self.0.pop_last().is_some() {}
    }
}

/// Runs tasks in the order of their times until all have ended.
fn schedule(sim: &Sim, on_threads: bool) {
    let mut stacks = Stacks::default();
    loop {
        for (id, body) in sim.with(|world| std::mem::take(&mut world.added)) {
            match TaskStack::new(id, sim.address(), body, on_threads) {
                Ok(stack) => drop(stacks.0.insert(id.0, stack)),
                Err(error) => {
                    let why = format!("cannot allocate the stack of a rank: {error}");
                    sim.with(|world| {
                        world.stop(Stopped::Failed(why));
                        world.end_task(id);
                    });
                }
            }
        }
        if stacks.0.is_empty() {
            return;
        }
        let Some(id) = sim.next_task() else {
            sim.with(|world| world.stop(Stopped::Other(format!("deadlock: {}", world.waiting()))));
            continue;
        };
        let Some(stack) = stacks.0.get_mut(&id.0) else { continue };
        if stack.resume() {
            stacks.0.remove(&id.0);
            sim.with(|world| world.end_task(id));
        }
    }
}
