//! A trial at rank 0: the operations are posted in their time and completed.

use rdmalab_measure::Stamp;
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{SendRequest, Wc, WcStatus};

use crate::common::completions::{failed, timed_out};
use crate::common::params::Op;
use crate::odp::end::TrialEnd;
use crate::odp::layout::{Operation, PROBES, Plan};

/// Completions taken at once.
const POLLED: usize = 64;

/// The `wr_id` of an operation that is not of the trial.
const WARMING: u64 = u64::MAX;

/// The `wr_id` of what a work-around posts, less the number of the queue pair.
const PROBE: u64 = 1 << 62;

/// The pause after the pages are warm, in which an adapter repeats what it still repeats: after a
/// fault at the requester, a ConnectX-4 asks again each half a millisecond.
const SETTLE_NS: u64 = 10_000_000;

/// What became of the operations of a trial.
pub(super) struct Trial {
    /// From the post of each to its completion, in ns; NaN where it failed.
    pub each_ns: Vec<f64>,
    /// From the first post to the completion of each, in ns; NaN where it failed.
    pub done_ns: Vec<f64>,
    /// From the first post to the last completion, failed ones included.
    pub whole_ns: f64,
    /// Operations that failed after all retries.
    pub failed: u64,
    /// Operations behind those on their queue pairs.
    pub flushed: u64,
    /// The longest time from a post to a completion, failed ones included.
    pub longest_ns: f64,
    /// What a work-around posted.
    pub probes: u64,
}

/// Rank 0 of a trial.
pub(super) struct Client<'a, R> {
    rank: &'a R,
    end: &'a TrialEnd,
    plan: &'a Plan,
    interval_ns: u64,
    /// The longest time without a completion.
    limit_ns: u64,
    posted: Vec<Stamp>,
    /// When each was completed, and whether well.
    done: Vec<Option<(Stamp, bool)>>,
    left: usize,
    failed: u64,
    flushed: u64,
    /// Requests of a work-around that wait in each queue.
    probing: Vec<usize>,
    /// How many there were.
    probes: u64,
}

impl<'a, R: Rank> Client<'a, R> {
    pub fn new(
        rank: &'a R,
        end: &'a TrialEnd,
        plan: &'a Plan,
        interval_ns: u64,
        limit_ns: u64,
    ) -> Self {
        let count = plan.operations;
        let (posted, done) = (Vec::with_capacity(count), vec![None; count]);
        Self {
            rank,
            end,
            plan,
            interval_ns,
            limit_ns,
            posted,
            done,
            left: count,
            failed: 0,
            flushed: 0,
            probing: vec![0; plan.qps],
            probes: 0,
        }
    }

    /// Makes the pages known that shall be, one after the other.
    pub fn warm(&mut self) -> Result<(), Stopped> {
        let mut is_warm = false;
        for one in self.plan.warming() {
            self.post(&one, WARMING)?;
            let mut wc = [Wc::default()];
            self.wait(self.limit_ns, &mut wc)?
                .ok_or_else(|| timed_out(self.limit_ns, "an operation before the trial"))?;
            wc[0].status().map_err(|e| failed(format!("an operation before the trial: {e}")))?;
            is_warm = true;
        }
        if is_warm { self.rank.sleep(SETTLE_NS) } else { Ok(()) }
    }

    /// Posts all operations, and waits until each is completed.
    pub fn run(mut self) -> Result<Trial, Stopped> {
        let rank = self.rank;
        for i in 0..self.plan.operations {
            if let Some(before) = self.posted.last() {
                let due = rank.clock().after_ns(*before, self.interval_ns as f64);
                self.complete_until(due)?;
            }
            self.posted.push(rank.now());
            self.post(&self.plan.operation(i), i as u64)?;
        }
        let mut wcs = [Wc::default(); POLLED];
        while self.left > 0 {
            let found = self.wait_or_probe(&mut wcs)?;
            let count = found.ok_or_else(|| timed_out(self.limit_ns, &self.what()))?;
            self.keep(&wcs[..count])?;
        }
        Ok(self.ended())
    }

    /// What is waited for.
    fn what(&self) -> String {
        format!("{} of {} operations", self.left, self.plan.operations)
    }

    /// Takes completions until it is time to post; one look at least.
    fn complete_until(&mut self, due: Stamp) -> Result<(), Stopped> {
        let mut wcs = [Wc::default(); POLLED];
        loop {
            let now = self.rank.now();
            if now >= due {
                let count = self.end.cq.poll(&mut wcs).map_err(failed)?;
                return self.keep(&wcs[..count]);
            }
            let left_ns = self.rank.clock().ns_between(now, due) as u64;
            if let Some(count) = self.wait(left_ns.max(1), &mut wcs)? {
                self.keep(&wcs[..count])?;
            }
        }
    }

