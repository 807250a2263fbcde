//! On-Demand Paging at both halves of a queue pair.
//!
//! - A request whose page is missing at the responder is answered with an RNR NAK. The requester
//!   repeats it, and no retry of time-outs is spent.
//! - A response whose page is missing at the requester is dropped. The requester repeats the
//!   request after a pause, see [`super::TimerKind::PageFault`].
//! - Payload that is missing is not sent: see [`Qp::present_room`].
//! - The data of a READ response waits for its page.
//! - Unreliable transports drop a message whose page is missing at the receiver.

use super::responder::PlacementTarget;
use super::{Accept, CopyError, Env, Qp};
use crate::mr::{self, KeyEntry};
use crate::odp::Side;
use crate::train::Train;
use crate::vocab::{PdId, Sge};

impl Qp {
    /// How much of `room`, the payload that one train may carry, the next request can use if its
    /// payload lies in on-demand memory. `None`: its first packet waits for a page, so the driver
    /// does not call [`Qp::plan`] before a page has come. Drivers without such memory need not ask.
    pub fn present_room<E: Env>(&self, room: u32, env: &mut E) -> Option<u32> {
        if !env.has_on_demand() {
            return Some(room);
        }
        let Some((position, offset)) = self.payload_to_send() else { return Some(room) };
        let left = self.sq.wqe(position).length - offset;
        let bytes = left.min(room.max(self.mtu.bytes()));
        let sges = self.sq.sges(position);
        let access = PieceAccess { pd: self.pd, side: Side::Requester, writes: false };
        let present = present_in(sges, offset.into(), bytes, access, env);
        let whole = present >> self.mtu.shift() << self.mtu.shift();
        match present < bytes {
            true => (whole > 0).then_some(whole),
            false => Some(room),
        }
    }

    /// Pages have come: what waited for one of them is tried again. Afterwards there may be
    /// something to send.
    pub fn pages_arrived<E: Env>(&mut self, env: &mut E) {
        self.resp.waits_for_page = false;
        let Some(train) = self.resp.faulted_read else { return };
        let is_next = train.first_psn == self.resp.epsn && self.state.can_receive();
        if !is_next || self.resp.in_flight {
            self.resp.faulted_read = None;
            return;
        }
        let found = self.read_of(&train, env);
        let Ok(found) = found else { return };
        if self.present_at(found, train.dma_bytes.into(), env) == u64::from(train.dma_bytes) {
            self.resp.faulted_read = None;
            // Nobody waits for the result: a READ that cannot be queued is repeated.
            let _: Accept = self.accept_read(&train, env);
        }
    }

    /// Answers a READ whose page is missing with an RNR NAK.
    #[cold]
    pub(super) fn answer_faulted_read(&mut self, train: &Train, repeated: bool) -> Accept {
        let syndrome = self.rnr_syndrome();
        self.push_nak(train.first_psn, syndrome);
        if !repeated {
            self.resp.nak_sent = true;
            self.resp.faulted_read = self.adapter.serves_faulted_reads.then_some(*train);
        }
        Accept::Done
    }

    /// How many of the next `bytes` bytes can be placed now: see [`Env::access_pages`].
    #[inline]
    pub(super) fn present_for<E: Env>(
        &self,
        target: &PlacementTarget,
        bytes: u32,
        env: &mut E,
    ) -> u32 {
        if bytes == 0 || !env.has_on_demand() {
            return bytes;
        }
        match target {
            PlacementTarget::Nothing => bytes,
            PlacementTarget::Memory { host_addr, entry } => {
                self.present_at((*host_addr, *entry), bytes.into(), env) as u32
            }
            PlacementTarget::Receive { offset } => {
                let held = &self.resp.held;
                let access = PieceAccess { pd: held.pd, side: Side::Responder, writes: true };
                present_in(held.sges(), *offset, bytes, access, env)
            }
        }
    }

    /// The same for memory that a peer's request names.
    #[inline]
    pub(super) fn present_at<E: Env>(
        &self,
        (host_addr, entry): (u64, KeyEntry),
        bytes: u64,
        env: &mut E,
    ) -> u64 {
        if bytes == 0 || !entry.on_demand || !env.has_on_demand() {
            return bytes;
        }
        env.access_pages(&entry, host_addr, bytes, Side::Responder)
    }

    /// The same for a response to the request at `position`.
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
        let access = PieceAccess { pd: self.pd, side: Side::Requester, writes: true };
        present_in(self.sq.sges(position), offset.into(), bytes, access, env)
    }
}

/// How the pieces of a list are accessed.
#[derive(Clone, Copy)]
struct PieceAccess {
    pd: PdId,
    side: Side,
    writes: bool,
}

/// How many of `bytes` bytes of a scatter/gather list, from its byte `offset` on, are present. A
/// piece that may not be accessed counts as present: moving the bytes reports its error.
fn present_in<E: Env>(
    sges: &[Sge],
    offset: u64,
    bytes: u32,
    access: PieceAccess,
    env: &mut E,
) -> u32 {
    let (mut present, mut is_missing) = (0, false);
    // A list that is too short is an error of its own, as moving the bytes reports it.
    let _: Result<(), CopyError> = mr::for_each_piece(sges, offset, bytes.into(), |sge| {
        let entry = env.key(sge.lkey).filter(|entry| entry.on_demand);
        let addr = entry.map(|entry| mr::check_local(Some(&entry), access.pd, sge, access.writes));
        let here = match (entry, addr) {
            (Some(entry), Some(Ok(addr))) => {
                env.access_pages(&entry, addr, sge.length.into(), access.side) as u32
            }
            _ => sge.length,
        };
        present += here;
        is_missing = here < sge.length;
        if is_missing { Err(CopyError::Fault) } else { Ok(()) }
    });
    if is_missing { present } else { bytes }
}
