//! Reads packets from the socket.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use rdmalab_link::drops::Drop;
use rdmalab_link::receive::Verifier;

use super::connect_policy::ReadFrom;
use super::deliver::take_packet;
use super::io::UdpIo;
use super::receive_batch::{Message, RECEIVE_MAX, ReceiveBatch};
use super::receiver::{Arrival, Receiver, SocketState};
use crate::qp::{LockedQp, finish};

/// At most this many messages are taken in one call, so that a flood does not hold up the caller.
const MESSAGES_PER_CALL: usize = 64;

/// At most this many reads before a retransmission: a flood must not delay it for ever.
const LOOKS_MAX: usize = 32;

impl UdpIo<'_> {
    /// Handles all packets that have come so far, before a time-out leads to a retransmission. If
    /// another process owns the socket, looks for packets that it forwarded in the rings.
    #[cold]
    pub(crate) fn drain(self) -> SocketState {
        let UdpIo { process, network } = self;
        if !network.ownership.is_ours() {
            let reader =
                Some(network.forwarded_by.load(Ordering::Relaxed)).filter(|slot| *slot != 0);
            // If the last forwarder is gone, its successor may have forwarded nothing yet.
            let may_hold = match reader.and_then(|slot| process.host.peer(slot)) {
                Some(peer) if peer.is_alive() => {
                    process.host.peers.ring_may_hold_messages(peer.slot)
                }
                _ => process.host.peers.rings_may_hold_messages(),
            };
            return if may_hold { SocketState::MayHoldMore } else { SocketState::Empty };
        }
        for _ in 0..LOOKS_MAX {
            match self.try_read(false) {
                // Another thread is reading, and may have just the packet that is waited for.
                None => return SocketState::MayHoldMore,
                Some((_, SocketState::Empty)) => break,
                Some((_, SocketState::MayHoldMore)) => {}
            }
        }
        SocketState::Empty
    }

    /// Polls the socket for a caller, and sends what queue pairs delay if no packet came. Returns
    /// how many packets came; `None` if another process reads the socket.
    pub(crate) fn poll(self) -> Option<u32> {
        if self.network.fd_to_poll() < 0 {
            self.send_delayed_at_poll();
            return None;
        }
        self.network.note_caller();
        let done = self.read(true);
        if done == 0 {
            // The program's answer, if there is one, has left before, so the ACK may follow.
            self.send_delayed_at_poll();
        } else {
            self.network.note_taken(done);
        }
        Some(done)
    }

    /// Handles packets that came, if this process owns the socket. `polls`: for a caller that
    /// polls, whose program may answer at once, so an ACK may be delayed. Returns how many.
    pub(crate) fn read(self, polls: bool) -> u32 {
        if !self.network.ownership.is_ours() {
            return 0;
        }
        self.try_read(polls).map_or(0, |(packets, _)| packets)
    }

    /// Reads the socket once. Returns how many packets, and whether it was empty after that; `None`
    /// if another thread is reading.
    fn try_read(self, polls: bool) -> Option<(u32, SocketState)> {
        let network = self.network;
        let mut receiver = network.receiver.try_lock()?;
        // Another thread may have handed ownership over, under this lock.
        let Some(term) = network.ownership.ours() else { return Some((0, SocketState::Empty)) };
        receiver.term = term;
        network.ownership.note_read();
        let mut held: LockedQp = None;
        let read_from = self.choose_socket(&mut receiver.policy, polls);
        let (mut done, mut left) = (0, SocketState::Empty);
        if read_from != ReadFrom::Shared {
            let all = read_from == ReadFrom::ConnectedThenShared;
            (done, left) = self.read_connected(&mut receiver, &mut held, all);
        }
        // Packets of the connected socket are older, and come first.
        if read_from == ReadFrom::Shared
            || read_from == ReadFrom::ConnectedThenShared && left == SocketState::Empty
        {
            let (more, main) = self.read_socket(network.fd(), &mut receiver, &mut held, polls);
            (done, left) = (done + more, main);
        }
        match polls && self.delays_ack(&mut held) {
            true => drop(held),
            false => finish(held),
        }
        if let Some(tuple) = receiver.policy.candidate() {
            self.open_connected(&mut receiver, &tuple);
        }
        Some((done, left))
    }

    /// Handles packets from a socket that reports addresses; `polls`: for a caller that polls.
    pub(super) fn read_socket(
        self,
        fd: RawFd,
        receiver: &mut Receiver,
        held: &mut LockedQp,
        polls: bool,
    ) -> (u32, SocketState) {
        let (mut done, mut messages) = (0, 0);
        let ownership = &self.network.ownership;
        loop {
            let asked = receiver.ask;
            // If this process was stopped for long, another process owns the socket now.
            if !ownership.is_now(receiver.term) {
                return (done, SocketState::Empty);
            }
            let got = receiver.batch.receive(fd, asked);
            for index in 0..got {
                done += self.take_message_at(receiver, (index, got), held, polls);
            }
            messages += got;
            receiver.ask = if got == asked { (asked * 2).min(RECEIVE_MAX) } else { got.max(1) };
            if got < asked {
                return (done, SocketState::Empty);
            }
            // A message that came alone is answered before the next read.
            if asked == 1 || messages >= MESSAGES_PER_CALL {
                return (done, SocketState::MayHoldMore);
            }
        }
    }

    /// Handles message `index` of `got`.
    fn take_message_at(
        self,
        receiver: &mut Receiver,
        (index, got): (usize, usize),
        held: &mut LockedQp,
        polls: bool,
    ) -> u32 {
        let network = self.network;
        let Some(message) = receiver.batch.message(index) else {
            network.counters.count(Drop::Kernel);
            return 0;
        };
        if !network.ownership.is_now(receiver.term) {
            network.counters.count(Drop::Turn);
            return 0;
        }
        let Receiver { batch, verifier, policy, .. } = receiver;
        let done = self.take_message(batch, (index, message), verifier, held);
        if !polls {
            policy.reset_streak();
        } else {
            let action = policy.on_shared_message(&message.tuple, got == 1 && done == 1);
            self.apply_policy(policy, action);
        }
        done
    }

    /// Whether only an ACK is to be sent now, and it may wait for the program's answer.
    fn delays_ack(self, held: &mut LockedQp) -> bool {
        let Some(inner) = held.as_mut().and_then(|(_, guard)| guard.as_mut()) else {
            return false;
        };
        let waits = inner.may_delay_ack(self.network) && self.delay(inner.links.object);
        if waits {
            inner.settle();
        }
        waits
    }

    /// Handles the packets of the message at `index` of the receive batch. Returns how many.
    pub(super) fn take_message(
        self,
        batch: &mut ReceiveBatch,
        (index, message): (usize, Message),
        verifier: &mut Verifier,
        held: &mut LockedQp,
    ) -> u32 {
        let bytes = batch.bytes(index, message.bytes);
        let mut done = 0;
        for packet in bytes.chunks(message.segment_bytes.max(1)) {
            let (tuple, ip) = (message.tuple, message.ip);
            let arrival = Arrival { tuple, ip, bytes: packet, forwarded: false };
            if let Err(reason) = take_packet(self.process, &arrival, verifier, held) {
                self.network.counters.count(reason);
            }
            done += 1;
        }
        done
    }
}
