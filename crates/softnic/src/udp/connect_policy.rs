//! When a peer gets a connected socket, and when that socket is closed.
//!
//! For a connected UDP socket the kernel searches no route and no socket, and it need not report
//! the addresses of each packet. Measured between two namespaces: with `recvfrom` on a connected
//! socket instead of `recvmsg` with the destination address on the shared one, a round trip of 32
//! or 1024 B takes 11 % less. On the other hand, a poll reads only one of the two sockets. So a
//! connected socket pays off for ping-pong traffic only: one peer sends single messages, and hardly
//! any come from others.

use rdmalab_link::address::FourTuple;

/// A peer gets a connected socket after a streak of this many messages: they came in a row, one by
/// one, all from this peer.
const STREAK: u32 = 256;
/// A message that came together with others, perhaps an ACK, shortens the streak by this many.
const SETBACK: u32 = 4;
/// The longest streak that is ever needed, however often connected sockets were useless.
const STREAK_MAX: u32 = 1 << 16;
/// One of this many polls reads the shared socket.
pub(super) const READS_PER_SHARED_READ: u32 = 16;
/// At least this many messages of the peer must lie between two messages of others.
const OTHERS_APART: u32 = 64;
/// If this many reads in a row find a message, the peer streams. The shared socket receives a
/// stream in larger pieces.
const STREAM_READS: u32 = 64;
/// If this many reads in a row find nothing, the peer is idle.
const IDLE_READS: u32 = 4096;
/// After the disconnect, this many empty reads mean that the socket is drained.
const DRAIN_READS: u32 = 8;

/// Which socket to read next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReadFrom {
    /// The shared socket.
    Shared,
    /// The connected socket.
    Connected,
    /// The connected socket until it is empty, then the shared one.
    ConnectedThenShared,
}

