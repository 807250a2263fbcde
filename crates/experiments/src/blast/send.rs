//! The sending end of `blast`.

use rdmalab_measure::{Outcome, Quantity};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::Wc;

use super::open::Times;
use super::options::Blast;
use super::part::{Part, Ticks, are_dated, is_told_apart, numbers_payload, runs_of};
use super::rates::Rates;
use super::receive::Received;
use crate::common::credits::Credits;
use crate::common::effort::{Begin, Effort};
use crate::common::endpoint::Endpoint;
use crate::common::gather::gather_or_keep;
use crate::common::lockstep::{Lockstep, stopped};
use crate::common::pace::Pace;
use crate::common::params::{Common, Flow, Op, Transport};
use crate::common::pattern;
use crate::common::rules::NUMBER_BYTES;
use crate::common::samples::parts;
use crate::common::sender::{Places, Sender, TAKEN, each_completion};
use crate::common::thread_tag::word_of_number;

/// A list as long as there are free buffers.
const ALL: u32 = 0;

/// What [`Sending::post_some`] did.
pub(super) enum Posted {
    /// It posted a list.
    Some,
    /// No queue pair has room, or no message is left.
    NoRoom,
    /// The receiver of this queue pair has no room, as far as is known.
    NoCredit(usize),
}

/// The sending end of a direction.
pub(super) struct Sending<'a, R> {
    rank: &'a R,
    end: &'a Endpoint,
    common: &'a Common,
    own: &'a Blast,
    senders: Vec<Sender<'a>>,
    /// The buffers of each of them.
    shares: Vec<Places>,
    /// Messages carry their number.
    is_numbered: bool,
    pub credits: Credits<'a>,
    /// Whose turn it is.
    turn: usize,
    /// Messages of the part that are left for each queue pair.
    left: Vec<u64>,
    /// Requests that a post waits to have room for.
    list: u64,
    /// A post takes all that there is room for.
    takes_all: bool,
    /// Messages sent so far, and how many there are when the part is over.
    pub sent: u64,
    target: u64,
    pace: Option<Pace>,
    times: Option<Times>,
    ticks: Ticks,
}

/// The buffers of each queue pair: about as many for each.
fn shares(buffers: usize, qps: usize) -> Vec<Places> {
    (0..qps)
        .map(|qp| (buffers * qp / qps..buffers * (qp + 1) / qps).map(|i| (i, i)).collect())
        .collect()
}

pub(super) fn run<R: Rank>(
    common: &Common,
    own: &Blast,
    rank: &R,
    end: &Endpoint,
) -> Result<Outcome, Stopped> {
    let mut sending = Sending::new(common, own, rank, end)?;
    let (mut found, mut effort) = (Vec::new(), Effort::default());
    let mut lockstep = Lockstep::new(rank, end);
    for messages in parts(common) {
        if !lockstep.goes_on()? {
            break;
        }
        if are_dated(common) {
            lockstep.align_clocks()?;
        }
        let before = sending.sent;
        let begin = Begin::now(rank);
        let first = rank.now().0;
        sending.ticks.start(rank);
        let result = sending.part(messages);
        let last = rank.now().0;
        begin.end(rank, &mut effort);
        found.push(Part { messages: sending.sent - before, first, last });
        let is_passive = common.op.is_unnoticed();
        lockstep.part_ended(
            result.and_then(|()| if is_passive { end.tell_done(rank) } else { Ok(()) }),
        )?;
    }
    if are_dated(common) {
        lockstep.align_clocks()?;
    }
    sending.outcome(&found, effort, lockstep.cut_short)
}

impl<'a, R: Rank> Sending<'a, R> {
    pub fn new(
        common: &'a Common,
        own: &'a Blast,
        rank: &'a R,
        end: &'a Endpoint,
    ) -> Result<Self, Stopped> {
        let shares = shares(own.buffers as usize, end.qps.len());
        let sender = |(qp, places): (usize, &Places)| {
            let capacity = (places.len() as u64).min(common.tx_depth.into());
            Sender::new(end, common, common.op, qp, places, capacity)
        };
        Ok(Self {
            rank,
            end,
            common,
            own,
            senders: shares.iter().enumerate().map(sender).collect(),
            is_numbered: numbers_payload(common),
            shares,
            credits: Credits::new(end, common, common.op.needs_receives())?,
            turn: 0,
            left: Vec::new(),
            list: u64::from(common.list.max(1)),
            takes_all: common.list == ALL,
            sent: 0,
            target: 0,
            pace: Pace::of(common, rank.clock()),
            times: Times::of(common, end.qps.len()),
            ticks: Ticks::new(own.stamp_every),
        })
    }

    /// A part of so many messages begins.
    pub fn begin(&mut self, messages: u64) {
        let count = self.senders.len() as u64;
        // Each queue pair has its share, so that each one's last message is known.
        self.left = (0..count).map(|q| messages * (q + 1) / count - messages * q / count).collect();
        self.target = self.sent + messages;
        if let Some(pace) = &mut self.pace {
            pace.begin(self.rank.now());
        }
    }

