//! Packets that wait for a bus or a link: trains of packets that move together, in the lines of
//! their flows.

use crate::booking::{Booking, Coming, Flow, Work};
use crate::span::Span;
use crate::time::Ps;

/// Packets of one flow that come together.
#[derive(Debug)]
pub(crate) struct Train {
    pub(crate) booking: Booking,
    /// When the first packet comes, and the last one as far as it was known at the last look.
    comes_first: Ps,
    comes_last: Ps,
    /// When the last one comes, at the least.
    least_comes_last: Ps,
    /// Where they come from, and how many picoseconds after that they are here. The head of
    /// packets may be here before they have left.
    source: Option<(Booking, i64)>,
    /// The flow that keeps its order.
    order: Flow,
    /// The time of one packet, and of the last one, which may be shorter.
    pub(crate) packet: Ps,
    last_packet: Ps,
    pub(crate) packets: u64,
    /// How many have passed, and how many have passed or are booked: by [`Count`].
    counts: [u64; 2],
}

/// Which packets of a train are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    Passed,
    Booked,
}

impl Train {
    pub(crate) fn new(booking: Booking, coming: &Coming<'_>, work: Work) -> Train {
        let Coming { span: came, source, order, .. } = *coming;
        let after = |source: &Booking| came.last.0 as i64 - source.span().last.0 as i64;
        Train {
            booking,
            comes_first: came.first,
            comes_last: came.last,
            least_comes_last: came.last,
            source: source.map(|source| (source.clone(), after(source))),
            order,
            packet: work.first,
            last_packet: work.all - work.first * (work.packets - 1),
            packets: work.packets,
            counts: [0; 2],
        }
    }

    /// Looks at when the packets come; whether that is another time than at the last look.
    pub(crate) fn look(&mut self) -> bool {
        let Some((source, after)) = &self.source else { return false };
        let late = Ps(source.span().last.0.saturating_add_signed(*after));
        let before = std::mem::replace(&mut self.comes_last, late.max(self.least_comes_last));
        before != self.comes_last
    }

    /// When the first packet comes.
    pub(crate) fn comes_first(&self) -> Ps {
        self.comes_first
    }

    /// When they have passed at the earliest.
    pub(crate) fn least_last(&self) -> Ps {
        self.comes_last + self.last_packet
    }

    /// When the next packet after those that are counted comes, but not before `floor`.
    fn comes(&self, of: Count, floor: Ps) -> Ps {
        if self.comes_last <= floor {
            return floor;
        }
        let (packet, last) = (self.count(of), self.packets - 1);
        if packet == last {
            return self.comes_last;
        }
        let all = (self.comes_last - self.comes_first).0;
        let part = match all.checked_mul(packet) {
            Some(product) => product / last,
            None => (u128::from(all) * u128::from(packet) / u128::from(last)) as u64,
        };
        floor.max(self.comes_first + Ps(part))
    }

    pub(crate) fn count(&self, of: Count) -> u64 {
        self.counts[of as usize]
    }

    pub(crate) fn is_done(&self, of: Count) -> bool {
        self.count(of) == self.packets
    }

    /// Those that have passed are booked, and no others.
    pub(crate) fn unbook(&mut self) {
        self.counts[Count::Booked as usize] = self.count(Count::Passed);
    }

    /// Counts the next packet: its time.
    pub(crate) fn take(&mut self, of: Count) -> Ps {
        self.counts[of as usize] += 1;
        if self.is_done(of) { self.last_packet } else { self.packet }
    }

    /// The packet that was counted last passes until then.
    pub(crate) fn note(&self, of: Count, until: Ps) {
        let Span { first, last } = self.booking.span();
        let first = if self.count(of) == 1 { until } else { first };
        let last = if self.is_done(of) { until } else { last };
        self.booking.set(Span { first, last });
    }

    /// The time of the next `count` packets that are not booked, or of all if there are fewer.
    pub(crate) fn time_of_next(&self, count: u64) -> Ps {
        let open = self.packets - self.count(Count::Booked);
        match count < open {
            true => self.packet * count,
            false if open == 0 => Ps::ZERO,
            false => self.packet * (open - 1) + self.last_packet,
        }
    }
}

/// The trains of a flow that have not passed. Their packets pass in the order of coming, and those
/// of a queue pair in its order.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) flow: Flow,
    pub(crate) trains: Vec<Train>,
    /// Whether the trains are of several queue pairs.
    is_mixed: bool,
    /// When the last packet has passed that began to.
    pub(crate) served: Ps,
    /// Trains at the front that are wholly booked.
    booked: usize,
}

