//! The kernel of time: one clock, the events that are to come, and the tasks that wait for them.
//!
//! Nobody runs ahead of the clock. A call that takes time returns when the clock has reached its
//! end: events of adapters before that are handled at once, on the caller's stack; if another task
//! is due before that, the caller is suspended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rdmalab_rank::Stopped;

use crate::adapter::{Node, SimQp};
use crate::buffers::Buffers;
use crate::capture::Capture;
use crate::event::{Event, EventQueue};
use crate::exchange::Exchange;
use crate::fabric::Fabric;
use crate::idle_calls::{IdleCall, Row};
use crate::ids::QpId;
use crate::lock_table::LockTable;
use crate::noise::Interrupts;
use crate::packets::Bytes;
use crate::parameters::Parameters;
use crate::task::{self, Body, TaskId};
use crate::time::Ps;
use crate::timeline::Timeline;

/// How many times a task goes on or works between two looks whether to stop.
const STEPS_PER_LOOK: u64 = 256;

/// A simulation, as all its objects see it.
pub(crate) struct Sim {
    pub(crate) name: String,
    pub(crate) parameters: Parameters,
    world: Mutex<World>,
    /// Whether a rank has ever had threads.
    has_threads: AtomicBool,
    /// Whether there is a timeline.
    pub(crate) has_timeline: AtomicBool,
    /// The clock in picoseconds, for [`rdmalab_measure::Clock`].
    pub(crate) clock_ps: &'static AtomicU64,
}

/// When a task gives up that looks for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookLimit {
    /// At this time it goes on with something else.
    At(Ps),
    /// At this time it fails: it waited as long as a rank has patience. That changes nothing for
    /// the others, so it fails sooner if nothing else is to come.
    Patience(Ps),
    /// Never.
    Never,
}

impl LookLimit {
    pub(crate) fn time(self) -> Option<Ps> {
        match self {
            LookLimit::At(time) | LookLimit::Patience(time) => Some(time),
            LookLimit::Never => None,
        }
    }
}

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskState {
    /// It runs, or its resumption is due at a fixed time.
    Active,
    /// It looks for something again and again, and would find nothing now.
    Looks {
        /// When the last look ended.
        since: Ps,
        /// How long a look takes.
        period: Ps,
        /// When it gives up.
        limit: LookLimit,
    },
    /// It sleeps until a time; or until what it waits for comes, if that is named.
    Sleeps(Option<&'static str>),
    /// It waits for another task: an exchange, an event, the end of its threads.
    Blocked(&'static str),
    /// It has ended.
    Ended,
}

/// A task, as the kernel sees it.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) node: usize,
    pub(crate) state: TaskState,
    /// Number of its present or next wait, so that only one event resumes it.
    wait: u32,
    /// The task that waits for its end.
    parent: Option<TaskId>,
    /// Its threads that have not ended.
    pub(crate) children: usize,
    /// The time for which a [`Event::LookLimit`] is scheduled.
    pub(crate) look_limit: Option<Ps>,
    /// How often something happened that it may look for.
    pub(crate) happenings: u64,
    /// Its calls in a row that found nothing.
    pub(crate) row: Row,
    /// Processor time, in the program and in the kernel.
    pub(crate) user: Ps,
    pub(crate) system: Ps,
    /// The interrupts of its processor, if there are some.
    interrupts: Option<Interrupts>,
    /// The time that they took from it so far.
    stolen: Ps,
}

/// The state of a simulation.
pub(crate) struct World {
    pub(crate) now: Ps,
    pub(crate) queue: EventQueue,
    pub(crate) tasks: Vec<Task>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) fabric: Fabric,
    pub(crate) parameters: Parameters,
    /// For payload on its way.
    pub(crate) buffers: Buffers,
    /// Seed of all noise.
    pub(crate) seed: u64,
    /// Tasks that were added and not begun.
    pub(crate) added: Vec<(TaskId, Body)>,
    /// Events so far.
    pub(crate) events: u64,
    /// Payload that was sent so far.
    pub(crate) bytes: Bytes,
    /// After so many events all ranks end, for this reason.
    pub(crate) end_after: Option<(u64, Stopped)>,
    /// How often there was an occasion to look whether to stop.
    looks: u64,
    pub(crate) exchange: Exchange,
    /// What the threads of a rank wait for.
    pub(crate) locks: LockTable,
    /// The steps of one message, if somebody wants them.
    pub(crate) timeline: Option<Timeline>,
    /// The packets of all adapters, if somebody wants them.
    pub(crate) capture: Option<Box<Capture>>,
    /// Why all ranks have to end.
    stopped: Option<Stopped>,
    /// When one of them is set, all ranks are asked to stop.
    pub(crate) asked: Vec<Arc<AtomicBool>>,
}

