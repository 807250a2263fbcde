//! A bus or a link that packets of several flows share. Packets that move together are a train,
//! which passes without a pause while nobody else comes. As soon as packets of another flow come,
//! the flows alternate packet by packet (round robin), which delays the rest of a train that is
//! passing already. So each train has a [`Booking`], the times at which it passes as far as they
//! are known; whoever needs them later keeps the booking and looks at it again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ids::QpId;
use crate::span::Span;
use crate::time::Ps;

/// What keeps its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The requests of a queue pair.
    Requests(QpId),
    /// The responses of a queue pair.
    Responses(QpId),
    /// The reads of send WQEs of a queue pair.
    Wqes(QpId),
    /// The writes of an adapter to memory.
    Writes,
    /// All packets of an adapter, at a switch.
    Node(usize),
}

/// How long a shared part is busy with packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// With the first packet.
    pub first: Ps,
    /// With all of them.
    pub all: Ps,
    /// How many there are.
    pub packets: u64,
}

/// Packets that come to a shared part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coming<'a> {
    /// The time now.
    pub now: Ps,
    /// When they come, as far as it is known now. Others may come until then.
    pub span: Span,
    /// Their booking at the part before: they may come later than `span`.
    pub source: Option<&'a Booking>,
    /// The flow that keeps its order.
    pub order: Flow,
    /// The flow that alternates with others.
    pub flow: Flow,
}

/// When packets pass a shared part, as far as it is known now.
#[derive(Clone, Debug)]
pub(crate) struct Booking(Arc<[AtomicU64; 2]>);

impl Booking {
    fn new(span: Span) -> Booking {
        Booking(Arc::new([AtomicU64::new(span.first.0), AtomicU64::new(span.last.0)]))
    }

    /// When the first packet and the last one have passed.
    pub(crate) fn span(&self) -> Span {
        let [first, last] = [0, 1].map(|index| Ps(self.0[index].load(Ordering::Relaxed)));
        Span { first, last }
    }

    fn set(&self, span: Span) {
        self.0[0].store(span.first.0, Ordering::Relaxed);
        self.0[1].store(span.last.0, Ordering::Relaxed);
    }
}

/// Packets of one flow that come together.
#[derive(Debug)]
struct Train {
    booking: Booking,
    came: Span,
    /// Where they come from, and how many picoseconds after that they are here. The head of
    /// packets may be here before they have left.
    source: Option<(Booking, i64)>,
    /// The flow that keeps its order.
    order: Flow,
    /// The time of one packet, and of the last one, which may be shorter.
    packet: Ps,
    last_packet: Ps,
    packets: u64,
    /// How many have passed, and how many have passed or are booked anew: by [`Count`].
    counts: [u64; 2],
}

/// Which packets of a train are counted.
#[derive(Clone, Copy)]
enum Count {
    Passed,
    Booked,
}

impl Train {
    fn new(booking: Booking, coming: &Coming<'_>, work: Work) -> Train {
        let Coming { span: came, source, order, .. } = *coming;
        let last_packet = work.all - work.first * (work.packets - 1);
        let after = |source: &Booking| came.last.0 as i64 - source.span().last.0 as i64;
        let source = source.map(|source| (source.clone(), after(source)));
        let (packet, packets) = (work.first, work.packets);
        Train { booking, came, source, order, packet, last_packet, packets, counts: [0; 2] }
    }

    /// When they have passed at the earliest.
    fn least_last(&self) -> Ps {
        self.last_comes() + self.last_packet
    }

    /// When the last packet comes, as far as it is known now.
    fn last_comes(&self) -> Ps {
        let late = |(source, after): &(Booking, i64)| {
            Ps(source.span().last.0.saturating_add_signed(*after))
        };
        self.source.as_ref().map_or(Ps::ZERO, late).max(self.came.last)
    }

    fn comes(&self, packet: u64) -> Ps {
        match self.packets - 1 {
            0 => self.last_comes(),
            last => {
                let all = u128::from((self.last_comes() - self.came.first).0) * u128::from(packet);
                self.came.first + Ps((all / u128::from(last)) as u64)
            }
        }
    }

    fn count(&self, of: Count) -> u64 {
        self.counts[of as usize]
    }

    fn time(&self, packet: u64) -> Ps {
        if packet + 1 == self.packets { self.last_packet } else { self.packet }
    }
}

/// The trains of a flow that have not passed. Their packets pass in the order of coming, and those
/// of a queue pair in its order.
#[derive(Debug)]
struct Line {
    flow: Flow,
    trains: Vec<Train>,
    /// Whether the trains are of several queue pairs.
    is_mixed: bool,
    /// Trains at the front that are booked anew.
    booked: usize,
}

