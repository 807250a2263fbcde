//! One job of a group, from its start until each rank has ended it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use serde_bytes::ByteBuf;

use super::{Cause, TeamEvent, WorkerGroup, WorkerGroupError};
use crate::process::frame::{self, FromWorker, ToLauncher, ToWorker};
use crate::process::handshake::printable;

/// How long ranks may take to hand in what they measured, when the run is at its end: without a
/// byte from them, and in all.
const LAST_WORDS: Duration = Duration::from_secs(3);
const LAST_WORDS_MAX: Duration = Duration::from_secs(60);
/// Interval of checks whether the user wants to stop.
const TICK: Duration = Duration::from_millis(100);

/// The state of a running job.
struct Progress {
    job: u64,
    results: Vec<Option<Vec<u8>>>,
    /// Ranks that have ended the job.
    ended: Vec<bool>,
    /// The bytes of each rank for the exchange that is under way, with the round.
    parts: Vec<Option<(u64, Vec<u8>)>>,
    failure: Option<Failure>,
    was_interrupted: bool,
    ending: Option<Ending>,
}

/// The first failure.
struct Failure {
    rank: usize,
    what: String,
    cause: Cause,
}

/// Exists once all ranks were told to end.
struct Ending {
    began: Instant,
    /// When the last bytes came from these ranks, and the number of bytes up to then.
    last_received: Instant,
    bytes: u64,
    /// Whether the ranks were told that some rank will not come to the exchange any more. Before
    /// that, a rank that waits in an exchange is not considered silent.
    in_vain: bool,
}

impl Progress {
    fn new(job: u64, count: usize) -> Self {
        Self {
            job,
            results: vec![None; count],
            ended: vec![false; count],
            parts: vec![None; count],
            failure: None,
            was_interrupted: false,
            ending: None,
        }
    }

    fn is_over(&self) -> bool {
        self.ended.iter().all(|&e| e)
    }

    /// Ranks that an exchange waits for.
    fn missing(&self) -> Vec<usize> {
        (0..self.parts.len()).filter(|&i| self.parts[i].is_none()).collect()
    }
}

