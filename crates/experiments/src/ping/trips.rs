//! Round trips of two ends that both send.

use std::sync::atomic::{AtomicU8, Ordering};

use rdmalab_measure::Outcome;
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::Wc;

use super::log::{Log, send_effort};
use super::marks::{done, earlier_number, mark, next_number};
use crate::common::completions::{look_for, timed_out};
use crate::common::effort::{Begin, Effort};
use crate::common::endpoint::Endpoint;
use crate::common::lockstep::{Lockstep, stopped};
use crate::common::losses::{DONE_REPEATS, Losses, through_losses_ns};
use crate::common::pace::longest_gap_ns;
use crate::common::params::{Common, Transport};
use crate::common::pattern;
use crate::common::recv_queue::RecvQueue;
use crate::common::samples::parts;
use crate::common::sender::{Sender, TAKEN, each_completion};
use crate::common::thread_tag::place_of;

/// An end that sends and receives messages.
pub(super) struct Trips<'a, R> {
    rank: &'a R,
    end: &'a Endpoint,
    common: &'a Common,
    /// One for each queue pair, used in turns.
    senders: Vec<Sender<'a>>,
    /// Of each queue pair; none where nothing is received.
    recv_queues: Vec<RecvQueue<'a>>,
    /// The last byte of what goes out, and of what comes in.
    out: &'a AtomicU8,
    inbox: &'a AtomicU8,
    /// What memory held last where messages are looked for that may be lost.
    seen: u8,
    is_lossy: bool,
    limit_ns: u64,
    /// The queue pair and the number of a receive that was used up and is to be posted again.
    to_repost: Option<(usize, u64)>,
    received: u64,
    /// With `--verify`, messages that came to this end and were not as they had to be.
    damaged: u64,
    losses: Losses,
}

impl<'a, R: Rank> Trips<'a, R> {
    pub fn new(rank: &'a R, end: &'a Endpoint, common: &'a Common) -> Result<Self, Stopped> {
        let layout = &end.layout;
        let capacity = u64::from(common.tx_depth);
        let qps = end.qps.len();
        let sender = |qp| Sender::new(end, common, common.op, qp, &vec![(0, 0)], capacity);
        let receives = if common.op.needs_receives() { qps } else { 0 };
        let recv_queues = (0..receives).map(|qp| RecvQueue::new(end, common, qp));
        let is_lossy = common.transport != Transport::Rc;
        let patience_ns = if is_lossy { common.lost_after_ns } else { rank.patience_ns() };
        let limit_ns = patience_ns.max(longest_gap_ns(common));
        let answers_through = is_lossy && rank.index() != 0;
        Ok(Self {
            rank,
            end,
            common,
            senders: (0..qps).map(sender).collect(),
            recv_queues: recv_queues.collect::<Result<_, _>>()?,
            out: end.memory().byte(layout.out_at(0) + layout.size - 1),
            inbox: end.memory().byte(layout.in_at(0) + layout.size - 1),
            seen: 0,
            is_lossy,
            limit_ns: if answers_through { through_losses_ns(limit_ns) } else { limit_ns },
            to_repost: None,
            received: 0,
            damaged: 0,
            losses: Losses::default(),
        })
    }

    /// Sends the `i`-th message.
    #[inline]
    fn send(&mut self, i: u64, is_last: bool) -> Result<(), Stopped> {
        let qp = match self.senders.len() {
            1 => 0,
            qps => (i % qps as u64) as usize,
        };
        while self.senders[qp].account.room() == 0 {
            self.reap()?;
        }
        if self.common.verify {
            let layout = &self.end.layout;
            pattern::fill(self.end.memory(), i, layout.out_at(0), 0..layout.size - 1);
        }
        self.out.store(mark(i), Ordering::Release);
        self.senders[qp].post(1, i, 1, is_last)
    }

    /// Waits for completions of what was sent.
    fn reap(&mut self) -> Result<(), Stopped> {
        let mut wcs = [Wc::default(); TAKEN];
        let found = self.end.send.wait(self.rank, &mut wcs, "a completion of the sender")?;
        let senders = &mut self.senders;
        each_completion(self.end, &wcs[..found], |qp, count| senders[qp].account.free(count))
    }

    /// Posts the receive again that was used up: while a message is under way.
    #[inline]
    fn repost(&mut self) -> Result<(), Stopped> {
        match self.to_repost.take() {
            Some((qp, wr_id)) => self.recv_queues[qp].used(wr_id),
            None => Ok(()),
        }
    }

    /// Takes all completions that are to come.
    #[inline]
    fn drain(&mut self) -> Result<(), Stopped> {
        while self.senders.iter().any(|s| s.account.is_awaiting()) {
            self.reap()?;
        }
        Ok(())
    }

    /// Receives the next message: its mark; `None` when nothing came for too long. What is looked
    /// for in memory has to be the expected one, or `any` other than the last.
    #[inline]
    fn receive(&mut self, expected: u8, any: bool) -> Result<Option<u8>, Stopped> {
        if self.recv_queues.is_empty() {
            let inbox = self.inbox;
            if any {
                let seen = self.seen;
                let look = || Some(inbox.load(Ordering::Acquire)).filter(|found| *found != seen);
                let found = look_for(self.rank, self.limit_ns, look)?;
                self.seen = found.unwrap_or(seen);
                return Ok(found);
            }
            let look = || (inbox.load(Ordering::Acquire) == expected).then_some(expected);
            return look_for(self.rank, self.limit_ns, look);
        }
        let mut wcs = [Wc::default()];
        if self.end.recv.wait_for(self.rank, self.limit_ns, &mut wcs)? == 0 {
            return Ok(None);
        }
        if !wcs[0].is_ok() {
            return Err(self.end.explain(&wcs[0], "receive"));
        }
        // A receive is still to be posted again only if messages were late.
        self.repost()?;
        let qp = match self.recv_queues.len() {
            1 => Some(0),
            _ => self.end.index_of(wcs[0].qp_num()),
        };
        self.to_repost = qp.map(|qp| (qp, wcs[0].wr_id()));
        // A mark that comes with immediate data needs no look at memory.
        Ok(Some(match wcs[0].imm() {
            Some(imm) => mark(self.end.thread_tag.number(imm).into()),
            None if self.is_lossy => self.mark_at(wcs[0].wr_id()),
            None => expected,
        }))
    }

