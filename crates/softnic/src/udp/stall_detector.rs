//! Whether the process that reads the socket does not do it any more, though it lives: it was
//! stopped (SIGSTOP, a debugger), or a thread of it was while it had the receiver's buffers.
//!
//! Seen from another process: something lies in the socket, and nobody has looked at it since the
//! look before. A reader that is merely busy, or has no processor, looks again before long; if one
//! is taken to be stopped that is not, it loses what it has in its hands, and no more.

/// Looks in a row that have to find the same after the first one.
const OBSERVATIONS: u32 = 4;
/// What lies between two of them, ns: together a fifth of what an RC peer with `timeout` 14 and
/// `retry_cnt` 7 waits, and many times the slice of a processor that others want too.
pub(super) const OBSERVATION_PERIOD_NS: u64 = 80_000_000;

/// What another process sees of the reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Observation {
    /// Whose turn it is to read.
    pub(super) term: u64,
    /// How often it looked at the socket.
    pub(super) reads: u64,
    /// Whether something lies there.
    pub(super) readable: bool,
}

/// What a look says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Somebody reads, or may: look again after [`BETWEEN_NS`].
    Active,
    /// Nothing lies there, and nobody looks: nothing is to be seen before something comes.
    Idle,
    /// The reader does not read.
    Stalled,
}

/// What was seen so far.
#[derive(Default, Debug)]
pub(super) struct StallDetector {
    before: Option<Observation>,
    same: u32,
}

impl StallDetector {
    /// One more look, at least [`BETWEEN_NS`] after the one before.
    pub(super) fn observe(&mut self, now: Observation) -> Verdict {
        let is_same = self.before == Some(now);
        self.before = Some(now);
        self.same = if is_same && now.readable { self.same.saturating_add(1) } else { 0 };
        match now.readable {
            true if self.same >= OBSERVATIONS => Verdict::Stalled,
            false if is_same => Verdict::Idle,
            _ => Verdict::Active,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Verdict::{Active, Idle, Stalled};
    use super::*;

    fn observation(term: u64, reads: u64) -> Observation {
        Observation { term, reads, readable: true }
    }

    fn nothing(reads: u64) -> Observation {
        Observation { readable: false, ..observation(1, reads) }
    }

    #[test]
    fn who_leaves_packets_lying_has_stalled() {
        let mut detector = StallDetector::default();
        for _ in 0..OBSERVATIONS {
            assert_eq!(detector.observe(observation(1, 7)), Active);
        }
        assert_eq!(detector.observe(observation(1, 7)), Stalled);
        assert_eq!(detector.observe(observation(1, 7)), Stalled, "still");
    }

    #[test]
    fn who_is_busy_has_not() {
        let mut detector = StallDetector::default();
        for reads in 0..20 {
            // A flood: something lies there whenever one looks, and the reader comes by seldom.
            for _ in 0..OBSERVATIONS {
                assert_eq!(detector.observe(observation(1, reads)), Active);
            }
        }
    }

    #[test]
    fn who_has_nothing_to_read_has_not() {
        let mut detector = StallDetector::default();
        for reads in 0..20 {
            assert_eq!(detector.observe(nothing(reads)), Active, "somebody polls");
        }
        assert_eq!(detector.observe(nothing(19)), Idle);
        assert_eq!(detector.observe(nothing(19)), Idle, "it costs nothing");
        for _ in 0..OBSERVATIONS {
            assert_eq!(detector.observe(observation(1, 19)), Active, "it came just now");
        }
        assert_eq!(detector.observe(nothing(19)), Active, "somebody has taken it");
        for _ in 0..OBSERVATIONS {
            assert_eq!(detector.observe(observation(1, 19)), Active);
        }
        assert_eq!(detector.observe(observation(1, 19)), Stalled);
    }

    #[test]
    fn the_next_one_has_as_much_time() {
        let mut detector = StallDetector::default();
        for term in 1..20 {
            for _ in 0..OBSERVATIONS {
                assert_eq!(detector.observe(observation(term, 7)), Active);
            }
        }
        assert_eq!(detector.observe(observation(19, 7)), Stalled);
    }
}
