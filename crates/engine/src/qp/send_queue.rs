//! The send queue: work requests in order, from post to completion.
//!
//! Positions are free-running counters; a slot is a position modulo the capacity. The cursors are
//! in order: `posted` >= `fetched` >= `begun` >= `oldest` >= `freed`. Posting moves `posted`; the
//! driver moves `fetched` when its adapter has read the WQEs, and only those are sent; the
//! requester moves `begun`, the completer `oldest`. A slot is free again only when the completion
//! of a later signalled request was *polled* (IBA vol. 1, 10.8.5), so `freed` comes from the owner
//! of the CQ.

use crate::backend::{MwBind, PostError, SendWr};
use crate::train::Fold;
use crate::vocab::{QpCap, SendFlags, Sge, UdAddress, WcStatus, WrOpcode};
use rdmalab_wire::ids::Psn;

/// A send work request in its queue.
#[derive(Clone, Copy, Debug)]
pub struct SendWqe {
    /// The caller's number.
    pub wr_id: u64,
    /// The operation.
    pub opcode: WrOpcode,
    /// Its flags; `SIGNALED` is set also when the QP signals all.
    pub flags: SendFlags,
    /// Immediate data, or the key to invalidate.
    pub imm_or_rkey: u32,
    /// Elements in the slot's part of the gather list; unused when inline.
    pub sge_count: u32,
    /// Payload bytes.
    pub length: u32,
    /// Remote key.
    pub rkey: u32,
    /// Remote address.
    pub remote_addr: u64,
    /// Compare value or addend.
    pub compare_add: u64,
    /// Swap value.
    pub swap: u64,
    /// PSN of its first packet, once begun.
    pub first_psn: Psn,
    /// PSNs it takes, once begun; 0 for local operations.
    pub packets: u32,
    /// Packets of the response that have arrived (READ, atomics).
    pub answered: u32,
    /// The operations that the local lane executed before its first packet.
    pub fold: Fold,
    /// Its final status, if known before the request is the oldest.
    pub outcome: Option<WcStatus>,
}

impl SendWqe {
    const EMPTY: SendWqe = SendWqe {
        wr_id: 0,
        opcode: WrOpcode::Send,
        flags: SendFlags::NONE,
        imm_or_rkey: 0,
        sge_count: 0,
        length: 0,
        rkey: 0,
        remote_addr: 0,
        compare_add: 0,
        swap: 0,
        first_psn: Psn::new(0),
        packets: 0,
        answered: 0,
        fold: Fold { packets: 0, messages: 0 },
        outcome: None,
    };

    /// PSN of its last packet; meaningful once begun and not local.
    #[inline]
    pub fn last_psn(&self) -> Psn {
        self.first_psn.add(self.packets.wrapping_sub(1))
    }

    /// Whether the request produces a completion even when it succeeds.
    #[inline]
    pub fn signaled(&self) -> bool {
        self.flags.contains(SendFlags::SIGNALED)
    }

    /// Whether the payload lies in the queue.
    #[inline]
    pub fn is_inline(&self) -> bool {
        self.flags.contains(SendFlags::INLINE)
    }

    /// Whether it is an atomic whose scatter list has other than 8 bytes, which it fails for before
    /// the target is touched.
    #[inline]
    pub fn is_atomic_of_wrong_length(&self) -> bool {
        matches!(self.opcode, WrOpcode::CmpSwap | WrOpcode::FetchAdd) && self.length != 8
    }
}

/// The queue itself. See the module's text for the cursors.
#[derive(Clone, Debug)]
pub struct SendQueue {
    wqes: Box<[SendWqe]>,
    sges: Box<[Sge]>,
    inline: Box<[u8]>,
    ud: Box<[UdAddress]>,
    binds: Vec<Option<MwBind>>,
    mask: u32,
    capacity: u32,
    max_sge: u32,
    max_inline: u32,
    /// Next position to be posted.
    pub posted: u32,
    /// Positions below this have been read by the adapter.
    pub(super) fetched: u32,
    /// Next position that was never begun.
    pub begun: u32,
    /// Oldest position that is not complete.
    pub oldest: u32,
}

