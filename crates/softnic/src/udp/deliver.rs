//! Delivers packets from the network to the queue pairs of this process, and forwards those for
//! other processes.

use std::sync::atomic::Ordering;

use rdmalab_link::address::{FourTuple, IpFields, address_of};
use rdmalab_link::drops::Drop;
use rdmalab_link::hook::{Direction, PacketContext};
use rdmalab_link::packet::Payload;
use rdmalab_link::receive::{self as link, Verifier};
use rdmalab_ring::spsc::{Consumer, Slot};
use rdmalab_wire::ids::Qpn;
use rdmalab_wire::opcode::Transport;
use rdmalab_wire::packet::Packet;

use super::receiver::Arrival;
use super::{Network, cm_reject, forward};
use crate::codec::{self, SlotPayload};
use crate::layout;
use crate::process::Process;
use crate::qp::{LockedQp, finish};

/// Handles one packet, or forwards it.
pub(super) fn take_packet(
    process: &Process,
    arrival: &Arrival<'_>,
    verifier: &mut Verifier,
    held: &mut LockedQp,
) -> Result<(), Drop> {
    let packet = link::parse(arrival.bytes)?;
    let qpn = packet.headers.bth.dest_qp;
    if qpn == Qpn::MULTICAST || qpn == super::mad_queue::QP1 {
        finish(held.take());
        tap_received(process.network(), arrival, &packet);
        return take_group_or_management(process, arrival, &packet, verifier);
    }
    if layout::process_of(qpn) != process.host.slot {
        // No queue pair may be locked while another process's ring is used.
        finish(held.take());
        return forward::forward(process, arrival, layout::process_of(qpn));
    }
    tap_received(process.network(), arrival, &packet);
    let index = layout::index_of(qpn);
    if held.as_ref().is_none_or(|(known, _)| *known != index) {
        finish(held.take());
        *held = process.qps.at(index).map(|object| (index, object.inner.lock()));
    }
    match held.as_mut().and_then(|(_, guard)| guard.as_mut()) {
        Some(inner) if inner.qp.qpn == qpn => inner.take_packet(arrival, &packet, verifier),
        _ => Err(Drop::NoSuchQp),
    }
}

/// Handles a packet for a multicast group or for QP1, which any process of the host may expect.
fn take_group_or_management(
    process: &Process,
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
        forward::forward_to_all(process, arrival);
    }
    if bth.dest_qp == super::mad_queue::QP1 {
        let taken = process.management.take(&arrival.tuple, packet);
        if taken == Err(Drop::Management) && !arrival.forwarded {
            cm_reject::reject_unclaimed(process, arrival, packet);
        }
        return taken;
    }
    deliver_to_members(process, arrival, &IpFields { identification, ..arrival.ip }, packet)
}

/// Delivers a datagram to the members of its group in this process. Each sees the group that it
/// joined, whose scope may differ from that of the address. The error is the first of a member;
/// other members may have taken the datagram.
fn deliver_to_members(
    process: &Process,
    arrival: &Arrival<'_>,
    ip: &IpFields,
    packet: &Packet<'_>,
) -> Result<(), Drop> {
    let mut result = Ok(());
    for (qpn, group) in process.groups.members_at(arrival.tuple.destination) {
        let Some(object) = process.qps.at(layout::index_of(qpn)) else { continue };
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
pub(crate) fn take_forwarded(process: &Process, consumer: &Consumer, slot: &Slot, reader: u16) {
    let Some((train, SlotPayload::Data(position))) = codec::decode(slot.head, &slot.body) else {
        return;
    };
    let length = train.payload_bytes as usize;
    let Some(from) = consumer.data(position, length) else { return };
    // A copy: the ring's memory can change while it is parsed.
    let mut copy = vec![0u8; length];
    // SAFETY: `data` checked that so many bytes lie there, in a mapping that cannot shrink.
    unsafe { std::ptr::copy_nonoverlapping(from, copy.as_mut_ptr(), length) };
    let Some(arrival) = forward::read_forwarded(&copy) else { return };
    if let Some(network) = process.network() {
        network.forwarded_by.store(reader, Ordering::Relaxed);
    }
    let (mut verifier, mut held) = (Verifier::default(), None);
    let here = link::parse(arrival.bytes).is_ok_and(|packet| {
        let qpn = packet.headers.bth.dest_qp;
        let for_all = qpn == Qpn::MULTICAST || qpn == super::mad_queue::QP1;
        for_all || layout::process_of(qpn) == process.host.slot
    });
    let taken = match here {
        true => take_packet(process, &arrival, &mut verifier, &mut held),
        false => Err(Drop::NoSuchQp),
    };
    finish(held);
    if let (Err(reason), Some(network)) = (taken, process.network()) {
        network.counters.count(reason);
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
