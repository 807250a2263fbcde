//! The fast path of SENDs of one packet and of their acknowledgements through the ring, for sending
//! and receiving.
//!
//! Most messages of most programs are a SEND of one packet from and to one piece of memory. Usually
//! the sender has nothing to retransmit, and the receiver expects the message. The engine checks
//! this (`plan_single`, `accept_single`) and changes nothing before the payload was copied, but for
//! a receive that it takes from a shared queue. In any other case the message takes the general
//! path.
//!
//! A capture sees these packets as slots: the functions with `TAPS` are compiled a second time for
//! it, so that others pay nothing.

use rdmalab_driver as driver;
use rdmalab_engine::qp::{Qp, SingleSend};
use rdmalab_link::hook::Direction;
use rdmalab_ring::spsc::{Consumer, Producer, Slot};

use crate::codec::{self, SHORT_BYTES, ShortPayload, Single, SlotPayload};
use crate::copy;
use crate::layout;
use crate::progress::release;
use crate::qp::{QpInner, QpLinks};
use crate::ring_push::ANSWER_SLOTS;
use crate::stream::StreamDetector;

impl QpInner {
    /// Sends SENDs of one packet from the head of the queue. Returns whether nothing is left to
    /// send.
    #[inline(always)]
    pub(crate) fn transmit_singles(&mut self) -> bool {
        match self.links.has_short_ways {
            true => self.transmit_singles_as::<false>(),
            false => self.links.short_tap.is_some() && self.transmit_tapped_singles(),
        }
    }

    #[cold]
    #[inline(never)]
    fn transmit_tapped_singles(&mut self) -> bool {
        self.transmit_singles_as::<true>()
    }

    #[inline(always)]
    fn transmit_singles_as<const TAPS: bool>(&mut self) -> bool {
        let QpInner { qp, links } = self;
        // Responses go first.
        let plain = !qp.has_response();
        let Some(peer) = links.peer.as_ref().filter(|_| plain) else { return false };
        let mut out = peer.out.lock();
        let before = out.position();
        while out.can_push(1 + ANSWER_SLOTS)
            && let Some(single) = qp.plan_single(SHORT_BYTES)
            && push_short::<TAPS>(&mut out, links, &single)
        {
            single.retire();
        }
        let mut is_done = !qp.may_send();
        if !is_done && qp.next_is_longer_send(SHORT_BYTES) {
            push_singles::<TAPS>(&mut out, links, qp);
            is_done = !qp.may_send();
        }
        if out.position() != before {
            links.pushed = out.position();
            links.stream.note_push(&out);
            drop(out);
            peer.ring_bell();
        }
        is_done
    }

    /// Sends the acknowledgement that is due, if it is the only response and the ring has room.
    /// Returns whether it did.
    #[inline(always)]
    pub(super) fn send_plain_ack(&mut self) -> bool {
        match self.links.has_short_ways {
            true => self.send_plain_ack_as::<false>(),
            false => self.links.short_tap.is_some() && self.send_tapped_ack(),
        }
    }

    #[cold]
    #[inline(never)]
    fn send_tapped_ack(&mut self) -> bool {
        self.send_plain_ack_as::<true>()
    }

    #[inline(always)]
    fn send_plain_ack_as<const TAPS: bool>(&mut self) -> bool {
        let QpInner { qp, links } = self;
        let is_plain = links.route.is_none();
        let Some(peer) = links.peer.as_ref().filter(|_| is_plain) else { return false };
        let Some(ack) = qp.only_ack() else { return false };
        let (head, body) = codec::encode_ack(qp.remote_qpn, qp.qpn, ack, links.service);
        let mut out = peer.out.lock();
        if !out.can_push(1) {
            return false;
        }
        if TAPS {
            links.tap_slot(Direction::Out, (head, &body), std::ptr::null());
        }
        if out.push(head, &body).is_err() {
            return false;
        }
        qp.retire_ack();
        links.pushed = out.position();
        drop(out);
        peer.ring_bell();
        true
    }

    /// Takes a slot that holds an acknowledgement without a NAK. Returns whether it did; if not,
    /// the general path takes the slot.
    #[inline(always)]
    pub(crate) fn take_plain_ack(&mut self, slot: &Slot, from: u16) -> bool {
        self.take_ack_as::<false>(slot, from)
    }

    /// The same for a queue pair that is captured.
    #[inline(never)]
    pub(crate) fn take_tapped_ack(&mut self, slot: &Slot, from: u16) -> bool {
        self.take_ack_as::<true>(slot, from)
    }

