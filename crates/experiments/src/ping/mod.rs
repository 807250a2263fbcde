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

use crate::common::completions::{look_for, timed_out};
use crate::common::endpoint::End;
use crate::common::lockstep::{
    Begin, Course, Effort, Losses, OVERS, gather, gather_or_keep, stopped, through_losses_ns,
};
use crate::common::pace::{DUE, Pace, Span, longest_gap_ns, sleep_until_nearly};
use crate::common::receives::Stock;
use crate::common::samples::IDLE_NS;
use crate::common::samples::{parts, stamp_memory};
use crate::common::sender::{Sender, TAKEN, each_completion};
use crate::common::thread_tag::place_of;
use crate::point::{Point, Transport};

/// Marks of messages; above them are those that say that a part is over.
const MARKS: u64 = 250;
/// From this number on, a message says that a part is over: no point has so many.
const OVER: u64 = u32::MAX as u64 - 1;

/// The byte by which the `i`-th message is known: never 0, and another one each time.
const fn mark(i: u64) -> u8 {
    if i < OVER { (i % MARKS) as u8 + 1 } else { MARKS as u8 + 1 + (i - OVER) as u8 }
}

/// The number of the message that says that a part is over: another one than the part before has,
/// since it is said several times.
const fn over(part: usize) -> u64 {
    OVER + (part % 2) as u64
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
    /// One for each queue pair, used in turns.
    senders: Vec<Sender<'a>>,
    /// Of each queue pair; none where nothing is received.
    stocks: Vec<Stock<'a>>,
    /// The last byte of what goes out, and of what comes in.
    out: &'a AtomicU8,
    inbox: &'a AtomicU8,
    /// What memory held last where messages are looked for that may be lost.
    seen: u8,
    is_lossy: bool,
    limit_ns: u64,
    /// The queue pair and the number of a receive that was used up and is to be posted again.
    owes: Option<(usize, u64)>,
    heard: u64,
    losses: Losses,
}

impl<'a, R: Rank> Trips<'a, R> {
    fn new(rank: &'a R, end: &'a End, point: &'a Point) -> Result<Self, Stopped> {
        let layout = &end.layout;
        let capacity = u64::from(point.tx_depth);
        let qps = end.qps.len();
        let sender = |qp| Sender::new(end, point, point.op, qp, &vec![(0, 0)], capacity);
        let receives = if point.op.needs_receives() { qps } else { 0 };
        let stocks = (0..receives).map(|qp| Stock::new(end, point, qp));
        let is_lossy = point.transport != Transport::Rc;
        let patience_ns = if is_lossy { IDLE_NS } else { rank.patience_ns() };
        let limit_ns = patience_ns.max(longest_gap_ns(point));
        let answers_through = is_lossy && rank.index() != 0;
        Ok(Self {
            rank,
            end,
            point,
            senders: (0..qps).map(sender).collect(),
            stocks: stocks.collect::<Result<_, _>>()?,
            out: end.memory().byte(layout.out_at(0) + layout.size - 1),
            inbox: end.memory().byte(layout.in_at(0) + layout.size - 1),
            seen: 0,
            is_lossy,
            limit_ns: if answers_through { through_losses_ns(limit_ns) } else { limit_ns },
            owes: None,
            heard: 0,
            losses: Losses::default(),
        })
    }

    /// Says the `i`-th message.
    #[inline]
    fn say(&mut self, i: u64, is_last: bool) -> Result<(), Stopped> {
        let qp = match self.senders.len() {
            1 => 0,
            qps => (i % qps as u64) as usize,
        };
        while self.senders[qp].account.room() == 0 {
            self.reap()?;
        }
        self.out.store(mark(i), Ordering::Release);
        self.senders[qp].post(1, i, 1, is_last)
    }

    /// Waits for completions of what was said.
    fn reap(&mut self) -> Result<(), Stopped> {
        let mut wcs = [Wc::default(); TAKEN];
        let found = self.end.send.wait(self.rank, &mut wcs, "a completion of the sender")?;
        let senders = &mut self.senders;
        each_completion(self.end, &wcs[..found], |qp, count| senders[qp].account.free(count))
    }

    /// Takes the completions that are to come, and posts what was used up: while a message is under
    /// way.
    #[inline]
    fn tidy(&mut self) -> Result<(), Stopped> {
        match self.owes.take() {
            Some((qp, wr_id)) => self.stocks[qp].took(wr_id),
            None => Ok(()),
        }
    }