impl SendQueue {
    /// A queue for `cap`; address vectors are kept per request when `datagram`.
    pub fn new(cap: &QpCap, datagram: bool) -> Self {
        let slots = cap.max_send_wr.max(1).next_power_of_two();
        let ud_slots = if datagram { slots as usize } else { 0 };
        let empty_ud =
            UdAddress { ah: Default::default(), remote_qpn: Default::default(), remote_qkey: 0 };
        SendQueue {
            wqes: vec![SendWqe::EMPTY; slots as usize].into(),
            sges: vec![Sge::default(); (slots * cap.max_send_sge) as usize].into(),
            inline: vec![0; slots as usize * cap.max_inline_data as usize].into(),
            ud: vec![empty_ud; ud_slots].into(),
            binds: Vec::new(),
            mask: slots - 1,
            capacity: cap.max_send_wr,
            max_sge: cap.max_send_sge,
            max_inline: cap.max_inline_data,
            posted: 0,
            fetched: 0,
            begun: 0,
            oldest: 0,
        }
    }

    /// Empties the queue (RESET).
    pub fn reset(&mut self) {
        self.posted = 0;
        self.fetched = 0;
        self.begun = 0;
        self.oldest = 0;
    }

    #[inline]
    fn slot(&self, position: u32) -> usize {
        (position & self.mask) as usize
    }

    /// The request at `position`.
    #[inline]
    pub fn wqe(&self, position: u32) -> &SendWqe {
        &self.wqes[self.slot(position)]
    }

    /// Asserts the order of the cursors.
    #[inline(always)]
    pub(super) fn assert_cursors(&self) {
        let from_oldest = |position: u32| position.wrapping_sub(self.oldest);
        debug_assert!(
            from_oldest(self.begun) <= from_oldest(self.fetched),
            "a request was begun before its fetch"
        );
        debug_assert!(
            from_oldest(self.fetched) <= self.outstanding(),
            "a request was fetched before it was posted"
        );
        debug_assert!(
            self.outstanding() <= self.capacity,
            "more requests are incomplete than the queue has room for"
        );
    }

    /// The request at `position`, to be changed.
    #[inline]
    pub fn wqe_mut(&mut self, position: u32) -> &mut SendWqe {
        debug_assert!(
            position.wrapping_sub(self.oldest) < self.outstanding(),
            "request {position} is changed, which is complete or not posted"
        );
        let slot = self.slot(position);
        &mut self.wqes[slot]
    }

    /// The scatter/gather list of the request at `position`.
    #[inline]
    pub fn sges(&self, position: u32) -> &[Sge] {
        let slot = self.slot(position);
        debug_assert!(
            self.wqes[slot].sge_count <= self.max_sge,
            "request {position} has more elements than its place"
        );
        let start = slot * self.max_sge as usize;
        &self.sges[start..start + self.wqes[slot].sge_count as usize]
    }

    /// The inline payload of the request at `position`.
    #[inline]
    pub fn inline(&self, position: u32) -> &[u8] {
        let slot = self.slot(position);
        debug_assert!(
            self.wqes[slot].length <= self.max_inline,
            "request {position} has more inline payload than its place"
        );
        let start = slot * self.max_inline as usize;
        &self.inline[start..start + self.wqes[slot].length as usize]
    }

    /// Where the poster copies the inline payload of the request at `position`.
    #[inline]
    pub fn inline_mut(&mut self, position: u32) -> &mut [u8] {
        debug_assert!(
            position.wrapping_sub(self.fetched) < self.unfetched(),
            "an inline payload is written after the adapter read it"
        );
        let slot = self.slot(position);
        let start = slot * self.max_inline as usize;
        &mut self.inline[start..start + self.wqes[slot].length as usize]
    }

    /// The destination of the datagram at `position`.
    #[inline]
    pub fn ud(&self, position: u32) -> &UdAddress {
        &self.ud[self.slot(position)]
    }

    /// The binding of the bind request at `position`.
    pub fn bind(&self, position: u32) -> Option<&MwBind> {
        self.binds.get(self.slot(position)).and_then(Option::as_ref)
    }

    /// Requests posted and not complete.
    #[inline]
    pub fn outstanding(&self) -> u32 {
        self.posted.wrapping_sub(self.oldest)
    }

    /// Whether the request at `position` was begun and is not complete.
    #[inline]
    pub fn is_in_flight(&self, position: u32) -> bool {
        position.wrapping_sub(self.oldest) < self.begun.wrapping_sub(self.oldest)
    }