    #[inline(always)]
    fn take_ack_as<const TAPS: bool>(&mut self, slot: &Slot, from: u16) -> bool {
        let QpInner { qp, links } = self;
        let Some((src_qpn, psn)) = codec::decode_ack(slot.head, links.service, &slot.body) else {
            return false;
        };
        let is_peer = src_qpn == qp.remote_qpn && layout::process_of(src_qpn) == from;
        let may_take = if TAPS { links.short_tap.is_some() } else { links.has_short_ways };
        if !is_peer || links.route.is_some() || !may_take {
            return false;
        }
        if TAPS && qp.takes_plain_ack(psn) {
            // Captured before it completes anything.
            links.tap_slot(Direction::In, (slot.head, &slot.body), std::ptr::null());
        }
        qp.accept_plain_ack(psn, links)
    }

    /// Takes a slot that holds a small SEND into the queue pair's own receive queue, in the usual
    /// case. Returns whether it did; if not, try [`QpInner::take_single_or_shared`].
    #[inline(always)]
    pub(crate) fn take_single(&mut self, slot: &Slot, from: u16) -> bool {
        let payload = (&raw const slot.body[codec::PAYLOAD_WORD]).cast();
        let service = self.links.service;
        let send = codec::decode_single(slot.head, service, &slot.body, false);
        // SAFETY: decoding made sure that the slot holds the payload.
        send.is_some_and(|send| unsafe {
            self.place_single::<false, false>(slot, &send, payload, from)
        })
    }

    /// The same for a SEND of one packet of any length, into any receive queue. Releases the data.
    /// If it returns false, the general path takes the slot.
    #[inline]
    pub(crate) fn take_single_or_shared(
        &mut self,
        consumer: &mut Consumer,
        slot: &Slot,
        from: u16,
    ) -> bool {
        let (service, has_data) = (self.links.service, codec::has_data(slot.head));
        let send = codec::decode_single(slot.head, service, &slot.body, has_data);
        let Some(send) = send else { return false };
        let bytes = send.payload_bytes as usize;
        let first = &slot.body[codec::PAYLOAD_WORD];
        let (payload, end) = match has_data {
            false => (std::ptr::from_ref(first).cast(), None),
            true => match consumer.data(*first, bytes) {
                Some(data) => (data, Some(first.wrapping_add(bytes as u64))),
                None => return false,
            },
        };
        let is_taken = match self.links.has_short_ways {
            // SAFETY: decoding or `data` made sure that the payload is there.
            true => unsafe { self.place_single::<true, false>(slot, &send, payload, from) },
            // SAFETY: as above.
            false => unsafe { self.place_tapped(slot, &send, payload, from) },
        };
        if is_taken {
            release(consumer, slot.head, end);
        }
        is_taken
    }

    /// [`QpInner::place_single`] for a queue pair that is captured; false if it is not.
    ///
    /// # Safety
    /// As for that.
    #[cold]
    #[inline(never)]
    unsafe fn place_tapped(
        &mut self,
        slot: &Slot,
        send: &Single,
        payload: *const u8,
        from: u16,
    ) -> bool {
        let is_tapped = self.links.short_tap.is_some();
        // SAFETY: by the contract.
        let mut place = || unsafe { self.place_single::<true, true>(slot, send, payload, from) };
        is_tapped && place()
    }

    /// Copies the payload to where the receive says, and completes the receive. `ANY_QUEUE`: it may
    /// be one of a shared queue.
    ///
    /// # Safety
    /// `send.payload_bytes` bytes can be read at `payload`; another process may write them
    /// meanwhile.
    #[inline(always)]
    unsafe fn place_single<const ANY_QUEUE: bool, const TAPS: bool>(
        &mut self,
        slot: &Slot,
        send: &Single,
        payload: *const u8,
        from: u16,
    ) -> bool {
        let QpInner { qp, links } = self;
        // A connected QP accepts packets from its peer only (IBA vol. 1, 9.6.1).
        let is_peer = send.src_qpn == qp.remote_qpn && layout::process_of(send.src_qpn) == from;
        if !is_peer || links.route.is_some() || !(TAPS || links.has_short_ways) {
            return false;
        }
        let Single { psn, flags, payload_bytes, imm, .. } = *send;
        let single = match ANY_QUEUE {
            true => qp.accept_single_shared(psn, flags, payload_bytes, imm, links),
            false => qp.accept_single(psn, flags, payload_bytes, imm),
        };
        let Some(single) = single else { return false };
        let target = driver::local_address(links, single.pd, &single.target, true);
        let Ok((_, host)) = target else { return false };
        // SAFETY: the target was checked against its region just now, which cannot go away while
        // the QP's lock is held; the source is valid by the contract; the copy reports unmapped
        // memory.
        let copied = unsafe { copy::copy(host as *mut u8, payload, payload_bytes as usize) };
        if copied.is_err() {
            return false;
        }
        if TAPS {
            links.tap_slot(Direction::In, (slot.head, &slot.body), payload);
        }
        single.retire(links);
        links.stream = StreamDetector::default();
        true
    }
}

