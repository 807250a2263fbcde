//! A bus or a link that packets of several flows share. Packets that move together are a train,
//! which passes without a pause while nobody else comes. As soon as packets of another flow come,
//! the flows alternate packet by packet (round robin), which delays the rest of a train that is
//! passing already. So each train has a [`Booking`], the times at which it passes as far as they
//! are known; whoever needs them later keeps the booking and looks at it again.
//!
//! Each packet costs two steps: it is booked, and it passes. Packets that come behind others of
//! their flow change nothing for what is booked up to then. Other ones make the part book anew,
//! which costs up to [`MOST_BOOKED`] steps more. While packets wait that are not booked, an event
//! books more of them when half of the booked time is over.

use std::collections::VecDeque;

use crate::booking::{Booking, Coming, Flow, Work};
use crate::line::{Count, Line, Train};
use crate::round_robin::RoundRobin;
use crate::span::Span;
use crate::time::Ps;

/// How many packets are booked ahead. Those behind them have the times that they have at least,
/// until [`Shared::go_on`] books them.
const MOST_BOOKED: u64 = 128;

/// How many pauses of a part are remembered.
const PAUSES: usize = 32;

/// When packets have passed, and their booking.
type Passed = (Span, Option<Booking>);

/// A part that serves packets one after the other.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// When all is done that is known.
    free: Ps,
    /// Packets that move together and those after them, until they have passed, by their flows.
    lines: Vec<Line>,
    /// The flow of the packet that passes, and until when, if it is in no line.
    passing: Option<(Flow, Ps)>,
    /// Whose packet is next, if several flows alternate.
    turns: Option<Turns>,
    /// The last times with nothing to do: begin and end of each, the oldest first.
    pauses: VecDeque<(Ps, Ps)>,
}

/// The order of packets while several flows alternate.
#[derive(Debug)]
struct Turns {
    /// Behind the packets that have passed.
    passed: RoundRobin,
    /// Behind those that are booked.
    booked: RoundRobin,
    /// How many are booked and have not passed.
    ahead: u64,
    /// What is booked is not true any more.
    is_stale: bool,
    /// When somebody will call [`Shared::go_on`].
    goes_on: Option<Ps>,
}

impl Shared {
    /// When all is done that is known.
    #[cfg(test)]
    pub(crate) fn free(&self) -> Ps {
        self.free
    }

    /// Packets of a flow come during `came`, and need this work: when they have passed. A booking
    /// tells whether that becomes later; single packets that nobody can delay have none.
    pub(crate) fn pass(&mut self, came: Span, work: Work, flow: Flow) -> (Span, Option<Booking>) {
        let coming = Coming { now: came.first, span: came, source: None, order: flow, flow };
        self.pass_from(&coming, work)
    }

    /// The same of packets that come from another shared part, or keep another order.
    pub(crate) fn pass_from(&mut self, coming: &Coming<'_>, work: Work) -> (Span, Option<Booking>) {
        let Coming { now, span: came, flow, .. } = *coming;
        if !self.lines.is_empty() {
            self.forget_before(now);
        }
        if self.lines.is_empty() {
            self.note_pause(came.first);
        }
        let is_single = work.all <= work.first && came.first == came.last;
        let has_come = came.first <= now;
        let is_free = self.free <= came.first;
        if self.lines.is_empty() && is_single && is_free && has_come {
            let span = came.through(self.free, work.first, work.all);
            self.free = span.last;
            self.passing = Some((flow, span.last));
            return (span, None);
        }
        let is_alone = self.turns.is_none() && self.lines.iter().all(|line| line.is_before(coming));
        if is_alone {
            let span = came.through(self.free, work.first, work.all);
            let booking = Booking::new(span);
            self.add(flow, Train::new(booking.clone(), coming, work));
            self.free = self.free.max(span.last);
            return (span, Some(booking));
        }
        self.begin_turns(now);
        let booking = Booking::new(came.through(Ps::ZERO, work.first, work.all));
        let (index, at) = self.add(flow, Train::new(booking.clone(), coming, work));
        if self.turns.as_ref().is_some_and(|turns| turns.is_stale) {
            self.book_anew();
        }
        self.book_at_least(index, at);
        (booking.span(), Some(booking))
    }

