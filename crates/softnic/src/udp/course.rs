//! When one peer's packets are given a socket of their own, and when that ends.
//!
//! A connected UDP socket takes its peer's packets past the kernel's search for a route and for a
//! socket, and who sent them, and whereto, need not be asked for. Measured between two namespaces,
//! `recvmsg` with the destination address on the socket for all against `recvfrom` on a connected
//! one: a round trip of 32 or 1024 B takes 11 % less. But each look then costs a call on either
//! socket, so it serves only one who talks alone: whose packets come one by one, and hardly any
//! from others between them.

use rdmalab_link::path::Path;

/// Messages that have to come one by one, from one peer and from nobody else.
const STREAK: u32 = 256;
/// How many of them one takes back that came with others, as an acknowledgement may.
const SETBACK: u32 = 4;
/// How many they have to be at most, however often it was of no use.
const STREAK_MAX: u32 = 1 << 16;
/// One of so many looks is at the socket for all.
pub(super) const LOOKS_PER_TURN: u32 = 16;
/// Messages of the peer that have to lie between two of others.
const APART: u32 = 64;
/// So many looks in a row that find something mean that the peer streams, which the socket for all
/// takes in larger pieces.
const STREAM: u32 = 64;
/// After so many looks in a row that find nothing, the peer is no better than others.
const SILENCE: u32 = 4096;
/// What came while the kernel still knew the peer's socket is found in so many looks.
const FADING_LOOKS: u32 = 8;

