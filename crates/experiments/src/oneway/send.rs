//! The sending end of `oneway`.

use rdmalab_measure::{Outcome, Quantity, Stamp};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::Wc;

use super::options::Oneway;
use super::receive::from_words;
use crate::common::arrivals::{Arrival, Joined, join};
use crate::common::credits::Credits;
use crate::common::effort::{Begin, Effort};
use crate::common::endpoint::Endpoint;
use crate::common::gather::gather_or_keep;
use crate::common::lockstep::{Lockstep, stopped};
use crate::common::pace::{DUE, Pace, push_rates, sleep_until_nearly};
use crate::common::params::{Common, Op};
use crate::common::samples::{NO_CLOCK, parts, push_one_way, stamp_memory};
use crate::common::sender::{Sender, each_completion};
use crate::common::thread_tag::word_of_number;

/// The sending end.
struct Sending<'a, R> {
    rank: &'a R,
    end: &'a Endpoint,
    common: &'a Common,
    own: &'a Oneway,
    /// One for each queue pair; messages take them in turns.
    senders: Vec<Sender<'a>>,
    credits: Credits<'a>,
    pace: Option<Pace>,
    /// Stamps by the number of the message; 0: none.
    due: Vec<u64>,
    subm: Vec<u64>,
    post: Vec<u64>,
    comp: Vec<u64>,
    sent: usize,
    effort: Effort,
}

pub(super) fn run<R: Rank>(
    common: &Common,
    own: &Oneway,
    rank: &R,
    end: &Endpoint,
) -> Result<Outcome, Stopped> {
    let total = common.total() as usize;
    let layout = &end.layout;
    let memory = |wanted: bool| stamp_memory(if wanted { total } else { 0 }, common.touch);
    // A message that the receiver polls for in memory has its own place, so that its number stays
    // until it is seen; then there are as many requests as places.
    let requests = if common.op.writes() { layout.in_places } else { layout.out_places };
    let qps = end.qps.len();
    let places = |qp: usize| {
        let number = |k: usize| qp + k * qps;
        let place = |n: usize| (n % layout.out_places, n % layout.in_places);
        (0..requests).map(number).map(place).collect()
    };
    // A message that carries its number may not be written over before it is gone.
    let own_places = if common.op.has_imm() { usize::MAX } else { layout.out_places / qps };
    let capacity = u64::from(common.tx_depth).min(own_places as u64).max(1);
    let sender = |qp| Sender::new(end, common, common.op, qp, &places(qp), capacity);
    let mut sending = Sending {
        rank,
        end,
        common,
        own,
        senders: (0..qps).map(sender).collect(),
        credits: Credits::new(end, common, true)?,
        pace: Pace::of(common, rank.clock()),
        due: memory(common.rate_per_s > 0),
        subm: memory(true),
        post: memory(own.stamps.post),
        comp: memory(own.stamps.comp),
        sent: 0,
        effort: Effort::default(),
    };
    let mut lockstep = Lockstep::new(rank, end);
    for messages in parts(common) {
        if !lockstep.goes_on()? {
            break;
        }
        lockstep.align_clocks()?;
        lockstep.part_ended(sending.part(messages))?;
    }
    lockstep.align_clocks()?;
    sending.outcome(lockstep.cut_short)
}

