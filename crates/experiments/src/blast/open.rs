//! `blast` in an open loop: when each message was due, and when it was over.

use rdmalab_measure::{Outcome, Quantity, Stamp};
use rdmalab_rank::Rank;

use crate::common::arrivals::{Arrival, Joined, join};
use crate::common::pace::{DUE, push_rates};
use crate::common::params::Common;
use crate::common::samples::{NO_CLOCK, parts, push_one_way, stamp_memory};

/// The bit from which on an arrival number names the queue pair, if arrivals are counted by queue
/// pair. Other numbers have 32 bits.
const QP_SHIFT: u32 = 40;
/// The bit that marks a number counted by queue pair.
const BY_QP: u64 = 1 << 63;

/// The number of an arrival without a message number: its position in the order of its queue pair.
pub(super) fn by_qp(qp: usize, count: u64) -> u64 {
    BY_QP | (qp as u64) << QP_SHIFT | count
}

/// The most messages of one queue pair: each part is divided among the queue pairs, rounded up.
fn most_of_one(common: &Common, qps: usize) -> usize {
    parts(common).map(|messages| (messages as usize).div_ceil(qps)).sum()
}

fn emptied(mut memory: Vec<u32>) -> Vec<u32> {
    memory.clear();
    memory
}

/// The stamps of messages by their number, from 0, the warm-up included.
pub(super) struct Times {
    due: Vec<u64>,
    /// When its completion was there; 0: not yet.
    completed: Vec<u64>,
    /// Numbers of the messages of each queue pair, in the order of their posts.
    of: Vec<Vec<u32>>,
    /// How many messages of each queue pair have completed.
    done: Vec<usize>,
}

impl Times {
    /// The memory for a point; `None` in a closed loop.
    pub fn of(common: &Common, qps: usize) -> Option<Self> {
        // Without times, messages are not bounded by what memory can hold.
        if common.rate_per_s == 0 {
            return None;
        }
        let total = common.total() as usize;
        let mut due = stamp_memory(total, common.touch);
        due.clear();
        let completed =
            stamp_memory(if common.op.is_unnoticed() { total } else { 0 }, common.touch);
        let each = most_of_one(common, qps);
        let of = (0..qps).map(|_| stamp_memory(each, common.touch)).map(emptied).collect();
        Some(Self { due, completed, of, done: vec![0; qps] })
    }

    /// The next message was posted.
    #[inline]
    pub fn posted(&mut self, qp: usize, due: Stamp) {
        self.of[qp].push(self.due.len() as u32);
        self.due.push(due.0);
    }

    /// All messages of a queue pair up to its `count`-th have completed.
    #[inline]
    pub fn completed(&mut self, qp: usize, count: u64, now: u64) {
        if self.completed.is_empty() {
            return;
        }
        let count = (count as usize).min(self.of[qp].len());
        for number in &self.of[qp][self.done[qp].min(count)..count] {
            self.completed[*number as usize] = now;
        }
        self.done[qp] = count.max(self.done[qp]);
    }

    /// The number of the message that arrived; an invalid number if it was never sent.
    fn number(&self, arrival: u64) -> u64 {
        if arrival & BY_QP == 0 {
            return arrival;
        }
        let (above, count) = (arrival & !BY_QP, arrival & ((1 << QP_SHIFT) - 1));
        let of = self.of.get((above >> QP_SHIFT) as usize);
        of.and_then(|of| of.get(count as usize)).map_or(u64::MAX, |number| u64::from(*number))
    }

    /// Joins the arrivals with the sent messages.
    pub fn join(&self, arrivals: &[Arrival]) -> Joined {
        let numbered = |a: &Arrival| Arrival { number: self.number(a.number), ..*a };
        join(self.due.len(), &arrivals.iter().map(numbered).collect::<Vec<_>>())
    }

    /// Rates, and the times of messages that only the sender notices.
    pub fn push_own<R: Rank>(&self, rank: &R, common: &Common, outcome: &mut Outcome) {
        let over = |i: usize| Some(self.completed[i]).filter(|stamp| *stamp != 0);
        push_rates(rank, common, self.due.len(), (&self.due, true), over, outcome);
        let time = |i: usize| {
            let since = |over| rank.clock().ns_between(Stamp(self.due[i]), Stamp(over));
            over(i).map_or(f64::NAN, since)
        };
        let warm_up = (common.warm_up as usize).min(self.due.len());
        let samples = (0..self.due.len()).map(time).collect();
        outcome.push_series(Quantity::CompletionTime, DUE, warm_up, samples);
        outcome.date_largest(|i| self.due.get(i).copied());
    }

