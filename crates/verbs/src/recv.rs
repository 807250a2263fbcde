//! Receive requests.

use std::marker::PhantomData;
use std::ptr::null_mut;

use rdmalab_abi as abi;

use crate::domain::Sge;
use crate::list;

/// A receive request: the memory for one message.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct RecvRequest<'s, 'm> {
    raw: abi::ibv_recv_wr,
    _sges: PhantomData<&'s [Sge<'m>]>,
}

impl<'s, 'm> RecvRequest<'s, 'm> {
    /// A request for these pieces of memory, filled in their order.
    #[must_use]
    pub fn new(sges: &'s [Sge<'m>]) -> Self {
        let raw = abi::ibv_recv_wr {
            wr_id: 0,
            next: null_mut(),
            sg_list: sges.as_ptr().cast_mut().cast(),
            num_sge: i32::try_from(sges.len()).unwrap_or(i32::MAX),
        };
        Self { raw, _sges: PhantomData }
    }

    /// A number that comes back in the completion.
    #[must_use]
    pub fn wr_id(mut self, wr_id: u64) -> Self {
        self.raw.wr_id = wr_id;
        self
    }

    /// The request as a C structure.
    #[inline]
    pub(crate) fn raw(&self) -> abi::ibv_recv_wr {
        self.raw
    }
}

/// A list of receive requests, made once and posted often, each time as a whole.
#[derive(Debug)]
pub struct RecvBatch<'m> {
    requests: Vec<abi::ibv_recv_wr>,
    /// The pieces that the requests point to; never resized.
    sges: Vec<abi::ibv_sge>,
    _memory: PhantomData<Sge<'m>>,
}

impl<'m> RecvBatch<'m> {
    /// A list of copies of these requests.
    #[must_use]
    pub fn new(requests: &[RecvRequest<'_, 'm>]) -> Self {
        // SAFETY: each request borrows the slice that it was made from.
        let (requests, sges) = unsafe { list::copied(requests.iter().map(RecvRequest::raw)) };
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

    /// Changes the number that comes back in a request's completion.
    ///
    /// # Panics
    /// When there is no such request.
    pub fn set_wr_id(&mut self, index: usize, wr_id: u64) {
        self.requests[index].wr_id = wr_id;
    }

    /// Bytes that the requests take together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sges.iter().map(|sge| u64::from(sge.length)).sum()
    }

    /// The first of the list; null when empty.
    pub(crate) fn head(&mut self) -> *mut abi::ibv_recv_wr {
        if self.requests.is_empty() { null_mut() } else { self.requests.as_mut_ptr() }
    }
}