/// Where to look next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// At the socket for all.
    Main,
    /// At the peer's.
    Own,
    /// At the peer's until it is empty, then at the one for all.
    Both,
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wish {
    /// Nothing.
    Stay,
    /// The kernel is not to choose it any more.
    Part,
    /// It is empty for good.
    Close,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// There is one socket.
    One,
    /// The peer has its own.
    Two,
    /// The kernel does not choose it any more; what lies in it comes first.
    Fading { looks: u32 },
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Course {
    phase: Phase,
    path: Option<Path>,
    /// Messages in a row.
    streak: u32,
    needed: u32,
    turns: u32,
    /// Of the peer, since another's.
    apart: u32,
    found_in_a_row: u32,
    empty_in_a_row: u32,
}

impl Default for Course {
    fn default() -> Course {
        Course {
            phase: Phase::One,
            path: None,
            streak: 0,
            needed: STREAK,
            turns: 0,
            apart: APART,
            found_in_a_row: 0,
            empty_in_a_row: 0,
        }
    }
}

impl Course {
    /// The path of those who have a socket of their own.
    pub(super) fn own(&self) -> Option<Path> {
        self.path.filter(|_| self.phase != Phase::One)
    }

    #[inline]
    pub(super) fn turn(&mut self) -> Turn {
        match self.phase {
            Phase::One => Turn::Main,
            Phase::Fading { .. } => Turn::Both,
            Phase::Two => {
                self.turns = self.turns.wrapping_add(1);
                if self.turns.is_multiple_of(LOOKS_PER_TURN) { Turn::Main } else { Turn::Own }
            }
        }
    }

    /// The path of those who have earned a socket of their own.
    #[inline]
    pub(super) fn earned(&self) -> Option<Path> {
        let earned = self.phase == Phase::One && self.streak >= self.needed;
        self.path.filter(|_| earned)
    }

    /// A message came to the socket for all; `alone`: no other was found with it, and it was not
    /// several in one.
    #[inline]
    pub(super) fn heard_main(&mut self, path: &Path, alone: bool) -> Wish {
        let same = self.path.as_ref() == Some(path);
        match self.phase {
            Phase::One if alone && same => {
                self.streak += 1;
                Wish::Stay
            }
            Phase::One => {
                let streak = if same { self.streak.saturating_sub(SETBACK) } else { 0 };
                (self.path, self.streak) = (Some(*path), streak);
                Wish::Stay
            }
            Phase::Two if !same => {
                let often = self.apart < APART;
                self.apart = 0;
                if often { self.was_vain() } else { Wish::Stay }
            }
            _ => Wish::Stay,
        }
    }

    /// Messages were taken by one who does not poll.
    pub(super) fn interrupted(&mut self) {
        self.streak = 0;
    }

    /// A look at the peer's socket found a message, or nothing.
    #[inline]
    pub(super) fn looked(&mut self, found: bool) -> Wish {
        if let Phase::Fading { looks } = &mut self.phase {
            *looks += u32::from(!found);
            return if *looks >= FADING_LOOKS { Wish::Close } else { Wish::Stay };
        }
        if !found {
            self.found_in_a_row = 0;
            self.empty_in_a_row += 1;
            return if self.empty_in_a_row >= SILENCE { self.was_useful() } else { Wish::Stay };
        }
        self.empty_in_a_row = 0;
        self.apart = self.apart.saturating_add(1);
        self.found_in_a_row += 1;
        if self.found_in_a_row >= STREAM { self.was_vain() } else { Wish::Stay }
    }

    /// It cost more than it gave: the next one has to be earned longer.
    fn was_vain(&mut self) -> Wish {
        self.needed = (self.needed * 2).min(STREAK_MAX);
        Wish::Part
    }

    /// It served until the peer had nothing more to say: the next one is earned sooner.
    fn was_useful(&mut self) -> Wish {
        self.needed = (self.needed / 2).max(STREAK);
        Wish::Part
    }

    /// The peer got its socket.
    pub(super) fn opened(&mut self) {
        let (path, needed) = (self.path, self.needed);
        *self = Course { phase: Phase::Two, path, needed, ..Course::default() };
    }

    /// It cannot have one now.
    pub(super) fn refused(&mut self) {
        (self.streak, self.needed) = (0, (self.needed * 2).min(STREAK_MAX));
    }

    /// The kernel does not choose the peer's socket any more.
    pub(super) fn parted(&mut self) {
        self.phase = Phase::Fading { looks: 0 };
    }

    /// There is one socket again.
    pub(super) fn closed(&mut self) {
        *self = Course { needed: self.needed, ..Course::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(last: u8) -> Path {
        Path {
            source: [10, 0, 0, last].into(),
            destination: [10, 0, 0, 1].into(),
            source_port: 4791,
            destination_port: 4791,
        }
    }

    /// Messages that `path(2)` needs for a socket, every one alone for which `alone` holds.
    fn earn(course: &mut Course, alone: impl Fn(u32) -> bool) -> u32 {
        let needs = |i: &u32| {
            assert_eq!(course.heard_main(&path(2), alone(*i)), Wish::Stay);
            course.earned().is_none()
        };
        (0..100 * STREAK).take_while(needs).count() as u32
    }

    /// One whose peer `2` has just got its socket.
    fn with_two() -> Course {
        let mut course = Course::default();
        earn(&mut course, |_| true);
        course.opened();
        course
    }

    #[test]
    fn one_that_talks_alone_earns_a_socket() {
        let mut course = Course::default();
        assert_eq!((earn(&mut course, |_| true), course.earned()), (STREAK, Some(path(2))));
        assert_eq!((course.own(), course.turn()), (None, Turn::Main));
        course.opened();
        assert_eq!((course.own(), course.earned()), (Some(path(2)), None));
        let own = (0..80).filter(|_| course.turn() == Turn::Own).count();
        assert_eq!(own, 75, "others are looked for as well");
        course.closed();
        assert!((STREAK..3 * STREAK).contains(&earn(&mut course, |i| i % 8 > 0)), "some together");
        course.interrupted();
        assert_eq!(course.earned(), None);
    }

    #[test]
    fn neither_two_peers_in_turns_nor_one_that_streams_earn_it() {
        let mut course = Course::default();
        for _ in 0..4 * STREAK {
            assert_eq!(course.heard_main(&path(2), true), Wish::Stay);
            assert_eq!(course.heard_main(&path(3), true), Wish::Stay);
        }
        assert_eq!(course.earned(), None);
        assert_eq!(earn(&mut course, |i| i % 4 == 0), 100 * STREAK);
    }

    #[test]
    fn others_that_come_often_end_it_and_those_that_come_seldom_do_not() {
        let mut course = with_two();
        for _ in 0..3 {
            for _ in 0..APART {
                assert_eq!(course.looked(true), Wish::Stay);
                assert_eq!(course.looked(false), Wish::Stay);
            }
            assert_eq!(course.heard_main(&path(3), true), Wish::Stay);
        }
        assert_eq!(course.heard_main(&path(3), true), Wish::Part);
        course.parted();
        assert_eq!(course.turn(), Turn::Both);
        course.looked(true);
        for _ in 1..FADING_LOOKS {
            assert_eq!(course.looked(false), Wish::Stay);
        }
        assert_eq!(course.looked(false), Wish::Close);
        course.closed();
        assert_eq!((course.own(), course.turn(), course.needed), (None, Turn::Main, 2 * STREAK));
    }

    #[test]
    fn a_stream_and_silence_end_it() {
        let mut course = with_two();
        assert!((1..STREAM).all(|_| course.looked(true) == Wish::Stay));
        assert_eq!(course.looked(true), Wish::Part);
        let mut course = with_two();
        assert!((1..SILENCE).all(|_| course.looked(false) == Wish::Stay));
        assert_eq!((course.looked(false), course.needed), (Wish::Part, STREAK));
        for _ in 0..20 {
            course.refused();
        }
        assert_eq!(course.needed, STREAK_MAX);
        course.opened();
        assert!((0..SILENCE).any(|_| course.looked(false) == Wish::Part));
        assert_eq!(course.needed, STREAK_MAX / 2, "one that was of use makes the next one easier");
    }
}
