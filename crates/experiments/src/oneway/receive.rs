//! The receiving end of `oneway`.

use std::sync::atomic::Ordering;

use rdmalab_measure::Outcome;
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::Wc;

use super::options::Oneway;
use crate::common::arrivals::Arrival;
use crate::common::completions::{look_for, timed_out};
use crate::common::credits::CreditReturns;
use crate::common::effort::{Begin, Effort};
use crate::common::endpoint::Endpoint;
use crate::common::gather::gather;
use crate::common::lockstep::{Lockstep, stopped};
use crate::common::pace::longest_gap_ns;
use crate::common::params::{Common, Op, Transport};
use crate::common::recv_queue::RecvQueue;
use crate::common::samples::{IDLE_NS, arrivals, parts};
use crate::common::thread_tag::{number_of_word, place_of};

/// After this time, a missing WRITE over UC may be lost, and the receiver looks for later ones.
const SCAN_NS: u64 = 10_000_000;

struct Receiving<'a, R> {
    rank: &'a R,
    end: &'a Endpoint,
    common: &'a Common,
    own: &'a Oneway,
    recv_queues: Vec<RecvQueue<'a>>,
    credit_returns: CreditReturns<'a>,
    arrivals: Vec<Arrival>,
    /// The number that is expected next.
    next: u64,
    /// Messages that came.
    came: u64,
    /// How long to wait for a message.
    limit_ns: u64,
    effort: Effort,
}

pub(super) fn run<R: Rank>(
    common: &Common,
    own: &Oneway,
    rank: &R,
    end: &Endpoint,
) -> Result<Outcome, Stopped> {
    let is_looked_for = common.op == Op::Write;
    let total = common.total() as usize;
    let patience_ns = if common.transport == Transport::Rc { rank.patience_ns() } else { IDLE_NS };
    let mut receiving = Receiving {
        rank,
        end,
        common,
        own,
        recv_queues: if is_looked_for {
            vec![RecvQueue::empty(end, 0)]
        } else {
            (0..end.qps.len())
                .map(|qp| RecvQueue::new(end, common, qp))
                .collect::<Result<_, _>>()?
        },
        credit_returns: CreditReturns::new(end, common),
        // Duplicates beyond this are not kept.
        arrivals: arrivals(total + total / 8 + 1024, common.touch),
        next: 0,
        came: 0,
        limit_ns: patience_ns.max(longest_gap_ns(common)),
        effort: Effort::default(),
    };
    let mut lockstep = Lockstep::new(rank, end);
    let mut last = 0;
    for messages in parts(common) {
        if !lockstep.goes_on()? {
            break;
        }
        lockstep.align_clocks()?;
        last += messages;
        lockstep.part_ended(receiving.part(last))?;
    }
    lockstep.align_clocks()?;
    let mut outcome = Outcome { cut_short: lockstep.cut_short, ..Outcome::default() };
    let found = gather(rank, &to_words(receiving.effort, &receiving.arrivals));
    match found {
        Err(error) if outcome.cut_short.is_none() => return Err(error),
        _ => {}
    }
    end.facts(&mut outcome);
    Ok(outcome)
}

