//! Detects that a live owner has stopped reading the socket: its process was stopped (SIGSTOP, a
//! debugger), or one of its threads was stopped while it held the receiver.
//!
//! Another process then sees that packets lie in the socket, and that nobody has read it since the
//! last observation. An owner that is only busy, or has no processor, reads again soon. If such an
//! owner is taken for stalled by mistake, only the packets that it is handling are lost.

/// The owner has stalled if this many observations in a row equal the one before.
const OBSERVATIONS: u32 = 4;
/// The time between two observations, ns. Together they take a fifth of the time after which an RC
/// peer with `timeout` 14 and `retry_cnt` 7 gives up, and many times a scheduler's time slice.
pub(super) const OBSERVATION_PERIOD_NS: u64 = 80_000_000;

/// What another process sees of the owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Observation {
    /// The term of the owner.
    pub(super) term: u64,
    /// How often the owner read the socket.
    pub(super) reads: u64,
    /// Whether packets lie in the socket.
    pub(super) readable: bool,
}

/// What an observation means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The owner reads, or may read: observe again after [`OBSERVATION_PERIOD_NS`].
    Active,
    /// The socket is empty and nobody reads it: nothing changes before a packet comes.
    Idle,
    /// The owner does not read.
    Stalled,
}

/// What was seen so far.
#[derive(Default, Debug)]
pub(super) struct StallDetector {
    before: Option<Observation>,
    same: u32,
}

impl StallDetector {
    /// One more observation, at least [`OBSERVATION_PERIOD_NS`] after the one before.
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
    fn an_owner_that_leaves_packets_unread_has_stalled() {
        let mut detector = StallDetector::default();
        for _ in 0..OBSERVATIONS {
            assert_eq!(detector.observe(observation(1, 7)), Active);
        }
        assert_eq!(detector.observe(observation(1, 7)), Stalled);
        assert_eq!(detector.observe(observation(1, 7)), Stalled, "still");
    }

    #[test]
    fn a_busy_owner_has_not_stalled() {
        let mut detector = StallDetector::default();
        for reads in 0..20 {
            // A flood: packets lie in the socket at every observation, and the owner reads seldom.
            for _ in 0..OBSERVATIONS {
                assert_eq!(detector.observe(observation(1, reads)), Active);
            }
        }
    }

    #[test]
    fn an_idle_owner_has_not_stalled() {
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
