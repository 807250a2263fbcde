//! Pushes trains into the ring to a peer.

use rdmalab_engine::qp::CopyError;
use rdmalab_engine::train::Train;
use rdmalab_ring::spsc::Producer;
use rdmalab_wire::opcode::Transport;

use crate::codec::{self, SlotPayload};

/// Payload of one train, at most. It is so small that the receiver copies one train while the
/// sender writes the next, and that both stay in the second-level cache.
pub(crate) const CHUNK_BYTES: u32 = 32 * 1024;

/// Slots that requests leave to responses: an ACK without a slot is lost if its process exits.
pub(crate) const ANSWER_SLOTS: usize = 128;

/// Payload that one train may carry now: whole packets, a chunk at most. `None` if not even one
/// packet fits, or if fewer than `slots` slots are free. A contiguous run of half of the free space
/// is always available.
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

/// Pushes a train into the ring; `fill` writes its payload. `None` if the ring has no room, which
/// cannot happen after [`room_in`].
#[inline(always)]
pub(crate) fn push(
    out: &mut Producer,
    train: &Train,
    service: Transport,
    fill: impl FnOnce(*mut u8) -> Result<(), CopyError>,
) -> Option<Result<(), CopyError>> {
    if codec::fits_slot(train, service) {
        let (head, mut body) = codec::encode(train, SlotPayload::Short, service);
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
    let (head, body) = codec::encode(train, SlotPayload::Data(data.pos), service);
    out.push(head, &body).ok()?;
    Some(Ok(()))
}
