//! Receive requests.

use std::marker::PhantomData;
use std::ptr::null_mut;

use rdmalab_abi as abi;

use crate::domain::Sge;

/// A receive request: where one message goes.
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
}

/// How many requests are linked on the stack at a time.
const CHUNK: usize = 16;

/// Links the requests on the stack and posts them chunk by chunk, until one is refused: how many
/// were posted, and the error number.
///
/// # Safety
/// `post` posts a list as `ibv_post_recv` does, and reads nothing of it afterwards.
#[inline]
pub(crate) unsafe fn post_list(
    requests: &[RecvRequest<'_, '_>],
    mut post: impl FnMut(*mut abi::ibv_recv_wr, *mut *mut abi::ibv_recv_wr) -> i32,
) -> Result<(), (usize, i32)> {
    if let [one] = requests {
        let (mut wr, mut bad) = (one.raw, null_mut());
        return match post(&raw mut wr, &raw mut bad) {
            0 => Ok(()),
            result => Err((0, result)),
        };
    }
    for (index, chunk) in requests.chunks(CHUNK).enumerate() {
        let mut list = [const { abi::ibv_recv_wr::zeroed() }; CHUNK];
        let start = list.as_mut_ptr();
        for (i, request) in chunk.iter().enumerate() {
            let next = if i + 1 < chunk.len() { start.wrapping_add(i + 1) } else { null_mut() };
            list[i] = abi::ibv_recv_wr { next, ..request.raw };
        }
        let mut bad = null_mut();
        let start = list.as_mut_ptr();
        let result = post(start, &raw mut bad);
        if result != 0 {
            return Err((index * CHUNK + place(start, bad, chunk.len()), result));
        }
    }
    Ok(())
}

/// The index of `bad` in a list of `n` at `start`; 0 where a library did not say.
pub(crate) fn place<T>(start: *mut T, bad: *mut T, n: usize) -> usize {
    let bytes = (bad as usize).wrapping_sub(start as usize);
    let index = bytes / size_of::<T>();
    if index < n { index } else { 0 }
}

/// Receive requests made once, as a list that is posted as a whole, often.
#[derive(Debug)]
pub struct RecvBatch<'m> {
    requests: Vec<abi::ibv_recv_wr>,
    /// What the requests point to; never resized.
    sges: Vec<abi::ibv_sge>,
    _memory: PhantomData<Sge<'m>>,
}

impl<'m> RecvBatch<'m> {
    /// A list of such requests.
    #[must_use]
    pub fn new(requests: &[RecvRequest<'_, 'm>]) -> Self {
        let mut sges: Vec<abi::ibv_sge> = Vec::new();
        for request in requests {
            // SAFETY: the request borrows the slice that it was made from.
            sges.extend_from_slice(unsafe { pieces(request.raw.sg_list, request.raw.num_sge) });
        }
        let mut list: Vec<abi::ibv_recv_wr> = requests.iter().map(|r| r.raw).collect();
        let mut at = sges.as_mut_ptr();
        let start = list.as_mut_ptr();
        let count = list.len();
        for (i, request) in list.iter_mut().enumerate() {
            request.sg_list = at;
            at = at.wrapping_add(request.num_sge as usize);
            request.next = if i + 1 < count { start.wrapping_add(i + 1) } else { null_mut() };
        }
        Self { requests: list, sges, _memory: PhantomData }
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

/// The pieces of a request as a slice.
///
/// # Safety
/// The pointer and the count are those of a slice that lives as long as the result.
pub(crate) unsafe fn pieces<'a>(start: *mut abi::ibv_sge, count: i32) -> &'a [abi::ibv_sge] {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the caller's contract.
    unsafe { std::slice::from_raw_parts(start, count) }
}
