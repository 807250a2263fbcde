//! Packets from the network, and those that the owner of the socket passed on.

use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use rdmalab_engine::train::{Train, TrainFlags, TrainKind};
use rdmalab_engine::vocab::QpType;
use rdmalab_link::drops::Drop;
use rdmalab_link::hook::{Direction, PacketContext};
use rdmalab_link::packet::Payload;
use rdmalab_link::path::{IpFields, Path, address_of};
use rdmalab_link::receive::{self as link, Expected, Verifier};
use rdmalab_ring::biased::BiasedGuard;
use rdmalab_ring::spsc::{Consumer, Slot};
use rdmalab_wire::ids::Qpn;
use rdmalab_wire::opcode::Transport;
use rdmalab_wire::packet::Packet;

use super::Wire;
use super::course::{Course, Turn};
use super::inbox::{Inbox, Message, RECEIVE_MAX};
use crate::codec::{self, SlotPayload};
use crate::layout;
use crate::process::Process;
use crate::progress::finish;
use crate::qp::QpInner;

/// Messages that one call takes, so that a flood keeps nobody waiting.
const MESSAGES_PER_CALL: usize = 64;

/// The queue pair that is locked for the packets at hand.
pub(super) type Held = Option<(usize, BiasedGuard<'static, Option<QpInner>>)>;

/// The reading end of the socket.
pub(crate) struct Receiver {
    pub(super) inbox: Box<Inbox>,
    /// Messages to ask for in the next call: one while they come one by one, because asking for
    /// more costs another look.
    ask: usize,
    /// In which this process reads now.
    term: u64,
    pub(super) verifier: Verifier,
    pub(super) course: Course,
}

impl Receiver {
    pub(super) fn new(port: u16) -> Receiver {
        let (verifier, course) = Default::default();
        Receiver { inbox: Inbox::new(port), ask: 1, term: 0, verifier, course }
    }
}

/// One packet and what the network said of it.
pub(super) struct Arrival<'a> {
    pub(super) path: Path,
    pub(super) ip: IpFields,
    pub(super) bytes: &'a [u8],
    /// Another process read it, and found that it is for us.
    pub(super) forwarded: bool,
}

/// What is known of the socket after one looked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// Everything that had come was taken.
    Nothing,
    /// Something may lie there, or is just being taken by another thread.
    Something,
}

/// Looks that one who judges a time-out has at most: a flood for others must not put that off for
/// ever.
const LOOKS_MAX: usize = 32;

impl Process {
    /// Takes all that the network has brought so far, before a time-out is judged by it. Where
    /// another process reads the socket, what it passed on is looked for in its ring.
    #[cold]
    pub(crate) fn drain_wire(&self) -> Left {
        let Some(wire) = self.wire() else { return Left::Nothing };
        if !wire.office.is_ours() {
            let reader = Some(wire.read_by.load(Ordering::Relaxed)).filter(|slot| *slot != 0);
            // The heir of one that is gone may have passed on nothing yet.
            let may_hold = match reader.and_then(|slot| self.peer(slot)) {
                Some(peer) if peer.is_alive() => self.ring_holds_something(peer.slot),
                _ => self.rings_hold_something(),
            };
            return if may_hold { Left::Something } else { Left::Nothing };
        }
        for _ in 0..LOOKS_MAX {
            match self.read_wire(wire) {
                // Another thread has it, and perhaps just what is waited for.
                None => return Left::Something,
                Some((_, Left::Nothing)) => break,
                Some((_, Left::Something)) => {}
            }
        }
        Left::Nothing
    }

    /// Takes what the network brought, if this process reads the socket. Returns how many packets.
    pub(crate) fn take_from_wire(&self) -> u32 {
        let Some(wire) = self.wire() else { return 0 };
        if !wire.office.is_ours() {
            return 0;
        }
        self.read_wire(wire).map_or(0, |(packets, _)| packets)
    }

    /// The same for a caller that polls: it may answer at once, so that an acknowledgement waits.
    pub(crate) fn take_from_wire_as_caller(&self) -> u32 {
        let Some(wire) = self.wire() else { return 0 };
        if !wire.office.is_ours() {
            return 0;
        }
        self.read_wire_for(wire, true).map_or(0, |(packets, _)| packets)
    }