    /// Packets have come during `came`, which is over, and passed while there was nothing else to
    /// do: as [`Shared::pass`].
    pub(crate) fn pass_since(&mut self, came: Span, work: Work, flow: Flow) -> Passed {
        let rest = self.rest_since(came, work);
        self.pass(Span::at(came.last), rest, flow)
    }

    /// The same on a part with a single flow, whose packets nothing can delay.
    pub(crate) fn pass_alone_since(&mut self, came: Span, work: Work) -> Span {
        let rest = self.rest_since(came, work);
        let span = Span::at(came.last).through(self.free, rest.first, rest.all);
        self.free = span.last;
        span
    }

    /// What is left to do at the end of `came`.
    fn rest_since(&mut self, came: Span, work: Work) -> Work {
        self.note_pause(came.last);
        let done = self.use_pauses(came, work.all - work.first);
        let packets = 1 + (work.all - work.first - done).0.div_ceil(work.first.0.max(1));
        Work { first: work.first, all: work.all - done, packets }
    }

    /// Forgets what has passed. If what comes has become later, packets have to be booked anew.
    fn forget_before(&mut self, now: Ps) {
        let is_changed = self.look();
        if let Some(turns) = &mut self.turns {
            turns.is_stale |= is_changed;
            self.advance(now);
        } else {
            let line = self.lines.iter_mut();
            line.for_each(|line| line.forget_alone_before(now));
        }
        if self.lines.iter().all(|line| line.trains.is_empty()) {
            self.end_turns();
            self.lines.clear();
        } else if self.turns.is_none() && self.lines.iter().any(Line::has_become_later) {
            self.begin_turns(now);
        }
    }

    /// Looks at when packets come; whether something has changed.
    fn look(&mut self) -> bool {
        let trains = self.lines.iter_mut().flat_map(|line| &mut line.trains);
        trains.fold(false, |is_changed, train| train.look() | is_changed)
    }

    /// A second flow has come: packets alternate from now on.
    fn begin_turns(&mut self, now: Ps) {
        if self.turns.is_some() {
            return;
        }
        let mut passed = RoundRobin::default();
        if let Some(first) = self.lines.first().and_then(|line| line.trains.first()) {
            // What came before it has passed then, or at the begin of the pause before it.
            let begins = first.booking.span().first - first.packet;
            let pause = self.pauses.back().filter(|(_, end)| *end == begins);
            passed.until = pause.map_or(begins, |(begin, _)| *begin);
            passed.wait(first.comes_first().max(self.lines[0].served), 0);
        }
        let booked = RoundRobin::default();
        let turns = Turns { passed, booked, ahead: 0, is_stale: true, goes_on: None };
        self.turns = Some(turns);
        self.advance(now);
    }

    /// All packets have passed or begun to.
    fn end_turns(&mut self) {
        let Some(turns) = self.turns.take() else { return };
        self.free = turns.passed.until;
        let last = self.lines.iter().find(|line| line.served == self.free);
        self.passing = last.map(|line| (line.flow, line.served));
    }

    /// Lets packets pass that begin before `now`.
    fn advance(&mut self, now: Ps) {
        let Some(turns) = &mut self.turns else { return };
        while let Some(begins) = turns.passed.next().filter(|begins| *begins < now) {
            let taken = turns.passed.take(begins, &mut self.lines, Count::Passed);
            let Some((index, at)) = taken else { continue };
            let line = &mut self.lines[index];
            let train = &line.trains[at];
            if train.count(Count::Passed) > train.count(Count::Booked) {
                turns.is_stale = true;
                train.note(Count::Passed, turns.passed.until);
            }
            turns.ahead = turns.ahead.saturating_sub(1);
            if train.is_done(Count::Passed) {
                line.remove(at);
            }
        }
    }