impl WorkerGroup {
    /// Sends each rank its job, forwards exchanges between the ranks, and collects the results.
    ///
    /// When a rank fails or is gone, the launcher tells the others, and gives them a moment to hand
    /// in their measurements. When `interrupt` becomes true, it tells all ranks; if all hand in
    /// their results, that is no error. A rank that does not end then loses its connection.
    /// `patience` limits how long a rank waits for others; only `interrupt` limits the job itself.
    ///
    /// # Errors
    /// The first failure, with rank and host, and the results that each rank handed in.
    ///
    /// # Panics
    /// When there are not as many jobs as ranks.
    pub fn run(
        &mut self,
        jobs: &[Vec<u8>],
        patience: Duration,
        interrupt: &AtomicBool,
        mut on_event: impl FnMut(TeamEvent),
    ) -> Result<Vec<Vec<u8>>, WorkerGroupError> {
        assert_eq!(jobs.len(), self.members.len(), "a job for each rank");
        self.job += 1;
        for (rank, text) in std::mem::take(&mut self.early) {
            on_event(TeamEvent::Log { rank, text: printable(&text) });
        }
        let mut progress = Progress::new(self.job, jobs.len());
        if let Some(rank) = self.members.iter().position(|m| m.gone.is_some()) {
            let how = self.members[rank].gone.clone().unwrap_or_default();
            self.fail(&mut progress, rank, &how, Cause::Died);
            return Err(self.error(progress));
        }
        let patience_ns = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        for (rank, bytes) in jobs.iter().enumerate() {
            let bytes = ByteBuf::from(bytes.as_slice());
            self.tell(rank, &ToWorker::Job { job: self.job, patience_ns, bytes });
        }
        let mut tick = Instant::now() + TICK;
        while !progress.is_over() {
            match self.incoming.recv_timeout(tick.saturating_duration_since(Instant::now())) {
                Ok((rank, message)) => self.take(&mut progress, rank, message, &mut on_event),
                Err(RecvTimeoutError::Timeout) => {}
                // Each reading thread has ended, and said so before.
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if Instant::now() >= tick {
                on_event(TeamEvent::Tick);
                tick = Instant::now() + TICK;
            }
            if interrupt.load(Ordering::Relaxed) && !progress.was_interrupted {
                progress.was_interrupted = true;
                let stop = ToWorker::Stop { job: self.job };
                self.tell_to_end(&mut progress, &stop, false);
            }
            self.end_the_silent(&mut progress);
        }
        self.take_the_rest(&mut on_event);
        self.conclude(progress)
    }

    /// Handles messages that arrived by the end of a job: shows log lines, and records which ranks
    /// are gone for the next job.
    fn take_the_rest(&mut self, on_event: &mut impl FnMut(TeamEvent)) {
        // Bounded, since a rank might send without end.
        for _ in 0..super::WAITING_FRAMES {
            let Ok((rank, message)) = self.incoming.try_recv() else { return };
            match message {
                FromWorker::Message(ToLauncher::Log(text)) => {
                    on_event(TeamEvent::Log { rank, text: printable(&text) });
                }
                FromWorker::Message(ToLauncher::Died(how)) => {
                    self.members[rank].gone.get_or_insert(how);
                }
                FromWorker::Closed(error) if self.members[rank].gone.is_none() => {
                    let _ = self.members[rank].exit_text(error);
                }
                // Known, or of this job.
                FromWorker::Closed(_) | FromWorker::Message(_) => {}
            }
        }
    }

    fn take(
        &mut self,
        progress: &mut Progress,
        rank: usize,
        message: FromWorker,
        on_event: &mut impl FnMut(TeamEvent),
    ) {
        let ours = progress.job;
        match message {
            FromWorker::Message(ToLauncher::Log(text)) => {
                on_event(TeamEvent::Log { rank, text: printable(&text) });
            }
            FromWorker::Message(ToLauncher::Exchange { job, round, bytes }) if job == ours => {
                progress.parts[rank] = Some((round, bytes.into_vec()));
                self.exchange(progress, rank);
            }
            FromWorker::Message(ToLauncher::Done { job, cpu, bytes }) if job == ours => {
                self.members[rank].info.cpu = cpu;
                progress.results[rank] = Some(bytes.into_vec());
                progress.ended[rank] = true;
                self.exchange(progress, rank);
            }
            FromWorker::Message(ToLauncher::Failed { job, why }) if job == ours => {
                progress.ended[rank] = true;
                let missing = waiting_text(progress, rank);
                self.fail(progress, rank, &format!("{why}{missing}"), Cause::Failed);
            }
            FromWorker::Message(ToLauncher::Died(how)) => self.lose(progress, rank, &how),
            // Known already, or the launcher closed the connection itself.
            FromWorker::Closed(_) if self.members[rank].gone.is_some() => {}
            FromWorker::Closed(error) => {
                let how = self.members[rank].exit_text(error);
                self.lose(progress, rank, &how);
            }
            // Of an earlier job.
            FromWorker::Message(_) => {}
        }
    }

    /// A rank is gone.
    fn lose(&mut self, progress: &mut Progress, rank: usize, how: &str) {
        self.members[rank].gone.get_or_insert_with(|| how.to_owned());
        if !progress.ended[rank] || progress.results[rank].is_none() {
            self.fail(progress, rank, how, Cause::Died);
        }
        progress.ended[rank] = true;
    }

    /// Ends an exchange if all ranks have come, or if some rank never will.
    fn exchange(&mut self, progress: &mut Progress, newest: usize) {
        let missing = progress.missing();
        let Some(round) = progress.parts.iter().flatten().map(|p| p.0).next() else { return };
        if let Some(&absent) = missing.iter().find(|&&i| progress.ended[i]) {
            if progress.failure.is_none() {
                let what = "has ended its job, but other ranks wait for it in an exchange";
                self.fail(progress, absent, what, Cause::Failed);
            }
            return;
        }
        if !missing.is_empty() {
            return;
        }
        if progress.parts.iter().flatten().any(|p| p.0 != round) {
            self.fail(progress, newest, "is out of step with the others", Cause::Failed);
            return;
        }
        let parts = progress.parts.iter_mut().map(|p| p.take().unwrap_or_default().1);
        let all = parts.map(ByteBuf::from).collect();
        match frame::encode(&ToWorker::Exchanged { job: progress.job, round, all }) {
            Ok(frame) => (0..self.members.len()).for_each(|i| self.tell_bytes(i, &frame)),
            Err(error) => self.fail(progress, newest, &error.to_string(), Cause::Failed),
        }
    }

    /// Keeps the first failure and tells the other ranks. If a rank's death follows, that is taken
    /// for the cause: the failure of its peer may arrive at the launcher earlier.
    fn fail(&mut self, progress: &mut Progress, rank: usize, what: &str, cause: Cause) {
        let what = self.of(rank, what);
        match &mut progress.failure {
            None => {
                progress.failure = Some(Failure { rank, what: what.clone(), cause });
                let other = ToWorker::Other { job: progress.job, why: what };
                self.tell_to_end(progress, &other, true);
            }
            Some(first) if cause == Cause::Died && first.cause == Cause::Failed => {
                let what = format!("{what}; {}", first.what);
                *first = Failure { rank, what, cause };
            }
            Some(_) => {}
        }
    }

    fn tell_to_end(&mut self, progress: &mut Progress, what: &ToWorker, in_vain: bool) {
        for rank in 0..self.members.len() {
            if !progress.ended[rank] {
                self.tell(rank, what);
            }
        }
        if progress.ending.as_ref().is_none_or(|ending| in_vain && !ending.in_vain) {
            let now = Instant::now();
            progress.ending = Some(Ending { began: now, last_received: now, bytes: 0, in_vain });
        }
    }

    /// Closes the connection of each rank that was told to end and does not. Ranks that wait for it
    /// are told, and get another moment to hand in their results.
    fn end_the_silent(&mut self, progress: &mut Progress) {
        let Some(ending) = &mut progress.ending else { return };
        let bytes = self.members.iter().map(|m| m.bytes.load(Ordering::Relaxed)).sum();
        if bytes != ending.bytes {
            (ending.bytes, ending.last_received) = (bytes, Instant::now());
        }
        if ending.last_received.elapsed() < LAST_WORDS && ending.began.elapsed() < LAST_WORDS_MAX {
            return;
        }
        let in_vain = ending.in_vain;
        let is_silent =
            |rank: &usize| !progress.ended[*rank] && (in_vain || progress.parts[*rank].is_none());
        let silent: Vec<usize> = (0..self.members.len()).filter(is_silent).collect();
        // Mark all of them first, so that none of them is told of another one.
        silent.iter().for_each(|&rank| progress.ended[rank] = true);
        for rank in silent {
            let s = LAST_WORDS.as_secs();
            let what = format!("did not stop within {s} s of being told to, and was ended");
            let _ = self.members[rank].exit_text(None);
            self.members[rank].gone = Some(what.clone());
            // The launcher ended this rank, so its death is not the cause of the failure.
            self.fail(progress, rank, &what, Cause::Failed);
        }
    }

    fn conclude(&self, progress: Progress) -> Result<Vec<Vec<u8>>, WorkerGroupError> {
        if progress.failure.is_some() || progress.results.iter().any(Option::is_none) {
            return Err(self.error(progress));
        }
        Ok(progress.results.into_iter().flatten().collect())
    }

    fn error(&self, progress: Progress) -> WorkerGroupError {
        let partial = progress.results;
        match progress.failure {
            Some(failure) => {
                let told = progress.was_interrupted && failure.cause == Cause::Failed;
                let cause = if told { Cause::Interrupted } else { failure.cause };
                WorkerGroupError { cause, rank: Some(failure.rank), what: failure.what, partial }
            }
            None => {
                let what = "interrupted".to_owned();
                WorkerGroupError { cause: Cause::Interrupted, rank: None, what, partial }
            }
        }
    }
}

/// Names the ranks that a rank had waited for when it failed in an exchange.
fn waiting_text(progress: &Progress, rank: usize) -> String {
    let missing: Vec<usize> = progress.missing();
    if progress.parts[rank].is_none() || missing.is_empty() || progress.failure.is_some() {
        return String::new();
    }
    let names: Vec<String> = missing.iter().map(|i| format!("rank {i}")).collect();
    format!(" (missing: {})", names.join(", "))
}
