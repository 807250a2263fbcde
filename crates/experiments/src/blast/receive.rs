//! The receiving end of `blast`.

use rdmalab_measure::Outcome;
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::Wc;

use super::open::by_qp;
use super::part::{Part, Ticks, are_dated, numbers_payload};
use crate::common::arrivals::Arrival;
use crate::common::completions::timed_out;
use crate::common::credits::CreditReturns;
use crate::common::effort::{Begin, Effort};
use crate::common::endpoint::Endpoint;
use crate::common::gather::gather;
use crate::common::lockstep::{Lockstep, stopped};
use crate::common::pace::longest_gap_ns;
use crate::common::params::{Common, Transport};
use crate::common::pattern;
use crate::common::recv_queue::RecvQueue;
use crate::common::rules::NUMBER_BYTES;
use crate::common::samples::{IDLE_NS, arrivals, parts};
use crate::common::thread_tag::{number_of_word, place_of};

/// Completions taken at a time.
const TAKEN: usize = 32;

/// What this end found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Received {
    pub effort: Effort,
    pub reordered: u64,
    /// With `--verify`, messages that were not as they had to be.
    pub damaged: u64,
    pub parts: Vec<Part>,
    /// In an open loop.
    pub arrivals: Vec<Arrival>,
    pub ns_per_message: Vec<f64>,
}

impl Received {
    pub(super) fn to_words(&self) -> Vec<u64> {
        let mut words = self.effort.to_words().to_vec();
        words.extend([self.reordered, self.damaged]);
        words.extend([self.parts.len() as u64, self.arrivals.len() as u64]);
        words.extend(self.parts.iter().flat_map(|p| p.to_words()));
        words.extend(self.arrivals.iter().flat_map(|a| [a.number, a.recv]));
        words.extend(self.ns_per_message.iter().map(|ns| ns.to_bits()));
        words
    }

    pub(crate) fn from_words(words: &[u64]) -> Option<Self> {
        let effort = Effort::from_words(words)?;
        let (head, rest) = words.get(Effort::WORDS..)?.split_first_chunk::<4>()?;
        let [reordered, damaged, parts, arrivals] = *head;
        let end = |count: u64, words| usize::try_from(count).ok()?.checked_mul(words);
        let (parts, rest) = rest.split_at_checked(end(parts, Part::WORDS)?)?;
        let (arrivals, rest) = rest.split_at_checked(end(arrivals, 2)?)?;
        let arrival = |w: &[u64]| Arrival { number: w[0], recv: w[1], send: 0 };
        Some(Self {
            effort,
            reordered,
            damaged,
            parts: parts.chunks_exact(Part::WORDS).map(Part::from_words).collect(),
            arrivals: arrivals.chunks_exact(2).map(arrival).collect(),
            ns_per_message: rest.iter().map(|w| f64::from_bits(*w)).collect(),
        })
    }
}

/// The receiving end of a direction.
pub(super) struct Receiving<'a, R> {
    rank: &'a R,
    end: &'a Endpoint,
    common: &'a Common,
    recv_queues: Vec<RecvQueue<'a>>,
    credit_returns: CreditReturns<'a>,
    ticks: Ticks,
    /// The latest number of each queue pair.
    latest: Vec<Option<u64>>,
    /// Messages of each queue pair that came.
    came: Vec<u64>,
    arrivals: Vec<Arrival>,
    pub reordered: u64,
    pub damaged: u64,
    limit_ns: u64,
}

/// Receives, with a stamp after so many messages; 0: none.
pub(crate) fn run<R: Rank>(
    common: &Common,
    stamp_every: u64,
    rank: &R,
    end: &Endpoint,
) -> Result<Outcome, Stopped> {
    let passive = common.op.is_unnoticed();
    let mut receiving = Receiving::new(common, stamp_every, rank, end)?;
    let mut found = Received::default();
    let mut lockstep = Lockstep::new(rank, end);
    for messages in parts(common) {
        if !lockstep.goes_on()? {
            break;
        }
        if are_dated(common) {
            lockstep.align_clocks()?;
        }
        let begin = Begin::now(rank);
        let mut part = Part::default();
        let result =
            if passive { end.wait_until_done(rank) } else { receiving.part(messages, &mut part) };
        begin.end(rank, &mut found.effort);
        found.parts.push(part);
        lockstep.part_ended(result)?;
    }
    if are_dated(common) {
        lockstep.align_clocks()?;
    }
    (found.reordered, found.damaged) = (receiving.reordered, receiving.damaged);
    found.arrivals = receiving.arrivals;
    found.ns_per_message = receiving.ticks.ns_per_message;
    let mut outcome = Outcome { cut_short: lockstep.cut_short, ..Outcome::default() };
    match gather(rank, &found.to_words()) {
        Err(error) if outcome.cut_short.is_none() => return Err(error),
        _ => {}
    }
    end.facts(&mut outcome);
    Ok(outcome)
}

impl<'a, R: Rank> Receiving<'a, R> {
    pub fn new(
        common: &'a Common,
        stamp_every: u64,
        rank: &'a R,
        end: &'a Endpoint,
    ) -> Result<Self, Stopped> {
        let qps = if common.op.is_unnoticed() { 0 } else { end.qps.len() };
        let is_reliable = common.transport == Transport::Rc;
        let patience_ns = if is_reliable { rank.patience_ns() } else { IDLE_NS };
        let queues = (0..qps).map(|qp| RecvQueue::new(end, common, qp));
        Ok(Self {
            rank,
            end,
            common,
            recv_queues: queues.collect::<Result<_, _>>()?,
            credit_returns: CreditReturns::new(end, common),
            ticks: Ticks::new(stamp_every),
            latest: vec![None; qps],
            came: vec![0; qps],
            arrivals: arrivals(
                if are_dated(common) { common.total() as usize } else { 0 },
                common.touch,
            ),
            reordered: 0,
            damaged: 0,
            limit_ns: patience_ns.max(longest_gap_ns(common)),
        })
    }

