//! Several threads at each end: thread `i` of one end talks to thread `i` of the other. Each thread
//! has its own memory, and either its own queue pairs and completion queues or shared ones. Each
//! thread has its own [`Rank`]. All threads exchange data with the other end together, since the
//! ends have only one control connection.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use rdmalab_measure::outcome::Combination;
use rdmalab_measure::{Clock, Outcome, Quantity, Series, Stamp, StampCost};
use rdmalab_rank::{CpuTime, Locks, Monitor, Rank, Stopped};
use rdmalab_verbs::Context;

use crate::common::endpoint::Endpoint;
use crate::common::layout::Layout;
use crate::common::limits::Limits;
use crate::common::params::Common;

/// The message traffic of an experiment at one end, on one thread or on each of several.
pub(crate) trait Traffic: Sync {
    /// The memory of an end.
    fn layout(&self, common: &Common) -> Layout;

    /// Measures at one end, which is connected.
    fn measure<R: Rank>(
        &self,
        common: &Common,
        rank: &R,
        end: &Endpoint,
    ) -> Result<Outcome, Stopped>;
}

/// Connects the ends and measures, on as many threads as the options say.
pub(crate) fn run<R: Rank + Sync>(
    traffic: &impl Traffic,
    common: &Common,
    rank: &R,
    context: &Context,
    limits: &Limits,
) -> Result<Outcome, Stopped> {
    if common.threads == 1 {
        let end = Endpoint::connect(rank, context, limits, common, traffic.layout(common))?;
        return traffic.measure(common, rank, &end);
    }
    let common = &common.of_a_thread();
    let count = common.threads as usize;
    let mut ends: Vec<Endpoint> = Vec::with_capacity(count);
    for thread in 0..count {
        ends.push(match ends.first().filter(|_| common.share_qp) {
            Some(first) => first.beside(rank, context, common, thread)?,
            None => Endpoint::connect(rank, context, limits, common, traffic.layout(common))?,
        });
    }
    if common.share_qp {
        ends[0].thread_tag.set_memories(ends.iter().map(|end| end.mr.clone()).collect());
    }
    let group = ThreadGroup::new(count);
    let one = |index: usize| {
        let thread_rank = ThreadRank { rank, group: &group, index };
        let result = traffic.measure(&common.of_thread(index), &thread_rank, &ends[index]);
        if let Err(why) = &result {
            group.fail(rank, index, why);
        }
        result
    };
    let one = &one;
    let bodies = (0..count).map(|index| {
        let body: Box<dyn FnOnce() -> Result<Outcome, Stopped> + Send + '_> =
            Box::new(move || one(index));
        body
    });
    let mut outcome = joined(rank.spawn(bodies.collect())?)?;
    let each = if common.share_qp { "of all" } else { "of its own" };
    outcome.push_fact("queue_pairs_of_a_thread", each);
    Ok(outcome)
}

impl Common {
    /// Threads that share a queue pair.
    pub(crate) const fn sharers(&self) -> u32 {
        if self.share_qp { self.threads } else { 1 }
    }

    /// The options of one of several threads: its share of the queues that all threads use.
    pub(crate) fn of_a_thread(&self) -> Self {
        let sharers = self.sharers().max(1);
        let receivers = if self.op.needs_receives() { sharers } else { 1 };
        Self {
            tx_depth: self.tx_depth / sharers,
            rx_depth: self.rx_depth / receivers,
            ..self.clone()
        }
    }

    /// The options of the given thread, whose random arrivals differ from those of other threads.
    pub(crate) fn of_thread(&self, thread: usize) -> Self {
        Self { stream: self.stream + thread as u64, ..self.clone() }
    }
}

/// The threads of one end, and where they meet.
struct ThreadGroup {
    /// The bytes that each thread gave in this round.
    given: Monitor<Vec<Vec<u8>>>,
    /// How many threads gave bytes in this round.
    arrived: AtomicUsize,
    /// Rounds that are over.
    rounds: AtomicU64,
    /// The result of the last round: by rank, the bytes of all its threads.
    got: Monitor<Result<Vec<Vec<u8>>, Stopped>>,
    has_failed: AtomicBool,
    /// The first failure.
    why: Monitor<String>,
}