impl Sim {
    pub(crate) fn new(
        name: &str,
        parameters: Parameters,
        ranks: usize,
        asked: Arc<AtomicBool>,
    ) -> Arc<Sim> {
        let world = World {
            now: Ps::ZERO,
            queue: EventQueue::default(),
            tasks: Vec::new(),
            nodes: (0..ranks).map(|index| Node::new(index, &parameters)).collect(),
            fabric: Fabric::new(&parameters, ranks),
            parameters,
            buffers: Buffers::default(),
            seed: 0,
            added: Vec::new(),
            events: 0,
            bytes: Bytes::default(),
            end_after: None,
            looks: 0,
            exchange: Exchange::default(),
            locks: LockTable::default(),
            timeline: None,
            capture: None,
            stopped: None,
            asked: vec![asked],
        };
        let clock_ps = Box::leak(Box::new(AtomicU64::new(0)));
        let (name, world) = (name.to_owned(), Mutex::new(world));
        let (has_threads, has_timeline) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Sim { name, parameters, world, has_threads, has_timeline, clock_ps })
    }

    /// Whether a rank has threads, or had some.
    pub(crate) fn has_threads(&self) -> bool {
        self.has_threads.load(Ordering::Relaxed)
    }

    /// Adds a thread of a rank, whose task is `parent`.
    pub(crate) fn add_thread(&self, node: usize, parent: TaskId, body: Body) {
        self.has_threads.store(true, Ordering::Relaxed);
        self.with(|world| world.add_task(node, Some(parent), body));
    }

    /// The task of this simulation that runs on this thread; `None` outside of tasks.
    pub(crate) fn running(&self) -> Option<TaskId> {
        task::running(self.address())
    }

    /// What tells this simulation from others.
    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// Uses the state. No task may wait inside.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        act(&mut self.world.lock())
    }

    /// The time now.
    pub(crate) fn now(&self) -> Ps {
        Ps(self.clock_ps.load(Ordering::Relaxed))
    }

    /// The node of the rank that calls; outside of tasks, that of rank 0.
    pub(crate) fn own_node(&self) -> usize {
        self.running().map_or(0, |TaskId(task)| self.with(|world| world.tasks[task].node))
    }

    /// The caller's processor works for `cost`. Does nothing outside of tasks.
    pub(crate) fn work(&self, cost: Ps) {
        self.spend(cost, |task| {
            task.row.end();
            &mut task.user
        });
    }

    /// The same for a call that finds nothing.
    pub(crate) fn work_in_vain(&self, cost: Ps, call: IdleCall) {
        self.spend(cost, |task| {
            task.row.add(call);
            &mut task.user
        });
    }

    /// The same in the kernel.
    pub(crate) fn work_in_kernel(&self, cost: Ps) {
        self.spend(cost, |task| {
            task.row.end();
            &mut task.system
        });
    }

    fn spend(&self, cost: Ps, account: impl FnOnce(&mut Task) -> &mut Ps) {
        let Some(TaskId(task)) = self.running() else { return };
        if cost == Ps::ZERO {
            return;
        }
        let mut world = self.world.lock();
        *account(&mut world.tasks[task]) += cost;
        world.look_whether_asked();
        world.touch_siblings(task);
        let cost = world.with_interrupts(task, cost);
        let until = world.now + cost;
        if world.run_to(until) {
            self.clock_ps.store(until.0, Ordering::Relaxed);
            return;
        }
        world.resume_at(TaskId(task), until);
        drop(world);
        self.suspend();
    }

    /// Does nothing until a time; the processor is idle.
    pub(crate) fn sleep_until(&self, until: Ps) {
        self.sleep(until, None);
    }

    /// Waits until another task calls [`World::resume_at`], or until a time; `what` is for people.
    pub(crate) fn block_until(&self, until: Ps, what: &'static str) {
        self.sleep(until, Some(what));
    }

    fn sleep(&self, until: Ps, what: Option<&'static str>) {
        let Some(task) = self.running() else { return };
        self.with(|world| {
            world.touch_siblings(task.0);
            world.tasks[task.0].row.end();
            let until = until.max(world.now);
            world.resume_at(task, until);
            world.tasks[task.0].state = TaskState::Sleeps(what);
        });
        self.suspend();
    }

    /// The time that interrupts took from the caller so far.
    pub(crate) fn stolen(&self) -> Ps {
        if self.parameters.interrupts_per_s == 0 {
            return Ps::ZERO; // Asked at each look, so without the lock.
        }
        self.running().map_or(Ps::ZERO, |TaskId(task)| self.with(|world| world.tasks[task].stolen))
    }

    /// Waits until another task calls [`World::resume_at`]; `what` is for people.
    pub(crate) fn block(&self, what: &'static str) {
        let Some(task) = self.running() else { return };
        self.with(|world| {
            world.touch_siblings(task.0);
            world.tasks[task.0].row.end();
            world.tasks[task.0].state = TaskState::Blocked(what);
        });
        self.suspend();
    }

    /// Lets other tasks run, until this one is resumed.
    pub(crate) fn suspend(&self) {
        task::suspend();
        self.with(|world| self.clock_ps.store(world.now.0, Ordering::Relaxed));
    }

    /// Handles events up to the next time at which a task goes on; `None` if there is none, but for
    /// the ends of the tasks' patience.
    pub(crate) fn next_task(&self) -> Option<TaskId> {
        let mut world = self.world.lock();
        let next = world.next_task();
        self.clock_ps.store(world.now.0, Ordering::Relaxed);
        next
    }
}

