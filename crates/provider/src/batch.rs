//! The batch of requests between `ibv_wr_start` and `ibv_wr_complete`.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::ptr;

use rdmalab_engine::backend::SendWr;
use rdmalab_engine::vocab::{QpCap, SendFlags, Sge};

use crate::critical_section::CriticalSection;

/// A request of the batch. Its elements are a range of the elements of the batch.
pub(crate) struct Staged {
    pub(crate) wr: SendWr<'static>,
    /// Whether a data setter was called for it.
    pub(crate) has_data: bool,
    pub(crate) first_sge: u32,
    pub(crate) sges: u32,
}

/// The batch between `wr_start` and `wr_complete`.
pub(crate) struct Builder {
    pub(crate) lock: CriticalSection,
    /// Bits of `ibv_qp_create_send_ops_flags`.
    pub(crate) granted: u64,
    pub(crate) max_requests: usize,
    pub(crate) max_sges: usize,
    pub(crate) max_inline: usize,
    /// Accessed only with the lock held.
    pub(crate) batch: UnsafeCell<Batch>,
}

#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) staged: Vec<Staged>,
    pub(crate) sges: Vec<Sge>,
    /// Inline bytes; the element of an inline request holds an offset into it until it is posted.
    pub(crate) bytes: Vec<u8>,
    /// The first error, which `wr_complete` returns.
    pub(crate) error: Option<(c_int, &'static str)>,
}

impl Builder {
    /// A builder for a QP that holds `cap`.
    pub(crate) fn new(granted: u64, cap: &QpCap) -> Self {
        Builder {
            lock: CriticalSection::default(),
            granted,
            max_requests: cap.max_send_wr as usize,
            max_sges: cap.max_send_sge as usize,
            max_inline: cap.max_inline_data as usize,
            batch: UnsafeCell::new(Batch::default()),
        }
    }
}

impl Batch {
    pub(crate) fn clear(&mut self) {
        self.staged.clear();
        self.sges.clear();
        self.bytes.clear();
        self.error = None;
    }

    /// Keeps the first error, which `wr_complete` returns; it ignores later ones.
    #[cold]
    pub(crate) fn fail(&mut self, errno: c_int, sentence: &'static str) {
        self.error.get_or_insert((errno, sentence));
    }

    /// The request to which setters apply; it is an error to call one without a request. `None`
    /// also after the batch has failed.
    #[inline]
    pub(crate) fn last(&mut self) -> Option<&mut Staged> {
        if self.error.is_some() {
            return None;
        }
        if self.staged.is_empty() {
            self.fail(libc::EINVAL, "a setter was called before any operation of the batch");
        }
        self.staged.last_mut()
    }

    /// Whether the last request may get its payload now: each request takes one data setter, which
    /// also bounds the size of a batch.
    #[inline]
    pub(crate) fn takes_data(&mut self) -> bool {
        match self.last() {
            None => false,
            Some(last) if !last.has_data => {
                last.has_data = true;
                true
            }
            Some(_) => {
                self.fail(libc::EINVAL, "two data setters for one request");
                false
            }
        }
    }

    /// Assigns the elements from `first` on to the last request.
    #[inline]
    pub(crate) fn take_sges(&mut self, first: usize) {
        let sges = (self.sges.len() - first) as u32;
        if let Some(last) = self.last() {
            last.first_sge = first as u32;
            last.sges = sges;
        }
    }

    /// Appends inline bytes.
    ///
    /// # Safety
    /// `length` bytes at `from` can be read.
    #[inline]
    pub(crate) unsafe fn append(&mut self, from: *const u8, length: usize) {
        self.bytes.reserve(length);
        let end = self.bytes.len();
        // SAFETY: there is room for `length` more bytes; the source can be read and is not this
        // buffer. It is copied raw, since another thread may write it meanwhile.
        unsafe {
            ptr::copy_nonoverlapping(from, self.bytes.as_mut_ptr().add(end), length);
            self.bytes.set_len(end + length);
        }
    }

    /// Makes the bytes from `first` on the payload of the last request.
    #[inline]
    pub(crate) fn take_bytes(&mut self, first: usize) {
        let length = (self.bytes.len() - first) as u32;
        if let Some(last) = self.last() {
            last.wr.flags = last.wr.flags | SendFlags::INLINE;
            let at = self.sges.len();
            self.sges.push(Sge { addr: first as u64, length, lkey: 0 });
            self.take_sges(at);
        }
    }

    /// Turns the offsets of inline elements into addresses, now that the bytes stay where they are.
    #[inline]
    pub(crate) fn place_inline(&mut self) {
        if self.bytes.is_empty() {
            return;
        }
        let base = self.bytes.as_ptr() as u64;
        for staged in self.staged.iter().filter(|s| s.wr.flags.contains(SendFlags::INLINE)) {
            if staged.sges == 1 {
                self.sges[staged.first_sge as usize].addr += base;
            }
        }
    }

    /// The requests, in order.
    pub(crate) fn requests(&self) -> impl Iterator<Item = SendWr<'_>> {
        self.staged.iter().map(|staged| {
            let first = staged.first_sge as usize;
            let wr = &staged.wr;
            SendWr {
                sges: &self.sges[first..first + staged.sges as usize],
                // Most requests have neither, and copying nothing is faster.
                ud: wr.ud.as_ref().copied(),
                bind: wr.bind.as_ref().copied(),
                ..*wr
            }
        })
    }
}