    /// Takes all completions that are to come.
    #[inline]
    fn settle(&mut self) -> Result<(), Stopped> {
        while self.senders.iter().any(|s| s.account.is_awaiting()) {
            self.reap()?;
        }
        Ok(())
    }

    /// Hears the next message: its mark; `None` when nothing came for too long. What is looked for
    /// in memory has to be the expected one, or `any` other than the last.
    #[inline]
    fn hear(&mut self, expected: u8, any: bool) -> Result<Option<u8>, Stopped> {
        if self.stocks.is_empty() {
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
        // Two in a row only where messages were late.
        self.tidy()?;
        let qp = match self.stocks.len() {
            1 => Some(0),
            _ => self.end.index_of(wcs[0].qp_num()),
        };
        self.owes = qp.map(|qp| (qp, wcs[0].wr_id()));
        // A mark that comes with immediate data needs no look at memory.
        Ok(Some(match wcs[0].imm() {
            Some(imm) => mark(self.end.share.number(imm).into()),
            None if self.is_lossy => self.mark_at(wcs[0].wr_id()),
            None => expected,
        }))
    }

    /// The mark of a message that came into that receive.
    fn mark_at(&self, wr_id: u64) -> u8 {
        if !self.point.tags_payload() {
            return self.inbox.load(Ordering::Acquire);
        }
        let layout = &self.end.layout;
        let at = layout.in_at(place_of(wr_id)) + layout.size - 1;
        self.end.share.memory(&self.end.mr, wr_id).byte(at).load(Ordering::Acquire)
    }

    /// Hears the answer to message `i`; whether it came. One to an earlier message is late, or came
    /// twice.
    #[inline]
    fn hear_answer(&mut self, i: u64, log: &mut Log<'_>) -> Result<bool, Stopped> {
        loop {
            match self.hear(mark(i), false)? {
                Some(found) if found == mark(i) => return Ok(true),
                Some(found) => log.came_late(earlier_number(i, found), self.rank.now()),
                None if self.is_lossy => return Ok(false),
                None => return Err(timed_out(self.limit_ns, "the answer")),
            }
        }
    }

    fn client(mut self) -> Result<Outcome, Stopped> {
        let mut log = Log::new(self.rank, self.point);
        let mut course = Course::new(self.rank, self.end);
        for (part, trips) in parts(self.point).enumerate() {
            if !course.goes_on()? {
                break;
            }
            let begin = Begin::now(self.rank);
            log.part(self.rank.now());
            let result = match self.trips(trips, &mut log) {
                // Who has answered the last one knows that it was.
                Ok(true) => Ok(()),
                Ok(false) => self.say_over(part),
                Err(stopped) => Err(stopped),
            };
            begin.end(self.rank, &mut log.effort);
            course.took(result)?;
        }
        log.outcome(self.rank, self.end, course.cut_short)
    }

    /// Whether the last of them was answered.
    fn trips(&mut self, trips: u64, log: &mut Log<'_>) -> Result<bool, Stopped> {
        let mut heard = true;
        for k in 0..trips {
            if self.rank.is_asked_to_stop() {
                return Err(stopped(self.rank));
            }
            let i = log.trips;
            log.wait(self.rank)?;
            self.say(i, k + self.senders.len() as u64 >= trips)?;
            self.tidy()?;
            heard = self.hear_answer(i, log)?;
            log.end(self.rank.now(), heard);
            self.losses.note(heard, self.limit_ns, "the other end")?;
            self.settle()?;
        }
        Ok(heard)
    }

    /// Tells an end that may have lost the last message that none is to come.
    fn say_over(&mut self, part: usize) -> Result<(), Stopped> {
        for _ in 0..OVERS {
            self.say(over(part), true)?;
            self.settle()?;
        }
        Ok(())
    }

    fn server(mut self) -> Result<Outcome, Stopped> {
        let mut course = Course::new(self.rank, self.end);
        let mut effort = Effort::default();
        let mut last = 0;
        for (part, trips) in parts(self.point).enumerate() {
            if !course.goes_on()? {
                break;
            }
            last += trips;
            let begin = Begin::now(self.rank);
            let result = self.answers(part, last);
            begin.end(self.rank, &mut effort);
            course.took(result)?;
        }
        hand_in(self.rank, self.end, effort, course.cut_short)
    }

    /// Answers until so many messages were heard, or it hears that none comes any more.
    fn answers(&mut self, part: usize, last: u64) -> Result<(), Stopped> {
        while self.heard < last {
            if self.rank.is_asked_to_stop() {
                return Err(stopped(self.rank));
            }
            match self.hear(mark(self.heard), self.is_lossy)? {
                Some(found) if self.is_lossy && found == mark(over(part)) => break,
                // What is looked for in memory has no number that could be late.
                Some(found) => {
                    let Some(number) = next_number(self.heard, found) else { continue };
                    self.heard = number;
                    self.say(self.heard, self.heard + self.senders.len() as u64 >= last)?;
                    self.heard += 1;
                    self.tidy()?;
                    self.settle()?;
                }
                None if self.is_lossy => break,
                None => return Err(timed_out(self.limit_ns, "the next message")),
            }
        }
        self.heard = last;
        // The first message of the next part needs a receive.
        self.tidy()
    }
}

/// The number of a message with that mark, where `expected` is expected: fewer than half of the
/// marks were lost. `None` where it is none, or of an earlier one that came late, or twice.
fn next_number(expected: u64, found: u8) -> Option<u64> {
    let found = u64::from(found).checked_sub(1).filter(|found| *found < MARKS)?;
    let ahead = (found + MARKS - expected % MARKS) % MARKS;
    (ahead < MARKS / 2).then_some(expected + ahead)
}

/// The number of an earlier message than `i` with that mark, of fewer than half of the marks
/// before.
fn earlier_number(i: u64, found: u8) -> Option<u64> {
    let found = u64::from(found).checked_sub(1).filter(|found| *found < MARKS)?;
    let behind = (i % MARKS + MARKS - found) % MARKS;
    (1..MARKS / 2).contains(&behind).then(|| i.checked_sub(behind)).flatten()
}

/// The pause before a round trip.
fn pause<R: Rank>(rank: &R, point: &Point) -> Result<(), Stopped> {
    if point.sleeps() { rank.sleep(point.pause_ns) } else { rank.think(point.pause_ns) }
}

/// What rank 0 writes down.
struct Log<'a> {
    point: &'a Point,
    pace: Option<Pace>,
    /// The begin of the trip that runs.
    begin: Stamp,
    /// Ticks of each trip; `u64::MAX`: lost.
    ticks: Vec<u64>,
    /// At a rate, stamps of when each trip was due, and when it was over.
    due: Vec<u64>,
    over: Vec<u64>,
    /// The stamp at the end of each trip, so that the largest can be dated.
    ends: Vec<u64>,
    trips: u64,
    /// Trips whose answer did not come in time, nor later: which, and when they began.
    lost: Vec<(u64, Stamp)>,
    /// Those whose answer came when it was no longer waited for.
    late: u64,
    effort: Effort,
}