impl ThreadGroup {
    fn new(count: usize) -> Self {
        Self {
            given: Monitor::new(vec![Vec::new(); count]),
            arrived: AtomicUsize::new(0),
            rounds: AtomicU64::new(0),
            got: Monitor::new(Ok(Vec::new())),
            has_failed: AtomicBool::new(false),
            why: Monitor::new(String::new()),
        }
    }

    fn fail(&self, rank: &impl Locks, index: usize, why: &Stopped) {
        // Fails only if all ranks end.
        let _ = rank.locked(&self.why, |text| {
            if text.is_empty() {
                *text = format!("thread {index}: {why}");
            }
        });
        self.has_failed.store(true, Ordering::Release);
    }
}

/// A thread, as a rank of its own.
pub(crate) struct ThreadRank<'a, R> {
    rank: &'a R,
    group: &'a ThreadGroup,
    index: usize,
}

impl<R: Rank> ThreadRank<'_, R> {
    /// Waits for a condition, even if the rank is asked to stop: all threads reach the meeting
    /// point.
    fn until(&self, is_so: impl Fn() -> bool) -> Result<(), Stopped> {
        let start = self.rank.now();
        loop {
            let look = || (is_so() || self.group.has_failed.load(Ordering::Acquire)).then_some(());
            match self.rank.spin(look) {
                Ok(()) if is_so() => return Ok(()),
                Ok(()) => {
                    let why = self.rank.locked(&self.group.why, |why| why.clone())?;
                    return Err(Stopped::Other(why));
                }
                Err(Stopped::Asked) => {}
                Err(other) => return Err(other),
            }
            let waited_ns = self.rank.clock().ns_between(start, self.rank.now());
            if waited_ns > self.rank.patience_ns() as f64 {
                let what = "another thread of this rank did not reach the barrier in time";
                return Err(Stopped::TimedOut(what.into()));
            }
        }
    }

    /// The first thread exchanges the bytes of all threads with the other end.
    fn exchange_all(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Stopped> {
        self.together(bytes, |all| self.rank.exchange_to_end(all))
    }

    /// When all threads have come, the first one makes the call for all of them. Returns this
    /// thread's share of the result, by rank.
    fn together(
        &self,
        bytes: &[u8],
        act: impl FnOnce(&[u8]) -> Result<Vec<Vec<u8>>, Stopped>,
    ) -> Result<Vec<Vec<u8>>, Stopped> {
        let got = self.all_together(bytes, act)?;
        let own = |bytes: &Vec<u8>| unpacked(bytes).get(self.index).cloned().unwrap_or_default();
        Ok(got.iter().map(own).collect())
    }

    /// Like [`Self::together`], but returns the result for all threads.
    fn all_together(
        &self,
        bytes: &[u8],
        act: impl FnOnce(&[u8]) -> Result<Vec<Vec<u8>>, Stopped>,
    ) -> Result<Vec<Vec<u8>>, Stopped> {
        let group = self.group;
        let round = group.rounds.load(Ordering::Acquire);
        let count = self.rank.locked(&group.given, |given| {
            given[self.index] = bytes.to_vec();
            given.len()
        })?;
        group.arrived.fetch_add(1, Ordering::AcqRel);
        if self.index == 0 {
            self.until(|| group.arrived.load(Ordering::Acquire) == count)?;
            group.arrived.store(0, Ordering::Release);
            let all = self.rank.locked(&group.given, |given| packed(given))?;
            let got = act(&all);
            self.rank.locked(&group.got, |last| *last = got)?;
            group.rounds.store(round + 1, Ordering::Release);
        } else {
            self.until(|| group.rounds.load(Ordering::Acquire) > round)?;
        }
        self.rank.locked(&group.got, |got| got.clone())?
    }
}