impl World {
    /// Adds a task of a node; it begins now.
    pub(crate) fn add_task(&mut self, node: usize, parent: Option<TaskId>, body: Body) {
        let task = TaskId(self.tasks.len());
        self.tasks.push(Task {
            node,
            state: TaskState::Active,
            wait: 0,
            parent,
            children: 0,
            look_limit: None,
            happenings: 0,
            row: Row::default(),
            user: Ps::ZERO,
            system: Ps::ZERO,
            interrupts: Interrupts::of_task(&self.parameters, self.seed, task.0),
            stolen: Ps::ZERO,
        });
        if let Some(TaskId(parent)) = parent {
            self.tasks[parent].children += 1;
        }
        self.nodes[node].tasks += 1;
        self.added.push((task, body));
        self.resume_at(task, self.now);
    }

    /// A task has ended.
    pub(crate) fn end_task(&mut self, task: TaskId) {
        self.touch_siblings(task.0);
        let ended = &mut self.tasks[task.0];
        ended.state = TaskState::Ended;
        let (node, parent) = (ended.node, ended.parent);
        self.nodes[node].tasks -= 1;
        if let Some(TaskId(parent)) = parent {
            self.tasks[parent].children -= 1;
            if self.tasks[parent].children == 0
                && matches!(self.tasks[parent].state, TaskState::Blocked(_))
            {
                self.resume_at(TaskId(parent), self.now);
            }
        }
    }

    /// How long work of a task takes that begins now, with the interrupts of its processor.
    fn with_interrupts(&mut self, task: usize, cost: Ps) -> Ps {
        let found = &mut self.tasks[task];
        let Some(interrupts) = &mut found.interrupts else { return cost };
        let took = interrupts.lengthen(&self.parameters, self.now, cost);
        found.stolen += took - cost;
        took
    }

    /// Resumes a task that waits, or that is about to wait, at a time.
    pub(crate) fn resume_at(&mut self, task: TaskId, at: Ps) {
        let found = &mut self.tasks[task.0];
        found.state = TaskState::Active;
        found.wait = found.wait.wrapping_add(1);
        let wait = found.wait;
        self.queue.push(at, Event::Resume { task, wait });
    }

    /// Something happened at a node that its tasks may look for.
    pub(crate) fn happened(&mut self, node: usize) {
        let now = self.now;
        if self.nodes[node].tasks == 1 && node < self.tasks.len() {
            // The task of a rank has the number of its node, and ends after its threads.
            return self.tell(node, now);
        }
        for task in 0..self.tasks.len() {
            if self.tasks[task].node == node {
                self.tell(task, now);
            }
        }
    }

    /// The task may have changed something that another task of its node looks for.
    fn touch_siblings(&mut self, task: usize) {
        let (node, now) = (self.tasks[task].node, self.now);
        if self.nodes[node].tasks == 1 {
            return;
        }
        for other in 0..self.tasks.len() {
            if other != task && self.tasks[other].node == node {
                self.tell(other, now);
            }
        }
    }

    fn tell(&mut self, task: usize, now: Ps) {
        self.tasks[task].happenings += 1;
        self.wake_looker(task, now);
    }

    /// Ends the whole simulation: every task that waits goes on, and finds the reason.
    pub(crate) fn stop(&mut self, why: Stopped) {
        if matches!(self.stopped, None | Some(Stopped::Asked)) {
            self.stopped = Some(why);
        }
        for task in 0..self.tasks.len() {
            if !matches!(self.tasks[task].state, TaskState::Active | TaskState::Ended) {
                self.resume_at(TaskId(task), self.now);
            }
        }
    }

    /// Why all ranks have to end, if they have to.
    pub(crate) fn stopped(&self) -> Option<&Stopped> {
        self.stopped.as_ref()
    }

