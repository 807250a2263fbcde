//! Parts of a run of `blast`, and how its arrivals are told apart.

use rdmalab_measure::Stamp;
use rdmalab_rank::Rank;

use crate::common::params::{Common, Op, Transport};
use crate::common::rules::NUMBER_BYTES;

/// A part as one end saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Part {
    /// Messages sent, or received.
    pub messages: u64,
    /// Stamps of the begin and the end.
    pub first: u64,
    pub last: u64,
}

impl Part {
    pub const WORDS: usize = 3;

    pub fn to_words(self) -> [u64; Self::WORDS] {
        [self.messages, self.first, self.last]
    }

    /// This part and one of the other direction that began at the same time: the messages of both,
    /// in the time of the slower one.
    pub fn with(&self, other: &Self) -> Self {
        let last = (self.last - self.first).max(other.last - other.first);
        Self { messages: self.messages + other.messages, first: 0, last }
    }

    pub fn from_words(words: &[u64]) -> Self {
        Self { messages: words[0], first: words[1], last: words[2] }
    }
}

/// Stamps after every so many messages, when they are wanted.
pub(crate) struct Ticks {
    every: u64,
    next: u64,
    last: Option<Stamp>,
    pub ns_per_message: Vec<f64>,
}

impl Ticks {
    pub fn new(every: u64) -> Self {
        let next = if every == 0 { u64::MAX } else { every };
        Self { every, next, last: None, ns_per_message: Vec::new() }
    }

    /// A part begins.
    pub fn start<R: Rank>(&mut self, rank: &R) {
        if self.every > 0 {
            (self.next, self.last) = (self.every, Some(rank.now()));
        }
    }

    /// So many messages of the part are through.
    #[inline]
    pub fn at<R: Rank>(&mut self, rank: &R, messages: u64) {
        if messages >= self.next {
            self.stamp(rank, messages);
        }
    }

    #[cold]
    fn stamp<R: Rank>(&mut self, rank: &R, messages: u64) {
        let now = rank.now();
        let count = messages - (self.next - self.every);
        if let Some(last) = self.last.replace(now) {
            self.ns_per_message.push(rank.clock().ns_between(last, now) / count as f64);
        }
        self.next = messages + self.every;
    }
}

/// Whether messages carry their number in the payload: in an open loop, where each message has a
/// time, if neither immediate data nor the order of RC gives the number.
pub(crate) fn numbers_payload(common: &Common) -> bool {
    common.rate_per_s > 0
        && common.op == Op::Send
        && common.transport != Transport::Rc
        && common.size_bytes >= NUMBER_BYTES
}

/// Whether each arrival can be told from others: by immediate data, by its payload, or by its place
/// in the order of its queue pair, which RC keeps.
pub(super) fn is_told_apart(common: &Common) -> bool {
    common.op.has_imm() || numbers_payload(common) || common.transport == Transport::Rc
}

/// Whether each arrival has a stamp of its own.
pub(super) fn are_dated(common: &Common) -> bool {
    common.rate_per_s > 0 && !common.op.is_unnoticed() && is_told_apart(common)
}

/// The runs among the parts: without the warm-up.
pub(super) fn runs_of<'a>(common: &Common, parts: &'a [Part]) -> &'a [Part] {
    parts.get(usize::from(common.warm_up > 0)..).unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::super::options::Blast;
    use super::*;
    use crate::workload::Workload;

    #[test]
    fn a_warm_up_is_no_run() {
        let parts = [Part::default(), Part { messages: 1, ..Part::default() }];
        let common = Blast::COMMON;
        assert_eq!(runs_of(&common, &parts), &parts[1..]);
        assert_eq!(runs_of(&Common { warm_up: 0, ..common.clone() }, &parts), &parts[..]);
        assert!(runs_of(&common, &[]).is_empty());
    }
}
