//! Send requests.

use std::marker::PhantomData;
use std::ptr::null_mut;

use rdmalab_abi as abi;

use crate::address::AddressHandle;
use crate::domain::{RemoteBuffer, Sge};
use crate::list;

/// A send request. `'s` is for its list of pieces, `'m` for the memory and addresses they name.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct SendRequest<'s, 'm> {
    raw: abi::ibv_send_wr,
    _sges: PhantomData<&'s [Sge<'m>]>,
}

impl std::fmt::Debug for SendRequest<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendRequest")
            .field("wr_id", &self.raw.wr_id)
            .field("opcode", &self.raw.opcode)
            .field("num_sge", &self.raw.num_sge)
            .field("send_flags", &self.raw.send_flags)
            .finish_non_exhaustive()
    }
}

impl<'s, 'm> SendRequest<'s, 'm> {
    /// The request as a C structure.
    #[inline]
    pub(crate) fn raw(&self) -> abi::ibv_send_wr {
        self.raw
    }

    fn new(opcode: u32, sges: &'s [Sge<'m>]) -> Self {
        let mut raw = abi::ibv_send_wr::zeroed();
        raw.opcode = opcode;
        raw.sg_list = sges.as_ptr().cast_mut().cast();
        raw.num_sge = i32::try_from(sges.len()).unwrap_or(i32::MAX);
        Self { raw, _sges: PhantomData }
    }

    fn remote(opcode: u32, sges: &'s [Sge<'m>], to: &RemoteBuffer, offset: u64) -> Self {
        let mut request = Self::new(opcode, sges);
        let remote_addr = to.addr.wrapping_add(offset);
        request.raw.wr.rdma = abi::ibv_send_wr_rdma { remote_addr, rkey: to.rkey };
        request
    }

    /// A SEND.
    #[must_use]
    pub fn send(sges: &'s [Sge<'m>]) -> Self {
        Self::new(abi::IBV_WR_SEND, sges)
    }

    /// A WRITE to `offset` bytes into the peer's memory. The peer's device checks the range.
    #[must_use]
    pub fn write(sges: &'s [Sge<'m>], to: &RemoteBuffer, offset: u64) -> Self {
        Self::remote(abi::IBV_WR_RDMA_WRITE, sges, to, offset)
    }

    /// A READ from `offset` bytes into the peer's memory into these pieces; RC only.
    #[must_use]
    pub fn read(sges: &'s [Sge<'m>], from: &RemoteBuffer, offset: u64) -> Self {
        Self::remote(abi::IBV_WR_RDMA_READ, sges, from, offset)
    }

    /// A compare-and-swap of eight bytes of the peer's memory; `result`, one piece of 8 bytes, gets
    /// the old value. RC only.
    #[must_use]
    pub fn compare_swap(
        result: &'s [Sge<'m>],
        at: &RemoteBuffer,
        offset: u64,
        compare: u64,
        swap: u64,
    ) -> Self {
        Self::atomic(abi::IBV_WR_ATOMIC_CMP_AND_SWP, result, at, offset, [compare, swap])
    }

    /// A fetch-and-add on eight bytes of the peer's memory; `result`, one piece of 8 bytes, gets
    /// the old value. RC only.
    #[must_use]
    pub fn fetch_add(result: &'s [Sge<'m>], at: &RemoteBuffer, offset: u64, add: u64) -> Self {
        Self::atomic(abi::IBV_WR_ATOMIC_FETCH_AND_ADD, result, at, offset, [add, 0])
    }

    fn atomic(
        opcode: u32,
        result: &'s [Sge<'m>],
        at: &RemoteBuffer,
        offset: u64,
        [compare_add, swap]: [u64; 2],
    ) -> Self {
        let mut request = Self::new(opcode, result);
        let remote_addr = at.addr.wrapping_add(offset);
        request.raw.wr.atomic =
            abi::ibv_send_wr_atomic { remote_addr, compare_add, swap, rkey: at.rkey };
        request
    }

    /// A number that comes back in the completion.
    #[must_use]
    pub fn wr_id(mut self, wr_id: u64) -> Self {
        self.raw.wr_id = wr_id;
        self
    }

    fn flag(mut self, flag: u32) -> Self {
        self.raw.send_flags |= flag;
        self
    }

    /// Requests a completion. Without one, the slot of the send queue is free again when a later
    /// completion has been polled.
    #[must_use]
    pub fn signaled(self) -> Self {
        self.flag(abi::IBV_SEND_SIGNALED)
    }

    /// Raises a solicited event at the peer.
    #[must_use]
    pub fn solicited(self) -> Self {
        self.flag(abi::IBV_SEND_SOLICITED)
    }

    /// Starts after all earlier READs and atomics of this queue pair have completed.
    #[must_use]
    pub fn fenced(self) -> Self {
        self.flag(abi::IBV_SEND_FENCE)
    }

    /// The bytes are copied when the request is posted, up to the queue pair's `max_inline_data`;
    /// the memory need not be registered. SEND and WRITE only.
    #[must_use]
    pub fn inline_data(self) -> Self {
        self.flag(abi::IBV_SEND_INLINE)
    }

    /// Adds immediate data for the peer's completion. SEND and WRITE only: other requests stay as
    /// they are.
    #[must_use]
    pub fn with_imm(mut self, imm: u32) -> Self {
        self.raw.opcode = match self.raw.opcode {
            abi::IBV_WR_SEND => abi::IBV_WR_SEND_WITH_IMM,
            abi::IBV_WR_RDMA_WRITE => abi::IBV_WR_RDMA_WRITE_WITH_IMM,
            other => return Self { raw: abi::ibv_send_wr { opcode: other, ..self.raw }, ..self },
        };
        self.raw.imm_data = imm.to_be();
        self
    }

    /// A SEND that also invalidates a key of the peer.
    #[must_use]
    pub fn send_and_invalidate(sges: &'s [Sge<'m>], rkey: u32) -> Self {
        let mut request = Self::new(abi::IBV_WR_SEND_WITH_INV, sges);
        request.raw.imm_data = rkey;
        request
    }

    /// Sends a datagram to this queue pair, which has this Q_Key. SEND only.
    #[must_use]
    pub fn to(mut self, ah: &'m AddressHandle, remote_qpn: u32, remote_qkey: u32) -> Self {
        if matches!(self.raw.opcode, abi::IBV_WR_SEND | abi::IBV_WR_SEND_WITH_IMM) {
            self.raw.wr.ud = abi::ibv_send_wr_ud { ah: ah.raw(), remote_qpn, remote_qkey };
        }
        self
    }
}

