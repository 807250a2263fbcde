//! `ping`: round trips, as in macarthur2012.
//!
//! Rank 0 says something, rank 1 answers in the same way; or rank 1 lies still while rank 0 READs,
//! or WRITEs and READs back. One stamp a round trip: the end of one is the begin of the next, so
//! that tidying up is counted, and done while a message is under way. Only after a pause a round
//! trip has a stamp of its own to begin with.

mod passive;

use std::sync::atomic::{AtomicU8, Ordering};

use rdmalab_measure::{Outcome, Quantity, Stamp};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::Wc;

use crate::cq::{look_for, timed_out};
use crate::end::End;
use crate::oneway::receive::IDLE_NS;
use crate::oneway::{parts, stamp_memory};
use crate::point::{Point, Transport};
use crate::sender::{Sender, TAKEN, each_completion};
use crate::stock::Stock;
use crate::talk::{Begin, Course, Effort, gather};

/// The byte by which the `i`-th message is known: never 0, and another one each time.
const fn mark(i: u64) -> u8 {
    (i % 255) as u8 + 1
}

/// Runs it.
pub(crate) fn run<R: Rank>(rank: &R, end: &End, point: &Point) -> Result<Outcome, Stopped> {
    match (rank.index(), point.op.reads()) {
        (0, false) => Trips::new(rank, end, point)?.client(),
        (0, true) => passive::client(rank, end, point),
        (_, false) => Trips::new(rank, end, point)?.server(),
        (_, true) => passive::server(rank, end, point),
    }
}

/// An end that says and hears.
struct Trips<'a, R> {
    rank: &'a R,
    end: &'a End,
    point: &'a Point,
    sender: Sender<'a>,
    stock: Option<Stock<'a>>,
    /// The last byte of what goes out, and of what comes in.
    out: &'a AtomicU8,
    inbox: &'a AtomicU8,
    is_lossy: bool,
    limit_ns: u64,
    /// A receive was used up and is to be posted again.
    owes: bool,
    heard: u64,
}

impl<'a, R: Rank> Trips<'a, R> {
    fn new(rank: &'a R, end: &'a End, point: &'a Point) -> Result<Self, Stopped> {
        let layout = &end.layout;
        let capacity = u64::from(point.tx_depth);
        let sender = Sender::new(end, point, point.op, 0, &vec![(0, 0)], capacity);
        let stock = if point.op.needs_receives() { Some(Stock::new(end, point, 0)?) } else { None };
        let is_lossy = point.transport != Transport::Rc;
        let patience_ns = if is_lossy { IDLE_NS } else { rank.patience_ns() };
        Ok(Self {
            rank,
            end,
            point,
            sender,
            stock,
            out: end.memory().byte(layout.out_at(0) + layout.size - 1),
            inbox: end.memory().byte(layout.in_at(0) + layout.size - 1),
            is_lossy,
            limit_ns: patience_ns.max(2 * point.pause_ns),
            owes: false,
            heard: 0,
        })
    }

    /// Says the `i`-th message.
    #[inline]
    fn say(&mut self, i: u64, is_last: bool) -> Result<(), Stopped> {
        while self.sender.account.room() == 0 {
            self.reap()?;
        }
        self.out.store(mark(i), Ordering::Release);
        self.sender.post(1, i, 1, is_last)
    }

    /// Waits for completions of what was said.
    fn reap(&mut self) -> Result<(), Stopped> {
        let mut wcs = [Wc::default(); TAKEN];
        let found = self.end.send.wait(self.rank, &mut wcs, "a completion of the sender")?;
        let account = &mut self.sender.account;
        each_completion(self.end, &wcs[..found], |_, count| account.free(count))
    }

    /// Takes the completions that are to come, and posts what was used up: while a message is under
    /// way.
    #[inline]
    fn tidy(&mut self) -> Result<(), Stopped> {
        if std::mem::take(&mut self.owes)
            && let Some(stock) = &mut self.stock
        {
            stock.took()?;
        }
        Ok(())
    }