    /// Rates, and the times of messages until they were noticed at the other end.
    pub fn push_joint<R: Rank>(
        &self,
        rank: &R,
        common: &Common,
        joined: &Joined,
        outcome: &mut Outcome,
    ) {
        let error_ns = rank.clock_error_ns(1);
        let own = |recv| rank.to_own_clock(1, Stamp(recv)).0;
        let over = |i: usize| joined.first[i].map(|arrival| own(arrival.recv));
        push_rates(rank, common, self.due.len(), (&self.due, error_ns.is_some()), over, outcome);
        let Some(error_ns) = error_ns else {
            outcome.warn_of_hidden("one-way", NO_CLOCK);
            return;
        };
        let time = |i: usize| {
            let since = |over| rank.clock().ns_between(Stamp(self.due[i]), Stamp(over));
            over(i).map_or(f64::NAN, since)
        };
        outcome.push_fact("clock_error_ns", format!("{error_ns:.1}"));
        let bound_ns = if rank.shares_clock(1) { None } else { Some(error_ns) };
        let warm_up = (common.warm_up as usize).min(self.due.len());
        let samples = (0..self.due.len()).map(time).collect();
        let before = outcome.series.len();
        push_one_way(outcome, (Quantity::OneWay, DUE), warm_up, samples, bound_ns);
        if outcome.series.len() > before {
            outcome.date_largest(|i| self.due.get(i).copied());
        }
    }
}

#[cfg(test)]
mod tests {
    #[cfg(target_arch = "x86_64")]
    use std::os::unix::fs::FileExt;

    use super::super::options::Blast;
    use super::*;
    use crate::common::params::Op;
    use crate::workload::Workload;

    fn times(op: Op) -> Times {
        let base = Blast::COMMON;
        let common = Common { op, rate_per_s: 1000, messages: 5, runs: 1, warm_up: 0, ..base };
        let mut times = Times::of(&common, 2).expect("an open loop");
        for (qp, due) in [(0, 10), (1, 20), (0, 30), (0, 40), (1, 50)] {
            times.posted(qp, Stamp(due));
        }
        times
    }

    #[test]
    fn a_completion_ends_all_before_it() {
        let mut times = times(Op::Write);
        times.completed(0, 2, 70);
        times.completed(1, 2, 80);
        times.completed(0, 3, 90);
        // Earlier completions change nothing, and messages that were never posted are not counted.
        times.completed(0, 1, 99);
        times.completed(1, 9, 99);
        assert_eq!(times.completed, [70, 80, 70, 90, 80]);
        let base = Blast::COMMON;
        assert!(Times::of(&base, 1).is_none());
    }

    /// No memory is allocated and no page is faulted in while messages are measured.
    #[test]
    fn there_is_memory_for_the_numbers_of_each_queue_pair() {
        let base = Blast::COMMON;
        for (messages, runs, warm_up, qps) in [(10, 100, 0, 3), (7, 5, 20, 4), (1, 9, 1, 2)] {
            let common = Common { rate_per_s: 1000, messages, runs, warm_up, ..base.clone() };
            let mut times = Times::of(&common, qps).expect("an open loop");
            let memory = |times: &Times| -> Vec<_> {
                times.of.iter().map(|of| (of.as_ptr(), of.capacity())).collect()
            };
            let before = memory(&times);
            // As a part shares its messages out.
            for part in parts(&common) {
                for qp in 0..qps as u64 {
                    let share = part * (qp + 1) / qps as u64 - part * qp / qps as u64;
                    (0..share).for_each(|_| times.posted(qp as usize, Stamp(1)));
                }
            }
            assert_eq!(
                before,
                memory(&times),
                "{messages} messages, {runs} runs, {qps} queue pairs"
            );
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn touched_memory_is_there_before_it_is_used() {
        const PAGE_BYTES: usize = 4096;
        let base = Blast::COMMON;
        let common = Common { rate_per_s: 1000, messages: 2_000_000, runs: 1, touch: true, ..base };
        let times = Times::of(&common, 2).expect("an open loop");
        let map = std::fs::File::open("/proc/self/pagemap").expect("the kernel tells");
        for of in &times.of {
            let first = of.as_ptr() as usize / PAGE_BYTES;
            for page in [first + 1, first + 100, first + 500] {
                let mut entry = [0; 8];
                map.read_exact_at(&mut entry, page as u64 * 8).expect("an entry of each page");
                // Present, or swapped out.
                assert_ne!(u64::from_le_bytes(entry) >> 62, 0, "page {}", page - first);
            }
        }
    }

    #[test]
    fn arrivals_are_known_by_their_number_or_their_place() {
        let times = times(Op::Send);
        let at = |number| Arrival { number, recv: 1, send: 0 };
        let joined = times.join(&[at(by_qp(0, 0)), at(by_qp(1, 1)), at(by_qp(0, 2)), at(1)]);
        let came: Vec<bool> = joined.first.iter().map(Option::is_some).collect();
        assert_eq!(came, [true, true, false, true, true]);
        assert_eq!((joined.lost, joined.strays), (1, 0));
        let joined = times.join(&[at(by_qp(0, 3)), at(by_qp(2, 0)), at(5)]);
        assert_eq!((joined.lost, joined.strays), (5, 3));
    }
}
