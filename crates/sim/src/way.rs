//! What is known of when packets arrive, and what they have to arrive after.
//!
//! Times on a shared part can grow after they were given out: see [`Shared`]. So packets keep the
//! bookings of the parts that they pass, and look at them again before each further step.
//!
//! [`Shared`]: crate::shared::Shared

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::booking::Booking;
use crate::span::Span;
use crate::time::Ps;

/// A time that a booking may still make later.
#[derive(Clone, Debug, Default)]
pub(crate) struct Due {
    at: Ps,
    /// The booking, and how long after it that is.
    follows: Option<(Booking, Ps)>,
}

impl Due {
    /// At a time, as far as it is known now.
    pub(crate) fn new(at: Ps, booking: Option<Booking>) -> Due {
        let with_rest = |booking: Booking| (booking.clone(), at - booking.span().last);
        Due { at, follows: booking.map(with_rest) }
    }

    /// The time, as far as it is known now.
    pub(crate) fn at(&self) -> Ps {
        self.follows
            .as_ref()
            .map_or(self.at, |(booking, rest)| self.at.max(booking.span().last + *rest))
    }

    /// What can make it later.
    pub(crate) fn booking(&self) -> Option<&Booking> {
        self.follows.as_ref().map(|(booking, _)| booking)
    }
}

/// When packets are expected to arrive. They hold it until they have arrived or are lost.
#[derive(Debug, Default)]
pub(crate) struct Arrival(AtomicU64);

/// The way of packets so far. A copy of the packets has none.
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// The bookings, and how long after each the packets are where they are.
    passed: Vec<(Booking, Ps)>,
    arrival: Option<Arc<Arrival>>,
    /// Packets of the same queue pair that were sent before.
    follows: Weak<Arrival>,
}

impl Clone for Way {
    fn clone(&self) -> Way {
        Way::default()
    }
}

impl Way {
    /// The packets follow others of their queue pair, which are remembered in `last`. Those that
    /// nothing can delay have to be waited for only if they wait themselves.
    pub(crate) fn follow(&mut self, last: &mut Weak<Arrival>, can_be_delayed: bool) {
        let follows = std::mem::take(last);
        let is_behind = follows.strong_count() > 0;
        if can_be_delayed || is_behind {
            let arrival = self.arrival.insert(Arc::default());
            *last = Arc::downgrade(arrival);
        }
        self.follows = if is_behind { follows } else { Weak::new() };
    }

    /// The packets have passed a shared part, and are at `span` after it.
    pub(crate) fn booked(&mut self, booking: Option<Booking>, span: Span) {
        self.passed.extend(booking.map(|booking| {
            let rest = span.last - booking.span().last;
            (booking, rest)
        }));
    }

    /// The way up to a time before its end, with nobody to follow.
    pub(crate) fn before(&self, time: Ps) -> Way {
        let earlier = |(booking, rest): &(Booking, Ps)| (booking.clone(), *rest - time);
        Way { passed: self.passed.iter().map(earlier).collect(), ..Way::default() }
    }

    /// The booking of the last shared part.
    pub(crate) fn last(&self) -> Option<&Booking> {
        self.passed.last().map(|(booking, _)| booking)
    }

    /// The next part takes this long, at least.
    pub(crate) fn takes(&mut self, time: Ps) {
        for (_, rest) in &mut self.passed {
            *rest += time;
        }
    }

    /// Makes `span` what is known now.
    pub(crate) fn look(&self, span: &mut Span) {
        for (booking, rest) in &self.passed {
            let known = booking.span().after(*rest);
            span.first = span.first.max(known.first);
            span.last = span.last.max(known.last);
        }
    }

    /// The packets are expected at a time.
    pub(crate) fn expect(&self, at: Ps) {
        if let Some(arrival) = &self.arrival {
            arrival.0.store(at.0, Ordering::Relaxed);
        }
    }

    /// When the packets are expected that have to arrive before; `None` if they have.
    pub(crate) fn expected_before(&self) -> Option<Ps> {
        self.follows.upgrade().map(|before| Ps(before.0.load(Ordering::Relaxed)))
    }
}