    /// Takes all completions that are to come.
    #[inline]
    fn settle(&mut self) -> Result<(), Stopped> {
        while self.sender.account.is_awaiting() {
            self.reap()?;
        }
        Ok(())
    }

    /// Hears the next message: its mark; `None` when nothing came for too long.
    #[inline]
    fn hear(&mut self, expected: u8) -> Result<Option<u8>, Stopped> {
        if self.stock.is_none() {
            let inbox = self.inbox;
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
        // Two in a row only where messages were late.
        self.tidy()?;
        self.owes = true;
        // A mark that comes with immediate data needs no look at memory.
        Ok(Some(match wcs[0].imm() {
            Some(imm) => mark(imm.into()),
            None if self.is_lossy => self.inbox.load(Ordering::Acquire),
            None => expected,
        }))
    }

    /// Hears the answer to message `i`; whether it came. Answers to earlier ones are passed over.
    #[inline]
    fn hear_answer(&mut self, i: u64) -> Result<bool, Stopped> {
        loop {
            match self.hear(mark(i))? {
                Some(found) if found == mark(i) => return Ok(true),
                Some(_) => {}
                None if self.is_lossy => return Ok(false),
                None => return Err(timed_out(self.limit_ns, "the answer")),
            }
        }
    }

    fn client(mut self) -> Result<Outcome, Stopped> {
        let mut log = Log::new(self.rank, self.point);
        let mut course = Course::new(self.rank, self.end);
        for trips in parts(self.point) {
            if !course.goes_on()? {
                break;
            }
            let begin = Begin::now(self.rank);
            log.start(self.rank.now());
            let result = self.trips(trips, &mut log);
            begin.end(self.rank, &mut log.effort);
            course.took(result)?;
        }
        log.outcome(self.rank, self.end, course.cut_short)
    }

    fn trips(&mut self, trips: u64, log: &mut Log<'_>) -> Result<(), Stopped> {
        for k in 0..trips {
            if self.rank.is_asked_to_stop() {
                return Err(Stopped::Asked);
            }
            let i = log.trips;
            if self.point.pause_ns > 0 {
                pause(self.rank, self.point)?;
                log.start(self.rank.now());
            }
            self.say(i, k + 1 == trips)?;
            self.tidy()?;
            let heard = self.hear_answer(i)?;
            log.end(self.rank.now(), heard);
            self.settle()?;
        }
        Ok(())
    }

    fn server(mut self) -> Result<Outcome, Stopped> {
        let mut course = Course::new(self.rank, self.end);
        let mut effort = Effort::default();
        let mut last = 0;
        for trips in parts(self.point) {
            if !course.goes_on()? {
                break;
            }
            last += trips;
            let begin = Begin::now(self.rank);
            let result = self.answers(last);
            begin.end(self.rank, &mut effort);
            course.took(result)?;
        }
        hand_in(self.rank, self.end, effort, course.cut_short)
    }

    /// Answers until so many messages were heard, or none comes any more.
    fn answers(&mut self, last: u64) -> Result<(), Stopped> {
        while self.heard < last {
            if self.rank.is_asked_to_stop() {
                return Err(Stopped::Asked);
            }
            match self.hear(mark(self.heard))? {
                // What is looked for in memory has no number that could be late.
                Some(found) => {
                    self.heard = next_number(self.heard, found);
                    self.say(self.heard, self.heard + 1 >= last)?;
                    self.heard += 1;
                    self.tidy()?;
                    self.settle()?;
                }
                None if self.is_lossy => self.heard = last,
                None => return Err(timed_out(self.limit_ns, "the next message")),
            }
        }
        Ok(())
    }
}

/// The number of a message with that mark, where `expected` is expected: less than 255 were lost.
fn next_number(expected: u64, found: u8) -> u64 {
    let ahead = (u64::from(found) + 255 - u64::from(mark(expected))) % 255;
    expected + ahead
}

/// The pause before a round trip.
fn pause<R: Rank>(rank: &R, point: &Point) -> Result<(), Stopped> {
    if point.sleeps() { rank.sleep(point.pause_ns) } else { rank.think(point.pause_ns) }
}

/// What rank 0 writes down.
struct Log<'a> {
    point: &'a Point,
    /// The begin of the trip that runs.
    begin: Stamp,
    /// Ticks of each trip; `u64::MAX`: lost.
    ticks: Vec<u64>,
    trips: u64,
    lost: u64,
    effort: Effort,
}

