//! Rank 0: it begins each repetition, and takes all times.

use rdmalab_measure::{Outcome, Stamp};
use rdmalab_rank::{Rank, Stopped};

use super::exchange::{Exchange, Outgoing};
use super::options::{Cast, Direction};
use super::result::{NONE, Times, efforts};
use super::role::Role;
use super::shape::{mark, repetitions};
use crate::common::completions::{look_for, timed_out};
use crate::common::effort::Effort;
use crate::common::losses::{DONE_REPEATS, Losses};

/// Rank 0.
pub(crate) struct Root<'a> {
    exchange: Exchange<'a>,
    /// Sends the multicast that starts the READs.
    call: Option<Exchange<'a>>,
    peers: usize,
    /// The repetition that comes next.
    next: u64,
    /// Ticks until each answer of this repetition was there.
    answers: Vec<u64>,
    missing: usize,
    /// Ticks until all sends had completed.
    sent: u64,
    /// Times in ns that others say of themselves.
    said_ns: Vec<u64>,
    times: Times,
    /// Of each of the others.
    losses: Vec<Losses>,
    /// Answers that came after their repetition, or twice.
    late: u64,
}

impl<'a> Root<'a> {
    pub fn new(exchange: Exchange<'a>, call: Option<Exchange<'a>>, peers: usize) -> Self {
        let all = repetitions(exchange.common, exchange.own) as usize;
        let times = Times::new(all, peers, exchange.common.touch);
        let answers = vec![NONE; peers];
        let said_ns = vec![NONE; peers];
        let losses = vec![Losses::default(); peers];
        let (next, missing, late) = (0, 0, 0);
        let sent = NONE;
        Self { exchange, call, peers, next, answers, missing, sent, said_ns, times, losses, late }
    }

    /// Posts to all of them.
    fn post_all(&mut self, message: Outgoing) -> Result<(), Stopped> {
        let posts = if self.exchange.own.cast == Cast::Group { 1 } else { self.peers };
        let by = self.call.as_mut().unwrap_or(&mut self.exchange);
        (0..posts).try_for_each(|far| by.post(far, message))
    }

    /// Waits for the completions of all sends.
    fn settle<R: Rank>(&mut self, rank: &R) -> Result<(), Stopped> {
        self.call.iter_mut().try_for_each(|call| call.settle(rank))?;
        self.exchange.settle(rank)
    }

    fn begin(&mut self) {
        self.answers.fill(NONE);
        self.missing = self.peers;
        self.sent = NONE;
    }

    /// Looks once; whether all is there.
    fn look<R: Rank>(&mut self, rank: &R, begin: Stamp, byte: u8) -> Result<bool, Stopped> {
        let (answers, missing) = (&mut self.answers, &mut self.missing);
        let since = || rank.now().0.wrapping_sub(begin.0);
        // One stamp for what is found in one look.
        let mut now = None;
        let was_pending = self.exchange.pending > 0;
        self.exchange.completions(|number| {
            if let Some(answer) = answers.get_mut(number as usize) {
                *answer = *now.get_or_insert_with(since);
                *missing -= 1;
            }
        })?;
        if was_pending && self.exchange.pending == 0 {
            self.sent = since();
        }
        if self.exchange.arrives_by_completion() {
            let (said_ns, late) = (&mut self.said_ns, &mut self.late);
            let mut now = None;
            self.exchange.messages(|received| match answers.get_mut(received.far) {
                Some(answer) if *answer == NONE && received.mark == byte => {
                    *answer = *now.get_or_insert_with(since);
                    said_ns[received.far] = received.imm.into();
                    *missing -= 1;
                }
                _ => *late += 1,
            })?;
        } else {
            let mut now = None;
            for (place, answer) in answers.iter_mut().enumerate().filter(|(_, a)| **a == NONE) {
                if self.exchange.written(place) == byte {
                    *answer = *now.get_or_insert_with(since);
                    *missing -= 1;
                }
            }
        }
        let mut pending = self.exchange.pending;
        if let Some(call) = &mut self.call {
            call.completions(|_| ())?;
            pending += call.pending;
        }
        Ok(self.missing == 0 && pending == 0)
    }

