//! The path of the driver that leads through the ring of a peer.

use std::ops::Range;
use std::sync::Arc;

use rdmalab_driver::{Path, Unsent};
use rdmalab_engine::qp::{CopyError, Qp};
use rdmalab_engine::train::{GrhFields, Train, TrainFlags};
use rdmalab_engine::vocab::{AhAttr, UdAddress};
use rdmalab_ring::biased::BiasedGuard;
use rdmalab_ring::spsc::Producer;
use rdmalab_wire::ids::RKey;
use rdmalab_wire::opcode::Transport;

use crate::peer::Peer;
use crate::qp::{Destination, QpLinks};
use crate::ring_push::{ANSWER_SLOTS, CHUNK_BYTES, push, room_in};

/// The ring of a peer, locked for the trains of one queue pair.
pub(crate) struct RingPath<'a> {
    pub(crate) peer: &'a Arc<Peer>,
    pub(crate) out: BiasedGuard<'a, Producer>,
    pub(crate) service: Transport,
    /// The device of this process that sends.
    device: u32,
}

impl<'a> RingPath<'a> {
    #[inline(always)]
    pub(crate) fn new(peer: &'a Arc<Peer>, links: &QpLinks) -> RingPath<'a> {
        RingPath::of(peer, peer.out.lock(), links)
    }

    /// The same with a ring that is already locked.
    #[inline(always)]
    pub(crate) fn of(
        peer: &'a Arc<Peer>,
        out: BiasedGuard<'a, Producer>,
        links: &QpLinks,
    ) -> RingPath<'a> {
        RingPath { peer, out, service: links.service, device: links.pd.context.device }
    }

    /// Unlocks the ring, and wakes the peer if it sleeps.
    #[inline(always)]
    pub(crate) fn ring_bell(self) {
        let peer = self.peer;
        drop(self);
        peer.ring_bell();
    }
}

impl Path<QpLinks> for RingPath<'_> {
    #[inline(always)]
    fn request_room(&mut self, qp: &Qp) -> Option<u32> {
        room_in(&mut self.out, qp.mtu.bytes(), 1 + ANSWER_SLOTS)
    }

    #[inline(always)]
    fn response_room(&mut self, qp: &Qp) -> Option<u32> {
        let mtu = qp.mtu.bytes();
        match room_in(&mut self.out, mtu, 1) {
            Some(room) => Some(room),
            // An ACK needs no room for data: when the program sees the message and exits, its peer
            // must get the ACK even if earlier data was not taken yet.
            None => (self.out.can_push(1) && !qp.answers_with_data()).then_some(mtu),
        }
    }

    /// Stores the source address of a datagram in its train.
    fn address(&mut self, train: &mut Train, to: &UdAddress) {
        train.slid = crate::device::lid_of(self.device);
        train.sl = to.ah.sl;
        if to.ah.is_global {
            train.flags.0 |= TrainFlags::GRH;
            let gid_index = crate::device::gid_index_of(to.ah.dgid);
            train.rkey = RKey(u32::from_le_bytes([to.ah.sgid_index, gid_index, 0, 0]));
            let AhAttr { traffic_class, hop_limit, flow_label, .. } = to.ah;
            train.compare = GrhFields { traffic_class, hop_limit, flow_label }.pack();
        }
    }

    #[inline(always)]
    fn push(
        &mut self,
        train: &Train,
        _is_inline: bool,
        mut fill: impl FnMut(Range<u32>, Destination<'_>) -> Result<(), CopyError>,
    ) -> Result<(), Unsent> {
        let pushed = push(&mut self.out, train, self.service, |to| {
            // SAFETY: the ring has room for the payload of the train there.
            fill(0..train.payload_bytes, unsafe { Destination::new(to) })
        });
        pushed.unwrap_or(Ok(())).map_err(Unsent::whole)
    }
}

/// A path without a receiver: there is no such process, or it does not answer. The trains are lost,
/// as on a wire whose other end is not connected.
pub(crate) struct Nowhere {
    /// Number of trains that were lost.
    pub(crate) lost: u64,
}

impl Path<QpLinks> for Nowhere {
    fn request_room(&mut self, qp: &Qp) -> Option<u32> {
        Some(CHUNK_BYTES.max(qp.mtu.bytes()))
    }

    fn push(
        &mut self,
        _train: &Train,
        _is_inline: bool,
        _fill: impl FnMut(Range<u32>, Destination<'_>) -> Result<(), CopyError>,
    ) -> Result<(), Unsent> {
        self.lost += 1;
        Ok(())
    }
}