/// Sends SENDs of one packet whatever their length. Not inlined, to keep the loop of short ones
/// fast.
#[inline(never)]
fn push_singles<const TAPS: bool>(out: &mut Producer, links: &QpLinks, qp: &mut Qp) {
    let mtu = qp.mtu.bytes();
    while out.can_push(1 + ANSWER_SLOTS)
        && let Some(single) = qp.plan_single(mtu)
        && match single.wqe().length > SHORT_BYTES {
            true => push_data::<TAPS>(out, links, &single),
            false => push_short::<TAPS>(out, links, &single),
        }
    {
        single.retire();
    }
}

/// Puts a small SEND into the ring, which has room for its slot. Returns false if its payload has
/// several pieces or cannot be read.
#[inline(always)]
fn push_short<const TAPS: bool>(
    out: &mut Producer,
    links: &QpLinks,
    single: &SingleSend<'_>,
) -> bool {
    let short = if single.wqe().is_inline() {
        words(single.inline())
    } else {
        let mut short = [0; 4];
        // SAFETY: the payload is at most as long as that of a slot.
        if unsafe { gather(links, single, (&raw mut short).cast()) }.is_none() {
            return false;
        }
        short
    };
    push_slot::<TAPS>(out, links, single, (SlotPayload::Short, short), std::ptr::null())
}

/// The same for a payload that is too long for a slot, if the data area has room.
#[inline(always)]
fn push_data<const TAPS: bool>(
    out: &mut Producer,
    links: &QpLinks,
    single: &SingleSend<'_>,
) -> bool {
    if !single.wqe().is_inline() && single.sges().len() != 1 {
        return false;
    }
    let bytes = single.wqe().length as usize;
    let Some(data) = out.reserve_data(bytes) else { return false };
    // SAFETY: the reservation has room for the payload.
    if unsafe { gather(links, single, data.ptr) }.is_none() {
        out.cancel_data(data);
        return false;
    }
    push_slot::<TAPS>(out, links, single, (SlotPayload::Data(data.pos), [0; 4]), data.ptr)
}

/// Puts the slot of a SEND into the ring. A payload that is not in the slot lies at `data`.
#[inline(always)]
fn push_slot<const TAPS: bool>(
    out: &mut Producer,
    links: &QpLinks,
    single: &SingleSend<'_>,
    (payload, short): (SlotPayload, ShortPayload),
    data: *const u8,
) -> bool {
    let wqe = single.wqe();
    let (src_qpn, dst_qpn, _) = single.ends();
    let send = Single {
        src_qpn,
        psn: single.psn,
        flags: single.flags,
        payload_bytes: wqe.length,
        imm: wqe.imm_or_rkey,
    };
    let (head, body) = codec::encode_single(dst_qpn, &send, links.service, payload, short);
    if TAPS {
        links.tap_slot(Direction::Out, (head, &body), data);
    }
    out.push(head, &body).is_ok()
}

/// Copies the payload of a SEND from its queue, or from one piece of memory. `None` if it has more
/// pieces or cannot be read.
///
/// # Safety
/// There is room for the payload at `to`.
#[inline(always)]
unsafe fn gather(links: &QpLinks, single: &SingleSend<'_>, to: *mut u8) -> Option<()> {
    if single.wqe().is_inline() {
        let from = single.inline();
        // SAFETY: by the contract; the queue is private memory.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
        return Some(());
    }
    let [sge] = single.sges() else { return None };
    debug_assert_eq!(sge.length, single.wqe().length, "the queue stores the sum of the pieces");
    let (_, _, pd) = single.ends();
    let (_, host) = driver::local_address(links, pd, sge, false).ok()?;
    // SAFETY: the source was checked against its region just now, and the copy reports unmapped
    // memory; the target has room by the contract, because one piece is the whole payload.
    unsafe { copy::copy(to, host as *const u8, sge.length as usize) }.ok()
}

/// At most [`SHORT_BYTES`] bytes as words of a slot. Whole ones are read as words: a copy in memory
/// would delay the stores into the slot.
#[inline(always)]
fn words(bytes: &[u8]) -> ShortPayload {
    debug_assert!(bytes.len() <= SHORT_BYTES as usize, "the payload does not fit a slot");
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