impl Line {
    pub(crate) fn new(flow: Flow, served: Ps) -> Line {
        Line { flow, trains: Vec::new(), is_mixed: false, served, booked: 0 }
    }

    /// Adds a train; whether it passes after one that is not wholly booked.
    pub(crate) fn push(&mut self, train: Train) -> bool {
        let is_other = self.trains.last().is_some_and(|last| last.order != train.order);
        self.is_mixed = is_other || self.is_mixed && !self.trains.is_empty();
        let is_before = |other: &Train| other.order == train.order && !other.is_done(Count::Booked);
        let is_behind = self.trains.iter().skip(self.booked).any(is_before);
        self.trains.push(train);
        is_behind
    }

    /// A train has passed.
    pub(crate) fn remove(&mut self, at: usize) {
        self.trains.remove(at);
        self.booked -= usize::from(at < self.booked);
    }

    /// A train is wholly booked.
    pub(crate) fn is_booked(&mut self, at: usize) {
        self.booked += usize::from(at == self.booked);
    }

    /// What has passed is booked, and nothing else.
    pub(crate) fn unbook(&mut self) {
        self.booked = 0;
        self.trains.iter_mut().for_each(Train::unbook);
    }

    /// The train whose packet is next after those that are counted, and when that comes, but not
    /// before `floor`.
    pub(crate) fn next(&self, of: Count, floor: Ps) -> Option<(usize, Ps)> {
        let skip = if of == Count::Booked { self.booked } else { 0 };
        let all = self.trains.iter().enumerate().skip(skip);
        let mut open = all.filter(|(_, train)| !train.is_done(of));
        if !self.is_mixed {
            return open.next().map(|(index, train)| (index, train.comes(of, floor)));
        }
        let is_first = |(index, train): &(usize, &Train)| {
            let is_before = |other: &&Train| other.order == train.order && !other.is_done(of);
            self.trains[skip..*index].iter().all(|other| !is_before(&other))
        };
        // Which one comes first is decided by the times without the floor.
        let first = open.filter(is_first).map(|(index, train)| (index, train.comes(of, Ps::ZERO)));
        first.min_by_key(|(_, comes)| *comes).map(|(index, comes)| (index, comes.max(floor)))
    }

    /// Forgets the trains that have passed, of a line that is alone.
    pub(crate) fn forget_alone_before(&mut self, now: Ps) {
        let last = |train: &Train| train.booking.span().last.max(train.least_last());
        let passed = self.trains.iter().take_while(|train| last(train) <= now).count();
        let served = self.trains.drain(..passed).map(|train| train.booking.span().last).max();
        self.served = self.served.max(served.unwrap_or_default());
    }

    /// Whether packets come later than they are to pass.
    pub(crate) fn has_become_later(&self) -> bool {
        self.trains.iter().any(|train| train.least_last() > train.booking.span().last)
    }

    /// How many packets that pass before a train are not booked.
    pub(crate) fn unbooked_before(&self, at: usize) -> u64 {
        let before = self.trains.iter().take(at).skip(self.booked);
        let before = before.filter(|other| other.order == self.trains[at].order);
        before.map(|other| other.packets - other.count(Count::Booked)).sum()
    }

    /// The time of the next `count` packets that are not booked, of a train and those before it.
    pub(crate) fn time_up_to(&self, at: usize, mut count: u64) -> Ps {
        let mut time = Ps::ZERO;
        let trains = self.trains.iter().take(at + 1).skip(self.booked);
        for train in trains.filter(|other| other.order == self.trains[at].order) {
            time += train.time_of_next(count);
            count -= count.min(train.packets - train.count(Count::Booked));
        }
        time
    }

    /// Whether all its packets pass before packets that come.
    pub(crate) fn is_before(&self, coming: &Coming<'_>) -> bool {
        let has_come = |train: &Train| train.comes_last <= coming.span.first;
        self.flow == coming.flow && self.trains.last().is_none_or(has_come)
    }

    /// The time of the next `count` packets that are not booked, of those that come until `until`.
    pub(crate) fn time_of_next(&self, mut count: u64, until: Ps) -> Ps {
        let mut time = Ps::ZERO;
        for train in self.trains.iter().skip(self.booked) {
            if count == 0 || train.comes_last > until {
                break;
            }
            time += train.time_of_next(count);
            count -= count.min(train.packets - train.count(Count::Booked));
        }
        time
    }
}
