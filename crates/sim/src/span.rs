//! Packets that move together: the times of the first one and of the last one.

use crate::time::Ps;

/// When data was moved: its first packet, and its last one. What follows may begin with the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// The first packet is there.
    pub first: Ps,
    /// The last packet is there.
    pub last: Ps,
}

impl Span {
    /// All at one time.
    pub(crate) fn at(time: Ps) -> Span {
        Span { first: time, last: time }
    }

    /// Data that comes during this span and passes a stage that is free from `free` on, and takes
    /// `first` for the first packet and `all` for all of them. Returns the span after the stage.
    pub(crate) fn through(self, free: Ps, first: Ps, all: Ps) -> Span {
        let begin = self.first.max(free);
        // The last packet is not there before it came in, and then takes the time of a packet, also
        // if it is shorter.
        Span { first: begin + first, last: (begin + all).max(self.last + first) }
    }

    /// The same, later.
    pub(crate) fn after(self, delay: Ps) -> Span {
        Span { first: self.first + delay, last: self.last + delay }
    }
}
