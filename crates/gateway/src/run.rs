//! Runs a plan: opens the nodes, starts the threads, and collects what they report.

use std::collections::BTreeMap;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdmalab_rank::realtime;

use crate::node::{NodeCounts, World, wall_time};
use crate::nodes::loopback;
use crate::path::{Input, Output, Path};
use crate::plan::{Plan, PlannedNode, PlannedPath};
use crate::queue::queue;
use crate::summary::{PathReport, Summary};

/// Time between two looks at the threads and the clocks.
const SLICE: Duration = Duration::from_millis(20);
/// A jump of the wall clock against the monotonic one that is a step. Clocks that are steered move
/// apart by at most 0.5 ms a second (adjtimex(2)).
const STEP_NS: i128 = 2_000_000;

impl Plan {
    /// Runs until all sources have ended and everything was handed over, or until
    /// [`World::stop`] is set and what was under way is handed over.
    ///
    /// # Errors
    /// Why it could not begin, in one line.
    pub fn run(mut self, world: &World) -> Result<Summary, String> {
        let world = World { timer: self.gateway.timer, ..world.clone() };
        if self.gateway.locks_memory
            && let Err(why) = realtime::lock_memory()
        {
            world.log.say(why);
        }
        let paths = self.open(&world)?;
        for PlannedNode { name, node, .. } in &mut self.nodes {
            node.start(&world).map_err(|why| format!("{name}: {why}"))?;
        }
        let mut threads: Vec<JoinHandle<Result<PathReport, String>>> = Vec::new();
        for path in paths {
            let (name, stop) = (path.name.clone(), world.stop.clone());
            let thread = std::thread::Builder::new().name("path".to_owned()).spawn(move || {
                let ended = path.run();
                if ended.is_err() {
                    stop.set();
                }
                ended
            });
            match thread {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    world.stop.set();
                    return Err(format!("{name}: {error}"));
                }
            }
        }
        let clock_steps_ns = watch(&world, &threads);
        let reports: Result<Vec<_>, _> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a path panicked".to_owned())))
            .collect();
        // Connections end here, after all paths have.
        drop(self.nodes);
        Ok(Summary { version: 1, paths: reports?, clock_steps_ns })
    }

    /// Opens all destinations, then all sources.
    fn open(&mut self, world: &World) -> Result<Vec<Path>, String> {
        let mut outputs = Vec::new();
        for path in &mut self.paths {
            let mut own = Vec::new();
            for to in path.destinations.drain(..) {
                let PlannedNode { name, node, .. } = &mut self.nodes[to.node];
                let sink = node.sink(world, &to.signals).map_err(|why| format!("{name}: {why}"))?;
                let (name, counts) = (name.clone(), node.counts());
                own.push(Output { name, sink, counts, hooks: to.hooks });
            }
            outputs.push(own);
        }
        let mut paths: Vec<Path> = Vec::new();
        // Which path reads a node first, and as which of its sources.
        let mut first: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
        let planned_paths = std::mem::take(&mut self.paths);
        for (number, (planned, outputs)) in planned_paths.into_iter().zip(outputs).enumerate() {
            let mut inputs = Vec::new();
            for (place, &at) in planned.sources.iter().enumerate() {
                let PlannedNode { name, node, is_builtin, signals, hooks_in, observers, .. } =
                    &mut self.nodes[at];
                let mut counts = node.counts();
                let source = match first.get(&at) {
                    None => {
                        first.insert(at, (number, place));
                        node.source(world).map_err(|why| format!("{name}: {why}"))?
                    }
                    Some(&(path, input)) => {
                        let (samples, overflow) =
                            (planned.config.queuelen, planned.config.overflow);
                        let (writer, reader) = queue(samples, signals.len(), overflow);
                        let original = &mut paths[path].inputs[input];
                        let skips_missed = original.source.skips_missed();
                        // Peers and garbage are those of the first path; ticks are missed in both.
                        counts = NodeCounts { missed: counts.missed, ..NodeCounts::default() };
                        original.copies.push((writer, counts.dropped.clone()));
                        Box::new(loopback::Copied { queue: reader, skips_missed })
                    }
                };
                inputs.push(Input {
                    name: name.clone(),
                    source,
                    builtin: *is_builtin && planned.config.builtin,
                    counts,
                    // Of further paths, the samples have gone through them.
                    hooks: std::mem::take(hooks_in),
                    observers: std::mem::take(observers),
                    copies: Vec::new(),
                    triggers: planned.triggers[place],
                });
            }
            paths.push(self.path(planned, inputs, outputs, world));
        }
        Ok(paths)
    }

    fn path(
        &self,
        planned: PlannedPath,
        inputs: Vec<Input>,
        outputs: Vec<Output>,
        world: &World,
    ) -> Path {
        let config = &planned.config;
        let of_sources = planned.sources.iter().map(|&at| {
            let PlannedNode { node, signals, .. } = &self.nodes[at];
            node.signals().len().max(signals.len())
        });
        // One more than the signals, to see that a peer sends more.
        let values = of_sources.max().unwrap_or(0).max(planned.signals.len()) + 1;
        Path {
            name: planned.name,
            keeps_numbers: config.original_sequence_no.unwrap_or(inputs.len() == 1),
            inputs,
            outputs,
            hooks: planned.hooks,
            taken: planned.taken,
            signals: planned.signals,
            values,
            mode: config.mode,
            connect_wait: Duration::from_secs_f64(config.connect_wait),
            rate_hz: (config.rate > 0.0).then_some(config.rate),
            affinity: config.affinity.or(self.gateway.affinity).filter(|bits| *bits > 0),
            processor: self.gateway.processor,
            live: planned.live,
            priority: config.priority.or(self.gateway.priority).filter(|p| *p > 0),
            world: world.clone(),
        }
    }
}

/// Waits for the threads, and looks for steps of the wall clock meanwhile.
fn watch<T>(world: &World, threads: &[JoinHandle<T>]) -> Vec<i64> {
    let mut steps = Vec::new();
    let began = Instant::now();
    let apart_ns = || wall_time().total_ns() - began.elapsed().as_nanos() as i128;
    let mut last_ns = apart_ns();
    while !threads.iter().all(JoinHandle::is_finished) {
        std::thread::sleep(SLICE);
        let now_ns = apart_ns();
        let step_ns = now_ns - last_ns;
        if step_ns.abs() >= STEP_NS {
            // Two readings are not one: this thread may have waited in between.
            let again_ns = apart_ns() - last_ns;
            if again_ns.abs() >= STEP_NS {
                let ms = again_ns as f64 / 1e6;
                world.log.say(format_args!(
                    "the wall clock was set by {ms:+.3} ms: latencies across that step are wrong"
                ));
                steps.push(again_ns as i64);
            }
        }
        last_ns = apart_ns();
    }
    steps
}
