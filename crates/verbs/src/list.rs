//! Linked lists of C requests, for sends and receives.

use std::ptr::null_mut;

use rdmalab_abi as abi;

/// A request of a list.
pub(crate) trait Linked: Copy {
    /// All zero.
    const ZERO: Self;

    /// This request, linked to the one at `next`; null: it is the last.
    fn before(self, next: *mut Self) -> Self;

    /// The address and number of its pieces.
    fn pieces(&self) -> (*mut abi::ibv_sge, i32);

    /// This request, with its pieces at `start`.
    fn with_pieces_at(self, start: *mut abi::ibv_sge) -> Self;
}

macro_rules! linked {
    ($request:ident) => {
        impl Linked for abi::$request {
            const ZERO: Self = Self::zeroed();

            #[inline]
            fn before(self, next: *mut Self) -> Self {
                Self { next, ..self }
            }

            fn pieces(&self) -> (*mut abi::ibv_sge, i32) {
                (self.sg_list, self.num_sge)
            }

            fn with_pieces_at(self, start: *mut abi::ibv_sge) -> Self {
                Self { sg_list: start, ..self }
            }
        }
    };
}

linked!(ibv_send_wr);
linked!(ibv_recv_wr);

/// How many requests are linked on the stack at a time.
const CHUNK: usize = 16;

/// Links the requests on the stack and posts them chunk by chunk, until one is refused. The error
/// has the number of posted requests and the error number.
///
/// # Safety
/// `post` posts a list as `ibv_post_send` does, and reads nothing of it afterwards.
#[inline]
pub(crate) unsafe fn post<T, R: Linked>(
    requests: &[T],
    raw: impl Fn(&T) -> R,
    mut post: impl FnMut(*mut R, *mut *mut R) -> i32,
) -> Result<(), (usize, i32)> {
    if let [one] = requests {
        let (mut wr, mut bad) = (raw(one), null_mut());
        return match post(&raw mut wr, &raw mut bad) {
            0 => Ok(()),
            result => Err((0, result)),
        };
    }
    for (index, chunk) in requests.chunks(CHUNK).enumerate() {
        let mut list = [const { R::ZERO }; CHUNK];
        let start = list.as_mut_ptr();
        for (i, request) in chunk.iter().enumerate() {
            let next = if i + 1 < chunk.len() { start.wrapping_add(i + 1) } else { null_mut() };
            list[i] = raw(request).before(next);
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

/// The index of `bad` in a list of `n` at `start`; 0 if the library did not set it.
pub(crate) fn place<R>(start: *mut R, bad: *mut R, n: usize) -> usize {
    let bytes = (bad as usize).wrapping_sub(start as usize);
    let index = bytes / size_of::<R>();
    if index < n { index } else { 0 }
}

/// One list of the requests, and their pieces. The requests point into both, which must not be
/// resized.
///
/// # Safety
/// The pieces that the requests name exist.
pub(crate) unsafe fn copied<R: Linked>(
    requests: impl Iterator<Item = R>,
) -> (Vec<R>, Vec<abi::ibv_sge>) {
    let mut list: Vec<R> = requests.collect();
    let mut sges: Vec<abi::ibv_sge> = Vec::new();
    for request in &list {
        let (start, count) = request.pieces();
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: the caller's contract.
        sges.extend_from_slice(unsafe { std::slice::from_raw_parts(start, count) });
    }
    let mut at = sges.as_mut_ptr();
    let (start, count) = (list.as_mut_ptr(), list.len());
    for (i, request) in list.iter_mut().enumerate() {
        let next = if i + 1 < count { start.wrapping_add(i + 1) } else { null_mut() };
        *request = request.with_pieces_at(at).before(next);
        at = at.wrapping_add(request.pieces().1 as usize);
    }
    (list, sges)
}