    /// How many completions came. While none comes, a work-around posts.
    fn wait_or_probe(&mut self, wcs: &mut [Wc]) -> Result<Option<usize>, Stopped> {
        if !self.plan.work_around.posts() {
            return self.wait(self.limit_ns, wcs);
        }
        let (after_ns, mut waited_ns) = (self.plan.work_around_after_ns, 0);
        while waited_ns < self.limit_ns {
            let next_ns = after_ns.min(self.limit_ns - waited_ns);
            let found = self.wait(next_ns, wcs)?;
            if found.is_some() {
                return Ok(found);
            }
            waited_ns += next_ns;
            self.probe()?;
        }
        Ok(None)
    }

    /// Posts on each queue pair that waits.
    fn probe(&mut self) -> Result<(), Stopped> {
        for qp in 0..self.plan.qps {
            let mut own = (qp..self.plan.operations).step_by(self.plan.qps);
            let oldest = own.find(|i| self.done[*i].is_none());
            if let Some(oldest) = oldest
                && self.probing[qp] < PROBES
            {
                let probe = self.plan.probe(&self.plan.operation(oldest));
                self.post(&probe, PROBE + qp as u64)?;
                self.probing[qp] += 1;
                self.probes += 1;
            }
        }
        Ok(())
    }

    /// How many completions came within a time.
    fn wait(&self, limit_ns: u64, wcs: &mut [Wc]) -> Result<Option<usize>, Stopped> {
        let found = self.rank.spin_for(limit_ns, || match self.end.cq.poll(wcs) {
            Ok(0) => None,
            other => Some(other),
        })?;
        found.transpose().map_err(failed)
    }

    fn post(&self, one: &Operation, number: u64) -> Result<(), Stopped> {
        let sges = [self.end.mr.sge(one.at, one.bytes)];
        let sges = if one.bytes == 0 { &sges[..0] } else { &sges[..] };
        let request = match one.op {
            Op::Read => SendRequest::read(sges, &self.end.peer, one.at as u64),
            Op::Write => SendRequest::write(sges, &self.end.peer, one.at as u64),
            _ => SendRequest::send(sges),
        };
        let request = request.wr_id(number).signaled();
        self.end.qps[one.qp].post_send(&[request]).map_err(failed)
    }

    fn keep(&mut self, wcs: &[Wc]) -> Result<(), Stopped> {
        if wcs.is_empty() {
            return Ok(());
        }
        let now = self.rank.now();
        for wc in wcs {
            let probing = wc.wr_id().checked_sub(PROBE).and_then(|qp| usize::try_from(qp).ok());
            if let Some(waiting) = probing.and_then(|qp| self.probing.get_mut(qp)) {
                // If it failed, so did the operations before it.
                *waiting -= 1;
                continue;
            }
            let is_done = match wc.status() {
                Ok(()) => true,
                Err(WcStatus::RetryExceeded | WcStatus::RnrRetryExceeded) => {
                    self.failed += 1;
                    false
                }
                Err(WcStatus::WorkRequestFlushed) => {
                    self.flushed += 1;
                    false
                }
                Err(other) => return Err(failed(format!("an operation: {other}"))),
            };
            let place = usize::try_from(wc.wr_id()).ok().and_then(|i| self.done.get_mut(i));
            let place = place.filter(|place| place.is_none());
            *place.ok_or_else(|| {
                failed("a completion arrived that belongs to no posted operation")
            })? = Some((now, is_done));
            self.left -= 1;
        }
        Ok(())
    }

    fn ended(self) -> Trial {
        let clock = self.rank.clock();
        let since = |from: &[Stamp], is_any: bool| -> Vec<f64> {
            let each = self.done.iter().zip(from.iter().cycle()).map(|(done, from)| match done {
                Some((at, is_done)) if *is_done || is_any => clock.ns_between(*from, *at),
                _ => f64::NAN,
            });
            each.collect()
        };
        let longest = |all: Vec<f64>| all.into_iter().fold(0.0, f64::max);
        let first = &self.posted[..1];
        Trial {
            each_ns: since(&self.posted, false),
            done_ns: since(first, false),
            whole_ns: longest(since(first, true)),
            longest_ns: longest(since(&self.posted, true)),
            failed: self.failed,
            flushed: self.flushed,
            probes: self.probes,
        }
    }
}