    /// Adds a train; returns the index of its line, and its own.
    fn add(&mut self, flow: Flow, train: Train) -> (usize, usize) {
        let index = self.lines.iter().position(|line| line.flow == flow);
        let came = train.comes_first();
        let is_free = |line: &Line| line.trains.is_empty() && line.served <= came;
        let index = index.or_else(|| self.lines.iter().position(is_free));
        let index = index.unwrap_or_else(|| {
            // Another packet of the flow may be passing.
            let passing = self.passing.filter(|(other, _)| *other == flow);
            self.lines.push(Line::new(flow, passing.map_or(Ps::ZERO, |(_, until)| until)));
            self.lines.len() - 1
        });
        let line = &mut self.lines[index];
        line.flow = flow;
        let waits_since = came.max(line.served);
        let is_behind = line.push(train);
        if let Some(turns) = &mut self.turns {
            let is_behind = is_behind && turns.booked.waits(index);
            turns.is_stale |= turns.passed.wait_sooner(waits_since, index) || !is_behind;
        }
        (index, self.lines[index].trains.len() - 1)
    }

    /// Books packets anew, in the order in which they will pass if nobody else comes.
    fn book_anew(&mut self) {
        let Some(turns) = &mut self.turns else { return };
        turns.booked = turns.passed.clone();
        (turns.ahead, turns.is_stale) = (0, false);
        self.lines.iter_mut().for_each(Line::unbook);
        self.book_on();
    }

    /// Books more packets.
    fn book_on(&mut self) {
        let Some(turns) = &mut self.turns else { return };
        while let Some(begins) = turns.booked.next().filter(|_| turns.ahead < MOST_BOOKED) {
            let taken = turns.booked.take(begins, &mut self.lines, Count::Booked);
            let Some((index, at)) = taken else { continue };
            turns.ahead += 1;
            let line = &mut self.lines[index];
            let train = &line.trains[at];
            train.note(Count::Booked, turns.booked.until);
            if train.is_done(Count::Booked) {
                line.is_booked(at);
            }
        }
        let until = turns.booked.until;
        match turns.booked.is_done() {
            true => self.free = until,
            false => self.book_no_sooner_than(until),
        }
    }

    /// Packets that are not booked pass after those that are.
    fn book_no_sooner_than(&mut self, until: Ps) {
        self.free = self.free.max(until);
        for (index, line) in self.lines.iter().enumerate() {
            for (at, train) in line.trains.iter().enumerate() {
                let Span { first, last } = train.booking.span();
                let is_first = train.count(Count::Booked) == 0 && first < until;
                if is_first || !train.is_done(Count::Booked) && last < until {
                    self.book_at_least(index, at);
                }
            }
        }
    }

    /// A train that is not wholly booked passes after those before it in its line that are not
    /// either, and after as many packets of each other line, if so many wait there.
    fn book_at_least(&self, index: usize, at: usize) {
        let Some(turns) = &self.turns else { return };
        let line = &self.lines[index];
        let train = &line.trains[at];
        let own = train.packets - train.count(Count::Booked);
        if own == 0 {
            return;
        }
        let until = turns.booked.until;
        let before = line.unbooked_before(at);
        let after = |packets: u64| {
            let others = self.lines.iter().enumerate().filter(|(other, _)| *other != index);
            others.fold(until, |sum, (_, other)| sum + other.time_of_next(packets, until))
                + line.time_up_to(at, packets + 1)
        };
        let Span { first, last } = train.booking.span();
        let first = match train.count(Count::Booked) {
            0 => first.max(after(before)),
            _ => first,
        };
        train.booking.set(Span { first, last: last.max(after(before + own - 1)) });
    }

    /// When more packets have to be booked, if nobody will do so until then.
    pub(crate) fn goes_on_at(&mut self, now: Ps) -> Option<Ps> {
        let turns = self.turns.as_mut()?;
        // Whoever waits for a packet that is not booked looks again when the last one has passed.
        let at = now + Ps((turns.booked.until - now).0 / 2).max(Ps(1));
        if turns.booked.is_done() || turns.goes_on.is_some_and(|goes_on| goes_on <= at) {
            return None;
        }
        turns.goes_on = Some(at);
        Some(at)
    }