    /// The mark of a message that came into that receive.
    fn mark_at(&self, wr_id: u64) -> u8 {
        if !self.end.layout.is_apart {
            return self.inbox.load(Ordering::Acquire);
        }
        let layout = &self.end.layout;
        let at = layout.in_at(place_of(wr_id)) + layout.size - 1;
        self.end.thread_tag.memory(&self.end.mr, wr_id).byte(at).load(Ordering::Acquire)
    }

    /// Checks the message that came, whose last byte is its mark.
    #[inline]
    fn verify(&mut self, i: u64) {
        if self.common.verify {
            let (memory, layout) = (self.end.memory(), &self.end.layout);
            let place = match self.to_repost {
                Some((_, wr_id)) if layout.is_apart => place_of(wr_id),
                _ => 0,
            };
            let (at, last) = (layout.in_at(place), layout.size - 1);
            let has_mark = memory.byte(at + last).load(Ordering::Acquire) == mark(i);
            let is_intact = has_mark && pattern::is_intact(memory, i, at, 0..last);
            self.damaged += u64::from(!is_intact);
        }
    }

    /// Receives the answer to message `i`; whether it came. One to an earlier message is late, or
    /// came twice.
    #[inline]
    fn receive_answer(&mut self, i: u64, log: &mut Log<'_>) -> Result<bool, Stopped> {
        loop {
            match self.receive(mark(i), false)? {
                Some(found) if found == mark(i) => return Ok(true),
                Some(found) => log.came_late(earlier_number(i, found), self.rank.now()),
                None if self.is_lossy => return Ok(false),
                None => return Err(timed_out(self.limit_ns, "the answer")),
            }
        }
    }

    pub fn client(mut self) -> Result<Outcome, Stopped> {
        let mut log = Log::new(self.rank, self.common);
        let mut lockstep = Lockstep::new(self.rank, self.end);
        for (part, trips) in parts(self.common).enumerate() {
            if !lockstep.goes_on()? {
                break;
            }
            let begin = Begin::now(self.rank);
            log.part(self.rank.now());
            let result = match self.trips(trips, &mut log) {
                // An end that answered the last message knows that the part is over.
                Ok(true) => Ok(()),
                Ok(false) => self.tell_done(part),
                Err(stopped) => Err(stopped),
            };
            begin.end(self.rank, &mut log.effort);
            lockstep.part_ended(result)?;
        }
        log.damaged = self.damaged;
        log.outcome(self.rank, self.end, lockstep.cut_short)
    }

    /// Whether the last of them was answered.
    fn trips(&mut self, trips: u64, log: &mut Log<'_>) -> Result<bool, Stopped> {
        let mut received = true;
        for k in 0..trips {
            if self.rank.is_asked_to_stop() {
                return Err(stopped(self.rank));
            }
            let i = log.trips;
            log.wait(self.rank)?;
            self.send(i, k + self.senders.len() as u64 >= trips)?;
            self.repost()?;
            received = self.receive_answer(i, log)?;
            if received {
                self.verify(i);
            }
            log.end(self.rank.now(), received);
            self.losses.note(received, self.limit_ns, "the other end")?;
            self.drain()?;
        }
        Ok(received)
    }

    /// Tells an end that may have lost the last message that none is to come.
    fn tell_done(&mut self, part: usize) -> Result<(), Stopped> {
        for _ in 0..DONE_REPEATS {
            self.send(done(part), true)?;
            self.drain()?;
        }
        Ok(())
    }

    pub fn server(mut self) -> Result<Outcome, Stopped> {
        let mut lockstep = Lockstep::new(self.rank, self.end);
        let mut effort = Effort::default();
        let mut last = 0;
        for (part, trips) in parts(self.common).enumerate() {
            if !lockstep.goes_on()? {
                break;
            }
            last += trips;
            let begin = Begin::now(self.rank);
            let result = self.answers(part, last);
            begin.end(self.rank, &mut effort);
            lockstep.part_ended(result)?;
        }
        send_effort(self.rank, self.end, (effort, self.damaged), lockstep.cut_short)
    }

    /// Answers until so many messages were received, or until rank 0 says that the part is over.
    fn answers(&mut self, part: usize, last: u64) -> Result<(), Stopped> {
        while self.received < last {
            if self.rank.is_asked_to_stop() {
                return Err(stopped(self.rank));
            }
            match self.receive(mark(self.received), self.is_lossy)? {
                Some(found) if self.is_lossy && found == mark(done(part)) => break,
                // What is looked for in memory has no number that could be late.
                Some(found) => {
                    let Some(number) = next_number(self.received, found) else { continue };
                    self.received = number;
                    self.verify(number);
                    self.send(self.received, self.received + self.senders.len() as u64 >= last)?;
                    self.received += 1;
                    self.repost()?;
                    self.drain()?;
                }
                None if self.is_lossy => break,
                None => return Err(timed_out(self.limit_ns, "the next message")),
            }
        }
        self.received = last;
        // The first message of the next part needs a receive.
        self.repost()
    }
}