/// Concatenates the byte strings, each with its length in front.
fn packed(all: &[Vec<u8>]) -> Vec<u8> {
    let each = all
        .iter()
        .flat_map(|one| (one.len() as u64).to_le_bytes().into_iter().chain(one.iter().copied()));
    each.collect()
}

fn unpacked(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<8>() {
        let length = (u64::from_le_bytes(*length) as usize).min(rest.len());
        let (one, rest) = rest.split_at(length);
        all.push(one.to_vec());
        bytes = rest;
    }
    all
}

impl<R: Rank> Locks for ThreadRank<'_, R> {
    #[inline(always)]
    fn locked<S, T>(
        &self,
        monitor: &Monitor<S>,
        act: impl FnOnce(&mut S) -> T,
    ) -> Result<T, Stopped> {
        self.rank.locked(monitor, act)
    }

    #[inline(always)]
    fn try_locked<S, T>(&self, monitor: &Monitor<S>, act: impl FnOnce(&mut S) -> T) -> Option<T> {
        self.rank.try_locked(monitor, act)
    }

    #[inline(always)]
    fn locked_or_sleep<S, T>(
        &self,
        monitor: &Monitor<S>,
        act: impl FnOnce(&mut S) -> Option<T>,
    ) -> Result<Option<T>, Stopped> {
        self.rank.locked_or_sleep(monitor, act)
    }

    #[inline(always)]
    fn wake_all<S>(&self, monitor: &Monitor<S>) {
        self.rank.wake_all(monitor);
    }
}

