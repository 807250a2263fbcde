//! Sending: what the requester and responder want sent goes into the peer's ring.

use std::ops::Range;
use std::sync::Arc;

use rdmalab_engine::mr;
use rdmalab_engine::qp::send_queue::SendQueue;
use rdmalab_engine::qp::{CopyError, Plan, Response};
use rdmalab_engine::train::{Train, TrainFlags};
use rdmalab_engine::vocab::{PdId, Sge};
use rdmalab_ring::keytable::KeyView;
use rdmalab_ring::spsc::Producer;
use rdmalab_wire::ids::RKey;

use crate::armed::Armed;
use crate::copy;
use crate::lane;
use crate::peer::{Peer, key_entry};
use crate::qp::{QpInner, QpLinks};
use crate::ring_push::{ANSWER_SLOTS, CHUNK_BYTES, push, room_in};

/// What came of an attempt to send.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Nothing is left that could be sent now.
    Everything,
    /// The ring is full.
    RingFull,
}

impl QpInner {
    /// Sends what can be sent: answers first, then requests.
    #[inline]
    pub(crate) fn transmit(&mut self) -> Sent {
        let (has_response, may_send) = (self.qp.has_response(), self.qp.may_send());
        if !has_response && !may_send {
            self.settle();
            return Sent::Everything;
        }
        if let Some(route) = self.links.route {
            return self.transmit_network(&route);
        }
        // Taken out for the time being, so that it can be used beside the rest.
        let mut peer = self.links.peer.take().or_else(|| self.late_peer());
        let mut sent = Sent::Everything;
        if has_response {
            sent = self.respond(peer.as_ref());
        }
        if may_send && sent == Sent::Everything {
            sent = self.request(&mut peer);
        }
        if self.links.peer.is_none() {
            self.links.peer = peer;
        }
        if sent == Sent::RingFull {
            self.links.process.block(self.links.object);
        }
        self.settle();
        sent
    }

    /// The peer of a connection that did not say hello in time when it was made, but has since.
    #[cold]
    fn late_peer(&self) -> Option<Arc<Peer>> {
        let connected = !self.links.datagram && crate::device::is_here(&self.qp.attr.ah_attr);
        connected.then(|| self.links.process.peer(self.remote_process()))?
    }

    fn respond(&mut self, peer: Option<&Arc<Peer>>) -> Sent {
        let Some(peer) = peer else {
            while self.qp.next_response(u32::MAX / 2, &mut self.links).is_some() {}
            return Sent::Everything;
        };
        let mut out = peer.out.lock();
        let mtu = self.qp.mtu.bytes();
        let sent = loop {
            let room = match room_in(&mut out, mtu, 1) {
                Some(room) => room,
                // An acknowledgement does not wait for the data before it to be taken: when the
                // program sees the message and leaves, its peer has to know that it arrived.
                None if out.can_push(1) && !self.qp.answers_with_data() => mtu,
                None => break Sent::RingFull,
            };
            let room = self.room(room, mtu);
            let Some(response) = self.qp.next_response(room, &mut self.links) else {
                break Sent::Everything;
            };
            self.send_response(peer, &mut out, response);
            if !self.qp.has_response() {
                break Sent::Everything;
            }
        };
        self.links.pushed = out.position();
        drop(out);
        peer.ring_bell();
        sent
    }

    fn send_response(&mut self, peer: &Arc<Peer>, out: &mut Producer, response: Response) {
        match response {
            Response::Train(train) => {
                match self.gate(peer, &train, 0) {
                    None => push(out, &train, false, |_| Ok(())),
                    Some(gate) => gate.push(out, &train, false, |_| Ok(())),
                };
            }
            Response::Data { train, host_addr, .. } => {
                let bytes = train.payload_bytes as usize;
                let fill = |to| {
                    // SAFETY: the engine checked the source against its region just now, and the
                    // copy survives memory that is not there; `to` has room for the payload.
                    unsafe { copy::copy(to, host_addr as *const u8, bytes) }
                        .map_err(|_| CopyError::Fault)
                };
                let pushed = match self.gate(peer, &train, 0) {
                    None => push(out, &train, false, fill),
                    Some(gate) => gate.push(out, &train, false, fill),
                };
                if let Some(Err(error)) = pushed {
                    self.qp.fail_read(train.first_psn, error, &mut self.links);
                }
            }
        }
    }