    fn read_wire(&self, wire: &Wire) -> Option<(u32, Left)> {
        self.read_wire_for(wire, false)
    }

    /// Reads the socket once. Returns how many packets, and whether it was seen empty then; `None`
    /// when another thread is reading.
    fn read_wire_for(&self, wire: &Wire, polls: bool) -> Option<(u32, Left)> {
        let mut receiver = wire.receiver.try_lock()?;
        // Meanwhile a thread may have handed it over, under this lock.
        let Some(term) = wire.office.ours() else { return Some((0, Left::Nothing)) };
        receiver.term = term;
        wire.office.note_look();
        let mut held: Held = None;
        let turn = self.turn_or_part(wire, &mut receiver.course, polls);
        let (mut done, mut left) = (0, Left::Nothing);
        if turn != Turn::Main {
            (done, left) = self.read_flow(wire, &mut receiver, &mut held, turn == Turn::Both);
        }
        // What is older comes first.
        if turn == Turn::Main || turn == Turn::Both && left == Left::Nothing {
            let (more, main) = self.read_socket(wire, wire.fd(), &mut receiver, &mut held, polls);
            (done, left) = (done + more, main);
        }
        match polls && self.puts_off(wire, &mut held) {
            true => drop(held),
            false => finish(held),
        }
        if let Some(path) = receiver.course.earned() {
            self.open_flow(wire, &mut receiver, &path);
        }
        Some((done, left))
    }

    /// Takes from a socket that tells who sent what; `polls`: for a caller that polls.
    pub(super) fn read_socket(
        &self,
        wire: &Wire,
        fd: RawFd,
        receiver: &mut Receiver,
        held: &mut Held,
        polls: bool,
    ) -> (u32, Left) {
        let (mut done, mut messages) = (0, 0);
        loop {
            let asked = receiver.ask;
            // Who was stopped for long has a successor, which has gone on from there.
            if !wire.office.is_now(receiver.term) {
                return (done, Left::Nothing);
            }
            let got = receiver.inbox.receive(fd, asked);
            for index in 0..got {
                done += self.take_received(wire, receiver, (index, got), held, polls);
            }
            messages += got;
            receiver.ask = if got == asked { (asked * 2).min(RECEIVE_MAX) } else { got.max(1) };
            if got < asked {
                return (done, Left::Nothing);
            }
            // One message that came alone is answered before anybody looks for the next.
            if asked == 1 || messages >= MESSAGES_PER_CALL {
                return (done, Left::Something);
            }
        }
    }

    /// Takes message `index` of `got`.
    fn take_received(
        &self,
        wire: &Wire,
        receiver: &mut Receiver,
        (index, got): (usize, usize),
        held: &mut Held,
        polls: bool,
    ) -> u32 {
        let Some(message) = receiver.inbox.message(index) else {
            wire.counters.count(Drop::Kernel);
            return 0;
        };
        if !wire.office.is_now(receiver.term) {
            wire.counters.count(Drop::Turn);
            return 0;
        }
        let Receiver { inbox, verifier, course, .. } = receiver;
        let done = self.take_message(wire, inbox, (index, message), verifier, held);
        if !polls {
            course.interrupted();
        } else {
            let wish = course.heard_main(&message.path, got == 1 && done == 1);
            self.fulfil(wire, course, wish);
        }
        done
    }

    /// Whether all that is to be sent now is an acknowledgement that may wait for an answer.
    fn puts_off(&self, wire: &Wire, held: &mut Held) -> bool {
        let Some(inner) = held.as_mut().and_then(|(_, guard)| guard.as_mut()) else {
            return false;
        };
        let waits = inner.may_owe(wire) && self.owe(wire, inner.links.object);
        if waits {
            inner.settle();
        }
        waits
    }