impl<'a> Log<'a> {
    fn new<R: Rank>(rank: &R, point: &'a Point) -> Self {
        let count = if point.rate_per_s > 0 { point.total() as usize } else { 0 };
        let paced = || stamp_memory(count, point.touch);
        Self {
            point,
            pace: Pace::of(point, rank.clock()),
            begin: rank.now(),
            ticks: stamp_memory(point.total() as usize, point.touch),
            due: paced(),
            over: paced(),
            ends: stamp_memory(point.total() as usize, point.touch),
            trips: 0,
            lost: Vec::new(),
            late: 0,
            effort: Effort::default(),
        }
    }

    /// A part begins.
    fn part(&mut self, now: Stamp) {
        self.begin = now;
        if let Some(pace) = &mut self.pace {
            pace.begin(now);
        }
    }

    /// Waits for the begin of the next trip, where it does not follow the one before.
    #[inline]
    fn wait<R: Rank>(&mut self, rank: &R) -> Result<(), Stopped> {
        if self.point.pause_ns > 0 && self.pace.is_none() {
            pause(rank, self.point)?;
            self.begin = rank.now();
        }
        let Some(pace) = &mut self.pace else { return Ok(()) };
        let due = pace.due();
        pace.advance();
        self.due[self.trips as usize] = due.0;
        sleep_until_nearly(rank, self.point, due)?;
        loop {
            self.begin = rank.now();
            if self.begin >= due {
                return Ok(());
            }
            if rank.is_asked_to_stop() {
                return Err(stopped(rank));
            }
        }
    }

    #[inline]
    fn end(&mut self, now: Stamp, came: bool) {
        let ticks = now.0.wrapping_sub(self.begin.0);
        self.ticks[self.trips as usize] = if came { ticks } else { u64::MAX };
        if let Some(over) = self.over.get_mut(self.trips as usize) {
            *over = if came { now.0 } else { 0 };
        }
        self.ends[self.trips as usize] = now.0;
        if !came {
            self.lost.push((self.trips, self.begin));
        }
        self.trips += 1;
        self.begin = now;
    }

