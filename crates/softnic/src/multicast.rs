//! Datagrams to multicast groups.
//!
//! A QP that joins a group first exchanges hellos with every process of the host, and a sender
//! first meets every process that is there. So a sender that has met them once knows every member,
//! also those that join later, and never waits again.

use std::sync::Arc;

use rdmalab_engine::backend::VerbsResult;
use rdmalab_engine::qp::{CopyError, Plan};
use rdmalab_engine::train::{Train, TrainFlags};
use rdmalab_ring::biased::BiasedGuard;
use rdmalab_ring::spsc::{Consumer, Producer};
use rdmalab_wire::ids::{Gid, Qpn};

use crate::codec::{self, Body, SlotPayload};
pub(crate) use crate::groups::gid_of;
use crate::peer::Peer;
use crate::process::Process;
use crate::qp::QpInner;
use crate::ring_push::{ANSWER_SLOTS, room_in};
use crate::transmit::{self, Next};

impl Process {
    /// Adds a QP to a group, and joins it on the network.
    pub(crate) fn join_group(&self, gid: Gid, qpn: Qpn) -> VerbsResult<()> {
        self.groups.join(gid, qpn, || match self.network() {
            Some(network) => network.join(gid),
            None => Ok(()),
        })
    }

    /// Removes a QP from a group.
    pub(crate) fn leave_group(&self, gid: Gid, qpn: Qpn) -> VerbsResult<()> {
        self.groups.leave(gid, qpn, |gid| self.leave_on_network(gid))
    }

    /// Removes a QP from every group.
    pub(crate) fn leave_all_groups(&self, qpn: Qpn) {
        self.groups.leave_all(qpn, |gid| self.leave_on_network(gid));
    }

    fn leave_on_network(&self, gid: &Gid) {
        if let Some(network) = self.network() {
            network.leave(gid);
        }
    }

    /// Gives a datagram to every member of its group in this process.
    pub(crate) fn deliver_multicast(&self, consumer: &Consumer, head: u32, body: &Body) {
        let Some((train, payload)) = codec::decode(head, body, true) else { return };
        let bytes = match payload {
            SlotPayload::Short => std::ptr::null(),
            SlotPayload::Data(position) => {
                match consumer.data(position, train.payload_bytes as usize) {
                    Some(bytes) => bytes,
                    None => return,
                }
            }
        };
        let mut seen = false;
        for qpn in self.groups.members(&gid_of(&train)) {
            let Some(object) = self.qps.at(crate::layout::index_of(qpn)) else { continue };
            if let Some(inner) = object.inner.lock().as_mut()
                && inner.qp.qpn == qpn
            {
                if !seen && inner.links.armed.is_some() {
                    inner.tap_in(&train, bytes);
                    seen = true;
                }
                let copy = Train { dst_qpn: qpn, ..train };
                inner.handle_train(&copy, bytes);
            }
        }
    }
}

impl QpInner {
    /// Whether the next datagram goes to a group.
    pub(crate) fn is_multicast_next(&self) -> bool {
        let sq = &self.qp.sq;
        sq.begun != sq.fetched() && sq.ud(sq.begun).remote_qpn == Qpn::MULTICAST
    }

    /// Sends the next datagram to every process of the host, once each has room for it, as one peer
    /// of a datagram has to. One that is stopped misses it, as a member whose receive queue is
    /// empty does.
    pub(crate) fn send_multicast(&mut self) -> Next {
        let Some(multicast_peers) = self.links.process.multicast_peers() else {
            return Next::RingFull;
        };
        let Some(rings) = rings_with_room(&multicast_peers, self.qp.mtu.bytes()) else {
            return Next::RingFull;
        };
        let Plan::Send { mut train, position, .. } = self.qp.plan(self.qp.mtu.bytes()) else {
            return Next::Done;
        };
        let gid = self.qp.sq.ud(position).ah.dgid.0;
        self.finish_train(&mut train, position);
        train.flags.0 |= TrainFlags::GRH;
        train.remote_addr = u64::from_be_bytes(std::array::from_fn(|i| gid[i]));
        train.swap_add = u64::from_be_bytes(std::array::from_fn(|i| gid[8 + i]));
        let mut result: Result<(), CopyError> = Ok(());
        for (index, (peer, mut out)) in rings.into_iter().enumerate() {
            let pushed = transmit::push_datagram(self, peer, &mut out, &train, position, index > 0);
            drop(out);
            peer.ring_bell();
            result = result.and(pushed);
        }
        if let Some(network) = self.links.process.network() {
            self.send_group_network(network, &train, position);
        }
        self.qp.retire_sent(position, true, result, &mut self.links);
        Next::Again
    }
}

/// A peer, and its ring.
type Ring<'a> = (&'a Arc<Peer>, BiasedGuard<'a, Producer>);

/// The rings of those that get a datagram now, held so that nobody fills them before it is in: all
/// that have room. `None` while one that may still empty its ring has none. Who holds several takes
/// them in the order of their slots.
fn rings_with_room(multicast_peers: &[Arc<Peer>], mtu: u32) -> Option<Vec<Ring<'_>>> {
    let mut rings = Vec::with_capacity(multicast_peers.len());
    let mut has_to_wait = false;
    for peer in multicast_peers {
        let mut out = peer.out.lock();
        if room_in(&mut out, mtu, 1 + ANSWER_SLOTS).is_some() {
            rings.push((peer, out));
        } else {
            // All are asked, so that those that are stopped are waited for at the same time.
            has_to_wait |= !peer.ring_stall.is_stuck(out.consumed(), crate::clock::now_ns());
        }
    }
    (!has_to_wait).then_some(rings)
}