/// A list of send requests, made once and posted often, each time as a whole.
pub struct SendBatch<'m> {
    requests: Vec<abi::ibv_send_wr>,
    /// The pieces that the requests point to; never resized.
    sges: Vec<abi::ibv_sge>,
    _memory: PhantomData<Sge<'m>>,
}

impl std::fmt::Debug for SendBatch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendBatch").field("len", &self.len()).field("bytes", &self.bytes()).finish()
    }
}

impl<'m> SendBatch<'m> {
    /// A list of copies of these requests.
    #[must_use]
    pub fn new(requests: &[SendRequest<'_, 'm>]) -> Self {
        // SAFETY: each request borrows the slice that it was made from.
        let (requests, sges) = unsafe { list::copied(requests.iter().map(SendRequest::raw)) };
        Self { requests, sges, _memory: PhantomData }
    }

    /// How many requests it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Bytes that the requests carry together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sges.iter().map(|sge| u64::from(sge.length)).sum()
    }

    /// Changes the number that comes back in a request's completion.
    ///
    /// # Panics
    /// When there is no such request.
    #[inline]
    pub fn set_wr_id(&mut self, index: usize, wr_id: u64) {
        self.requests[index].wr_id = wr_id;
    }

    /// Changes whether a request has a completion.
    ///
    /// # Panics
    /// When there is no such request.
    #[inline]
    pub fn set_signaled(&mut self, index: usize, signaled: bool) {
        let flags = &mut self.requests[index].send_flags;
        *flags &= !abi::IBV_SEND_SIGNALED;
        if signaled {
            *flags |= abi::IBV_SEND_SIGNALED;
        }
    }

    /// Changes a request's immediate data; only relevant for opcodes with immediate data.
    ///
    /// # Panics
    /// When there is no such request.
    #[inline]
    pub fn set_imm(&mut self, index: usize, imm: u32) {
        self.requests[index].imm_data = imm.to_be();
    }

    /// The first of the list; null when empty.
    pub(crate) fn head(&mut self) -> *mut abi::ibv_send_wr {
        if self.requests.is_empty() { null_mut() } else { self.requests.as_mut_ptr() }
    }

    /// Calls `post` with `count` requests from `first` on as a separate list.
    ///
    /// # Panics
    /// When there are fewer requests, or `count` is 0.
    #[inline]
    pub(crate) fn with_part<T>(
        &mut self,
        first: usize,
        count: usize,
        post: impl FnOnce(*mut abi::ibv_send_wr) -> T,
    ) -> T {
        let part = &mut self.requests[first..first + count];
        let next = std::mem::replace(&mut part[count - 1].next, null_mut());
        // One pointer to the whole list, since requests point to each other.
        let start = self.requests.as_mut_ptr();
        let result = post(start.wrapping_add(first));
        self.requests[first + count - 1].next = next;
        result
    }
}
