//! Ranks 1 to n: each answers the messages of rank 0.

use rdmalab_measure::Outcome;
use rdmalab_rank::{Rank, Stopped};

use super::exchange::{Exchange, Outgoing};
use super::options::Direction;
use super::role::Role;
use super::shape::{done, repetition_of};
use crate::common::completions::{look_for, timed_out};
use crate::common::effort::Effort;
use crate::common::losses::through_losses_ns;

/// Ranks 1 to n.
pub(crate) struct Leaf<'a> {
    exchange: Exchange<'a>,
    /// Where rank 0 says by a multicast when to READ.
    call: Option<Exchange<'a>>,
    /// The repetition that comes next.
    next: u64,
    received: u64,
    /// The byte that memory held last, where messages are looked for.
    seen: u8,
}

impl<'a> Leaf<'a> {
    pub fn new(exchange: Exchange<'a>, call: Option<Exchange<'a>>) -> Self {
        Self { exchange, call, next: 0, received: 0, seen: 0 }
    }

    /// Looks once: the repetition that rank 0 asks for; `Some(None)`: the part is over.
    fn look(&mut self, part: usize) -> Result<Option<Option<u64>>, Stopped> {
        let mut found = None;
        let (next, done) = (self.next, done(part));
        let mut take = |mark: u8| {
            if mark == done {
                found = Some(None);
            } else if let Some(repetition) = repetition_of(mark, next) {
                found = Some(Some(repetition));
            }
        };
        let heard = self.call.as_mut().unwrap_or(&mut self.exchange);
        if heard.arrives_by_completion() {
            heard.messages(|received| take(received.mark))?;
            if found.is_none() {
                // What is of an earlier part must not use up the receives.
                heard.return_used()?;
            }
        } else {
            let mark = self.exchange.written(0);
            if mark != self.seen {
                self.seen = mark;
                take(mark);
            }
        }
        Ok(found)
    }

    /// Waits for a message of rank 0; `None`: no more is to come.
    fn wait<R: Rank>(&mut self, rank: &R, part: usize) -> Result<Option<u64>, Stopped> {
        let is_lossy = self.exchange.is_lossy();
        let limit_ns = match is_lossy {
            true => through_losses_ns(self.exchange.limit_ns(rank)),
            false => rank.patience_ns(),
        };
        let found = look_for(rank, limit_ns, || self.look(part).transpose())?;
        match found {
            Some(found) => found,
            None if is_lossy => Ok(None),
            None => Err(timed_out(limit_ns, "the next message of rank 0")),
        }
    }

    /// Reads from rank 0: how long it took, in ns.
    fn read<R: Rank>(&mut self, rank: &R, repetition: u64) -> Result<u32, Stopped> {
        let begin = rank.now();
        self.exchange.read(0, self.exchange.schedule.size(repetition))?;
        self.exchange.settle(rank)?;
        let ns = rank.clock().ns_between(begin, rank.now());
        Ok(ns.round().clamp(0.0, f64::from(u32::MAX - 2)) as u32)
    }
}

impl<R: Rank> Role<R> for Leaf<'_> {
    fn part(&mut self, rank: &R, part: usize, repetitions: u64) -> Result<(), Stopped> {
        let last = self.next + repetitions;
        let is_read = self.exchange.common.op.reads();
        if Role::<R>::is_idle(self) {
            // Rank 0 reads from this rank, which has nothing to do.
            self.next = last;
            return Ok(());
        }
        while self.next < last {
            if rank.is_asked_to_stop() {
                return Err(crate::common::lockstep::stopped(rank));
            }
            let Some(repetition) = self.wait(rank, part)? else { break };
            self.received += 1;
            let answer = match is_read {
                true => Outgoing::Note(repetition, self.read(rank, repetition)?),
                false => self.exchange.pair(repetition).1,
            };
            self.exchange.post(0, answer)?;
            self.call.as_mut().unwrap_or(&mut self.exchange).return_used()?;
            self.exchange.settle(rank)?;
            self.next = repetition + 1;
        }
        self.next = last;
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.exchange.common.op.reads() && self.exchange.own.direction == Direction::Out
    }

    fn received(&self) -> u64 {
        self.received
    }

    fn outcome(self, _: &R, outcome: Outcome, _: &[(Effort, u64)]) -> Outcome {
        outcome
    }
}
