//! The records that the ends of `ping` keep.

use rdmalab_measure::{Outcome, Quantity, Stamp};
use rdmalab_rank::{Rank, Stopped};

use crate::common::effort::Effort;
use crate::common::endpoint::Endpoint;
use crate::common::gather::{gather, gather_or_keep};
use crate::common::pace::{DUE, Pace, Span, sleep_until_nearly};
use crate::common::params::{Common, Transport};
use crate::common::pattern::push_damaged;
use crate::common::samples::stamp_memory;

/// The pause before a round trip.
fn pause<R: Rank>(rank: &R, common: &Common) -> Result<(), Stopped> {
    if common.sleeps() { rank.sleep(common.pause_ns) } else { rank.think(common.pause_ns) }
}

/// The records of rank 0.
pub(super) struct Log<'a> {
    common: &'a Common,
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
    pub trips: u64,
    /// Trips whose answer never came: the number, and when the trip began.
    lost: Vec<(u64, Stamp)>,
    /// Number of trips whose answer came after its time limit.
    late: u64,
    /// Answers that came again.
    duplicated: u64,
    /// With `--verify`, answers that were not as they had to be.
    pub damaged: u64,
    pub effort: Effort,
}

impl<'a> Log<'a> {
    pub fn new<R: Rank>(rank: &R, common: &'a Common) -> Self {
        let count = if common.rate_per_s > 0 { common.total() as usize } else { 0 };
        let paced = || stamp_memory(count, common.touch);
        Self {
            common,
            pace: Pace::of(common, rank.clock()),
            begin: rank.now(),
            ticks: stamp_memory(common.total() as usize, common.touch),
            due: paced(),
            over: paced(),
            ends: stamp_memory(common.total() as usize, common.touch),
            trips: 0,
            lost: Vec::new(),
            late: 0,
            duplicated: 0,
            damaged: 0,
            effort: Effort::default(),
        }
    }

    /// A part begins.
    pub fn part(&mut self, now: Stamp) {
        self.begin = now;
        if let Some(pace) = &mut self.pace {
            pace.begin(now);
        }
    }

    /// Waits for the begin of the next trip, where it does not follow the one before.
    #[inline]
    pub fn wait<R: Rank>(&mut self, rank: &R) -> Result<(), Stopped> {
        if self.common.pause_ns > 0 && self.pace.is_none() {
            pause(rank, self.common)?;
            self.begin = rank.now();
        }
        let Some(pace) = &mut self.pace else { return Ok(()) };
        let due = pace.due();
        pace.advance();
        self.due[self.trips as usize] = due.0;
        sleep_until_nearly(rank, self.common, due)?;
        self.begin = rank.busy_until(due, || Ok(false))?;
        Ok(())
    }

    #[inline]
    pub fn end(&mut self, now: Stamp, came: bool) {
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

    /// Records the late answer to an earlier trip: the trip is not lost, and took until now. If it
    /// was not lost either, the answer came again.
    #[cold]
    pub fn came_late(&mut self, number: Option<u64>, now: Stamp) {
        let Some(at) = self.lost.iter().position(|(trip, _)| Some(*trip) == number) else {
            self.duplicated += u64::from(number.is_some());
            return;
        };
        let (trip, begin) = self.lost.remove(at);
        self.ticks[trip as usize] = now.0.wrapping_sub(begin.0);
        if let Some(over) = self.over.get_mut(trip as usize) {
            *over = now.0;
        }
        self.ends[trip as usize] = now.0;
        self.late += 1;
    }

    pub fn outcome<R: Rank>(
        mut self,
        rank: &R,
        end: &Endpoint,
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
        let warm_up = (self.common.warm_up as usize).min(samples.len());
        let (sum, count) = samples[warm_up..]
            .iter()
            .filter(|s| !s.is_nan())
            .fold((0.0, 0u64), |(sum, count), s| (sum + s, count + 1));
        if self.pace.is_some() {
            self.open_loop(rank, warm_up, &mut outcome);
        }
        let half = !self.common.op.reads();
        outcome.push_series(Quantity::RoundTrip, "", warm_up, samples);
        outcome.date_largest(|trip| self.ends.get(trip).copied());
        if self.pace.is_none() && count > 0 {
            let per_s = count as f64 / sum * 1e9;
            outcome.push_figure(Quantity::Rate, "1 / RTT", per_s);
            let bytes_per_s = per_s * self.common.size_bytes as f64;
            outcome.push_figure(Quantity::Bandwidth, "size / RTT", bytes_per_s);
        }
        if half && count > 0 {
            // Elapsed time over twice the number of round trips, as the study has it.
            let mean = sum / (2 * count) as f64;
            outcome.push_figure(Quantity::HalfRoundTrip, "elapsed / 2n", mean);
        }
        outcome.push_count("sent", self.trips);
        outcome.push_count("lost", self.lost.len() as u64);
        if self.common.transport != Transport::Rc {
            outcome.push_count("late", self.late);
            outcome.push_count("duplicated", self.duplicated);
        }
        finish(rank, end, self.common, (self.effort, self.damaged), outcome)
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
        let runs = self.common.messages.max(1) as usize;
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

/// Adds the processor time of both ends, damaged messages, and the facts.
fn finish<R: Rank>(
    rank: &R,
    end: &Endpoint,
    common: &Common,
    (effort, damaged): (Effort, u64),
    mut outcome: Outcome,
) -> Result<Outcome, Stopped> {
    let theirs = gather_or_keep(rank, &mut outcome, None)?;
    Effort::push_both(&mut outcome, effort, Effort::from_words(&theirs));
    if common.verify {
        let there = theirs.get(Effort::WORDS).copied().unwrap_or(0);
        push_damaged(&mut outcome, damaged + there);
    }
    end.facts(&mut outcome);
    Ok(outcome)
}

/// Gives rank 0 the effort of rank 1, and how many messages were damaged there.
pub(super) fn send_effort<R: Rank>(
    rank: &R,
    end: &Endpoint,
    (effort, damaged): (Effort, u64),
    cut_short: Option<String>,
) -> Result<Outcome, Stopped> {
    let mut outcome = Outcome { cut_short, ..Outcome::default() };
    match gather(rank, &[&effort.to_words()[..], &[damaged]].concat()) {
        Err(error) if outcome.cut_short.is_none() => return Err(error),
        _ => {}
    }
    end.facts(&mut outcome);
    Ok(outcome)
}