    /// What each task waits for that has not ended, for people.
    pub(crate) fn waiting(&self) -> String {
        let waits = |(index, task): (usize, &Task)| {
            let what = match task.state {
                TaskState::Blocked(what) | TaskState::Sleeps(Some(what)) => what,
                TaskState::Looks { .. } => "a completion or a write to its memory",
                TaskState::Active | TaskState::Sleeps(None) | TaskState::Ended => return None,
            };
            let thread = if index < self.nodes.len() { "" } else { " (a thread)" };
            Some(format!("rank {}{thread} waits for {what}", task.node))
        };
        self.tasks.iter().enumerate().filter_map(waits).collect::<Vec<_>>().join("; ")
    }

    /// Handles all events up to `until`, and sets the clock to it; false if a task is due before or
    /// at that time. The clock then stays where it is.
    fn run_to(&mut self, until: Ps) -> bool {
        while let Some((at, event)) = self.queue.peek() {
            if at > until {
                break;
            }
            if let Event::Resume { task, wait } = event {
                if self.tasks[task.0].wait == *wait {
                    return false;
                }
                self.queue.pop();
                continue;
            }
            self.handle_next();
        }
        self.now = until;
        true
    }

    fn next_task(&mut self) -> Option<TaskId> {
        loop {
            self.look_whether_asked();
            let (at, event) = self.queue.peek()?;
            if let Event::LookLimit { task } = *event
                && self.is_only_patience_left(task)
            {
                return None;
            }
            if let Event::Resume { task, wait } = *event {
                let is_due = self.tasks[task.0].wait == wait;
                self.queue.pop();
                if is_due {
                    self.now = at;
                    self.queue.follow_taken();
                    let found = &mut self.tasks[task.0];
                    found.state = TaskState::Active;
                    found.wait = found.wait.wrapping_add(1);
                    return Some(task);
                }
            } else {
                self.handle_next();
            }
        }
    }

    /// Uses a queue pair, apart from the rest of its node; `None` if it was destroyed.
    pub(crate) fn with_qp<T>(
        &mut self,
        id: QpId,
        act: impl FnOnce(&mut World, &mut SimQp) -> T,
    ) -> Option<T> {
        let mut qp = self.nodes[id.node].take_qp(id)?;
        let result = act(self, &mut qp);
        self.nodes[id.node].put_qp(id, qp);
        Some(result)
    }

    fn handle_next(&mut self) {
        let cause = self.queue.cause();
        let Some((at, event)) = self.queue.pop() else { return };
        debug_assert!(at >= self.now, "an event in the past");
        self.now = at;
        self.events += 1;
        self.queue.follow_taken();
        self.handle(event);
        // What a task was about to do does not come from an event in between.
        self.queue.set_cause(cause);
        if let Some((_, why)) = self.end_after.take_if(|(events, _)| *events <= self.events) {
            self.stop(why);
        }
    }

    /// Stops all ranks if somebody asked for that; looks once in many calls.
    fn look_whether_asked(&mut self) {
        let is_time = self.looks.is_multiple_of(STEPS_PER_LOOK);
        self.looks += 1;
        if is_time && self.stopped.is_none() {
            let is_set = |asked: &Arc<AtomicBool>| asked.load(Ordering::Relaxed);
            if self.asked.iter().any(is_set) {
                self.stop(Stopped::Asked);
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Resume { .. } => unreachable!("tasks are resumed by the scheduler"),
            Event::LookLimit { task } => self.look_limit(task),
            Event::Doorbell { qp, posted, wqe } => self.doorbell(qp, posted, wqe),
            Event::SendWqes { qp, posted } => self.have_send_wqes(qp, posted),
            Event::MoreSendWqes { qp } => self.more_send_wqes(qp),
            Event::SendTurn { node } => self.send_turn(node),
            Event::PayloadRead(packets) => self.read_payload(packets),
            Event::Depart(packets) => self.depart(packets),
            Event::Left(leaving) => self.have_left(leaving),
            Event::Deferred { node } => self.release_deferred(node),
            Event::Book { part } => self.book(part),
            Event::AtSwitch(packets) => self.at_switch(packets),
            Event::Replicate(packets) => self.replicate(packets),
            Event::Arrive { node, packets } => {
                if let Some(packets) = self.has_arrived(node, packets) {
                    self.arrive(node, packets);
                }
            }
            Event::Offer { qp } => self.offer(qp),
            Event::RecvWqes { qp, count } => self.have_recv_wqes(qp, count),
            Event::SrqWqes { node, srq, count } => self.have_srq_wqes(node, srq, count),
            Event::Write { node } => self.write_memory(node),
            Event::WriteCompletions { node, cq } => self.write_completions(node, cq),
            Event::Completion { node, cq } => self.complete(node, cq),
            Event::Timer { qp } => self.timer(qp),
            Event::PageArrives { node, page } => self.page_arrives(node, page),
            Event::PageResume { node, context } => self.page_resume(node, context),
        }
    }
}