    fn request(&mut self, peer: &mut Option<Arc<Peer>>) -> Sent {
        loop {
            if !self.qp.may_send() {
                return Sent::Everything;
            }
            if let Some(position) = self.qp.lane_candidate()
                && let Some(peer) = peer.as_deref()
                && lane::execute(self, peer, position)
            {
                continue;
            }
            if self.links.datagram {
                if self.is_multicast_next() {
                    match self.send_multicast() {
                        Next::Again => continue,
                        Next::RingFull => return Sent::RingFull,
                        Next::Done => return Sent::Everything,
                    }
                }
                if !self.choose_datagram_peer(peer) {
                    return Sent::RingFull;
                }
            }
            let Some(peer) = peer.as_ref() else {
                match self.send_nowhere() {
                    true => continue,
                    false => return Sent::Everything,
                }
            };
            let mut out = peer.out.lock();
            let before = out.position();
            let sent = self.request_to(peer, &mut out);
            let after = out.position();
            if after != before {
                self.links.pushed = after;
                self.links.stream.note_push(&out);
                drop(out);
                peer.ring_bell();
            } else {
                drop(out);
            }
            match sent {
                Next::Done => return Sent::Everything,
                Next::RingFull if self.is_stuck(peer) && self.send_nowhere() => {}
                Next::RingFull => return Sent::RingFull,
                Next::Again => {}
            }
        }
    }

    /// What of `room` a train may take: one packet while rules speak of packets.
    #[inline(always)]
    fn room(&self, room: u32, mtu: u32) -> u32 {
        if self.links.armed.is_some_and(Armed::cuts_trains) { mtu } else { room }
    }

    /// Pushes requests until there is nothing more for this peer's ring.
    fn request_to(&mut self, peer: &Arc<Peer>, out: &mut Producer) -> Next {
        let mtu = self.qp.mtu.bytes();
        loop {
            let Some(room) = room_in(out, mtu, 1 + ANSWER_SLOTS) else { return Next::RingFull };
            match self.qp.plan(self.room(room, mtu)) {
                Plan::Idle => return Next::Done,
                Plan::Local { position } if self.execute_local(position) => {}
                Plan::Local { .. } => return Next::RingFull,
                Plan::Send { mut train, position, offset } => {
                    if self.links.datagram {
                        self.finish_train(&mut train, position);
                    }
                    self.send_request(peer, out, &train, position, offset);
                    if self.links.datagram {
                        return Next::Again;
                    }
                }
            }
            if self.qp.lane_candidate().is_some() {
                return Next::Again;
            }
        }
    }

    #[inline]
    fn send_request(
        &mut self,
        peer: &Arc<Peer>,
        out: &mut Producer,
        train: &Train,
        position: u32,
        offset: u32,
    ) {
        let is_datagram = self.links.datagram;
        let (sq, pd, keys) = (&self.qp.sq, self.qp.pd, &self.links.process.keys.view);
        let bytes = train.payload_bytes;
        let fill = |to| match bytes {
            0 => Ok(()),
            _ => gather(sq, pd, keys, position, offset..offset + bytes, to),
        };
        let result = match self.gate(peer, train, position) {
            None => push(out, train, is_datagram, fill),
            Some(gate) => gate.push(out, train, is_datagram, fill),
        };
        let last = train.flags.has(TrainFlags::LAST);
        let result = result.unwrap_or(Ok(()));
        self.qp.retire_sent(position, last, result, &mut self.links);
    }

    /// Adds what only the port knows: where a datagram comes from.
    pub(crate) fn finish_train(&self, train: &mut Train, position: u32) {
        let ah = &self.qp.sq.ud(position).ah;
        train.slid = crate::device::lid_of(self.links.pd.context.device);
        train.sl = ah.sl;
        if ah.is_global {
            train.flags.0 |= TrainFlags::GRH;
            let to = crate::device::gid_index_of(ah.dgid);
            train.rkey = RKey(u32::from_le_bytes([ah.sgid_index, to, 0, 0]));
        }
    }

    /// There is no such process, or none that answers: what is sent is lost, as on a network that
    /// leads nowhere. Returns whether something was.
    fn send_nowhere(&mut self) -> bool {
        if self.links.datagram && self.send_datagrams_network() {
            return true;
        }
        match self.qp.plan(CHUNK_BYTES.max(self.qp.mtu.bytes())) {
            Plan::Idle => false,
            Plan::Local { position } => {
                let done = self.execute_local(position);
                if !done {
                    self.links.process.block(self.links.object);
                }
                done
            }
            Plan::Send { train, position, .. } => {
                self.links.lost += 1;
                let last = train.flags.has(TrainFlags::LAST);
                self.qp.retire_sent(position, last, Ok(()), &mut self.links);
                true
            }
        }
    }

    /// Executes a bind or a local invalidate; `false` while somebody may still copy by what it
    /// takes back.
    pub(crate) fn execute_local(&mut self, position: u32) -> bool {
        let begun = self.links.invalidation.take().filter(|begun| begun.position == position);
        let invalidation = match begun {
            Some(begun) => Some(begun),
            None => self.change_window(position),
        };
        let Some(mut invalidation) = invalidation else {
            self.qp.retire_local(position, false, &mut self.links);
            return true;
        };
        let done = self.links.process.is_invalidated(&mut invalidation);
        match done {
            true => self.qp.retire_local(position, true, &mut self.links),
            false => self.links.invalidation = Some(invalidation),
        }
        done
    }
}