/// What to do with the connected socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// Nothing.
    Keep,
    /// Disconnect it: the kernel delivers new packets to the shared socket.
    Disconnect,
    /// Close it: it is drained.
    Close,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ConnectState {
    /// There is the shared socket only.
    Shared,
    /// The peer has a connected socket.
    Connected,
    /// The connected socket was disconnected; the packets in it are read first.
    Draining { reads: u32 },
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct ConnectPolicy {
    state: ConnectState,
    tuple: Option<FourTuple>,
    /// Length of the streak so far.
    streak: u32,
    needed: u32,
    reads_in_turn: u32,
    /// Messages of the peer since the last message of another peer.
    apart: u32,
    found_in_a_row: u32,
    empty_in_a_row: u32,
}

impl Default for ConnectPolicy {
    fn default() -> ConnectPolicy {
        ConnectPolicy {
            state: ConnectState::Shared,
            tuple: None,
            streak: 0,
            needed: STREAK,
            reads_in_turn: 0,
            apart: OTHERS_APART,
            found_in_a_row: 0,
            empty_in_a_row: 0,
        }
    }
}

impl ConnectPolicy {
    /// The tuple of the connected socket, if there is one.
    pub(super) fn connected_tuple(&self) -> Option<FourTuple> {
        self.tuple.filter(|_| self.state != ConnectState::Shared)
    }

    #[inline]
    pub(super) fn read_from(&mut self) -> ReadFrom {
        match self.state {
            ConnectState::Shared => ReadFrom::Shared,
            ConnectState::Draining { .. } => ReadFrom::ConnectedThenShared,
            ConnectState::Connected => {
                self.reads_in_turn = self.reads_in_turn.wrapping_add(1);
                if self.reads_in_turn.is_multiple_of(READS_PER_SHARED_READ) {
                    ReadFrom::Shared
                } else {
                    ReadFrom::Connected
                }
            }
        }
    }

    /// The tuple that qualifies for a connected socket.
    #[inline]
    pub(super) fn candidate(&self) -> Option<FourTuple> {
        let earned = self.state == ConnectState::Shared && self.streak >= self.needed;
        self.tuple.filter(|_| earned)
    }

    /// Handles a message that came to the shared socket. `alone`: it was a single datagram, and no
    /// other message came with it.
    #[inline]
    pub(super) fn on_shared_message(&mut self, tuple: &FourTuple, alone: bool) -> Action {
        let same = self.tuple.as_ref() == Some(tuple);
        match self.state {
            ConnectState::Shared if alone && same => {
                self.streak += 1;
                Action::Keep
            }
            ConnectState::Shared => {
                let streak = if same { self.streak.saturating_sub(SETBACK) } else { 0 };
                (self.tuple, self.streak) = (Some(*tuple), streak);
                Action::Keep
            }
            ConnectState::Connected if !same => {
                let often = self.apart < OTHERS_APART;
                self.apart = 0;
                if often { self.disconnect_useless() } else { Action::Keep }
            }
            _ => Action::Keep,
        }
    }

    /// Ends the streak: a thread that does not poll took messages.
    pub(super) fn reset_streak(&mut self) {
        self.streak = 0;
    }

    /// Handles a read of the connected socket, which `found` a message or nothing.
    #[inline]
    pub(super) fn on_connected_read(&mut self, found: bool) -> Action {
        if let ConnectState::Draining { reads } = &mut self.state {
            *reads += u32::from(!found);
            return if *reads >= DRAIN_READS { Action::Close } else { Action::Keep };
        }
        if !found {
            self.found_in_a_row = 0;
            self.empty_in_a_row += 1;
            return if self.empty_in_a_row >= IDLE_READS {
                self.disconnect_useful()
            } else {
                Action::Keep
            };
        }
        self.empty_in_a_row = 0;
        self.apart = self.apart.saturating_add(1);
        self.found_in_a_row += 1;
        if self.found_in_a_row >= STREAM_READS { self.disconnect_useless() } else { Action::Keep }
    }

    /// Disconnects a socket that cost more than it saved: the next streak must be longer.
    fn disconnect_useless(&mut self) -> Action {
        self.needed = (self.needed * 2).min(STREAK_MAX);
        Action::Disconnect
    }

    /// Disconnects a socket that was useful until the peer went idle: a shorter streak will do.
    fn disconnect_useful(&mut self) -> Action {
        self.needed = (self.needed / 2).max(STREAK);
        Action::Disconnect
    }

    /// The connected socket was opened.
    pub(super) fn on_opened(&mut self) {
        let (tuple, needed) = (self.tuple, self.needed);
        *self = ConnectPolicy {
            state: ConnectState::Connected,
            tuple,
            needed,
            ..ConnectPolicy::default()
        };
    }

    /// The connected socket could not be opened.
    pub(super) fn on_refused(&mut self) {
        (self.streak, self.needed) = (0, (self.needed * 2).min(STREAK_MAX));
    }

    /// The connected socket was disconnected.
    pub(super) fn on_disconnected(&mut self) {
        self.state = ConnectState::Draining { reads: 0 };
    }

    /// The connected socket was closed.
    pub(super) fn on_closed(&mut self) {
        *self = ConnectPolicy { needed: self.needed, ..ConnectPolicy::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(last: u8) -> FourTuple {
        FourTuple {
            source: [10, 0, 0, last].into(),
            destination: [10, 0, 0, 1].into(),
            source_port: 4791,
            destination_port: 4791,
        }
    }

    /// How many messages `tuple(2)` needs for a socket; `alone` says which of them come alone.
    fn qualify(policy: &mut ConnectPolicy, alone: impl Fn(u32) -> bool) -> u32 {
        let needs = |i: &u32| {
            assert_eq!(policy.on_shared_message(&tuple(2), alone(*i)), Action::Keep);
            policy.candidate().is_none()
        };
        (0..100 * STREAK).take_while(needs).count() as u32
    }

    /// A policy whose peer `tuple(2)` has just got its connected socket.
    fn connected_policy() -> ConnectPolicy {
        let mut policy = ConnectPolicy::default();
        qualify(&mut policy, |_| true);
        policy.on_opened();
        policy
    }

    #[test]
    fn one_that_talks_alone_earns_a_socket() {
        let mut policy = ConnectPolicy::default();
        assert_eq!((qualify(&mut policy, |_| true), policy.candidate()), (STREAK, Some(tuple(2))));
        assert_eq!((policy.connected_tuple(), policy.read_from()), (None, ReadFrom::Shared));
        policy.on_opened();
        assert_eq!((policy.connected_tuple(), policy.candidate()), (Some(tuple(2)), None));
        let own = (0..80).filter(|_| policy.read_from() == ReadFrom::Connected).count();
        assert_eq!(own, 75, "others are looked for as well");
        policy.on_closed();
        assert!(
            (STREAK..3 * STREAK).contains(&qualify(&mut policy, |i| i % 8 > 0)),
            "some together"
        );
        policy.reset_streak();
        assert_eq!(policy.candidate(), None);
    }

    #[test]
    fn neither_two_peers_in_turns_nor_one_that_streams_earn_it() {
        let mut policy = ConnectPolicy::default();
        for _ in 0..4 * STREAK {
            assert_eq!(policy.on_shared_message(&tuple(2), true), Action::Keep);
            assert_eq!(policy.on_shared_message(&tuple(3), true), Action::Keep);
        }
        assert_eq!(policy.candidate(), None);
        assert_eq!(qualify(&mut policy, |i| i % 4 == 0), 100 * STREAK);
    }

    #[test]
    fn others_that_come_often_end_it_and_those_that_come_seldom_do_not() {
        let mut policy = connected_policy();
        for _ in 0..3 {
            for _ in 0..OTHERS_APART {
                assert_eq!(policy.on_connected_read(true), Action::Keep);
                assert_eq!(policy.on_connected_read(false), Action::Keep);
            }
            assert_eq!(policy.on_shared_message(&tuple(3), true), Action::Keep);
        }
        assert_eq!(policy.on_shared_message(&tuple(3), true), Action::Disconnect);
        policy.on_disconnected();
        assert_eq!(policy.read_from(), ReadFrom::ConnectedThenShared);
        policy.on_connected_read(true);
        for _ in 1..DRAIN_READS {
            assert_eq!(policy.on_connected_read(false), Action::Keep);
        }
        assert_eq!(policy.on_connected_read(false), Action::Close);
        policy.on_closed();
        assert_eq!(
            (policy.connected_tuple(), policy.read_from(), policy.needed),
            (None, ReadFrom::Shared, 2 * STREAK)
        );
    }

    #[test]
    fn a_stream_and_silence_end_it() {
        let mut policy = connected_policy();
        assert!((1..STREAM_READS).all(|_| policy.on_connected_read(true) == Action::Keep));
        assert_eq!(policy.on_connected_read(true), Action::Disconnect);
        let mut policy = connected_policy();
        assert!((1..IDLE_READS).all(|_| policy.on_connected_read(false) == Action::Keep));
        assert_eq!((policy.on_connected_read(false), policy.needed), (Action::Disconnect, STREAK));
        for _ in 0..20 {
            policy.on_refused();
        }
        assert_eq!(policy.needed, STREAK_MAX);
        policy.on_opened();
        assert!((0..IDLE_READS).any(|_| policy.on_connected_read(false) == Action::Disconnect));
        assert_eq!(policy.needed, STREAK_MAX / 2, "one that was of use makes the next one easier");
    }
}