    /// Whether all messages of the part are sent.
    pub fn is_through(&self) -> bool {
        self.sent >= self.target
    }

    /// Whether a completion is yet to come.
    pub fn is_awaiting(&self) -> bool {
        self.senders.iter().any(|s| s.account.is_awaiting())
    }

    fn part(&mut self, messages: u64) -> Result<(), Stopped> {
        let first = self.sent;
        self.begin(messages);
        while !self.is_through() {
            if self.rank.is_asked_to_stop() {
                return Err(stopped(self.rank));
            }
            if let Some(due) = self.pace.as_ref().map(Pace::due) {
                self.rank.busy_until(due, || self.look())?;
            }
            match self.post_some()? {
                Posted::Some => {}
                Posted::NoRoom => self.reap()?,
                Posted::NoCredit(qp) => self.starve(qp)?,
            }
            self.ticks.at(self.rank, self.sent - first);
        }
        while self.is_awaiting() {
            self.reap()?;
        }
        Ok(())
    }

    /// Posts a list on the first queue pair that has room for it, starting at the one whose turn it
    /// is.
    #[inline]
    pub fn post_some(&mut self) -> Result<Posted, Stopped> {
        let count = self.senders.len();
        for _ in 0..count {
            let qp = self.turn;
            self.turn = if qp + 1 == count { 0 } else { qp + 1 };
            let (account, left) = (&self.senders[qp].account, self.left[qp]);
            let (room, wanted) = (account.room(), self.list.min(account.capacity()));
            if left == 0 || room < wanted.min(left) {
                continue;
            }
            let list = if self.takes_all { room } else { wanted };
            let list = list.min(left).min(self.senders[qp].until_end() as u64);
            let list = list.min(self.credits.allowed(self.rank, qp)?);
            if list == 0 {
                return Ok(Posted::NoCredit(qp));
            }
            if self.common.verify {
                self.fill(qp, list as usize);
            } else if self.is_numbered {
                self.write_number(qp);
            }
            self.senders[qp].post(list as usize, self.sent, wanted, list == left)?;
            self.credits.spend(qp, list);
            self.left[qp] -= list;
            self.sent += list;
            if let (Some(pace), Some(times)) = (&mut self.pace, &mut self.times) {
                for _ in 0..list {
                    times.posted(qp, pace.due());
                    pace.advance();
                }
            }
            return Ok(Posted::Some);
        }
        Ok(Posted::NoRoom)
    }

    /// Writes the number and the pattern into the next messages.
    fn fill(&self, qp: usize, list: usize) {
        let at = self.senders[qp].at();
        let (memory, layout) = (self.end.memory(), &self.end.layout);
        for ((place, _), number) in self.shares[qp][at..at + list].iter().zip(self.sent..) {
            let start = layout.out_at(*place);
            memory.write_u64(start, word_of_number(number));
            pattern::fill(memory, number, start, NUMBER_BYTES as usize..layout.size);
        }
    }

    /// Writes the number into the next message. With `--rate` each list has only one message.
    #[inline]
    fn write_number(&self, qp: usize) {
        let (place, _) = self.shares[qp][self.senders[qp].at()];
        let word = word_of_number(self.sent) | self.end.thread_tag.word();
        self.end.memory().write_u64(self.end.layout.out_at(place), word);
    }

    /// Waits for credit, and takes completions meanwhile.
    #[cold]
    fn starve(&mut self, qp: usize) -> Result<(), Stopped> {
        let Self { rank, end, senders, times, credits, .. } = self;
        credits.wait(*rank, qp, || {
            let mut wcs = [Wc::default(); TAKEN];
            let found = end.send.poll(*rank, &mut wcs)?;
            completed(*rank, end, senders, times, &wcs[..found])
        })
    }

    /// Polls completions, unless the sender sleeps while it waits for them and nothing is measured
    /// by them. Returns whether there may be more.
    fn look(&mut self) -> Result<bool, Stopped> {
        if self.end.send.sleeps() && !self.common.op.is_unnoticed() {
            return Ok(false);
        }
        Ok(self.poll()? == TAKEN)
    }

    /// Takes the completions that are there; how many.
    pub fn poll(&mut self) -> Result<usize, Stopped> {
        let mut wcs = [Wc::default(); TAKEN];
        let found = self.end.send.poll(self.rank, &mut wcs)?;
        if found > 0 {
            completed(self.rank, self.end, &mut self.senders, &mut self.times, &wcs[..found])?;
        }
        Ok(found)
    }

    /// Waits for completions.
    #[inline]
    fn reap(&mut self) -> Result<(), Stopped> {
        let mut wcs = [Wc::default(); TAKEN];
        let found = self.end.send.wait(self.rank, &mut wcs, "a completion of the sender")?;
        completed(self.rank, self.end, &mut self.senders, &mut self.times, &wcs[..found])
    }

