//! On-Demand Paging at both halves of a queue pair.
//!
//! - A request whose page is missing at the responder is answered with an RNR NAK. The requester
//!   repeats it.
//! - A response whose page is missing at the requester is dropped. The requester repeats the
//!   request after a pause, see [`super::TimerKind::PageFault`]. That spends no retry.
//! - Payload that is missing is not sent: see [`Qp::room_with_pages`].
//! - The data of a READ response waits for its page.
//! - Unreliable transports drop a message whose page is missing at the receiver.
//!
//! The first missing page of a message asks for all pages that the message still needs.

use super::inbound::FaultedRead;
use super::responder::PlacementTarget;
use super::responder_state::{NotReady, Pending};
use super::{Accept, CopyError, Env, Qp};
use crate::mr::{self, KeyEntry};
use crate::odp::{Side, Span};
use crate::train::{Train, TrainKind};
use crate::vocab::{PdId, QpType, Sge};

impl Qp {
    /// How much of `room`, the payload that one train may carry, the next request can use if its
    /// payload lies in on-demand memory. `None`: its first packet waits for a page, so the driver
    /// does not call [`Qp::plan`] before a page has come. Drivers without such memory need not ask.
    #[inline(always)]
    pub fn room_with_pages<E: Env>(&mut self, room: u32, env: &mut E) -> Option<u32> {
        match env.has_on_demand() {
            true => self.limit_to_pages(room, env),
            false => Some(room),
        }
    }

    #[cold]
    fn limit_to_pages<E: Env>(&mut self, room: u32, env: &mut E) -> Option<u32> {
        let Some((position, offset)) = self.payload_to_send() else { return Some(room) };
        let length = self.sq.wqe(position).length;
        debug_assert!(offset <= length, "a request goes on after its end");
        let left = length - offset;
        let part = Part {
            pd: self.pd,
            side: Side::Requester,
            writes: false,
            offset: offset.into(),
            bytes: left.min(room.max(self.mtu.bytes())),
            message_bytes: left.into(),
        };
        let present = part.present_in(self.sq.sges(position), env);
        let whole = present >> self.mtu.shift() << self.mtu.shift();
        match present < part.bytes {
            true => (whole > 0).then_some(whole),
            false => Some(room),
        }
    }

    /// Pages have come, or a region is gone: what waited is tried again. Afterwards there may be
    /// something to send.
    pub fn pages_arrived<E: Env>(&mut self, env: &mut E) {
        self.resp.waits_for_page = false;
        let Some(mut read) = self.resp.faulted_read.take() else { return };
        let train = read.train;
        debug_assert!(
            train.kind == TrainKind::ReadRequest && read.present < u64::from(train.dma_bytes),
            "nothing of a faulted READ is missing: {train:?}"
        );
        let is_next = train.first_psn == self.resp.epsn && self.state.can_receive();
        if !is_next || self.resp.in_flight {
            return;
        }
        let Ok((host_addr, entry)) = self.read_of(&train, env) else { return };
        // What was there before is not looked at again here, but when it is sent.
        let bytes = u64::from(train.dma_bytes) - read.present;
        let here = (host_addr + read.present, entry);
        let present = self.present_at(here, bytes, bytes, env);
        if present < bytes {
            read.present += present;
            self.resp.faulted_read = Some(read);
        } else {
            // Nobody waits for the result: a READ that cannot be queued is repeated.
            let _: Accept = self.accept_read(&train, env);
        }
    }

    /// The RNR NAK for a page fault that is held back under this number may leave
    /// ([`Env::hold_fault_nak`]). Afterwards there may be something to send. A reset discards held
    /// NAKs: their numbers then release nothing.
    pub fn release_fault_nak(&mut self, number: u64) {
        let released = self.resp.pending.iter_mut().find_map(|pending| match pending {
            Pending::HeldNak(train, held) if *held == number => Some((*train, pending)),
            _ => None,
        });
        if let Some((train, pending)) = released {
            *pending = Pending::Nak(train);
        }
    }

    /// Answers a READ, of which only so many bytes are present, with an RNR NAK.
    #[cold]
    pub(super) fn answer_faulted_read<E: Env>(
        &mut self,
        train: &Train,
        present: u64,
        repeated: bool,
        env: &mut E,
    ) -> Accept {
        debug_assert!(self.qp_type == QpType::Rc, "a READ over {:?}", self.qp_type);
        debug_assert!(present < u64::from(train.dma_bytes), "a READ without a fault: {train:?}");
        debug_assert!(
            repeated || train.first_psn == self.resp.epsn,
            "a new READ is answered out of order"
        );
        self.push_rnr_nak(train.first_psn, NotReady::NoPage { is_read: true }, env);
        if !repeated {
            self.resp.nak_sent = true;
            let read = FaultedRead { train: *train, present };
            self.resp.faulted_read = self.adapter.serves_faulted_reads.then(|| Box::new(read));
        }
        Accept::Done
    }

    /// How many of the next `bytes` bytes of a request can be placed now: see
    /// [`Env::access_pages`]. `message_bytes`: how many its message still has, if that is known.
    #[inline]
    pub(super) fn placeable<E: Env>(
        &self,
        target: &PlacementTarget,
        bytes: u32,
        message_bytes: u64,
        env: &mut E,
    ) -> u32 {
        if bytes == 0 || !env.has_on_demand() {
            return bytes;
        }
        match target {
            PlacementTarget::Nothing => bytes,
            PlacementTarget::Memory { host_addr, entry } => {
                self.present_at((*host_addr, *entry), bytes.into(), message_bytes, env) as u32
            }
            PlacementTarget::Receive { offset } => {
                debug_assert!(self.resp.holds_receive(), "payload is placed without a receive");
                let held = &self.resp.held;
                let part = Part {
                    pd: held.pd,
                    side: Side::Responder,
                    writes: true,
                    offset: *offset,
                    bytes,
                    message_bytes,
                };
                part.present_in(held.sges(), env)
            }
        }
    }

