//! Handles packets from the network, and packets that the owner of the socket forwarded.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use rdmalab_link::address::{FourTuple, IpFields, address_of};
use rdmalab_link::drops::Drop;
use rdmalab_link::hook::{Direction, PacketContext};
use rdmalab_link::packet::Payload;
use rdmalab_link::receive::{self as link, Verifier};
use rdmalab_ring::biased::BiasedGuard;
use rdmalab_ring::spsc::{Consumer, Slot};
use rdmalab_wire::ids::Qpn;
use rdmalab_wire::opcode::Transport;
use rdmalab_wire::packet::Packet;

use super::Network;
use super::connect_policy::ReadFrom;
use super::receive_batch::{Message, RECEIVE_MAX, ReceiveBatch};
use super::receiver::{Arrival, Receiver, SocketState};
use crate::codec::{self, SlotPayload};
use crate::layout;
use crate::process::Process;
use crate::progress::finish;
use crate::qp::QpInner;

/// At most this many messages are taken in one call, so that a flood does not hold up the caller.
const MESSAGES_PER_CALL: usize = 64;

/// The queue pair that is locked while its packets are handled, with its index.
pub(super) type LockedQp = Option<(usize, BiasedGuard<'static, Option<QpInner>>)>;

/// At most this many reads before a retransmission: a flood must not delay it for ever.
const LOOKS_MAX: usize = 32;

impl Process {
    /// Handles all packets that have come so far, before a time-out leads to a retransmission. If
    /// another process owns the socket, looks for packets that it forwarded in the rings.
    #[cold]
    pub(crate) fn drain_network(&self) -> SocketState {
        let Some(network) = self.network() else { return SocketState::Empty };
        if !network.ownership.is_ours() {
            let reader =
                Some(network.forwarded_by.load(Ordering::Relaxed)).filter(|slot| *slot != 0);
            // If the last forwarder is gone, its successor may have forwarded nothing yet.
            let may_hold = match reader.and_then(|slot| self.peer(slot)) {
                Some(peer) if peer.is_alive() => self.ring_may_hold_messages(peer.slot),
                _ => self.rings_may_hold_messages(),
            };
            return if may_hold { SocketState::MayHoldMore } else { SocketState::Empty };
        }
        for _ in 0..LOOKS_MAX {
            match self.try_read_network(network) {
                // Another thread is reading, and may have just the packet that is waited for.
                None => return SocketState::MayHoldMore,
                Some((_, SocketState::Empty)) => break,
                Some((_, SocketState::MayHoldMore)) => {}
            }
        }
        SocketState::Empty
    }

    /// Handles packets that came, if this process owns the socket. Returns how many.
    pub(crate) fn read_network(&self) -> u32 {
        let Some(network) = self.network() else { return 0 };
        if !network.ownership.is_ours() {
            return 0;
        }
        self.try_read_network(network).map_or(0, |(packets, _)| packets)
    }

    /// The same for a caller that polls: its program may answer at once, so an ACK may be delayed.
    pub(crate) fn read_network_as_caller(&self) -> u32 {
        let Some(network) = self.network() else { return 0 };
        if !network.ownership.is_ours() {
            return 0;
        }
        self.try_read_network_for(network, true).map_or(0, |(packets, _)| packets)
    }

    fn try_read_network(&self, network: &Network) -> Option<(u32, SocketState)> {
        self.try_read_network_for(network, false)
    }

    /// Reads the socket once. Returns how many packets, and whether it was empty after that; `None`
    /// if another thread is reading.
    fn try_read_network_for(&self, network: &Network, polls: bool) -> Option<(u32, SocketState)> {
        let mut receiver = network.receiver.try_lock()?;
        // Another thread may have handed ownership over, under this lock.
        let Some(term) = network.ownership.ours() else { return Some((0, SocketState::Empty)) };
        receiver.term = term;
        network.ownership.note_read();
        let mut held: LockedQp = None;
        let read_from = self.choose_socket(network, &mut receiver.policy, polls);
        let (mut done, mut left) = (0, SocketState::Empty);
        if read_from != ReadFrom::Shared {
            (done, left) = self.read_connected(
                network,
                &mut receiver,
                &mut held,
                read_from == ReadFrom::ConnectedThenShared,
            );
        }
        // Packets of the connected socket are older, and come first.
        if read_from == ReadFrom::Shared
            || read_from == ReadFrom::ConnectedThenShared && left == SocketState::Empty
        {
            let (more, main) =
                self.read_socket(network, network.fd(), &mut receiver, &mut held, polls);
            (done, left) = (done + more, main);
        }
        match polls && self.delays_ack(network, &mut held) {
            true => drop(held),
            false => finish(held),
        }
        if let Some(tuple) = receiver.policy.candidate() {
            self.open_connected(network, &mut receiver, &tuple);
        }
        Some((done, left))
    }

    /// Handles packets from a socket that reports addresses; `polls`: for a caller that polls.
    pub(super) fn read_socket(
        &self,
        network: &Network,
        fd: RawFd,
        receiver: &mut Receiver,
        held: &mut LockedQp,
        polls: bool,
    ) -> (u32, SocketState) {
        let (mut done, mut messages) = (0, 0);
        loop {
            let asked = receiver.ask;
            // If this process was stopped for long, another process owns the socket now.
            if !network.ownership.is_now(receiver.term) {
                return (done, SocketState::Empty);
            }
            let got = receiver.batch.receive(fd, asked);
            for index in 0..got {
                done += self.take_message_at(network, receiver, (index, got), held, polls);
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
        &self,
        network: &Network,
        receiver: &mut Receiver,
        (index, got): (usize, usize),
        held: &mut LockedQp,
        polls: bool,
    ) -> u32 {
        let Some(message) = receiver.batch.message(index) else {
            network.counters.count(Drop::Kernel);
            return 0;
        };
        if !network.ownership.is_now(receiver.term) {
            network.counters.count(Drop::Turn);
            return 0;
        }
        let Receiver { batch, verifier, policy, .. } = receiver;
        let done = self.take_message(network, batch, (index, message), verifier, held);
        if !polls {
            policy.reset_streak();
        } else {
            let action = policy.on_shared_message(&message.tuple, got == 1 && done == 1);
            self.apply_policy(network, policy, action);
        }
        done
    }

    /// Whether only an ACK is to be sent now, and it may wait for the program's answer.
    fn delays_ack(&self, network: &Network, held: &mut LockedQp) -> bool {
        let Some(inner) = held.as_mut().and_then(|(_, guard)| guard.as_mut()) else {
            return false;
        };
        let waits = inner.may_delay_ack(network) && self.delay(network, inner.links.object);
        if waits {
            inner.settle();
        }
        waits
    }

    /// Handles the packets of the message at `index` of the receive batch. Returns how many.
    pub(super) fn take_message(
        &self,
        network: &Network,
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
            if let Err(reason) = self.take_packet(&arrival, verifier, held) {
                network.counters.count(reason);
            }
            done += 1;
        }
        done
    }

    /// Handles one packet, or forwards it.
    pub(super) fn take_packet(
        &self,
        arrival: &Arrival<'_>,
        verifier: &mut Verifier,
        held: &mut LockedQp,
    ) -> Result<(), Drop> {
        let packet = link::parse(arrival.bytes)?;
        let qpn = packet.headers.bth.dest_qp;
        if qpn == Qpn::MULTICAST || qpn == super::mad_queue::QP1 {
            finish(held.take());
            tap_received(self.network(), arrival, &packet);
            return self.take_group_or_management(arrival, &packet, verifier);
        }
        if layout::process_of(qpn) != self.slot {
            // No queue pair may be locked while another process's ring is used.
            finish(held.take());
            return self.forward(arrival, layout::process_of(qpn));
        }
        tap_received(self.network(), arrival, &packet);
        let index = layout::index_of(qpn);
        if held.as_ref().is_none_or(|(known, _)| *known != index) {
            finish(held.take());
            *held = self.qps.at(index).map(|object| (index, object.inner.lock()));
        }
        match held.as_mut().and_then(|(_, guard)| guard.as_mut()) {
            Some(inner) if inner.qp.qpn == qpn => inner.take_packet(arrival, &packet, verifier),
            _ => Err(Drop::NoSuchQp),
        }
    }

    /// Handles a packet for a multicast group or for QP1, which any process of the host may expect.
    fn take_group_or_management(
        &self,
        arrival: &Arrival<'_>,
        packet: &Packet<'_>,
        verifier: &mut Verifier,
    ) -> Result<(), Drop> {
        let bth = &packet.headers.bth;
        if bth.opcode.transport() != Transport::Ud {
            return Err(Drop::Transport);
        }
        let identification = verifier.verify(&arrival.tuple, packet, arrival.bytes)?;
        if !arrival.forwarded {
            self.forward_to_all(arrival);
        }
        if bth.dest_qp == super::mad_queue::QP1 {
            let taken = self.management.take(&arrival.tuple, packet);
            if taken == Err(Drop::Management) && !arrival.forwarded {
                self.reject_unclaimed(arrival, packet);
            }
            return taken;
        }
        self.deliver_to_members(arrival, &IpFields { identification, ..arrival.ip }, packet)
    }

    /// Delivers a datagram to the members of its group in this process. Each sees the group that it
    /// joined, whose scope may differ from that of the address. The error is the first of a member;
    /// other members may have taken the datagram.
    fn deliver_to_members(
        &self,
        arrival: &Arrival<'_>,
        ip: &IpFields,
        packet: &Packet<'_>,
    ) -> Result<(), Drop> {
        let mut result = Ok(());
        for (qpn, group) in self.groups.members_at(arrival.tuple.destination) {
            let Some(object) = self.qps.at(layout::index_of(qpn)) else { continue };
            let tuple = FourTuple { destination: address_of(group), ..arrival.tuple };
            if let Some(inner) = object.inner.lock().as_mut()
                && inner.qp.qpn == qpn
            {
                let taken = inner.take_group_copy(&Arrival { tuple, ..*arrival }, ip, packet);
                result = result.and(taken);
            }
        }
        result
    }

    /// Handles a packet that another process (`reader`) read from the socket and forwarded.
    #[cold]
    pub(crate) fn take_forwarded(&self, consumer: &Consumer, slot: &Slot, reader: u16) {
        let Some((train, SlotPayload::Data(position))) = codec::decode(slot.head, &slot.body)
        else {
            return;
        };
        let length = train.payload_bytes as usize;
        let Some(from) = consumer.data(position, length) else { return };
        // A copy: the ring's memory can change while it is parsed.
        let mut copy = vec![0u8; length];
        // SAFETY: `data` checked that so many bytes lie there, in a mapping that cannot shrink.
        unsafe { std::ptr::copy_nonoverlapping(from, copy.as_mut_ptr(), length) };
        let Some(arrival) = super::forward::read_forwarded(&copy) else { return };
        if let Some(network) = self.network() {
            network.forwarded_by.store(reader, Ordering::Relaxed);
        }
        let (mut verifier, mut held) = (Verifier::default(), None);
        let here = link::parse(arrival.bytes).is_ok_and(|packet| {
            let qpn = packet.headers.bth.dest_qp;
            let for_all = qpn == Qpn::MULTICAST || qpn == super::mad_queue::QP1;
            for_all || layout::process_of(qpn) == self.slot
        });
        let taken = match here {
            true => self.take_packet(&arrival, &mut verifier, &mut held),
            false => Err(Drop::NoSuchQp),
        };
        finish(held);
        if let (Err(reason), Some(network)) = (taken, self.network()) {
            network.counters.count(reason);
        }
    }
}

/// Lets taps see a packet that is for this process.
fn tap_received(network: Option<&Network>, arrival: &Arrival<'_>, packet: &Packet<'_>) {
    let Some(hook) = network.and_then(|network| network.hook.get()) else { return };
    let bth = &packet.headers.bth;
    let context = PacketContext {
        direction: Direction::In,
        tuple: arrival.tuple,
        ip: arrival.ip,
        local_qp: bth.dest_qp,
        destination_qp: bth.dest_qp,
        psn: bth.psn,
        psns: 1,
        transmission: 0,
        payload: Payload::default(),
    };
    hook.incoming(&context, arrival.bytes);
}