    /// The answer to an earlier trip came: where it was taken to be lost, it was not, and took
    /// until now.
    #[cold]
    fn came_late(&mut self, number: Option<u64>, now: Stamp) {
        let Some(at) = self.lost.iter().position(|(trip, _)| Some(*trip) == number) else { return };
        let (trip, begin) = self.lost.remove(at);
        self.ticks[trip as usize] = now.0.wrapping_sub(begin.0);
        if let Some(over) = self.over.get_mut(trip as usize) {
            *over = now.0;
        }
        self.ends[trip as usize] = now.0;
        self.late += 1;
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
        if self.pace.is_some() {
            self.open_loop(rank, warm_up, &mut outcome);
        }
        let half = !self.point.op.reads();
        outcome.push_series(Quantity::RoundTrip, "", warm_up, samples);
        outcome.date_largest(|trip| self.ends.get(trip).copied());
        if half && count > 0 {
            // Elapsed time over twice the number of round trips, as the study has it.
            let mean = sum / (2 * count) as f64;
            outcome.push_figure(Quantity::HalfRoundTrip, "elapsed / 2n", mean);
        }
        outcome.push_count("sent", self.trips);
        outcome.push_count("lost", self.lost.len() as u64);
        if self.point.transport != Transport::Rc {
            outcome.push_count("late", self.late);
        }
        finish(rank, end, self.effort, outcome)
    }
}

impl Log<'_> {
    /// Times from when trips were due, and rates.
    fn open_loop<R: Rank>(&self, rank: &R, warm_up: usize, outcome: &mut Outcome) {
        let (clock, all) = (rank.clock(), self.trips as usize);
        let time = |(due, over): (&u64, &u64)| match *over {
            0 => f64::NAN,
            over => clock.ns_between(Stamp(*due), Stamp(over)),
        };
        let samples = self.due[..all].iter().zip(&self.over).map(time).collect();
        outcome.push_series(Quantity::RoundTrip, DUE, warm_up, samples);
        let (mut offered, mut achieved) = (Span::default(), Span::default());
        let runs = self.point.messages.max(1) as usize;
        let run = self.due[warm_up..all].chunks(runs).zip(self.over[warm_up..all].chunks(runs));
        for (due, over) in run {
            offered.add(due.iter().copied());
            achieved.add_from(due[0], over.iter().copied().filter(|stamp| *stamp != 0));
        }
        for (label, span) in [("offered", offered), ("achieved", achieved)] {
            if let Some(rate) = span.per_s(clock) {
                outcome.push_figure(Quantity::Rate, label, rate);
            }
        }
    }
}

/// Adds the processor time of both ends, and the facts.
pub(crate) fn finish<R: Rank>(
    rank: &R,
    end: &End,
    effort: Effort,
    mut outcome: Outcome,
) -> Result<Outcome, Stopped> {
    let theirs = gather_or_keep(rank, &mut outcome, None)?;
    Effort::push_shares(&mut outcome, effort, Effort::from_words(&theirs));
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
    fn what_is_late_or_over_has_no_number() {
        assert_eq!(next_number(1000, mark(999)), None);
        assert_eq!((next_number(5, 0), next_number(5, mark(over(0)))), (None, None));
        assert!(mark(over(0)) != mark(over(1)) && over(1) <= u32::MAX.into());
        assert_eq!(mark(over(1)), MARKS as u8 + 2);
    }

    #[test]
    fn a_late_answer_is_told_by_its_mark() {
        for i in [1, 60, 249, 250, 251, 1000] {
            for behind in [1, 60, 124] {
                let number = (i >= behind).then(|| i - behind);
                let found = number.map(mark).or_else(|| Some(mark(i + MARKS - behind)));
                assert_eq!(found.and_then(|mark| earlier_number(i, mark)), number, "{i} {behind}");
            }
            assert_eq!(earlier_number(i, mark(i)), None, "no earlier one");
            assert_eq!(earlier_number(i, mark(i + 1)), None, "not asked yet");
        }
        assert_eq!((earlier_number(5, 0), earlier_number(5, mark(over(0)))), (None, None));
    }

    #[test]
    fn a_number_is_found_behind_lost_ones() {
        for expected in [0, 1, 254, 255, 1000] {
            for lost in [0, 1, 100, 124] {
                assert_eq!(next_number(expected, mark(expected + lost)), Some(expected + lost));
            }
        }
    }
}