    /// Position up to which the adapter has read the queue.
    #[inline]
    pub fn fetched(&self) -> u32 {
        self.fetched
    }

    /// How many posted requests the adapter has not read yet.
    #[inline]
    pub fn unfetched(&self) -> u32 {
        self.posted.wrapping_sub(self.fetched)
    }

    /// The adapter has read the next `count` posted requests, or all if fewer wait.
    pub fn fetch(&mut self, count: u32) {
        self.fetched = self.fetched.wrapping_add(count.min(self.unfetched()));
        self.assert_cursors();
    }

    /// The adapter has read everything that was posted.
    #[inline(always)]
    pub fn fetch_all(&mut self) {
        self.fetched = self.posted;
        self.assert_cursors();
    }

    /// Queues a request that was checked; `freed` is the position up to which slots are free.
    /// The adapter has not read it yet: the driver calls [`SendQueue::fetch`] when it has. An
    /// inline payload is to be copied to [`SendQueue::inline_mut`] of the returned position.
    #[inline(always)]
    pub fn push(
        &mut self,
        wr: &SendWr<'_>,
        signal_all: bool,
        freed: u32,
    ) -> Result<u32, PostError> {
        // A completion from before a RESET that is polled later names positions not posted yet.
        let stale = freed.wrapping_sub(self.oldest) as i32 > 0;
        let used = if stale { self.outstanding() } else { self.posted.wrapping_sub(freed) };
        if used >= self.capacity {
            return Err(PostError::QueueFull);
        }
        if wr.sges.len() > self.max_sge as usize {
            return Err(PostError::TooManySges);
        }
        let length = match wr.sges {
            [one] => one.length as u64,
            sges => sges.iter().map(|sge| sge.length as u64).sum(),
        };
        if length > MAX_MESSAGE_BYTES {
            return Err(PostError::TooLong);
        }
        let slot = self.slot(self.posted);
        if wr.flags.contains(SendFlags::INLINE) {
            if length > self.max_inline as u64 {
                return Err(PostError::InlineTooLong);
            }
        } else {
            let start = slot * self.max_sge as usize;
            match wr.sges {
                // Without a call to copy it.
                [one] => self.sges[start] = *one,
                sges => self.sges[start..start + sges.len()].copy_from_slice(sges),
            }
        }
        let signal = if signal_all { SendFlags::SIGNALED } else { SendFlags::NONE };
        self.wqes[slot] = SendWqe {
            wr_id: wr.wr_id,
            opcode: wr.opcode,
            flags: wr.flags | signal,
            imm_or_rkey: wr.imm_or_rkey,
            sge_count: wr.sges.len() as u32,
            length: length as u32,
            rkey: wr.rkey,
            remote_addr: wr.remote_addr,
            compare_add: wr.compare_add,
            swap: wr.swap,
            ..SendWqe::EMPTY
        };
        self.push_rare(slot, wr)?;
        let position = self.posted;
        self.posted = position.wrapping_add(1);
        self.assert_cursors();
        Ok(position)
    }

    #[inline(always)]
    fn push_rare(&mut self, slot: usize, wr: &SendWr<'_>) -> Result<(), PostError> {
        if !self.ud.is_empty() {
            self.ud[slot] = wr.ud.ok_or(PostError::BadAddress)?;
        }
        if wr.opcode == WrOpcode::BindMw {
            let bind = wr.bind.ok_or(PostError::BadAddress)?;
            if self.binds.is_empty() {
                self.binds = vec![None; self.wqes.len()];
            }
            self.binds[slot] = Some(bind);
        }
        Ok(())
    }

    /// Removes the request that was pushed last, because its inline payload cannot be read.
    pub fn unpush(&mut self) {
        self.unpush_to(self.posted.wrapping_sub(1));
    }

    /// Removes the requests from position `posted` on, because a later request of the same batch
    /// was refused. The adapter must not have read any of them.
    pub fn unpush_to(&mut self, posted: u32) {
        debug_assert!(
            self.posted.wrapping_sub(posted) <= self.unfetched(),
            "a request that the adapter has read is taken back"
        );
        self.posted = posted;
        self.assert_cursors();
    }
}

/// The longest message: 2^31 bytes (IBA vol. 1, 9.7.7.1.4, `max_msg_sz`).
pub const MAX_MESSAGE_BYTES: u64 = 1 << 31;