    /// Joins what both ends found.
    fn outcome(
        self,
        parts: &[Part],
        effort: Effort,
        cut_short: Option<String>,
    ) -> Result<Outcome, Stopped> {
        let mut outcome = Outcome { cut_short, ..Outcome::default() };
        let missing = Some("what arrived is not known");
        let theirs = gather_or_keep(self.rank, &mut outcome, missing)?;
        let sent = runs_of(self.common, parts);
        outcome.push_count("sent", sent.iter().map(|p| p.messages).sum());
        let found = Received::from_words(&theirs);
        let is_counted_there = !self.common.op.is_unnoticed() && found.is_some();
        outcome.push_fact("counted_at", if is_counted_there { "receiver" } else { "sender" });
        if let Some(found) = found.as_ref().filter(|_| is_counted_there) {
            self.arrived(&mut outcome, sent, found);
        }
        if !is_counted_there {
            self.rates(&mut outcome, sent);
            if let Some(times) = self.times.as_ref().filter(|_| self.common.op.is_unnoticed()) {
                times.push_own(self.rank, self.common, &mut outcome);
            }
            self.ticks(&mut outcome, self.ticks.ns_per_message.clone());
        }
        Effort::push_both(&mut outcome, effort, found.map(|f| f.effort));
        self.doubts(&mut outcome);
        self.end.facts(&mut outcome);
        Ok(outcome)
    }

    /// What the receiver counted.
    fn arrived(&self, outcome: &mut Outcome, sent: &[Part], found: &Received) {
        let arrived = runs_of(self.common, &found.parts);
        let is_one_clock = self.rank.clock_error_ns(1).is_some();
        let runs: Vec<Part> = sent
            .iter()
            .zip(arrived)
            .map(|(sent, there)| match is_one_clock {
                true => Part { first: sent.first, ..*there },
                false => *there,
            })
            .collect();
        let received: u64 = arrived.iter().map(|p| p.messages).sum();
        let all: u64 = sent.iter().map(|p| p.messages).sum();
        let times = self.times.as_ref().filter(|_| are_dated(self.common));
        let joined = times.map(|times| (times, times.join(&found.arrivals)));
        let (lost, duplicated) = match &joined {
            Some((_, joined)) => (joined.lost, joined.duplicated),
            None => (all.saturating_sub(received), received.saturating_sub(all)),
        };
        outcome.push_count("received", received);
        outcome.push_count("lost", lost);
        outcome.push_count("duplicated", duplicated);
        outcome.push_count("reordered", found.reordered);
        if self.common.verify {
            pattern::push_damaged(outcome, found.damaged);
        }
        outcome.push_count("credit_given_up", self.credits.given_up);
        self.rates(outcome, &runs);
        if let Some((times, joined)) = &joined {
            outcome.push_count("strays", joined.strays);
            times.push_joint(self.rank, self.common, joined, outcome);
        }
        self.ticks(outcome, found.ns_per_message.clone());
    }

    fn rates(&self, outcome: &mut Outcome, runs: &[Part]) {
        if let Some(rates) = Rates::of(self.rank.clock(), runs) {
            rates.push_all(self.common, outcome);
        }
    }

    fn ticks(&self, outcome: &mut Outcome, ns_per_message: Vec<f64>) {
        if self.own.stamp_every > 0 {
            let label = format!("every {}", self.own.stamp_every);
            outcome.push_series(Quantity::MessageTime, &label, 0, ns_per_message);
        }
    }

    pub fn doubts(&self, outcome: &mut Outcome) {
        if self.common.transport != Transport::Rc && self.common.op == Op::Write {
            outcome.warnings.push(
                "a completion of a WRITE over UC does not prove that it arrived: choose --op \
                 write_imm to count arrivals"
                    .to_owned(),
            );
        }
        if self.times.is_some() && !is_told_apart(self.common) {
            outcome.warnings.push(format!(
                "no times from the intended start: messages of {} bytes have no room for the \
                 number that tells which one arrived; choose --size {NUMBER_BYTES} or more, --op \
                 send_imm, or --transport rc",
                self.common.size_bytes
            ));
        }
        if self.common.flow == Flow::Credit && self.credits.given_up > 0 {
            outcome.warnings.push(format!(
                "messages were lost: {} times the sender waited for the receiver until its \
                 time-out; choose --transport rc, a larger --rx-depth, or --flow none",
                self.credits.given_up
            ));
        }
    }
}

/// Takes completions of sends.
#[inline]
fn completed<R: Rank>(
    rank: &R,
    end: &Endpoint,
    senders: &mut [Sender<'_>],
    times: &mut Option<Times>,
    wcs: &[Wc],
) -> Result<(), Stopped> {
    let now = if times.is_some() { rank.now().0 } else { 0 };
    each_completion(end, wcs, |qp, count| {
        senders[qp].account.free(count);
        if let Some(times) = times {
            times.completed(qp, count, now);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_shared_out_whole() {
        for (buffers, qps) in [(1, 1), (7, 3), (64, 64), (100, 7)] {
            let shares = shares(buffers, qps);
            let all: Vec<_> = shares.concat();
            assert_eq!(all, (0..buffers).map(|i| (i, i)).collect::<Places>());
            let least = shares.iter().map(Vec::len).min().unwrap();
            assert!(least == buffers / qps && shares.iter().all(|s| s.len() <= least + 1));
        }
    }
}
