//! A bus or a link that packets of several flows share. Each flow keeps its order. Packets that
//! move together pass one after the other as long as nobody else comes. As soon as packets of
//! another flow come, the flows alternate packet by packet: the others pass in between, and the
//! rest of the packets on their way becomes later. So times that were given out before can grow;
//! whoever needs them later keeps their [`Booking`].

use std::collections::{BTreeMap, VecDeque};
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
    /// Where they come from, and how long after that they are here.
    source: Option<(Booking, Ps)>,
    /// The time of one packet, and of the last one, which may be shorter.
    packet: Ps,
    last_packet: Ps,
    packets: u64,
    /// How many have passed.
    passed: u64,
}

impl Train {
    fn new(booking: Booking, came: Span, work: Work, source: Option<&Booking>) -> Train {
        let more = work.all - work.first;
        // Packets that take no time are counted by when they come: the first one and the last one.
        let packets = match more.0.checked_div(work.first.0) {
            Some(_) => 1 + more.0.div_ceil(work.first.0),
            None if came.first == came.last => 1,
            None => 2,
        };
        let last_packet = work.all - work.first * (packets - 1);
        let source = source.map(|source| (source.clone(), came.last - source.span().last));
        Train { booking, came, source, packet: work.first, last_packet, packets, passed: 0 }
    }

    /// When the last packet comes, as far as it is known now.
    fn last_comes(&self) -> Ps {
        let late = |(source, after): &(Booking, Ps)| source.span().last + *after;
        self.source.as_ref().map_or(Ps::ZERO, late).max(self.came.last)
    }

    fn comes(&self, packet: u64) -> Ps {
        match self.packets - 1 {
            0 => self.came.first,
            last => {
                let all = u128::from((self.last_comes() - self.came.first).0) * u128::from(packet);
                self.came.first + Ps((all / u128::from(last)) as u64)
            }
        }
    }

    fn time(&self, packet: u64) -> Ps {
        if packet + 1 == self.packets { self.last_packet } else { self.packet }
    }
}

/// The trains of a flow that have not passed. Their packets pass in the order of coming.
#[derive(Debug)]
struct Line {
    flow: Flow,
    trains: Vec<Train>,
}

impl Line {
    /// The train whose packet is next, if so many packets of each have passed.
    fn next(&self, passed: &[u64]) -> Option<(usize, &Train)> {
        let open = self.trains.iter().enumerate().filter(|(at, train)| passed[*at] < train.packets);
        open.min_by_key(|(at, train)| train.comes(passed[*at]))
    }

    /// Whether all its packets pass before packets of a flow that come during `came`.
    fn is_before(&self, came: Span, flow: Flow) -> bool {
        let has_come = |train: &Train| train.last_comes() <= came.first;
        self.flow == flow && self.trains.last().is_none_or(has_come)
    }

    fn passed(&self) -> Vec<u64> {
        self.trains.iter().map(|train| train.passed).collect()
    }
}

/// Whose turn it is. Each flow waits with its next packet since a time; who has waited longest is
/// next. So flows with packets that wait alternate.
#[derive(Clone, Debug, Default)]
struct Turns {
    /// When the packet that passes has passed.
    until: Ps,
    /// Since when each line waits, in the order of coming, and its index.
    waiting: BTreeMap<(Ps, u64), usize>,
    came: u64,
}

impl Turns {
    fn wait(&mut self, since: Ps, line: usize) {
        self.came += 1;
        self.waiting.insert((since, self.came), line);
    }

    /// A line waits since a time, if it did not before.
    fn wait_sooner(&mut self, since: Ps, line: usize) {
        let found = self.waiting.iter().find(|(_, other)| **other == line);
        match found.map(|(key, _)| *key) {
            Some((before, _)) if before <= since => return,
            Some(key) => self.waiting.remove(&key),
            None => None,
        };
        self.wait(since, line);
    }

    /// When the next packet begins to pass.
    fn next(&self) -> Option<Ps> {
        self.waiting.keys().next().map(|(since, _)| self.until.max(*since))
    }
}

/// How many pauses of a part are remembered.
const PAUSES: usize = 32;

/// A part that serves packets one after the other.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// When all is done that is known.
    free: Ps,
    /// Packets that move together and those after them, until they have passed, by their flows.
    lines: Vec<Line>,
    /// The flow that came last.
    last_flow: Option<Flow>,
    /// The turns of the lines, if there are several.
    turns: Option<Turns>,
    /// The last times with nothing to do: begin and end of each, the oldest first.
    pauses: VecDeque<(Ps, Ps)>,
}

impl Shared {
    /// When all is done that is known.
    #[cfg(test)]
    pub(crate) fn free(&self) -> Ps {
        self.free
    }

    /// Packets come during `came`, and need this work: when they have passed. A booking tells
    /// whether that becomes later; single packets that nobody can delay have none.
    pub(crate) fn pass(&mut self, came: Span, work: Work, flow: Flow) -> (Span, Option<Booking>) {
        self.pass_from(None, came, work, flow)
    }

