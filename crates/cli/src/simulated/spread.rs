//! Points are divided among the processes that mpirun or srun started. Process 0 hands them out in
//! their order, one for each processor that a process has for itself, and another one whenever a
//! process has finished one: points take very different times.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rdmalab_experiments::Point;
use rdmalab_rank::Stopped;
use rdmalab_rank::process::{AloneEvent, TeamEvent};

use super::ahead::{WAITING_PER_THREAD, threads};
use super::job::{Done, Setup};
use crate::team::Team;

/// Interval of checks whether the user wants to stop.
const TICK: Duration = Duration::from_millis(100);
/// How long a process may take to stop before its connection is closed.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// Points that other processes simulate.
pub struct Spread {
    setup: Setup,
    team: Team,
    points: Vec<Point>,
    /// How many points each process simulates at a time.
    room: Vec<usize>,
    /// The next point to hand out, and the next to be taken.
    next: usize,
    taken: usize,
    /// Process and point of each job that has not ended.
    under_way: BTreeMap<u64, (usize, usize)>,
    done: BTreeMap<usize, Done>,
    /// Whether the result of a point is lost: later points are not handed out.
    is_lost: bool,
    /// When the processes were asked to stop.
    stopping: Option<Instant>,
}

impl Spread {
    /// Begins to hand out these points.
    pub fn new(setup: Setup, team: Team, points: Vec<Point>) -> Spread {
        let room = team.lock().infos().map(|info| threads(info.share, setup.ranks)).collect();
        let mut spread = Spread {
            setup,
            team,
            points,
            room,
            next: 0,
            taken: 0,
            under_way: BTreeMap::new(),
            done: BTreeMap::new(),
            is_lost: false,
            stopping: None,
        };
        spread.hand_out();
        spread
    }

    /// Waits for the result of the next point, which must be this one; `None` if it is another one.
    pub fn take(&mut self, point: &Point, on_event: &mut dyn FnMut(TeamEvent)) -> Option<Done> {
        let index = self.taken;
        if self.points.get(index) != Some(point) {
            return None;
        }
        loop {
            self.hand_out();
            if let Some(done) = self.done.remove(&index) {
                self.taken += 1;
                return Some(done);
            }
            if index >= self.next {
                // It was not handed out.
                return Some(Done { why: Some(self.why_not()), ..Done::default() });
            }
            self.take_events(on_event);
            self.end_if_asked();
        }
    }

    /// Gives points to processes that have room, while there are points.
    fn hand_out(&mut self) {
        let mut team = self.team.lock();
        let most = self.room.iter().sum::<usize>() * (1 + WAITING_PER_THREAD);
        while self.next < self.points.len().min(self.taken + most)
            && !self.is_lost
            && self.stopping.is_none()
        {
            let free = |rank: &usize| {
                let has = self.under_way.values().filter(|(of, _)| of == rank).count();
                self.room[*rank].saturating_sub(has)
            };
            let alive = (0..self.room.len()).filter(|rank| team.end_of(*rank).is_none());
            // Of equal ones the first.
            let Some(rank) = alive.rev().max_by_key(free).filter(|rank| free(rank) > 0) else {
                return;
            };
            match self.setup.job(&self.points[self.next]) {
                Ok(bytes) => {
                    let job = team.give(rank, bytes);
                    self.under_way.insert(job, (rank, self.next));
                }
                Err(why) => {
                    self.done.insert(self.next, Done { why: Some(why), ..Done::default() });
                }
            }
            self.next += 1;
        }
    }

    /// Why a point that should be handed out is not.
    fn why_not(&self) -> String {
        if self.stopping.is_some() {
            return Stopped::Asked.to_string();
        }
        let team = self.team.lock();
        let ends: Vec<String> = (0..self.room.len()).filter_map(|rank| team.end_of(rank)).collect();
        format!("no process is left to simulate: {}", ends.join("; "))
    }

    /// Waits a moment for what comes from the processes.
    fn take_events(&mut self, on_event: &mut dyn FnMut(TeamEvent)) {
        let event = self.team.lock().next_alone(TICK);
        match event {
            Some(AloneEvent::Ended { job, result }) => {
                // An unknown job is one of an earlier sweep.
                let Some((_, index)) = self.under_way.remove(&job) else { return };
                let done = result.and_then(|bytes| {
                    postcard::from_bytes(&bytes).map_err(|e| format!("a process's result: {e}"))
                });
                let failed = |why| Done { why: Some(why), ..Done::default() };
                self.done.insert(index, done.unwrap_or_else(failed));
            }
            Some(AloneEvent::Gone { rank, what }) => self.lose(rank, &what),
            Some(AloneEvent::Log { rank, text }) => on_event(TeamEvent::Log { rank, text }),
            None => on_event(TeamEvent::Tick),
        }
    }

    /// A process is gone: the points that it simulated are lost.
    fn lose(&mut self, rank: usize, what: &str) {
        for (_, index) in self.under_way.values().filter(|(of, _)| *of == rank) {
            self.is_lost = true;
            self.done.insert(*index, Done { why: Some(what.to_owned()), ..Done::default() });
        }
        self.under_way.retain(|_, (of, _)| *of != rank);
    }

    /// Asks the processes to stop when the user wants it, and ends those that do not.
    fn end_if_asked(&mut self) {
        match self.stopping {
            None if self.setup.asked.load(Ordering::Relaxed) => self.stop(),
            Some(since) if since.elapsed() > LAST_WORDS => {
                let s = LAST_WORDS.as_secs();
                let what = format!(
                    "did not stop within {s} s of being told to, so its connection was closed"
                );
                let silent: BTreeSet<usize> = self.under_way.values().map(|(of, _)| *of).collect();
                for rank in silent {
                    let name = {
                        let mut team = self.team.lock();
                        team.cut_off(rank, &what);
                        team.end_of(rank).unwrap_or_default()
                    };
                    self.lose(rank, &name);
                }
            }
            _ => {}
        }
    }

    /// Asks all processes that simulate to stop.
    fn stop(&mut self) {
        self.stopping = Some(Instant::now());
        let busy: BTreeSet<usize> = self.under_way.values().map(|(rank, _)| *rank).collect();
        let mut team = self.team.lock();
        busy.into_iter().for_each(|rank| team.ask_to_stop(rank));
    }
}

/// Stops the points that nobody takes any more: the processes may get others.
impl Drop for Spread {
    fn drop(&mut self) {
        if !self.under_way.is_empty() && self.stopping.is_none() {
            self.stop();
        }
        while !self.under_way.is_empty() {
            self.take_events(&mut |_| ());
            self.end_if_asked();
        }
    }
}