/// What came of an attempt to send some.
pub(crate) enum Next {
    /// Nothing is left that could be sent now.
    Done,
    /// The ring is full.
    RingFull,
    /// Something was sent, and more may be.
    Again,
}

/// Puts a datagram into one peer's ring, which has room by [`room_in`]. `is_copy`: it went to
/// another peer before.
pub(crate) fn push_datagram(
    inner: &QpInner,
    peer: &Arc<Peer>,
    out: &mut Producer,
    train: &Train,
    position: u32,
    is_copy: bool,
) -> Result<(), CopyError> {
    let (sq, pd, keys) = (&inner.qp.sq, inner.qp.pd, &inner.links.process.keys.view);
    let fill = |to| gather(sq, pd, keys, position, 0..train.payload_bytes, to);
    let pushed = match inner.gate(peer, train, position) {
        None => push(out, train, true, fill),
        Some(gate) if is_copy => gate.of_copy().push(out, train, true, fill),
        Some(gate) => gate.push(out, train, true, fill),
    };
    pushed.unwrap_or(Ok(()))
}

/// Copies a range of the WQE's payload to `to`, which has room for it.
#[inline]
pub(crate) fn gather(
    sq: &SendQueue,
    pd: PdId,
    keys: &KeyView,
    position: u32,
    range: Range<u32>,
    to: *mut u8,
) -> Result<(), CopyError> {
    if sq.wqe(position).is_inline() {
        let from = &sq.inline(position)[range.start as usize..range.end as usize];
        // SAFETY: `to` has room for the range and is no memory of the queue. Our copy is used
        // because it is inlined for short payloads; nothing here can fault.
        return unsafe { copy::copy(to, from.as_ptr(), from.len()) }.map_err(|_| CopyError::Fault);
    }
    let mut to = to;
    let bytes = (range.end - range.start) as u64;
    for_each_piece(sq.sges(position), range.start as u64, bytes, |sge| {
        let host = local_address(keys, pd, sge, false)?;
        // SAFETY: the source was checked against its region just now, and the copy survives
        // memory that is not there; the pieces add up to `bytes`.
        unsafe { copy::copy(to, host as *const u8, sge.length as usize) }
            .map_err(|_| CopyError::Fault)?;
        // SAFETY: stays within the `bytes` bytes at `to`, or one past them.
        to = unsafe { to.add(sge.length as usize) };
        Ok(())
    })
}

/// The virtual address of a local scatter/gather element, after its check.
#[inline(always)]
pub(crate) fn local_address(
    keys: &KeyView,
    pd: PdId,
    sge: &Sge,
    write: bool,
) -> Result<u64, CopyError> {
    let entry = keys.lookup(sge.lkey).and_then(key_entry);
    mr::check_local(entry.as_ref(), pd, sge, write).map_err(|_| CopyError::Protection)
}

/// Calls `each` with the parts of a scatter/gather list that make up `bytes` bytes from `offset`.
#[inline]
pub(crate) fn for_each_piece(
    sges: &[Sge],
    offset: u64,
    bytes: u64,
    mut each: impl FnMut(&Sge) -> Result<(), CopyError>,
) -> Result<(), CopyError> {
    let (mut skip, mut left) = (offset, bytes);
    for sge in sges {
        let length = sge.length as u64;
        if skip >= length {
            skip -= length;
            continue;
        }
        if left == 0 {
            break;
        }
        let take = (length - skip).min(left);
        each(&Sge { addr: sge.addr.wrapping_add(skip), length: take as u32, lkey: sge.lkey })?;
        left -= take;
        skip = 0;
    }
    if left == 0 { Ok(()) } else { Err(CopyError::Protection) }
}

/// Copies `bytes` bytes from `from` into a scatter list, from its byte `offset` on.
#[inline]
pub(crate) fn scatter(
    links: &QpLinks,
    pd: PdId,
    sges: &[Sge],
    offset: u64,
    bytes: u64,
    from: *const u8,
) -> Result<(), CopyError> {
    let keys = &links.process.keys.view;
    let mut from = from;
    for_each_piece(sges, offset, bytes, |sge| {
        let host = local_address(keys, pd, sge, true)?;
        // SAFETY: the destination was checked against its region just now, and the copy survives
        // memory that is not there; the pieces add up to the bytes at `from`.
        unsafe { copy::copy(host as *mut u8, from, sge.length as usize) }
            .map_err(|_| CopyError::Fault)?;
        // SAFETY: stays within the bytes at `from`, or one past them.
        from = unsafe { from.add(sge.length as usize) };
        Ok(())
    })
}