    /// The same of packets from another shared part, with their booking there: they may come later
    /// than `came`.
    pub(crate) fn pass_from(
        &mut self,
        source: Option<&Booking>,
        came: Span,
        work: Work,
        flow: Flow,
    ) -> (Span, Option<Booking>) {
        if !self.lines.is_empty() {
            self.forget_before(came.first);
        }
        self.note_pause(came.first);
        let is_single = work.all <= work.first && came.first == came.last;
        let is_next = self.free <= came.first || self.last_flow == Some(flow);
        self.last_flow = Some(flow);
        if self.lines.is_empty() && is_single && is_next {
            let span = came.through(self.free, work.first, work.all);
            self.free = span.last;
            return (span, None);
        }
        let is_alone =
            self.turns.is_none() && self.lines.iter().all(|line| line.is_before(came, flow));
        if !is_alone {
            self.begin_turns(came.first);
        }
        let span = came.through(self.free, work.first, work.all);
        let booking = Booking::new(span);
        self.add(flow, Train::new(booking.clone(), came, work, source));
        self.free = self.free.max(span.last);
        if !is_alone {
            self.book_all();
        }
        (booking.span(), Some(booking))
    }

    /// Packets have come during `came`, which is over, and passed while there was nothing else to
    /// do: when the last one has passed.
    pub(crate) fn pass_since(&mut self, came: Span, work: Work, flow: Flow) -> Ps {
        self.note_pause(came.last);
        let done = self.use_pauses(came.first, work.all - work.first);
        let rest = Work { first: work.first, all: work.all - done };
        self.pass(Span::at(came.last), rest, flow).0.last
    }

    /// Forgets what has passed.
    fn forget_before(&mut self, now: Ps) {
        if self.turns.is_some() {
            self.advance(now);
        }
        for line in &mut self.lines {
            line.trains.retain(|train| train.booking.span().last > now);
        }
        if self.lines.iter().all(|line| line.trains.is_empty()) {
            self.lines.clear();
            self.turns = None;
        }
    }

    /// A second flow has come: packets alternate from now on.
    fn begin_turns(&mut self, now: Ps) {
        if self.turns.is_some() {
            return;
        }
        let mut turns = Turns::default();
        if let Some(first) = self.lines.first().and_then(|line| line.trains.first()) {
            // What came before it has passed then.
            turns.until = first.booking.span().first - first.packet;
            turns.wait(first.came.first, 0);
        }
        self.turns = Some(turns);
        self.advance(now);
    }

    /// Lets packets pass that begin before `now`.
    fn advance(&mut self, now: Ps) {
        let Some(turns) = &mut self.turns else { return };
        while let Some(begins) = turns.next().filter(|begins| *begins < now) {
            let Some((_, index)) = turns.waiting.pop_first() else { return };
            let line = &mut self.lines[index];
            let mut passed = line.passed();
            let Some((at, train)) = line.next(&passed) else { continue };
            turns.until = begins + train.time(train.passed);
            passed[at] += 1;
            if let Some((at, train)) = line.next(&passed) {
                turns.wait(turns.until.max(train.comes(passed[at])), index);
            }
            line.trains[at].passed += 1;
        }
    }

    fn add(&mut self, flow: Flow, train: Train) {
        let index = self.lines.iter().position(|line| line.flow == flow);
        let index = index.unwrap_or_else(|| {
            self.lines.push(Line { flow, trains: Vec::new() });
            self.lines.len() - 1
        });
        let line = &mut self.lines[index];
        if let Some(turns) = &mut self.turns {
            turns.wait_sooner(train.came.first, index);
        }
        line.trains.push(train);
    }

    /// Books all packets anew, in the order in which they will pass if nobody else comes.
    fn book_all(&mut self) {
        let Some(mut turns) = self.turns.clone() else { return };
        let mut passed: Vec<Vec<u64>> = self.lines.iter().map(Line::passed).collect();
        while let Some(begins) = turns.next() {
            let Some((_, index)) = turns.waiting.pop_first() else { break };
            let (line, passed) = (&self.lines[index], &mut passed[index]);
            let Some((at, train)) = line.next(passed) else { continue };
            turns.until = begins + train.time(passed[at]);
            let span = train.booking.span();
            let first = if passed[at] == 0 { turns.until } else { span.first };
            passed[at] += 1;
            let last = if passed[at] == train.packets { turns.until } else { span.last };
            train.booking.set(Span { first, last });
            if let Some((at, train)) = line.next(passed) {
                turns.wait(turns.until.max(train.comes(passed[at])), index);
            }
        }
        self.free = turns.until;
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

    /// Uses times with nothing to do, from `since` on, for work; returns how much is done.
    fn use_pauses(&mut self, since: Ps, work: Ps) -> Ps {
        let mut rest = work;
        for (begin, end) in &mut self.pauses {
            let from = since.max(*begin);
            let time = rest.min(*end - from);
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
        Work { first: Ps(10), all: Ps(10 * count) }
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
    fn what_follows_in_a_flow_stays_behind() {
        let mut link = Shared::default();
        let (_, long) = link.pass(Span::at(Ps(0)), packets(4), flow(0));
        let (_, next) = link.pass(Span::at(Ps(0)), packets(1), flow(0));
        let (other, _) = link.pass(Span::at(Ps(5)), packets(3), flow(1));
        assert_eq!(ends(&[long, next]), [70, 80]);
        assert_eq!(other.last, Ps(60));
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
