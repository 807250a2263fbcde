//! The state that the thread which reads from the launcher shares with the threads that measure.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::frame::ToWorker;
use crate::Stopped;

/// Locks a mutex even if it is poisoned by a panic: every state here is valid between any two
/// statements.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Work that came.
#[derive(Debug)]
pub struct Job {
    /// Its number, in the launcher's count.
    pub number: u64,
    /// How long to wait for other ranks; `None`: the rank does the job without them.
    pub patience_ns: Option<u64>,
    /// What to do.
    pub bytes: Vec<u8>,
}

/// Shared by the listening thread and the others.
#[derive(Debug, Default)]
pub struct Control {
    /// Set while there is a reason to stop. A spinning thread looks only at this.
    flag: Arc<AtomicBool>,
    state: Mutex<JobQueue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct JobQueue {
    /// The job that runs, or ran last.
    job: u64,
    jobs: VecDeque<Job>,
    reason: Option<Stopped>,
    exchanged: Option<(u64, Vec<Vec<u8>>)>,
    ended: bool,
}

impl Control {
    /// Whether there is a reason to stop.
    #[inline(always)]
    pub fn is_stopping(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// The flag itself.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.flag.clone()
    }

    /// The reason to stop, where there is one.
    pub fn check(&self) -> Result<(), Stopped> {
        if !self.is_stopping() {
            return Ok(());
        }
        lock(&self.state).reason.clone().map_or(Ok(()), Err)
    }

    /// Handles a message of the launcher.
    pub fn take(&self, message: ToWorker) {
        let mut state = lock(&self.state);
        match message {
            ToWorker::Job { job, patience_ns, bytes } => {
                self.begin(&mut state, (job, Some(patience_ns)), bytes.into_vec());
            }
            ToWorker::Alone { job, bytes } => {
                self.begin(&mut state, (job, None), bytes.into_vec());
            }
            ToWorker::Exchanged { job, round, all } if job == state.job => {
                let all = all.into_iter().map(serde_bytes::ByteBuf::into_vec).collect();
                state.exchanged = Some((round, all));
            }
            ToWorker::Other { job, why } if job == state.job => {
                self.stop(&mut state, Stopped::Other(why));
            }
            ToWorker::Stop { job } if job == state.job => self.stop(&mut state, Stopped::Asked),
            // The message is for a job that is over, or is a second assignment.
            _ => {}
        }
        self.changed.notify_all();
    }

    fn begin(
        &self,
        state: &mut JobQueue,
        (number, patience_ns): (u64, Option<u64>),
        bytes: Vec<u8>,
    ) {
        state.job = number;
        state.reason = None;
        state.exchanged = None;
        self.flag.store(false, Ordering::Relaxed);
        state.jobs.push_back(Job { number, patience_ns, bytes });
    }

    /// The launcher is gone.
    pub fn end(&self, why: &str) {
        let mut state = lock(&self.state);
        state.ended = true;
        self.stop(&mut state, Stopped::Other(why.to_owned()));
        self.changed.notify_all();
    }

    /// Keeps the first reason. But a later reason replaces [`Stopped::Asked`]: a rank that was only
    /// asked to stop may go on to an exchange, and has to learn that other ranks will not come.
    fn stop(&self, state: &mut JobQueue, reason: Stopped) {
        if matches!(state.reason, None | Some(Stopped::Asked)) {
            state.reason = Some(reason);
        }
        self.flag.store(true, Ordering::Relaxed);
    }

    /// The next job; `None` when there will be none.
    pub fn next_job(&self) -> Option<Job> {
        let mut state = lock(&self.state);
        loop {
            // A launcher that is gone wants no results.
            if state.ended {
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for the bytes of all ranks of this round. `to_end`: also if this rank was asked to
    /// stop.
    pub fn wait_exchanged(
        &self,
        round: u64,
        limit: Option<Duration>,
        to_end: bool,
    ) -> Result<Vec<Vec<u8>>, Stopped> {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut state = lock(&self.state);
        loop {
            if let Some((_, all)) = state.exchanged.take_if(|(of, _)| *of == round) {
                return Ok(all);
            }
            if let Some(reason) = &state.reason
                && !(to_end && *reason == Stopped::Asked)
            {
                return Err(reason.clone());
            }
            let Some(until) = until else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let s = limit.unwrap_or_default().as_secs_f64();
                let what = format!("waited {s} s for the other ranks in an exchange");
                return Err(Stopped::TimedOut(what));
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sleeps for `time`, or until there is a reason to stop.
    pub fn sleep(&self, time: Duration) -> Result<(), Stopped> {
        let until = Instant::now() + time;
        let mut state = lock(&self.state);
        loop {
            if let Some(reason) = &state.reason {
                return Err(reason.clone());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
