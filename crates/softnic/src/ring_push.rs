//! A train into the ring that leads to a peer.

use rdmalab_engine::qp::CopyError;
use rdmalab_engine::train::Train;
use rdmalab_ring::spsc::Producer;

use crate::codec::{self, SlotPayload};

/// Payload of one train at most: small enough that the receiver copies one while the sender fills
/// the next, and that both stay in the second-level cache.
pub(crate) const CHUNK_BYTES: u32 = 32 * 1024;

/// Slots that requests leave to answers: an acknowledgement that finds no slot is lost when its
/// process leaves.
pub(crate) const ANSWER_SLOTS: usize = 128;

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
