//! What comes to a bus or a link that several flows share, and when it passes.

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
    pub(crate) fn new(span: Span) -> Booking {
        Booking(Arc::new([AtomicU64::new(span.first.0), AtomicU64::new(span.last.0)]))
    }

    /// When the first packet and the last one have passed.
    pub(crate) fn span(&self) -> Span {
        let [first, last] = [0, 1].map(|index| Ps(self.0[index].load(Ordering::Relaxed)));
        Span { first, last }
    }

    /// They pass at other times than it was known.
    pub(crate) fn set(&self, span: Span) {
        self.0[0].store(span.first.0, Ordering::Relaxed);
        self.0[1].store(span.last.0, Ordering::Relaxed);
    }
}