impl<R: Rank> Receiving<'_, R> {
    /// Receives until the message before `last` came, or nothing comes any more.
    fn part(&mut self, last: u64) -> Result<(), Stopped> {
        let begin = Begin::now(self.rank);
        let result = self.messages(last);
        begin.end(self.rank, &mut self.effort);
        result
    }

    fn messages(&mut self, last: u64) -> Result<(), Stopped> {
        while self.is_open(last) {
            if self.rank.is_asked_to_stop() {
                return Err(stopped(self.rank));
            }
            let came = if self.common.op == Op::Write { self.written()? } else { self.received()? };
            if !came {
                if self.common.transport == Transport::Rc {
                    return Err(timed_out(self.limit_ns, "the next message"));
                }
                // The rest of this part is lost; what comes late is still joined by its number.
                (self.next, self.came) = (last, last);
            }
        }
        Ok(())
    }

    /// Whether messages before `last` are outstanding. With one queue pair the last number tells;
    /// messages of several queue pairs arrive out of order, so they are counted.
    #[inline]
    fn is_open(&self, last: u64) -> bool {
        if self.end.qps.len() == 1 { self.next < last } else { self.came < last }
    }

    fn keep(&mut self, arrival: Arrival) {
        if self.arrivals.len() < self.arrivals.capacity() {
            self.arrivals.push(arrival);
        }
        self.next = self.next.max(arrival.number + 1);
        self.came += 1;
    }

    /// Waits for a receive completion; whether one came.
    #[inline]
    fn received(&mut self) -> Result<bool, Stopped> {
        let mut wcs = [Wc::default()];
        if self.credit_returns.wait_for(self.rank, &self.recv_queues, self.limit_ns, &mut wcs)? == 0
        {
            return Ok(false);
        }
        let recv = if self.own.stamps.recv { self.rank.now().0 } else { 0 };
        let wc = &wcs[0];
        if !wc.is_ok() {
            return Err(self.end.explain(wc, "receive"));
        }
        let (thread_tag, layout) = (&self.end.thread_tag, &self.end.layout);
        let memory = thread_tag.memory(&self.end.mr, wc.wr_id());
        let place = place_of(wc.wr_id());
        let number = match wc.imm() {
            Some(imm) => u64::from(thread_tag.number(imm)),
            None => number_of_word(memory.read_u64(layout.in_at(place))).wrapping_sub(1),
        };
        let send = if self.own.stamps.send {
            let is_write = self.common.op.writes();
            let place = if is_write { number as usize % layout.in_places } else { place };
            memory.read_u64(layout.in_at(place))
        } else {
            0
        };
        self.keep(Arrival { number, recv, send });
        let qp = if self.recv_queues.len() == 1 { Some(0) } else { self.end.index_of(wc.qp_num()) };
        let Some(qp) = qp else { return Ok(true) };
        self.recv_queues[qp].used(wc.wr_id())?;
        self.credit_returns.update(self.rank, qp, self.recv_queues[qp].reposted)?;
        Ok(true)
    }

    /// Waits for a number in memory; whether one came.
    #[inline]
    fn written(&mut self) -> Result<bool, Stopped> {
        let (memory, layout) = (self.end.memory(), &self.end.layout);
        let places = layout.in_places as u64;
        let word = |n: u64| {
            let at = layout.in_at((n % places) as usize) + layout.size - 8;
            memory.word(at).load(Ordering::Acquire)
        };
        // A later message in the same place has overwritten this one.
        let number = |n: u64| number_of_word(word(n)).checked_sub(1);
        let of = |n: u64| number(n).filter(|found| *found >= n);
        let expected = self.next;
        let is_lossy = self.common.transport != Transport::Rc;
        let look = || of(expected).or_else(|| if is_lossy { of(expected + 1) } else { None });
        let mut found = None;
        let mut waited_ns = 0;
        while found.is_none() && waited_ns < self.limit_ns {
            let slice_ns = if is_lossy { SCAN_NS } else { self.limit_ns };
            found = look_for(self.rank, slice_ns, look)?;
            waited_ns += slice_ns;
            if found.is_none() && is_lossy {
                found = (expected..expected + places).filter_map(of).min();
                if found.is_none() && CreditReturns::is_due(waited_ns, slice_ns) {
                    self.credit_returns.heartbeat(self.rank, &self.recv_queues)?;
                }
            }
        }
        let Some(number) = found else { return Ok(false) };
        let recv = if self.own.stamps.recv { self.rank.now().0 } else { 0 };
        self.keep(Arrival { number, recv, send: 0 });
        self.recv_queues[0].reposted = number + 1;
        self.credit_returns.update(self.rank, 0, number + 1)?;
        Ok(true)
    }
}

/// Words of an arrival between the ends.
const WORDS: usize = 3;

fn to_words(effort: Effort, arrivals: &[Arrival]) -> Vec<u64> {
    let mut words = Vec::with_capacity(Effort::WORDS + WORDS * arrivals.len());
    words.extend(effort.to_words());
    words.extend(arrivals.iter().flat_map(|a| [a.number, a.recv, a.send]));
    words
}

pub(super) fn from_words(words: &[u64]) -> Option<(Effort, Vec<Arrival>)> {
    let effort = Effort::from_words(words)?;
    let arrivals = words[Effort::WORDS..].chunks_exact(WORDS);
    let arrivals = arrivals.map(|w| Arrival { number: w[0], recv: w[1], send: w[2] });
    Some((effort, arrivals.collect()))
}
