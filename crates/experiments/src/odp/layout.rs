//! Where the operations of a trial lie, what they are, and which pages they share.

use crate::common::params::{Common, Op};
use crate::odp::options::{Odp, SecondPage, Warm, WorkAround};

/// Bytes of a page. Buffers begin at one.
pub(super) const PAGE: usize = 4096;

/// Most requests of a work-around that wait in one queue.
pub(super) const PROBES: usize = 8;

/// The operations of a trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Bytes of an operation.
    pub size: usize,
    /// How many operations.
    pub operations: usize,
    /// How many queue pairs.
    pub qps: usize,
    op: Op,
    second: Op,
    is_apart: bool,
    is_warm: bool,
    /// What is done against losses.
    pub work_around: WorkAround,
    /// How long nothing is completed before that.
    pub work_around_after_ns: u64,
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    pub op: Op,
    /// Its place, the same at both ends.
    pub at: usize,
    pub bytes: usize,
    /// The queue pair.
    pub qp: usize,
}

impl Plan {
    pub fn of(common: &Common, own: &Odp) -> Self {
        Self {
            size: common.size_bytes as usize,
            operations: own.operations as usize,
            qps: common.qps as usize,
            op: common.op,
            second: own.second_op.of(common.op),
            is_apart: own.second_page == SecondPage::Other,
            is_warm: own.warm == Warm::ButFirst,
            work_around: own.work_around,
            work_around_after_ns: own.work_around_after_ns,
        }
    }

    /// Operation `i` of a trial, from 0.
    pub fn operation(&self, i: usize) -> Operation {
        let op = if i == 1 { self.second } else { self.op };
        Operation { op, at: self.at(i), bytes: self.size, qp: i % self.qps }
    }

    fn at(&self, i: usize) -> usize {
        match i {
            0 => 0,
            _ if self.is_apart => self.size.next_multiple_of(PAGE) + (i - 1) * self.size,
            _ => i * self.size,
        }
    }

    /// Bytes of memory at each end.
    pub fn bytes(&self) -> usize {
        self.at(self.operations - 1) + self.size
    }

    /// The number of pages.
    pub fn pages(&self) -> usize {
        self.bytes().div_ceil(PAGE)
    }

    /// The page in which operation `i` begins.
    pub fn page(&self, i: usize) -> usize {
        self.at(i) / PAGE
    }

    /// The pages that have nothing of the first operation.
    pub fn other_pages(&self) -> std::ops::Range<usize> {
        self.size.div_ceil(PAGE)..self.pages()
    }

    /// What makes pages known to the adapters before a trial: an operation in each of
    /// [`Plan::other_pages`], if so asked.
    pub fn warming(&self) -> impl Iterator<Item = Operation> + '_ {
        let pages = if self.is_warm { self.other_pages() } else { 0..0 };
        let end = self.bytes();
        pages.map(move |page| Operation {
            op: self.op,
            at: page * PAGE,
            bytes: self.size.min(PAGE).min(end - page * PAGE),
            qp: page % self.qps,
        })
    }

    /// The operations for which rank 1 posts receives on queue pair `qp`, in their order: those
    /// before the trial, then those of the trial.
    pub fn receives(&self, qp: usize) -> impl Iterator<Item = Operation> + '_ {
        let own = (qp..self.operations).step_by(self.qps).map(|i| self.operation(i));
        let all = self.warming().filter(move |one| one.qp == qp).chain(own);
        all.filter(|one| one.op == Op::Send)
    }

    /// What a work-around posts on a queue pair whose oldest waiting operation is this one.
    pub fn probe(&self, oldest: &Operation) -> Operation {
        match self.work_around {
            WorkAround::Repeat => *oldest,
            _ => Operation { op: Op::Write, bytes: 0, ..*oldest },
        }
    }

    /// The most requests that wait in one queue: those of a trial, one or more before it, and those
    /// of a work-around.
    pub fn depth(&self) -> usize {
        let warming = self.warming().count().div_ceil(self.qps);
        let probes = if self.work_around.posts() { PROBES } else { 0 };
        self.operations.div_ceil(self.qps) + warming + probes
    }

    /// Whether any operation is a READ.
    pub fn reads(&self) -> bool {
        self.op == Op::Read || (self.operations > 1 && self.second == Op::Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::odp::options::SecondOp;
    use crate::workload::Workload;

    fn plan(size_bytes: u64, operations: u32, qps: u32, own: Odp) -> Plan {
        let common = Common { size_bytes, qps, op: Op::Send, ..Odp::COMMON };
        Plan::of(&common, &Odp { operations, ..own })
    }

    #[test]
    fn operations_lie_side_by_side_and_take_turns() {
        let plan = plan(100, 100, 8, Odp::OWN);
        let of = |i| plan.operation(i);
        assert_eq!((of(0).at, of(41).at, of(41).qp), (0, 4100, 1));
        assert_eq!((plan.bytes(), plan.pages(), plan.depth()), (10_000, 3, 13));
        // Operation 40 begins in the first page and ends in the second one.
        assert_eq!((plan.page(40), plan.page(41), plan.other_pages()), (0, 1, 1..3));
        assert_eq!(plan.warming().count(), 0);
        assert_eq!(plan.receives(3).count(), 13);
        assert_eq!(plan.receives(4).map(|one| one.at).nth(1), Some(1200));
    }

    #[test]
    fn the_second_one_may_be_another_and_elsewhere() {
        let own = Odp {
            second_op: SecondOp::Read,
            second_page: SecondPage::Other,
            warm: Warm::ButFirst,
            ..Odp::OWN
        };
        let plan = plan(100, 3, 1, own);
        let of = |i| plan.operation(i);
        assert_eq!((of(1).op, of(1).at, of(2).op, of(2).at), (Op::Read, 4096, Op::Send, 4196));
        assert!(plan.reads());
        let warming: Vec<Operation> = plan.warming().collect();
        assert_eq!(warming, [Operation { op: Op::Send, at: 4096, bytes: 100, qp: 0 }]);
        // The receive of the page comes first, and the READ has none.
        let places: Vec<usize> = plan.receives(0).map(|one| one.at).collect();
        assert_eq!(places, [4096, 0, 4196]);
    }

    #[test]
    fn a_work_around_has_room_in_each_queue() {
        let own = |work_around| Odp { work_around, ..Odp::OWN };
        let dummy = plan(100, 8, 2, own(WorkAround::Dummy));
        let oldest = dummy.operation(3);
        assert_eq!(dummy.probe(&oldest), Operation { op: Op::Write, bytes: 0, ..oldest });
        let repeat = plan(100, 8, 2, own(WorkAround::Repeat));
        assert_eq!((repeat.probe(&oldest), repeat.depth()), (oldest, 4 + PROBES));
        assert_eq!(plan(100, 8, 2, own(WorkAround::Prefetch)).depth(), 4);
    }

    #[test]
    fn no_page_of_the_first_one_is_warm() {
        let own = Odp { warm: Warm::ButFirst, ..Odp::OWN };
        assert_eq!(plan(100, 2, 1, own.clone()).warming().count(), 0);
        // The first one ends in the second page, which the second one uses, too.
        let plan = plan(5000, 2, 1, own);
        let all: Vec<(usize, usize)> = plan.warming().map(|one| (one.at, one.bytes)).collect();
        assert_eq!(all, [(8192, 1808)]);
    }
}