    /// Takes the packets of a message that lies at `index` of the inbox. Returns how many.
    pub(super) fn take_message(
        &self,
        wire: &Wire,
        inbox: &mut Inbox,
        (index, message): (usize, Message),
        verifier: &mut Verifier,
        held: &mut Held,
    ) -> u32 {
        let bytes = inbox.bytes(index, message.bytes);
        let mut done = 0;
        for packet in bytes.chunks(message.segment_bytes.max(1)) {
            let (path, ip) = (message.path, message.ip);
            let arrival = Arrival { path, ip, bytes: packet, forwarded: false };
            if let Err(reason) = self.take_packet(&arrival, verifier, held) {
                wire.counters.count(reason);
            }
            done += 1;
        }
        done
    }

    /// Handles one packet, or passes it on.
    pub(super) fn take_packet(
        &self,
        arrival: &Arrival<'_>,
        verifier: &mut Verifier,
        held: &mut Held,
    ) -> Result<(), Drop> {
        let packet = link::parse(arrival.bytes)?;
        let qpn = packet.headers.bth.dest_qp;
        if qpn == Qpn::MULTICAST || qpn == super::management::QP1 {
            finish(held.take());
            show(self.wire(), arrival, &packet);
            return self.take_for_all(arrival, &packet, verifier);
        }
        if layout::process_of(qpn) != self.slot {
            // Before another process's ring is touched: those below hold no QP's lock.
            finish(held.take());
            return self.forward(arrival, layout::process_of(qpn));
        }
        show(self.wire(), arrival, &packet);
        let index = layout::index_of(qpn);
        if held.as_ref().is_none_or(|(known, _)| *known != index) {
            finish(held.take());
            *held = self.qp_at(index).map(|object| (index, object.inner.lock()));
        }
        match held.as_mut().and_then(|(_, guard)| guard.as_mut()) {
            Some(inner) if inner.qp.qpn == qpn => inner.take_packet(arrival, &packet, verifier),
            _ => Err(Drop::NoSuchQp),
        }
    }

    /// A packet for a group, or for the management QP, which every process of the host may await.
    fn take_for_all(
        &self,
        arrival: &Arrival<'_>,
        packet: &Packet<'_>,
        verifier: &mut Verifier,
    ) -> Result<(), Drop> {
        let bth = &packet.headers.bth;
        if bth.opcode.transport() != Transport::Ud {
            return Err(Drop::Transport);
        }
        let identification = verifier.verify(&arrival.path, packet, arrival.bytes)?;
        if !arrival.forwarded {
            self.forward_to_all(arrival);
        }
        if bth.dest_qp == super::management::QP1 {
            let taken = self.management.take(&arrival.path, packet);
            if taken == Err(Drop::Management) && !arrival.forwarded {
                self.answer_for_nobody(arrival, packet);
            }
            return taken;
        }
        self.take_for_members(arrival, &IpFields { identification, ..arrival.ip }, packet)
    }

    /// A datagram for the members of its group in this process. Each is told the group that it
    /// joined, which may have another scope than the address. The error is that of a member that
    /// refused it; others may have taken it.
    fn take_for_members(
        &self,
        arrival: &Arrival<'_>,
        ip: &IpFields,
        packet: &Packet<'_>,
    ) -> Result<(), Drop> {
        let mut result = Ok(());
        for (qpn, group) in self.groups.members_at(arrival.path.destination) {
            let Some(object) = self.qp_at(layout::index_of(qpn)) else { continue };
            let path = Path { destination: address_of(group), ..arrival.path };
            if let Some(inner) = object.inner.lock().as_mut()
                && inner.qp.qpn == qpn
            {
                let taken = inner.take_copy(&Arrival { path, ..*arrival }, ip, packet);
                result = result.and(taken);
            }
        }
        result
    }