impl<R: Rank> Sending<'_, R> {
    fn part(&mut self, messages: u64) -> Result<(), Stopped> {
        let begin = Begin::now(self.rank);
        let result = if self.own.stamps.send {
            let (rank, end) = (self.rank, self.end);
            rank.restamping(end.memory().word(end.layout.out_at(0)), || self.messages(messages))
                .and_then(|result| result)
        } else {
            self.messages(messages)
        };
        begin.end(self.rank, &mut self.effort);
        result
    }

    fn messages(&mut self, messages: u64) -> Result<(), Stopped> {
        let mut last_post = None;
        if let Some(pace) = &mut self.pace {
            pace.begin(self.rank.now());
        }
        for i in 0..messages {
            if self.rank.is_asked_to_stop() {
                return Err(stopped(self.rank));
            }
            self.pause(i, last_post)?;
            self.until_due()?;
            self.make_room()?;
            let ends_burst = self.ends(i, messages);
            last_post = Some(self.message(ends_burst)?);
            if !self.end.send.sleeps() {
                self.look()?;
            }
        }
        self.drain()
    }

    /// Whether message `i` of a part is its queue pair's last one before everything is waited for.
    #[inline]
    fn ends(&self, i: u64, messages: u64) -> bool {
        let (burst, qps) = (self.own.burst, self.senders.len() as u64);
        let left_of_burst = if burst == 0 { u64::MAX } else { burst - i % burst };
        left_of_burst.min(messages - i) <= qps
    }

    #[inline]
    fn message(&mut self, flush: bool) -> Result<Stamp, Stopped> {
        let number = self.sent;
        if !self.common.op.has_imm() {
            let layout = &self.end.layout;
            let at = layout.out_at(number % layout.out_places);
            // At the end where the end is looked for.
            let at = if self.common.op == Op::Write { at + layout.size - 8 } else { at };
            let word = word_of_number(number as u64) | self.end.thread_tag.word();
            self.end.memory().write_u64(at, word);
        }
        let qp = number % self.senders.len();
        let subm = self.rank.now();
        self.senders[qp].post(1, number as u64, 1, flush)?;
        if self.own.stamps.post {
            self.post[number] = self.rank.now().0;
        }
        self.subm[number] = subm.0;
        self.sent = number + 1;
        self.credits.spend(self.credit_of(qp), 1);
        Ok(subm)
    }

    /// Waits until a message fits the send queue, and the receive queue of the other end.
    #[inline]
    fn make_room(&mut self) -> Result<(), Stopped> {
        let qp = self.sent % self.senders.len();
        while self.senders[qp].account.room() == 0 {
            self.wait()?;
        }
        let of = self.credit_of(qp);
        if self.credits.allowed(self.rank, of)? == 0 {
            let Self { rank, end, senders, comp, credits, .. } = self;
            credits.wait(*rank, of, || look(*rank, end, senders, comp))?;
        }
        Ok(())
    }

    /// The credit that a message uses: that of its queue pair's receives, or that of the places in
    /// memory, which all queue pairs share.
    #[inline]
    fn credit_of(&self, qp: usize) -> usize {
        if self.common.op == Op::Write { 0 } else { qp }
    }

    #[inline]
    fn look(&mut self) -> Result<(), Stopped> {
        look(self.rank, self.end, &mut self.senders, &mut self.comp)
    }

    /// Waits until the next message is due, if there is such a time.
    #[inline]
    fn until_due(&mut self) -> Result<(), Stopped> {
        let Some(pace) = &mut self.pace else { return Ok(()) };
        let due = pace.due();
        pace.advance();
        self.due[self.sent] = due.0;
        sleep_until_nearly(self.rank, self.common, due)?;
        let looks = !self.end.send.sleeps();
        self.rank
            .busy_until(due, || if looks { self.look().map(|()| false) } else { Ok(false) })?;
        Ok(())
    }

    /// Waits for one completion and takes it, and all others that are there.
    fn wait(&mut self) -> Result<(), Stopped> {
        let mut wcs = [Wc::default()];
        self.end.send.wait(self.rank, &mut wcs, "a completion of the sender")?;
        completed(self.rank, self.end, &mut self.senders, &mut self.comp, &wcs)?;
        self.look()
    }

    /// Waits for all completions that are to come.
    fn drain(&mut self) -> Result<(), Stopped> {
        while is_awaiting(&self.senders) {
            self.wait()?;
        }
        Ok(())
    }

    /// Pauses between message `i` of a part and the one before it.
    #[inline]
    fn pause(&mut self, i: u64, last_post: Option<Stamp>) -> Result<(), Stopped> {
        let (burst, pause_ns) = (self.own.burst, self.common.pause_ns);
        let Some(last_post) = last_post.filter(|_| self.pace.is_none()) else { return Ok(()) };
        if burst == 0 && pause_ns == 0 {
            return Ok(());
        }
        if burst > 0 {
            if i.is_multiple_of(burst) {
                self.drain()?;
                self.rest(self.rank.now(), pause_ns)?;
            }
            return Ok(());
        }
        self.rest(last_post, pause_ns)
    }

    /// Spends the time from `since` on.
    fn rest(&mut self, since: Stamp, ns: u64) -> Result<(), Stopped> {
        if self.common.sleeps() || self.end.send.sleeps() {
            self.drain()?;
        }
        let clock = *self.rank.clock();
        let left_ns = ns as f64 - clock.ns_between(since, self.rank.now());
        if left_ns <= 0.0 {
            return Ok(());
        }
        if self.common.sleeps() {
            return self.rank.sleep(left_ns as u64);
        }
        if self.end.send.sleeps() {
            return self.rank.think(left_ns as u64);
        }
        let until = clock.after_ns(since, ns as f64);
        self.rank.busy_until(until, || self.look().map(|()| false))?;
        Ok(())
    }

    /// Joins what both ends found.
    fn outcome(mut self, cut_short: Option<String>) -> Result<Outcome, Stopped> {
        let mut outcome = Outcome { cut_short, ..Outcome::default() };
        let missing = Some("the arrivals are missing");
        let theirs = gather_or_keep(self.rank, &mut outcome, missing)?;
        self.subm.truncate(self.sent);
        let warm_up = (self.common.warm_up as usize).min(self.sent);
        outcome.push_count("sent", self.sent as u64);
        outcome.push_count("credit_given_up", self.credits.given_up);
        let theirs = from_words(&theirs);
        if let Some((_, arrivals)) = &theirs {
            let joined = join(self.sent, arrivals);
            // First, since expectations are about the first series unless they name one.
            self.joint_series(&mut outcome, warm_up, &joined);
        }
        self.own_series(&mut outcome, warm_up);
        Effort::push_both(&mut outcome, self.effort, theirs.map(|(effort, _)| effort));
        self.end.facts(&mut outcome);
        Ok(outcome)
    }

    fn own_series(&self, outcome: &mut Outcome, warm_up: usize) {
        let clock = self.rank.clock();
        let since = |stamps: &[u64], range: std::ops::Range<usize>| -> Vec<f64> {
            let pairs = self.subm[range.clone()].iter().zip(&stamps[range]);
            let taken = pairs.filter(|(_, t)| **t != 0);
            taken.map(|(from, to)| clock.ns_between(Stamp(*from), Stamp(*to))).collect()
        };
        let mut push = |quantity, label, stamps: &[u64]| {
            let mut samples = since(stamps, 0..warm_up);
            let counted_not = samples.len();
            samples.extend(since(stamps, warm_up..self.sent));
            outcome.push_series(quantity, label, counted_not, samples);
            let begun = self.subm.iter().zip(&stamps[..self.sent]).filter(|(_, t)| **t != 0);
            let begun: Vec<u64> = begun.map(|(from, _)| *from).collect();
            outcome.date_largest(|i| begun.get(i).copied());
        };
        if self.own.stamps.comp {
            push(Quantity::CompletionTime, "t_lat_comp", &self.comp);
        }
        if self.own.stamps.post {
            push(Quantity::PostCost, "t_post", &self.post);
        }
    }

    /// What was asked for, and what arrived.
    fn rates(&self, outcome: &mut Outcome, joined: &Joined) {
        let due: &[u64] = if self.pace.is_some() { &self.due } else { &[] };
        let is_one_clock = self.rank.clock_error_ns(1).is_some();
        let own = |recv| self.rank.to_own_clock(1, Stamp(recv)).0;
        let came = |i: usize| joined.first[i].map(|a| a.recv).filter(|recv| *recv != 0).map(own);
        push_rates(self.rank, self.common, self.sent, (due, is_one_clock), came, outcome);
    }

    fn joint_series(&self, outcome: &mut Outcome, warm_up: usize, joined: &Joined) {
        outcome.push_count("received", self.sent as u64 - joined.lost);
        self.rates(outcome, joined);
        for (name, value) in [
            ("lost", joined.lost),
            ("duplicated", joined.duplicated),
            ("reordered", joined.reordered),
            ("strays", joined.strays),
        ] {
            outcome.push_count(name, value);
        }
        let Some(error_ns) = self.rank.clock_error_ns(1) else {
            outcome.warn_of_hidden("one-way", NO_CLOCK);
            return;
        };
        outcome.push_fact("clock_error_ns", format!("{error_ns:.1}"));
        if !self.own.stamps.recv {
            return;
        }
        let (rank, clock) = (self.rank, self.rank.clock());
        let series = |from: &dyn Fn(usize, &Arrival) -> u64| -> Vec<f64> {
            let time = |(i, arrival): (usize, &Option<Arrival>)| {
                let since = |a: Arrival| {
                    let recv = rank.to_own_clock(1, Stamp(a.recv));
                    clock.ns_between(Stamp(from(i, &a)), recv)
                };
                arrival.map_or(f64::NAN, since)
            };
            joined.first.iter().enumerate().map(time).collect()
        };
        let bound_ns = if rank.shares_clock(1) { None } else { Some(error_ns) };
        if self.pace.is_some() {
            let t_due = series(&|i, _| self.due[i]);
            push_one_way(outcome, (Quantity::OneWay, DUE), warm_up, t_due, bound_ns);
        }
        let t_lat = series(&|i, _| self.subm[i]);
        push_one_way(outcome, (Quantity::OneWay, "t_lat"), warm_up, t_lat, bound_ns);
        if outcome.series.last().is_some_and(|series| series.label == "t_lat") {
            outcome.date_largest(|i| self.subm.get(i).copied());
        }
        if self.own.stamps.send {
            if self.rank.restamp_shares_cpu() {
                outcome.warnings.push(
                    "t_lat_send is as coarse as the scheduler: the thread that writes the time \
                     shares a CPU with a rank; give rank 0 a second CPU"
                        .to_owned(),
                );
            }
            let t_lat_send = series(&|_, a| a.send);
            let what = (Quantity::OneWayFromCopy, "t_lat_send");
            push_one_way(outcome, what, warm_up, t_lat_send, bound_ns);
        }
    }
}

/// Takes completions that are there, one by one, each with its stamp.
#[inline]
fn look<R: Rank>(
    rank: &R,
    end: &Endpoint,
    senders: &mut [Sender<'_>],
    comp: &mut [u64],
) -> Result<(), Stopped> {
    let mut wcs = [Wc::default()];
    while is_awaiting(senders) && end.send.poll(rank, &mut wcs)? > 0 {
        completed(rank, end, senders, comp, &wcs)?;
    }
    Ok(())
}

/// Whether a completion of any of them is yet to come.
#[inline]
fn is_awaiting(senders: &[Sender<'_>]) -> bool {
    senders.iter().any(|sender| sender.account.is_awaiting())
}

#[inline]
fn completed<R: Rank>(
    rank: &R,
    end: &Endpoint,
    senders: &mut [Sender<'_>],
    comp: &mut [u64],
    wcs: &[Wc; 1],
) -> Result<(), Stopped> {
    let qps = senders.len();
    let now = if comp.is_empty() { 0 } else { rank.now().0 };
    each_completion(end, wcs, |qp, count| {
        senders[qp].account.free(count);
        if let Some(place) = comp.get_mut((count as usize - 1) * qps + qp) {
            *place = now;
        }
    })
}