    /// Waits until all is there, or, where messages may be lost, for so long.
    fn wait<R: Rank>(
        &mut self,
        rank: &R,
        begin: Stamp,
        byte: u8,
        is_lossy: bool,
    ) -> Result<(), Stopped> {
        let limit_ns = if is_lossy { self.exchange.limit_ns(rank) } else { rank.patience_ns() };
        let all = look_for(rank, limit_ns, || match self.look(rank, begin, byte) {
            Ok(false) => None,
            Ok(true) => Some(Ok(())),
            Err(stopped) => Some(Err(stopped)),
        })?;
        match all {
            Some(result) => result,
            None if is_lossy => self.settle(rank),
            None => Err(timed_out(limit_ns, "the answers of all ranks")),
        }
    }

    /// A message to each, and their answers.
    fn round_trip<R: Rank>(&mut self, rank: &R) -> Result<(), Stopped> {
        let (ask, _) = self.exchange.pair(self.next);
        self.begin();
        let begin = rank.now();
        self.post_all(ask)?;
        self.wait(rank, begin, mark(self.next), self.exchange.is_lossy())?;
        self.times.took(&self.answers, self.sent);
        self.note_losses(rank)?;
        self.exchange.return_used()
    }

    fn note_losses<R: Rank>(&mut self, rank: &R) -> Result<(), Stopped> {
        let limit_ns = self.exchange.limit_ns(rank);
        for (i, (losses, answer)) in self.losses.iter_mut().zip(&self.answers).enumerate() {
            losses.note(*answer != NONE, limit_ns, format_args!("rank {}", i + 1))?;
        }
        Ok(())
    }

    /// A READ from each, and of each.
    fn reads<R: Rank>(&mut self, rank: &R) -> Result<(), Stopped> {
        let bytes = self.exchange.schedule.size(self.next);
        let direction = self.exchange.own.direction;
        let clock = rank.clock();
        let mut out = vec![0.0; self.peers];
        let mut back = vec![0.0; self.peers];
        if direction != Direction::In {
            self.begin();
            let begin = rank.now();
            (0..self.peers).try_for_each(|far| self.exchange.read(far, bytes))?;
            // No message has that mark, and no READ is lost.
            self.wait(rank, begin, 0, false)?;
            for (out, ticks) in out.iter_mut().zip(&self.answers) {
                *out = clock.ns_between(Stamp(0), Stamp(*ticks));
            }
        }
        if direction != Direction::Out {
            self.begin();
            let begin = rank.now();
            self.post_all(Outgoing::Note(self.next, self.next as u32))?;
            self.wait(rank, begin, mark(self.next), self.exchange.is_lossy())?;
            for (back, (ns, answer)) in back.iter_mut().zip(self.said_ns.iter().zip(&self.answers))
            {
                *back = if *answer == NONE { f64::NAN } else { *ns as f64 };
            }
            self.note_losses(rank)?;
            self.exchange.return_used()?;
        }
        self.times.took_reads(&out, &back);
        Ok(())
    }

    /// Tells those who may have lost the last message that none is to come.
    fn tell_done<R: Rank>(&mut self, rank: &R, part: usize) -> Result<(), Stopped> {
        for _ in 0..DONE_REPEATS {
            self.post_all(Outgoing::Done(part))?;
            self.settle(rank)?;
        }
        Ok(())
    }
}

impl<R: Rank> Role<R> for Root<'_> {
    fn part(&mut self, rank: &R, part: usize, repetitions: u64) -> Result<(), Stopped> {
        for _ in 0..repetitions {
            if rank.is_asked_to_stop() {
                return Err(crate::common::lockstep::stopped(rank));
            }
            match self.exchange.common.op.reads() {
                true => self.reads(rank)?,
                false => self.round_trip(rank)?,
            }
            self.next += 1;
        }
        if self.exchange.is_lossy() { self.tell_done(rank, part) } else { Ok(()) }
    }

    fn received(&self) -> u64 {
        0
    }

    fn outcome(self, rank: &R, mut outcome: Outcome, all: &[(Effort, u64)]) -> Outcome {
        self.times.outcome(
            rank.clock(),
            self.exchange.common,
            &self.exchange.schedule,
            &mut outcome,
        );
        let asked = self.next * self.peers as u64;
        outcome.push_count("sent", asked);
        outcome.push_count("lost", self.times.lost());
        if self.exchange.is_lossy() {
            if all.len() > self.peers {
                let received: u64 = all[1..=self.peers].iter().map(|(_, received)| received).sum();
                outcome.push_count("lost_out", asked.saturating_sub(received));
            }
            outcome.push_count("repetitions_cut", self.times.cut());
            outcome.push_count("late", self.late);
        }
        outcome.push_fact("peers", self.peers);
        efforts(all, self.peers, &mut outcome);
        outcome
    }
}