    /// Books more packets, if that is to happen now: an earlier time may have taken its place.
    pub(crate) fn go_on(&mut self, now: Ps) {
        let Some(turns) = &mut self.turns else { return };
        if turns.goes_on != Some(now) {
            return;
        }
        turns.goes_on = None;
        self.forget_before(now);
        match &self.turns {
            Some(turns) if turns.is_stale => self.book_anew(),
            _ => self.book_on(),
        }
    }

    fn note_pause(&mut self, until: Ps) {
        if self.free < until {
            if self.pauses.len() == PAUSES {
                self.pauses.pop_front();
            }
            self.pauses.push_back((self.free, until));
            self.free = until;
        }
    }

    /// Uses times with nothing to do, during `came`, for work; returns how much is done.
    fn use_pauses(&mut self, came: Span, work: Ps) -> Ps {
        if work == Ps::ZERO {
            return work;
        }
        let mut rest = work;
        for (begin, end) in &mut self.pauses {
            let from = came.first.max(*begin);
            let time = rest.min(came.last.min(*end) - from);
            if time > Ps::ZERO {
                *begin = from + time;
                rest = rest - time;
            }
        }
        work - rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(node: usize) -> Flow {
        Flow::Node(node)
    }

    fn packets(count: u64) -> Work {
        Work { first: Ps(10), all: Ps(10 * count), packets: count }
    }

    fn ends(bookings: &[Option<Booking>]) -> Vec<u64> {
        bookings.iter().flatten().map(|booking| booking.span().last.0).collect()
    }

    /// Books all packets, as a simulation does while time passes.
    fn book_all(link: &mut Shared, mut now: Ps) {
        while let Some(at) = link.goes_on_at(now) {
            (now, _) = (at, link.go_on(at));
        }
    }

    #[test]
    fn a_flow_alone_passes_in_order() {
        let mut link = Shared::default();
        let spans = [4, 1, 2].map(|count| link.pass(Span::at(Ps(100)), packets(count), flow(0)).0);
        assert_eq!(spans.map(|span| span.last.0), [140, 150, 170]);
        assert_eq!(link.free(), Ps(170));
    }

    #[test]
    fn a_packet_waits_for_the_packet_that_passes_and_delays_the_rest() {
        let mut link = Shared::default();
        let (_, long) = link.pass(Span::at(Ps(100)), packets(10), flow(0));
        let (small, _) = link.pass(Span::at(Ps(134)), packets(1), flow(1));
        assert_eq!((small.first, small.last), (Ps(150), Ps(150)));
        assert_eq!(ends(&[long]), [210]);
        assert_eq!(link.free(), Ps(210));
    }

    #[test]
    fn two_flows_alternate() {
        let mut link = Shared::default();
        let (_, long) = link.pass(Span::at(Ps(0)), packets(10), flow(0));
        let (other, _) = link.pass(Span::at(Ps(0)), packets(10), flow(1));
        // 0 1 0 1 ...: the second flow ends last.
        assert_eq!((other.first, other.last), (Ps(20), Ps(200)));
        assert_eq!(ends(&[long]), [190]);
    }

    #[test]
    fn a_short_flow_ends_before_a_long_one_and_three_share() {
        let mut link = Shared::default();
        let (_, long) = link.pass(Span::at(Ps(0)), packets(20), flow(0));
        let (_, short) = link.pass(Span::at(Ps(0)), packets(5), flow(1));
        assert_eq!(ends(&[long.clone(), short.clone()]), [250, 100]);
        let (third, _) = link.pass(Span::at(Ps(0)), packets(2), flow(2));
        assert_eq!(ends(&[long, short]), [270, 120]);
        // 0 1 2 0 1 2
        assert_eq!((third.first, third.last), (Ps(30), Ps(60)));
    }

    #[test]
    fn packets_that_come_slowly_leave_room_for_others() {
        let mut link = Shared::default();
        let came = Span { first: Ps(0), last: Ps(390) };
        let (long, booking) = link.pass(came, packets(10), flow(0));
        assert_eq!((long.first, long.last), (Ps(10), Ps(400)));
        let (small, _) = link.pass(Span::at(Ps(60)), packets(1), flow(1));
        // A packet passes from 40 to 50, the next one comes at 80.
        assert_eq!(small.last, Ps(70));
        assert_eq!(ends(&[booking]), [400]);
    }

    #[test]
    fn what_comes_later_leaves_the_time_until_then_to_others() {
        let mut link = Shared::default();
        link.pass(Span::at(Ps(0)), packets(1), flow(0));
        let later = |from, node| {
            let (span, flow) = (Span::at(Ps(from)), flow(node));
            Coming { now: Ps(20), span, source: None, order: flow, flow }
        };
        let [first, second] =
            [(100, 1), (200, 2)].map(|(at, of)| link.pass_from(&later(at, of), packets(1)).1);
        let (between, _) = link.pass(Span::at(Ps(30)), packets(4), flow(3));
        assert_eq!(between, Span { first: Ps(40), last: Ps(70) });
        assert_eq!(ends(&[first.clone(), second.clone()]), [110, 210]);
        assert_eq!(link.pass(Span::at(Ps(95)), packets(1), flow(3)).0.last, Ps(105));
        assert_eq!(ends(&[first, second]), [115, 210]);
    }

    #[test]
    fn what_follows_in_a_flow_stays_behind() {
        let mut link = Shared::default();
        let (_, long) = link.pass(Span::at(Ps(0)), packets(4), flow(0));
        let (_, next) = link.pass(Span::at(Ps(0)), packets(1), flow(0));
        let (other, _) = link.pass(Span::at(Ps(5)), packets(3), flow(1));
        assert_eq!(ends(&[long, next]), [70, 80]);
        assert_eq!(other.last, Ps(60));
    }

    /// A flow with more packets than are booked anew at once keeps its order.
    #[test]
    fn many_packets_that_wait_keep_the_order_of_their_flow() {
        let mut link = Shared::default();
        let mut flows = [(); 3].map(|()| Vec::new());
        for round in 0..600 {
            for (index, bookings) in flows.iter_mut().enumerate() {
                let count = 1 + (round + index as u64) % 3;
                bookings.extend(link.pass(Span::at(Ps(round)), packets(count), flow(index)).1);
            }
        }
        book_all(&mut link, Ps(600));
        for bookings in &flows {
            assert!(bookings.len() > 500);
            let ends = bookings.iter().map(|booking: &Booking| booking.span().last);
            assert!(ends.is_sorted());
        }
        // All come in the first 600 ps, and the link never pauses.
        assert_eq!(link.free(), Ps(600 * 3 * 2 * 10));
    }

    /// Whoever comes when, all work is done, and nothing passes in less than its own time.
    #[test]
    fn no_time_is_lost_or_gained() {
        let mut random = rdmalab_random::Random::new(7);
        for _ in 0..500 {
            let mut link = Shared::default();
            let (mut now, mut work, mut all) = (0, 0, Vec::new());
            for _ in 0..20 {
                now += random.below(40);
                let (count, of) = (1 + random.below(30), random.below(4));
                work += 10 * count;
                let (span, booking) =
                    link.pass(Span::at(Ps(now)), packets(count), flow(of as usize));
                assert!(span.first.0 >= now + 10 && span.last.0 >= now + 10 * count);
                assert!(span.last - span.first >= Ps(10 * (count - 1)));
                all.push(booking);
            }
            book_all(&mut link, Ps(now));
            let last = ends(&all).into_iter().max().unwrap_or(0);
            // It pauses only while nothing has come; times are rounded up.
            assert!(
                link.free().0 >= last && link.free().0 <= work + now + 100,
                "{last} {work} {now}"
            );
            assert!(link.free().0 >= work, "{} {work}", link.free().0);
        }
    }
}
