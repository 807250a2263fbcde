//! The ring of a peer as a path.

use std::ops::Range;
use std::sync::Arc;

use rdmalab_driver::{Path, Unsent};
use rdmalab_engine::qp::{CopyError, Qp};
use rdmalab_engine::train::{Train, TrainFlags};
use rdmalab_engine::vocab::UdAddress;
use rdmalab_ring::biased::BiasedGuard;
use rdmalab_ring::spsc::Producer;
use rdmalab_wire::ids::RKey;

use crate::codec::{self, SlotPayload};
use crate::peer::Peer;
use crate::qp::{Place, QpLinks};

/// Payload of one train at most: small enough that the receiver copies one while the sender fills
/// the next, and that both stay in the second-level cache.
pub(crate) const CHUNK_BYTES: u32 = 32 * 1024;

/// How many slots ahead of itself a sender asks its cache to own: beyond what a receiver that
/// spins on the next slot looks at, and far enough for the answer to be there in time.
const PREFETCH_SLOTS: u64 = 12;

/// Posts in a row that make a stream. Who waits for an answer to each message would pay for lines
/// that it does not need now.
const STREAM_POSTS: u32 = 8;

/// Slots that requests leave to answers: an acknowledgement that finds no slot is lost when its
/// process leaves.
pub(crate) const ANSWER_SLOTS: usize = 128;

/// The ring of a peer, held for the trains of one queue pair.
pub(crate) struct RingPath<'a> {
    pub(crate) peer: &'a Arc<Peer>,
    pub(crate) out: BiasedGuard<'a, Producer>,
    pub(crate) is_datagram: bool,
    /// The device of this process that sends.
    device: u32,
}

impl<'a> RingPath<'a> {
    #[inline(always)]
    pub(crate) fn new(peer: &'a Arc<Peer>, links: &QpLinks) -> RingPath<'a> {
        RingPath::of(peer, peer.out.lock(), links)
    }

    /// The same with a ring that is locked already.
    #[inline(always)]
    pub(crate) fn of(
        peer: &'a Arc<Peer>,
        out: BiasedGuard<'a, Producer>,
        links: &QpLinks,
    ) -> RingPath<'a> {
        RingPath { peer, out, is_datagram: links.datagram, device: links.pd.context.device }
    }

    /// Lets go of the ring, and tells the peer that something lies in it.
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
            // An acknowledgement does not wait for the data before it to be taken: when the
            // program sees the message and leaves, its peer has to know that it arrived.
            None => (self.out.can_push(1) && !qp.answers_with_data()).then_some(mtu),
        }
    }

    /// Says where a datagram comes from.
    fn address(&mut self, train: &mut Train, to: &UdAddress) {
        train.slid = crate::device::lid_of(self.device);
        train.sl = to.ah.sl;
        if to.ah.is_global {
            train.flags.0 |= TrainFlags::GRH;
            let gid_index = crate::device::gid_index_of(to.ah.dgid);
            train.rkey = RKey(u32::from_le_bytes([to.ah.sgid_index, gid_index, 0, 0]));
        }
    }

    #[inline(always)]
    fn push(
        &mut self,
        train: &Train,
        _is_inline: bool,
        mut fill: impl FnMut(Range<u32>, Place<'_>) -> Result<(), CopyError>,
    ) -> Result<(), Unsent> {
        let pushed = push(&mut self.out, train, self.is_datagram, |to| {
            // SAFETY: the ring has room for the payload of the train there.
            fill(0..train.payload_bytes, unsafe { Place::new(to) })
        });
        pushed.unwrap_or(Ok(())).map_err(Unsent::whole)
    }
}

/// A path that leads nowhere: there is no such process, or none that answers. What is sent is
/// lost, as on a wire that nobody holds.
pub(crate) struct Nowhere {
    /// Trains so far.
    pub(crate) lost: u64,
}

impl Path<QpLinks> for Nowhere {
    fn request_room(&mut self, qp: &Qp) -> Option<u32> {
        Some(CHUNK_BYTES.max(qp.mtu.bytes()))
    }

    fn response_room(&mut self, qp: &Qp) -> Option<u32> {
        self.request_room(qp)
    }

    fn push(
        &mut self,
        _train: &Train,
        _is_inline: bool,
        _fill: impl FnMut(Range<u32>, Place<'_>) -> Result<(), CopyError>,
    ) -> Result<(), Unsent> {
        self.lost += 1;
        Ok(())
    }
}

/// Posts that sent something since the peer's latest message: tells a stream from a talk.
#[derive(Default)]
pub(crate) struct InARow(u32);

impl InARow {
    /// After a push: asks for slots ahead in a stream.
    #[inline(always)]
    pub(crate) fn note_push(&mut self, out: &Producer) {
        self.0 = self.0.saturating_add(1);
        if self.0 >= STREAM_POSTS {
            out.prefetch(PREFETCH_SLOTS);
        }
    }
}

/// Payload that one train may carry now: whole packets, at most a chunk; `None` when not even one
/// packet fits, or fewer than `slots` slots are free. Half of the free space always holds a
/// contiguous run of that length.
#[inline]
pub(crate) fn room_in(out: &mut Producer, mtu: u32, slots: usize) -> Option<u32> {
    if !out.can_push(slots) {
        return None;
    }
    let chunk = CHUNK_BYTES.max(mtu);
    if out.has_data_free(2 * chunk as u64) {
        return Some(chunk & !(mtu - 1));
    }
    let half = (out.data_free() / 2) as u32;
    (half >= mtu).then_some(half & !(mtu - 1))
}

/// Puts a train into the ring, its payload written by `fill`. `None` when the ring has no room,
/// which [`room_in`] rules out.
#[inline(always)]
pub(crate) fn push(
    out: &mut Producer,
    train: &Train,
    is_datagram: bool,
    fill: impl FnOnce(*mut u8) -> Result<(), CopyError>,
) -> Option<Result<(), CopyError>> {
    if codec::fits_slot(train) {
        let (head, mut body) = codec::encode(train, SlotPayload::Short, is_datagram);
        if train.payload_bytes > 0
            && let Err(error) = fill((&raw mut body[3]).cast())
        {
            return Some(Err(error));
        }
        out.push(head, &body).ok()?;
        return Some(Ok(()));
    }
    let data = out.reserve_data(train.payload_bytes as usize)?;
    if let Err(error) = fill(data.ptr) {
        out.cancel_data(data);
        return Some(Err(error));
    }
    let (head, body) = codec::encode(train, SlotPayload::Data(data.pos), is_datagram);
    out.push(head, &body).ok()?;
    Some(Ok(()))
}