impl<R: Rank> Rank for ThreadRank<'_, R> {
    fn index(&self) -> usize {
        self.rank.index()
    }

    fn count(&self) -> usize {
        self.rank.count()
    }

    #[inline(always)]
    fn now(&self) -> Stamp {
        self.rank.now()
    }

    #[inline(always)]
    fn clock(&self) -> &Clock {
        self.rank.clock()
    }

    fn clock_error_ns(&self, other: usize) -> Option<f64> {
        self.rank.clock_error_ns(other)
    }

    fn shares_clock(&self, other: usize) -> bool {
        self.rank.shares_clock(other)
    }

    fn align_clocks(&self) -> Result<(), Stopped> {
        self.together(&[], |_| self.rank.align_clocks().map(|()| Vec::new())).map(drop)
    }

    fn to_own_clock(&self, other: usize, stamp: Stamp) -> Stamp {
        self.rank.to_own_clock(other, stamp)
    }

    fn sleep(&self, ns: u64) -> Result<(), Stopped> {
        self.rank.sleep(ns)
    }

    fn think(&self, ns: u64) -> Result<(), Stopped> {
        self.rank.think(ns)
    }

    #[inline(always)]
    fn spin<T>(&self, look: impl FnMut() -> Option<T>) -> Result<T, Stopped> {
        self.rank.spin(look)
    }

    #[inline(always)]
    fn spin_for<T>(
        &self,
        limit_ns: u64,
        look: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>, Stopped> {
        self.rank.spin_for(limit_ns, look)
    }

    #[inline(always)]
    fn busy_until(
        &self,
        until: Stamp,
        meanwhile: impl FnMut() -> Result<bool, Stopped>,
    ) -> Result<Stamp, Stopped> {
        self.rank.busy_until(until, meanwhile)
    }

    fn poll_memory(&self, word: &AtomicU64, old: u64) -> Result<u64, Stopped> {
        self.rank.poll_memory(word, old)
    }

    fn restamping<T>(&self, word: &AtomicU64, body: impl FnOnce() -> T) -> Result<T, Stopped> {
        self.rank.restamping(word, body)
    }

    fn restamp_shares_cpu(&self) -> bool {
        self.rank.restamp_shares_cpu()
    }

    #[inline(always)]
    fn copied(&self, bytes: u64) {
        self.rank.copied(bytes);
    }

    fn stamp_cost(&self, samples: usize) -> StampCost {
        self.rank.stamp_cost(samples)
    }

    fn spawn<T: Send>(
        &self,
        bodies: Vec<Box<dyn FnOnce() -> T + Send + '_>>,
    ) -> Result<Vec<T>, Stopped> {
        self.rank.spawn(bodies)
    }

    fn patience_ns(&self) -> u64 {
        self.rank.patience_ns()
    }

    #[inline(always)]
    fn is_asked_to_stop(&self) -> bool {
        self.rank.is_asked_to_stop()
    }

    fn exchange(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Stopped> {
        if self.is_asked_to_stop() { Err(Stopped::Asked) } else { self.exchange_all(bytes) }
    }

    fn exchange_to_end(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Stopped> {
        self.exchange_all(bytes)
    }

    fn agree(&self, number: u64) -> Result<(u64, u64), Stopped> {
        let number = number.to_le_bytes();
        let all = self.all_together(&number, |all| self.rank.exchange_to_end(all))?;
        let each: Vec<Vec<u8>> = all.iter().flat_map(|bytes| unpacked(bytes)).collect();
        rdmalab_rank::extremes(each.iter().map(Vec::as_slice))
    }

    /// Of all threads of the end: there is no count for a single thread.
    fn cpu_time(&self) -> CpuTime {
        self.rank.cpu_time()
    }
}

/// Joins the results of all threads: their common figures, and the series of each thread.
fn joined(results: Vec<Result<Outcome, Stopped>>) -> Result<Outcome, Stopped> {
    let told = |why: &Stopped| matches!(why, Stopped::Other(_) | Stopped::Asked);
    // Prefer the original failure to the failures of threads that were only told of it.
    let mut failures = results.iter().filter_map(|r| r.as_ref().err());
    if let Some(first) = failures.clone().find(|why| !told(why)).or_else(|| failures.next()) {
        return Err(first.clone());
    }
    let all: Vec<Outcome> = results.into_iter().flatten().collect();
    let mut sum = Outcome::default();
    for one in &all {
        for count in &one.counts {
            match sum.counts.iter_mut().find(|c| c.name == count.name) {
                Some(known) => known.value += count.value,
                None => sum.counts.push(count.clone()),
            }
        }
        let new = one.warnings.iter().filter(|w| !sum.warnings.contains(w)).cloned();
        sum.warnings.extend(new.collect::<Vec<_>>());
        sum.cut_short = sum.cut_short.or_else(|| one.cut_short.clone());
    }
    sum.facts = all.first().map(|one| one.facts.clone()).unwrap_or_default();
    figures(&all, &mut sum);
    series(all, &mut sum);
    Ok(sum)
}

fn of_thread(label: &str, index: usize) -> String {
    if label.is_empty() { format!("thread {index}") } else { format!("{label}, thread {index}") }
}

/// Rates of all threads add up, and their times per message follow from that; processor time is
/// the end's.
fn figures(all: &[Outcome], sum: &mut Outcome) {
    let Some(first) = all.first() else { return };
    for figure in &first.figures {
        let same = |f: &&rdmalab_measure::outcome::Figure| {
            f.quantity == figure.quantity && f.label == figure.label
        };
        let each: Vec<Option<f64>> =
            all.iter().map(|one| one.figures.iter().find(same).map(|f| f.value)).collect();
        let values = || each.iter().flatten().copied();
        let (quantity, count) = (figure.quantity, values().count() as f64);
        let together = match quantity {
            Quantity::Rate | Quantity::Bandwidth => values().sum(),
            Quantity::MessageTime => 1.0 / values().map(|ns| 1.0 / ns).sum::<f64>(),
            Quantity::CpuShare | Quantity::KernelShare => figure.value,
            _ => values().sum::<f64>() / count,
        };
        sum.push_figure(quantity, &figure.label, together);
        if !matches!(quantity, Quantity::CpuShare | Quantity::KernelShare) {
            for (index, value) in each.iter().enumerate() {
                if let Some(value) = value {
                    sum.push_figure(quantity, &of_thread(&figure.label, index), *value);
                }
            }
        }
    }
}

/// Samples of all threads in one series, thread by thread, and of each in one of its own.
fn series(all: Vec<Outcome>, sum: &mut Outcome) {
    let labels: Vec<(Quantity, String)> = all
        .first()
        .map(|one| one.series.iter().map(|s| (s.quantity, s.label.clone())).collect())
        .unwrap_or_default();
    for (quantity, label) in labels {
        let same = |s: &&Series| s.quantity == quantity && s.label == label;
        let of_its_own = |(index, one): (usize, &Outcome)| {
            let found = one.series.iter().find(same)?;
            Some(Series { label: of_thread(&label, index), ..found.clone() })
        };
        let each = all.iter().enumerate().filter_map(of_its_own).collect();
        // The time per message of a run belongs to one thread; there is no common series.
        if quantity == Quantity::MessageTime {
            sum.series.extend::<Vec<Series>>(each);
        } else {
            sum.push_with_parts(quantity, &label, Combination::Joined, each);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        for all in [vec![], vec![vec![]], vec![vec![1, 2], vec![], vec![3; 300]]] {
            assert_eq!(unpacked(&packed(&all)), all);
        }
        assert_eq!(unpacked(&[9, 0, 0, 0, 0, 0, 0, 0, 1]), [[1]]);
        assert!(unpacked(&[1, 2]).is_empty());
    }

    fn outcome(rate: f64, samples: &[f64]) -> Outcome {
        let mut outcome = Outcome::default();
        outcome.push_figure(Quantity::Rate, "", rate);
        outcome.push_figure(Quantity::MessageTime, "", 1e9 / rate);
        outcome.push_figure(Quantity::CpuShare, "rank 0", 1.5);
        outcome.push_series(Quantity::OneWay, "t_lat", 1, samples.to_vec());
        outcome.push_series(Quantity::MessageTime, "runs", 0, vec![1.0]);
        outcome.push_count("sent", samples.len() as u64);
        outcome.push_fact("mtu_bytes", 4096);
        outcome
    }

    #[test]
    fn threads_are_counted_together_and_one_by_one() {
        let both = joined(vec![Ok(outcome(1e6, &[9.0, 1.0, 2.0])), Ok(outcome(3e6, &[8.0, 3.0]))]);
        let both = both.unwrap();
        let figure = |quantity, label: &str| {
            both.figures
                .iter()
                .find(|f| f.quantity == quantity && f.label == label)
                .map(|f| f.value)
        };
        assert_eq!(figure(Quantity::Rate, ""), Some(4e6));
        assert_eq!(figure(Quantity::Rate, "thread 1"), Some(3e6));
        assert!((figure(Quantity::MessageTime, "").unwrap() - 250.0).abs() < 1e-9);
        assert_eq!(figure(Quantity::CpuShare, "rank 0"), Some(1.5));
        assert_eq!((both.count("sent"), both.fact("mtu_bytes")), (Some(5), Some("4096")));
        let labels: Vec<&str> = both.series.iter().map(|s| s.label.as_str()).collect();
        let expected = ["t_lat", "t_lat, thread 0", "t_lat, thread 1"];
        assert_eq!(labels[..3], expected);
        assert_eq!(labels[3..], ["runs, thread 0", "runs, thread 1"]);
        let all = &both.series[0];
        assert_eq!((all.warm_up, &all.samples[..]), (2, &[9.0, 8.0, 1.0, 2.0, 3.0][..]));
    }

    #[test]
    fn the_thread_that_failed_is_the_one_that_tells() {
        let other = Stopped::Other("thread 1: broken".into());
        let own = Stopped::Failed("broken".into());
        let all = vec![Ok(Outcome::default()), Err(other.clone()), Err(own.clone())];
        assert_eq!(joined(all), Err(own));
        assert_eq!(joined(vec![Err(other.clone())]), Err(other));
    }
}