    /// Takes the messages that are there, of a part of so many. Returns whether there were any.
    #[inline]
    pub fn step(&mut self, messages: u64, part: &mut Part) -> Result<bool, Stopped> {
        let mut wcs = [Wc::default(); TAKEN];
        let count = self.end.recv.poll(self.rank, &mut wcs)?;
        if count > 0 {
            self.take_all(&wcs[..count], messages, part)?;
        }
        Ok(count > 0)
    }

    /// Sends all credits again.
    pub fn heartbeat(&mut self) -> Result<(), Stopped> {
        self.credit_returns.heartbeat(self.rank, &self.recv_queues)
    }

    fn part(&mut self, messages: u64, part: &mut Part) -> Result<(), Stopped> {
        let mut wcs = [Wc::default(); TAKEN];
        self.ticks.start(self.rank);
        part.first = self.rank.now().0;
        part.last = part.first;
        let result = self.messages(messages, part, &mut wcs);
        if result.is_err() {
            // Messages came until about now.
            part.last = self.rank.now().0;
        }
        result
    }

    fn messages(
        &mut self,
        messages: u64,
        part: &mut Part,
        wcs: &mut [Wc; TAKEN],
    ) -> Result<(), Stopped> {
        while part.messages < messages {
            if self.rank.is_asked_to_stop() {
                return Err(stopped(self.rank));
            }
            let count =
                self.credit_returns.wait_for(self.rank, &self.recv_queues, self.limit_ns, wcs)?;
            if count == 0 {
                if self.common.transport != Transport::Rc {
                    return Ok(());
                }
                return Err(timed_out(self.limit_ns, "the next message"));
            }
            self.take_all(&wcs[..count], messages, part)?;
        }
        Ok(())
    }

    #[inline]
    fn take_all(&mut self, wcs: &[Wc], messages: u64, part: &mut Part) -> Result<(), Stopped> {
        let now = if self.arrivals.capacity() > 0 { self.rank.now().0 } else { 0 };
        for wc in wcs {
            self.take(wc, now)?;
        }
        part.messages += wcs.len() as u64;
        // Where some may be lost, each may be the last one.
        if self.common.transport != Transport::Rc || part.messages >= messages {
            part.last = self.rank.now().0;
        }
        self.ticks.at(self.rank, part.messages);
        Ok(())
    }

    #[inline]
    fn take(&mut self, wc: &Wc, now: u64) -> Result<(), Stopped> {
        if !wc.is_ok() {
            return Err(self.end.explain(wc, "receive"));
        }
        let qp = if self.recv_queues.len() == 1 { Some(0) } else { self.end.index_of(wc.qp_num()) };
        let Some(qp) = qp else { return Ok(()) };
        let number = self.number(wc);
        if let Some(number) = number {
            let latest = self.latest[qp].replace(number);
            self.reordered += u64::from(latest > Some(number));
        }
        if self.arrivals.len() < self.arrivals.capacity() {
            let number = number.unwrap_or_else(|| by_qp(qp, self.came[qp]));
            self.arrivals.push(Arrival { number, recv: now, send: 0 });
        }
        self.came[qp] += 1;
        if self.common.verify {
            self.verify(wc.wr_id());
        }
        self.recv_queues[qp].used(wc.wr_id())?;
        self.credit_returns.update(self.rank, qp, self.recv_queues[qp].reposted)
    }

    /// Checks the message that came into that receive. A message with a wrong number has another
    /// pattern, too.
    fn verify(&mut self, wr_id: u64) {
        let (memory, layout) = (self.end.memory(), &self.end.layout);
        let start = layout.in_at(place_of(wr_id));
        let word = memory.read_u64(start);
        let (number, bytes) = (number_of_word(word), NUMBER_BYTES as usize..layout.size);
        let is_intact =
            number == word && pattern::is_intact(memory, number.wrapping_sub(1), start, bytes);
        self.damaged += u64::from(!is_intact);
        // A message that brings nothing is not taken for this one.
        memory.write_u64(start, 0);
    }

    /// The number that a message carries.
    #[inline]
    fn number(&self, wc: &Wc) -> Option<u64> {
        let (thread_tag, layout) = (&self.end.thread_tag, &self.end.layout);
        if let Some(imm) = wc.imm() {
            return Some(thread_tag.number(imm).into());
        }
        numbers_payload(self.common).then(|| {
            let memory = thread_tag.memory(&self.end.mr, wc.wr_id());
            let word = memory.read_u64(layout.in_at(place_of(wc.wr_id())));
            number_of_word(word).wrapping_sub(1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_comes_back() {
        let part = Part { messages: 3, first: 10, last: 20 };
        let found = Received {
            effort: Effort { elapsed_ns: 5.0, ..Effort::default() },
            reordered: 1,
            damaged: 2,
            parts: vec![part, part],
            arrivals: vec![Arrival { number: 7, recv: 8, send: 0 }],
            ns_per_message: vec![1.5],
        };
        assert_eq!(Received::from_words(&found.to_words()), Some(found));
        assert_eq!(Received::from_words(&[]), None);
        assert_eq!(Received::from_words(&[1, 2, 3, 4, 5, u64::MAX, 0]), None);
        assert_eq!(Received::from_words(&[1, 2, 3, 4, 5, 0, u64::MAX]), None);
        assert_eq!(Received::from_words(&[1, 2, 3, 4, 5, 0, 1, 9]), None);
    }
}
