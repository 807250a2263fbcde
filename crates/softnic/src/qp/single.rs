//! The fast path of small SENDs through the ring, for sending and receiving.
//!
//! Most messages of most programs are a SEND that fits into a slot. Usually the sender has nothing
//! to retransmit, and the receiver expects the message. The engine checks this (`plan_single`,
//! `accept_single`) and changes no state until the payload was copied. In any other case the
//! message takes the general path.

use std::mem::size_of;

use rdmalab_driver as driver;
use rdmalab_engine::qp::SingleSend;
use rdmalab_ring::spsc::{Producer, Slot};

use crate::codec::{self, SHORT_BYTES};
use crate::copy;
use crate::layout;
use crate::qp::{QpInner, QpLinks};
use crate::ring_push::ANSWER_SLOTS;
use crate::stream::StreamDetector;

/// The words of a slot that hold a short payload.
type Payload = [u64; 4];

const _: () = assert!(size_of::<Payload>() == SHORT_BYTES as usize);

impl QpInner {
    /// Sends small SENDs from the head of the queue. Returns whether nothing is left to send.
    #[inline(always)]
    pub(crate) fn transmit_singles(&mut self) -> bool {
        let QpInner { qp, links } = self;
        // Responses go first.
        let plain = !qp.has_response() && links.hooks.is_none();
        let Some(peer) = links.peer.as_ref().filter(|_| plain) else { return false };
        let mut out = peer.out.lock();
        let before = out.position();
        while out.can_push(1 + ANSWER_SLOTS)
            && let Some(single) = qp.plan_single(SHORT_BYTES)
            && push(&mut out, links, &single)
        {
            single.retire();
        }
        if out.position() != before {
            links.pushed = out.position();
            links.stream.note_push(&out);
            drop(out);
            peer.ring_bell();
        }
        !qp.may_send()
    }

    /// Takes a slot that holds a small SEND in the usual case. Returns whether it did; if not,
    /// nothing has changed.
    #[inline(always)]
    pub(crate) fn take_single(&mut self, slot: &Slot, from: u16) -> bool {
        let QpInner { qp, links } = self;
        let Some(short) = codec::decode_short_send(slot.head, links.service, &slot.body) else {
            return false;
        };
        // A connected QP accepts packets from its peer only (IBA vol. 1, 9.6.1).
        let is_peer = short.src_qpn == qp.remote_qpn && layout::process_of(short.src_qpn) == from;
        if !is_peer || links.route.is_some() || links.hooks.is_some() {
            return false;
        }
        let single = qp.accept_single(short.psn, short.flags, short.payload_bytes, short.imm);
        let Some(single) = single else { return false };
        let target = driver::local_address(links, single.pd(), &single.target, true);
        let Ok((_, host)) = target else { return false };
        let payload = (&raw const slot.body[codec::PAYLOAD_WORD]).cast();
        let bytes = short.payload_bytes as usize;
        // SAFETY: the target was checked against its region just now, which cannot go away while
        // the QP's lock is held; decoding made sure that the slot holds these bytes; the copy
        // reports unmapped memory.
        let copied = unsafe { copy::copy(host as *mut u8, payload, bytes) };
        if copied.is_err() {
            return false;
        }
        single.retire(links);
        links.stream = StreamDetector::default();
        true
    }
}

/// Puts a small SEND into the ring, which has room. Returns whether its payload could be read.
#[inline(always)]
fn push(out: &mut Producer, links: &QpLinks, single: &SingleSend<'_>) -> bool {
    let Some(payload) = gather(links, single) else { return false };
    let wqe = single.wqe();
    let (src_qpn, dst_qpn, _) = single.ends();
    let short = codec::ShortSend {
        src_qpn,
        psn: single.psn,
        flags: single.flags,
        payload_bytes: wqe.length,
        imm: wqe.imm_or_rkey,
    };
    let (head, body) = codec::encode_short_send(dst_qpn, &short, links.service, payload);
    out.push(head, &body).is_ok()
}

/// The payload of a small SEND, from its queue or from one piece of memory.
#[inline(always)]
fn gather(links: &QpLinks, single: &SingleSend<'_>) -> Option<Payload> {
    if single.wqe().is_inline() {
        return Some(words(single.inline()));
    }
    let [sge] = single.sges() else { return None };
    let (_, _, pd) = single.ends();
    let (_, host) = driver::local_address(links, pd, sge, false).ok()?;
    let mut payload = [0; 4];
    let to = (&raw mut payload).cast();
    // SAFETY: the source was checked against its region just now, and the copy reports unmapped
    // memory; the engine checked that it is at most as long as the payload of a slot.
    unsafe { copy::copy(to, host as *const u8, sge.length as usize) }.ok()?;
    Some(payload)
}

/// At most [`SHORT_BYTES`] bytes as words of a slot. Whole ones are read as words: a copy in memory
/// would delay the stores into the slot.
#[inline(always)]
fn words(bytes: &[u8]) -> Payload {
    let mut padded = [0; SHORT_BYTES as usize];
    let whole: &[u8; SHORT_BYTES as usize] = match bytes.first_chunk() {
        Some(whole) => whole,
        None => {
            // SAFETY: fewer than 32 bytes, which do not overlap.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), padded.as_mut_ptr(), bytes.len())
            };
            &padded
        }
    };
    let word = |at| u64::from_ne_bytes(*whole[at..].first_chunk().expect("eight bytes"));
    [word(0), word(8), word(16), word(24)]
}