impl Line {
    fn new(flow: Flow) -> Line {
        Line { flow, trains: Vec::new(), is_mixed: false, booked: 0 }
    }

    fn push(&mut self, train: Train) {
        let is_other = self.trains.last().is_some_and(|last| last.order != train.order);
        self.is_mixed = is_other || self.is_mixed && !self.trains.is_empty();
        self.trains.push(train);
    }

    /// The train whose packet is next after those that are counted, and when that comes.
    fn next(&self, of: Count) -> Option<(usize, Ps)> {
        let all = self.trains.iter().enumerate().skip(self.booked);
        let mut open = all.filter(|(_, train)| train.count(of) < train.packets);
        let with_time = |(index, train): (usize, &Train)| (index, train.comes(train.count(of)));
        if !self.is_mixed {
            return open.next().map(with_time);
        }
        let mut orders: Vec<Flow> = Vec::new();
        let is_first = |(_, train): &(usize, &Train)| {
            let is_first = !orders.contains(&train.order);
            orders.push(train.order);
            is_first
        };
        open.filter(is_first).map(with_time).min_by_key(|(_, comes)| *comes)
    }

    /// Whether all its packets pass before packets that come.
    fn is_before(&self, coming: &Coming<'_>) -> bool {
        let has_come = |train: &Train| train.last_comes() <= coming.span.first;
        self.flow == coming.flow && self.trains.last().is_none_or(has_come)
    }
}

/// Whose packet is next. Each flow waits with its next packet since a time; who has waited longest
/// is next. So flows with packets that wait alternate.
#[derive(Clone, Debug, Default)]
struct RoundRobin {
    /// When the packet that passes has passed.
    until: Ps,
    /// Since when each line waits, and its index; who has waited longest is in front.
    waiting: VecDeque<(Ps, usize)>,
}

impl RoundRobin {
    fn wait(&mut self, since: Ps, line: usize) {
        let behind = self.waiting.iter().rev().take_while(|(other, _)| *other > since).count();
        self.waiting.insert(self.waiting.len() - behind, (since, line));
    }

    /// A line waits since a time, if it did not before.
    fn wait_sooner(&mut self, since: Ps, line: usize) {
        if let Some(at) = self.waiting.iter().position(|(_, other)| *other == line) {
            if self.waiting[at].0 <= since {
                return;
            }
            self.waiting.remove(at);
        }
        self.wait(since, line);
    }

    /// When the next packet begins to pass.
    fn next(&self) -> Option<Ps> {
        self.waiting.front().map(|(since, _)| self.until.max(*since))
    }

    /// Lets the next packet pass, which begins at `begins`, and counts it; returns the indices of
    /// its line and train. `None` if it has become later, or has gone.
    fn take(&mut self, begins: Ps, lines: &mut [Line], of: Count) -> Option<(usize, usize)> {
        let (_, index) = self.waiting.pop_front()?;
        let line = &mut lines[index];
        let (at, comes) = line.next(of)?;
        if comes > begins {
            self.wait(comes, index);
            return None;
        }
        let train = &mut line.trains[at];
        self.until = begins + train.time(train.count(of));
        train.counts[of as usize] += 1;
        if let Some((_, comes)) = line.next(of) {
            self.wait(self.until.max(comes), index);
        }
        Some((index, at))
    }
}