    /// A slot in the ring of another process of this host that is no train of its own: a packet
    /// that it read for us.
    #[cold]
    pub(crate) fn take_forwarded(&self, consumer: &Consumer, slot: &Slot, reader: u16) {
        let Some((train, SlotPayload::Data(position))) =
            codec::decode(slot.head, &slot.body, false)
        else {
            return;
        };
        let length = train.payload_bytes as usize;
        let Some(from) = consumer.data(position, length) else { return };
        // A copy: the ring's memory can change while it is parsed.
        let mut copy = vec![0u8; length];
        // SAFETY: `data` checked that so many bytes lie there, in a mapping that cannot shrink.
        unsafe { std::ptr::copy_nonoverlapping(from, copy.as_mut_ptr(), length) };
        let Some(arrival) = super::share::read_forwarded(&copy) else { return };
        if let Some(wire) = self.wire() {
            wire.read_by.store(reader, Ordering::Relaxed);
        }
        let (mut verifier, mut held) = (Verifier::default(), None);
        let here = link::parse(arrival.bytes).is_ok_and(|packet| {
            let qpn = packet.headers.bth.dest_qp;
            let for_all = qpn == Qpn::MULTICAST || qpn == super::management::QP1;
            for_all || layout::process_of(qpn) == self.slot
        });
        let taken = match here {
            true => self.take_packet(&arrival, &mut verifier, &mut held),
            false => Err(Drop::NoSuchQp),
        };
        finish(held);
        if let (Err(reason), Some(wire)) = (taken, self.wire()) {
            wire.counters.count(reason);
        }
    }
}

/// Lets taps see a packet that is for this process.
fn show(wire: Option<&Wire>, arrival: &Arrival<'_>, packet: &Packet<'_>) {
    let Some(hook) = wire.and_then(|wire| wire.hook.get()) else { return };
    let bth = &packet.headers.bth;
    let context = PacketContext {
        direction: Direction::In,
        path: arrival.path,
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

fn train_of(packet: &Packet<'_>, expected: &Expected) -> Result<Train, Drop> {
    link::train_of(&packet.headers, packet.payload.len(), expected)
}

impl QpInner {
    /// What this queue pair takes from the network.
    pub(super) fn expected(&self) -> Expected {
        let (qp, links) = (&self.qp, &self.links);
        let between: Option<(IpAddr, IpAddr)> =
            links.wire.as_ref().map(|route| (route.path.destination, route.path.source));
        Expected {
            transport: match qp.qp_type {
                QpType::Rc => Transport::Rc,
                QpType::Uc => Transport::Uc,
                QpType::Ud => Transport::Ud,
            },
            can_receive: qp.state.can_receive(),
            between,
            remote_qpn: qp.remote_qpn,
            qkey: qp.attr.qkey,
            mtu: qp.mtu,
        }
    }

    fn take_packet(
        &mut self,
        arrival: &Arrival<'_>,
        packet: &Packet<'_>,
        verifier: &mut Verifier,
    ) -> Result<(), Drop> {
        let expected = self.expected();
        link::check(packet, &expected, &arrival.path)?;
        let identification = verifier.verify(&arrival.path, packet, arrival.bytes)?;
        let train = train_of(packet, &expected)?;
        if self.links.armed.is_some() && !self.network_arrival(&train, &arrival.path)? {
            return Ok(());
        }
        if self.links.datagram {
            let ip = IpFields { identification, ..arrival.ip };
            self.take_datagram(arrival, &ip, &train, packet);
        } else {
            self.handle_train(&train, packet.payload.as_ptr());
        }
        Ok(())
    }

    /// A datagram for a group that this queue pair is in.
    fn take_copy(
        &mut self,
        arrival: &Arrival<'_>,
        ip: &IpFields,
        packet: &Packet<'_>,
    ) -> Result<(), Drop> {
        let expected = self.expected();
        link::check(packet, &expected, &arrival.path)?;
        let train = Train { dst_qpn: self.qp.qpn, ..train_of(packet, &expected)? };
        self.take_datagram(arrival, ip, &train, packet);
        Ok(())
    }

    fn take_datagram(
        &mut self,
        arrival: &Arrival<'_>,
        ip: &IpFields,
        train: &Train,
        packet: &Packet<'_>,
    ) {
        debug_assert!(train.kind == TrainKind::Send && train.flags.has(TrainFlags::GRH));
        self.links.grh = Some(arrival.path.grh_area(ip, arrival.bytes.len()));
        self.handle_train(train, packet.payload.as_ptr());
        self.links.grh = None;
    }
}
