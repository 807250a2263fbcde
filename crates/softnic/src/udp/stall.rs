//! Whether the process that reads the socket does not do it any more, though it lives: it was
//! stopped (SIGSTOP, a debugger), or a thread of it was while it had the receiver's buffers.
//!
//! Seen from another process: something lies in the socket, and nobody has looked at it since the
//! look before. A reader that is merely busy, or has no processor, looks again before long; if one
//! is taken to be stopped that is not, it loses what it has in its hands, and no more.

/// Looks in a row that have to find the same after the first one.
const LOOKS: u32 = 4;
/// What lies between two of them, ns: together a fifth of what an RC peer with `timeout` 14 and
/// `retry_cnt` 7 waits, and many times the slice of a processor that others want too.
pub(super) const BETWEEN_NS: u64 = 80_000_000;

/// What another process sees of the reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sight {
    /// Whose turn it is to read.
    pub(super) term: u64,
    /// How often it looked at the socket.
    pub(super) looks: u64,
    /// Whether something lies there.
    pub(super) readable: bool,
}

/// What a look says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Somebody reads, or may: look again after [`BETWEEN_NS`].
    Lively,
    /// Nothing lies there, and nobody looks: nothing is to be seen before something comes.
    Idle,
    /// The reader does not read.
    Stalled,
}

/// What was seen so far.
#[derive(Default, Debug)]
pub(super) struct Stall {
    before: Option<Sight>,
    same: u32,
}

impl Stall {
    /// One more look, at least [`BETWEEN_NS`] after the one before.
    pub(super) fn look(&mut self, now: Sight) -> Verdict {
        let is_same = self.before == Some(now);
        self.before = Some(now);
        self.same = if is_same && now.readable { self.same.saturating_add(1) } else { 0 };
        match now.readable {
            true if self.same >= LOOKS => Verdict::Stalled,
            false if is_same => Verdict::Idle,
            _ => Verdict::Lively,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Verdict::{Idle, Lively, Stalled};
    use super::*;

    fn sight(term: u64, looks: u64) -> Sight {
        Sight { term, looks, readable: true }
    }

    fn nothing(looks: u64) -> Sight {
        Sight { readable: false, ..sight(1, looks) }
    }

    #[test]
    fn who_leaves_packets_lying_has_stalled() {
        let mut stall = Stall::default();
        for _ in 0..LOOKS {
            assert_eq!(stall.look(sight(1, 7)), Lively);
        }
        assert_eq!(stall.look(sight(1, 7)), Stalled);
        assert_eq!(stall.look(sight(1, 7)), Stalled, "still");
    }

    #[test]
    fn who_is_busy_has_not() {
        let mut stall = Stall::default();
        for looks in 0..20 {
            // A flood: something lies there whenever one looks, and the reader comes by seldom.
            for _ in 0..LOOKS {
                assert_eq!(stall.look(sight(1, looks)), Lively);
            }
        }
    }

    #[test]
    fn who_has_nothing_to_read_has_not() {
        let mut stall = Stall::default();
        for looks in 0..20 {
            assert_eq!(stall.look(nothing(looks)), Lively, "somebody polls");
        }
        assert_eq!(stall.look(nothing(19)), Idle);
        assert_eq!(stall.look(nothing(19)), Idle, "it costs nothing");
        for _ in 0..LOOKS {
            assert_eq!(stall.look(sight(1, 19)), Lively, "it came just now");
        }
        assert_eq!(stall.look(nothing(19)), Lively, "somebody has taken it");
        for _ in 0..LOOKS {
            assert_eq!(stall.look(sight(1, 19)), Lively);
        }
        assert_eq!(stall.look(sight(1, 19)), Stalled);
    }

    #[test]
    fn the_next_one_has_as_much_time() {
        let mut stall = Stall::default();
        for term in 1..20 {
            for _ in 0..LOOKS {
                assert_eq!(stall.look(sight(term, 7)), Lively);
            }
        }
        assert_eq!(stall.look(sight(19, 7)), Stalled);
    }
}