impl<'a> Log<'a> {
    fn new<R: Rank>(rank: &R, point: &'a Point) -> Self {
        Self {
            point,
            begin: rank.now(),
            ticks: stamp_memory(point.total() as usize, point.touch),
            trips: 0,
            lost: 0,
            effort: Effort::default(),
        }
    }

    fn start(&mut self, now: Stamp) {
        self.begin = now;
    }

    #[inline]
    fn end(&mut self, now: Stamp, came: bool) {
        let ticks = now.0.wrapping_sub(self.begin.0);
        self.ticks[self.trips as usize] = if came { ticks } else { u64::MAX };
        self.lost += u64::from(!came);
        self.trips += 1;
        self.begin = now;
    }

    fn outcome<R: Rank>(
        mut self,
        rank: &R,
        end: &End,
        cut_short: Option<String>,
    ) -> Result<Outcome, Stopped> {
        let mut outcome = Outcome { cut_short, ..Outcome::default() };
        self.ticks.truncate(self.trips as usize);
        let clock = rank.clock();
        let time = |ticks: &u64| match *ticks {
            u64::MAX => f64::NAN,
            ticks => clock.ns_between(Stamp(0), Stamp(ticks)),
        };
        let samples: Vec<f64> = self.ticks.iter().map(time).collect();
        let warm_up = (self.point.warm_up as usize).min(samples.len());
        let (sum, count) = samples[warm_up..]
            .iter()
            .filter(|s| !s.is_nan())
            .fold((0.0, 0u64), |(sum, count), s| (sum + s, count + 1));
        let half = !self.point.op.reads();
        outcome.push_series(Quantity::RoundTrip, "", warm_up, samples);
        if half && count > 0 {
            // Elapsed time over twice the number of round trips, as the study has it.
            let mean = sum / (2 * count) as f64;
            outcome.push_figure(Quantity::HalfRoundTrip, "elapsed / 2n", mean);
        }
        outcome.push_count("sent", self.trips);
        outcome.push_count("lost", self.lost);
        finish(rank, end, self.effort, outcome)
    }
}

/// Adds the processor time of both ends, and the facts.
pub(crate) fn finish<R: Rank>(
    rank: &R,
    end: &End,
    effort: Effort,
    mut outcome: Outcome,
) -> Result<Outcome, Stopped> {
    let theirs = match gather(rank, &[]) {
        Ok(words) => Effort::from_words(&words),
        Err(_) if outcome.cut_short.is_some() => None,
        Err(error) => return Err(error),
    };
    let both = [("rank 0", Some(effort)), ("rank 1", theirs)];
    for (label, share) in both.into_iter().filter_map(|(l, e)| Some((l, e?.share()?))) {
        outcome.push_figure(Quantity::CpuShare, label, share);
    }
    end.facts(&mut outcome);
    Ok(outcome)
}

/// Gives rank 0 the effort of rank 1.
pub(crate) fn hand_in<R: Rank>(
    rank: &R,
    end: &End,
    effort: Effort,
    cut_short: Option<String>,
) -> Result<Outcome, Stopped> {
    let mut outcome = Outcome { cut_short, ..Outcome::default() };
    match gather(rank, &effort.to_words()) {
        Err(error) if outcome.cut_short.is_none() => return Err(error),
        _ => {}
    }
    end.facts(&mut outcome);
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_never_the_one_before_nor_zero() {
        for i in 0..1000 {
            assert!(mark(i) != 0 && mark(i) != mark(i + 1));
        }
    }

    #[test]
    fn a_number_is_found_behind_lost_ones() {
        for expected in [0, 1, 254, 255, 1000] {
            for lost in [0, 1, 100, 254] {
                assert_eq!(next_number(expected, mark(expected + lost)), expected + lost);
            }
        }
    }
}