/// How many packets are booked anew when others come. Where more wait, those behind them keep the
/// times that they have, or get the end of those in front of them.
const MOST_BOOKED: usize = 512;

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
    /// The flow that came last.
    last_flow: Option<Flow>,
    /// Whose packet is next, if several flows alternate.
    turns: Option<RoundRobin>,
    /// The last times with nothing to do: begin and end of each, the oldest first.
    pauses: VecDeque<(Ps, Ps)>,
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
        let is_next = self.free <= came.first || self.last_flow == Some(flow);
        self.last_flow = Some(flow);
        if self.lines.is_empty() && is_single && is_next && has_come {
            let span = came.through(self.free, work.first, work.all);
            self.free = span.last;
            return (span, None);
        }
        let is_alone = self.turns.is_none() && self.lines.iter().all(|line| line.is_before(coming));
        if !is_alone {
            self.begin_turns(now);
        }
        let span = came.through(self.free, work.first, work.all);
        let booking = Booking::new(span);
        self.add(flow, Train::new(booking.clone(), coming, work));
        self.free = self.free.max(span.last);
        if !is_alone {
            self.book_all();
        }
        (booking.span(), Some(booking))
    }

    /// Packets have come during `came`, which is over, and passed while there was nothing else to
    /// do: as [`Shared::pass`].
    pub(crate) fn pass_since(&mut self, came: Span, work: Work, flow: Flow) -> Passed {
        self.note_pause(came.last);
        let done = self.use_pauses(came, work.all - work.first);
        let packets = 1 + (work.all - work.first - done).0.div_ceil(work.first.0.max(1));
        let rest = Work { first: work.first, all: work.all - done, packets };
        self.pass(Span::at(came.last), rest, flow)
    }

    /// Forgets what has passed. If what comes has become later, packets have to be booked anew.
    fn forget_before(&mut self, now: Ps) {
        if self.turns.is_some() {
            self.advance(now);
        }
        let mut is_stale = false;
        for line in &mut self.lines {
            let is_here = |train: &Train| train.booking.span().last.max(train.least_last()) > now;
            line.trains
                .retain(|train| train.count(Count::Passed) < train.packets && is_here(train));
            is_stale |=
                line.trains.iter().any(|train| train.least_last() > train.booking.span().last);
        }
        if self.lines.iter().all(|line| line.trains.is_empty()) {
            self.lines.clear();
            self.turns = None;
        } else if is_stale {
            self.begin_turns(now);
        }
    }

    /// A second flow has come: packets alternate from now on.
    fn begin_turns(&mut self, now: Ps) {
        if self.turns.is_some() {
            return;
        }
        let mut turns = RoundRobin::default();
        if let Some(first) = self.lines.first().and_then(|line| line.trains.first()) {
            // What came before it has passed then, or at the begin of the pause before it.
            let begins = first.booking.span().first - first.packet;
            let pause = self.pauses.back().filter(|(_, end)| *end == begins);
            turns.until = pause.map_or(begins, |(begin, _)| *begin);
            turns.wait(first.came.first, 0);
        }
        self.turns = Some(turns);
        self.advance(now);
    }

    /// Lets packets pass that begin before `now`.
    fn advance(&mut self, now: Ps) {
        let Some(turns) = &mut self.turns else { return };
        while let Some(begins) = turns.next().filter(|begins| *begins < now) {
            if let Some((line, at)) = turns.take(begins, &mut self.lines, Count::Passed) {
                let trains = &mut self.lines[line].trains;
                if trains[at].count(Count::Passed) == trains[at].packets {
                    trains.remove(at);
                }
            }
        }
    }

    fn add(&mut self, flow: Flow, train: Train) {
        let index = self.lines.iter().position(|line| line.flow == flow);
        let index = index.or_else(|| self.lines.iter().position(|line| line.trains.is_empty()));
        let index = index.unwrap_or_else(|| {
            self.lines.push(Line::new(flow));
            self.lines.len() - 1
        });
        let line = &mut self.lines[index];
        line.flow = flow;
        let came = train.came.first;
        line.push(train);
        if let Some(turns) = &mut self.turns {
            turns.wait_sooner(came, index);
        }
    }

    /// Books packets anew, in the order in which they will pass if nobody else comes.
    fn book_all(&mut self) {
        let Some(mut turns) = self.turns.clone() else { return };
        for train in self.lines.iter_mut().flat_map(|line| &mut line.trains) {
            train.counts[Count::Booked as usize] = train.count(Count::Passed);
        }
        let mut steps = 0;
        while let Some(begins) = turns.next().filter(|_| steps < MOST_BOOKED) {
            steps += 1;
            let taken = turns.take(begins, &mut self.lines, Count::Booked);
            let Some((index, at)) = taken else { continue };
            let line = &mut self.lines[index];
            let train = &line.trains[at];
            let (count, Span { first, last }) = (train.count(Count::Booked), train.booking.span());
            let is_last = count == train.packets;
            let first = if count == 1 { turns.until } else { first };
            train.booking.set(Span { first, last: if is_last { turns.until } else { last } });
            if is_last && at == line.booked {
                line.booked += 1;
            }
        }
        self.lines.iter_mut().for_each(|line| line.booked = 0);
        let is_whole = turns.waiting.is_empty();
        if !is_whole {
            self.book_no_sooner_than(turns.until);
        }
        self.free = if is_whole { turns.until } else { self.free.max(turns.until) };
    }

    /// Packets that are not booked anew pass after those that are.
    fn book_no_sooner_than(&self, until: Ps) {
        for train in self.lines.iter().flat_map(|line| &line.trains) {
            let (count, Span { first, last }) = (train.count(Count::Booked), train.booking.span());
            if count < train.packets {
                let first = if count == 0 { first.max(until) } else { first };
                train.booking.set(Span { first, last: last.max(until) });
            }
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
        for bookings in &flows {
            assert!(bookings.len() > 500);
            let ends = bookings.iter().map(|booking: &Booking| booking.span().last);
            assert!(ends.is_sorted());
        }
        // All come in the first 600 ps, so none can have passed sooner than its share of them.
        assert!(link.free() >= Ps(600 * 3 * 2 * 10));
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
