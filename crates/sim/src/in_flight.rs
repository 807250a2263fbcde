//! What an adapter is about to read from memory and to write to it. Times may become later, so
//! whoever waits for some of it waits for what was begun before, and not until a time.

use std::collections::VecDeque;

use crate::ids::QpId;
use crate::memory::DmaWrite;
use crate::time::Ps;

/// The writes of an adapter that are not in memory. They get there in their order.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    done: u64,
    open: VecDeque<DmaWrite>,
}

impl Writes {
    /// How many were begun so far.
    pub(crate) fn begun(&self) -> u64 {
        self.done + self.open.len() as u64
    }

    /// Begins another one.
    pub(crate) fn begin(&mut self, write: DmaWrite) {
        self.open.push_back(write);
    }

    /// When the first `count` are in memory, as far as it is known now; `None` if they are.
    pub(crate) fn until(&self, count: u64) -> Option<Ps> {
        let left = count.checked_sub(self.done + 1)?;
        self.open.get(left as usize).map(|write| write.done.at())
    }

    /// Takes the oldest one, if it is in memory at `now`; else returns the time when it is.
    pub(crate) fn take_done(&mut self, now: Ps) -> Result<Option<DmaWrite>, Ps> {
        match self.open.front().map(|write| write.done.at()) {
            Some(at) if at > now => Err(at),
            _ => {
                let taken = self.open.pop_front();
                self.done += u64::from(taken.is_some());
                Ok(taken)
            }
        }
    }
}

/// The reads of payload by an adapter that have not left memory. They leave it in any order.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    begun: u64,
    /// The numbers of those that are open, whose they are, and their times.
    open: Vec<(u64, QpId, Ps)>,
}

impl Reads {
    /// How many were begun so far.
    pub(crate) fn begun(&self) -> u64 {
        self.begun
    }

    /// Begins another one of a queue pair, which leaves memory at a time: its number.
    pub(crate) fn begin(&mut self, of: QpId, at: Ps) -> u64 {
        self.open.push((self.begun, of, at));
        self.begun += 1;
        self.begun - 1
    }

    /// A read leaves memory later.
    pub(crate) fn delay(&mut self, number: u64, to: Ps) {
        if let Some((.., at)) = self.open.iter_mut().find(|(other, ..)| *other == number) {
            *at = to;
        }
    }

    /// A read has left memory.
    pub(crate) fn end(&mut self, number: u64) {
        if let Some(index) = self.open.iter().position(|(other, ..)| *other == number) {
            self.open.swap_remove(index);
        }
    }

    /// The reads of a queue pair will not be done.
    pub(crate) fn end_all_of(&mut self, id: QpId) {
        self.open.retain(|(_, of, _)| *of != id);
    }

    /// When the first `count` have left memory, as far as it is known now; `None` if they have.
    pub(crate) fn until(&self, count: u64) -> Option<Ps> {
        self.open.iter().filter(|(number, ..)| *number < count).map(|(.., at)| *at).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::way::Due;

    fn id(index: usize) -> QpId {
        QpId { node: 0, index, generation: 0 }
    }

    fn write(at: u64) -> DmaWrite {
        let (pieces, payload, header) = (Vec::new(), Vec::new(), Vec::new());
        DmaWrite { done: Due::new(Ps(at), None), pieces, payload, header }
    }

    #[test]
    fn writes_are_done_in_their_order() {
        let mut writes = Writes::default();
        [10, 20, 30].iter().for_each(|at| writes.begin(write(*at)));
        assert_eq!((writes.begun(), writes.until(2), writes.until(0)), (3, Some(Ps(20)), None));
        assert!(matches!(writes.take_done(Ps(9)), Err(Ps(10))));
        assert!(writes.take_done(Ps(20)).unwrap().is_some());
        assert_eq!((writes.begun(), writes.until(1), writes.until(2)), (3, None, Some(Ps(20))));
    }

    #[test]
    fn who_waits_for_reads_does_not_wait_for_later_ones() {
        let mut reads = Reads::default();
        let numbers = [(30, 1), (10, 1), (99, 2)].map(|(at, qp)| reads.begin(id(qp), Ps(at)));
        assert_eq!((reads.until(2), reads.begun()), (Some(Ps(30)), 3));
        reads.delay(numbers[1], Ps(40));
        assert_eq!(reads.until(2), Some(Ps(40)));
        numbers[..2].iter().for_each(|number| reads.end(*number));
        assert_eq!((reads.until(2), reads.until(3)), (None, Some(Ps(99))));
        reads.end_all_of(id(2));
        assert_eq!(reads.until(3), None);
    }
}