    /// The same for memory that a peer's request names.
    #[inline]
    pub(super) fn present_at<E: Env>(
        &self,
        (host_addr, entry): (u64, KeyEntry),
        bytes: u64,
        message_bytes: u64,
        env: &mut E,
    ) -> u64 {
        if bytes == 0 || !entry.on_demand || !env.has_on_demand() {
            return bytes;
        }
        env.access_pages(&entry, &Span { host_addr, bytes, message_bytes }, Side::Responder)
    }

    /// The same for the next `bytes` bytes of the response to the request at `position`.
    #[inline]
    pub(super) fn present_for_response<E: Env>(
        &self,
        position: u32,
        offset: u32,
        bytes: u32,
        env: &mut E,
    ) -> u32 {
        if bytes == 0 || !env.has_on_demand() {
            return bytes;
        }
        debug_assert!(
            position.wrapping_sub(self.sq.oldest) < self.sq.outstanding(),
            "a response to request {position}, which is complete or not posted"
        );
        let part = Part {
            pd: self.pd,
            side: Side::Requester,
            writes: true,
            offset: offset.into(),
            bytes,
            message_bytes: u64::from(self.sq.wqe(position).length.max(offset + bytes) - offset),
        };
        part.present_in(self.sq.sges(position), env)
    }
}

/// A part of a scatter/gather list that is accessed.
#[derive(Clone, Copy)]
struct Part {
    pd: PdId,
    side: Side,
    writes: bool,
    /// Its first byte in the list.
    offset: u64,
    bytes: u32,
    message_bytes: u64,
}

impl Part {
    /// How many of its bytes, from the first on, are present. A piece that may not be accessed
    /// counts as present: moving the bytes reports its error.
    fn present_in<E: Env>(&self, sges: &[Sge], env: &mut E) -> u32 {
        let (mut left, mut present, mut is_missing) = (self.bytes, 0, false);
        // A list that is too short is an error of its own, as moving the bytes reports it.
        let _: Result<(), CopyError> =
            mr::for_each_piece(sges, self.offset, self.message_bytes, |sge| {
                let bytes = sge.length.min(left);
                left -= bytes;
                if bytes == 0 {
                    // A page before is missing, and those of later pieces are asked for.
                    self.access(sge, sge.length, env);
                    return Ok(());
                }
                let here = self.access(sge, bytes, env);
                present += if is_missing { 0 } else { here };
                is_missing |= here < bytes;
                if left == 0 && !is_missing { Err(CopyError::Length) } else { Ok(()) }
            });
        debug_assert!(present <= self.bytes, "more is present than is accessed");
        if is_missing { present } else { self.bytes }
    }

    /// Accesses the first `bytes` bytes of a piece.
    fn access<E: Env>(&self, piece: &Sge, bytes: u32, env: &mut E) -> u32 {
        let entry = env.key(piece.lkey).filter(|entry| entry.on_demand);
        let Some(entry) = entry else { return bytes };
        let Ok(host_addr) = mr::check_local(Some(&entry), self.pd, piece, self.writes) else {
            return bytes;
        };
        debug_assert!(bytes <= piece.length, "an access leaves its piece");
        let span = Span { host_addr, bytes: bytes.into(), message_bytes: u64::from(piece.length) };
        env.access_pages(&entry, &span, self.side) as u32
    }
}

#[cfg(test)]
mod tests {
    use rdmalab_wire::ids::Psn;

    use super::*;
    use crate::qp::responder::MAX_PENDING_RESPONSES;
    use crate::qp::single_tests::{Recorder, qp};

    #[test]
    fn each_release_lets_its_own_nak_leave() {
        let (mut qp, mut recorder) = (qp(false), Recorder::default());
        recorder.held_naks = Some(0);
        let psns = [0xff_ffe0, 0xff_ffe1, 0xff_ffe2].map(Psn::new);
        for psn in psns {
            qp.push_rnr_nak(psn, NotReady::NoPage { is_read: true }, &mut recorder);
        }
        for (number, psn) in (1..).zip(psns) {
            qp.release_fault_nak(number + 3);
            assert!(qp.next_response(256, &mut recorder).is_none());
            qp.release_fault_nak(number);
            let response = qp.next_response(256, &mut recorder).expect("it may leave");
            assert_eq!(response.train.first_psn, psn);
        }
        assert!(qp.next_response(256, &mut recorder).is_none());
    }

    #[test]
    fn a_request_that_is_repeated_while_its_nak_is_held_gets_no_other() {
        let (mut qp, mut recorder) = (qp(false), Recorder::default());
        recorder.held_naks = Some(0);
        for _ in 0..2 * MAX_PENDING_RESPONSES {
            qp.push_rnr_nak(qp.resp.epsn, NotReady::NoPage { is_read: true }, &mut recorder);
        }
        assert_eq!(recorder.held_naks, Some(1));
        qp.release_fault_nak(1);
        assert!(qp.next_response(256, &mut recorder).is_some());
        assert!(qp.next_response(256, &mut recorder).is_none());
        // It has left, so the next repetition is answered.
        qp.push_rnr_nak(qp.resp.epsn, NotReady::NoPage { is_read: true }, &mut recorder);
        assert_eq!(recorder.held_naks, Some(2));
    }
}
