//! The batch of requests between `ibv_wr_start` and `ibv_wr_complete`.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::ptr;

use rdmalab_engine::backend::{MwBind, SendWr};
use rdmalab_engine::vocab::{QpCap, SendFlags, Sge, UdAddress, WrOpcode};

use crate::critical_section::CriticalSection;

/// A request of the batch. Its elements are a range of the elements of the batch.
#[derive(Clone, Copy)]
pub(crate) struct Staged {
    pub(crate) wr_id: u64,
    pub(crate) opcode: WrOpcode,
    pub(crate) flags: SendFlags,
    pub(crate) imm_or_rkey: u32,
    pub(crate) rkey: u32,
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    /// Whether a data setter was called for it.
    has_data: bool,
    first_sge: u32,
    sges: u32,
    /// One more than the index of what only few requests have; 0 if it has none.
    rare: u32,
}

impl Staged {
    /// A request without data.
    #[inline(always)]
    pub(crate) fn new(wr_id: u64, opcode: WrOpcode, flags: SendFlags) -> Staged {
        Staged {
            wr_id,
            opcode,
            flags,
            imm_or_rkey: 0,
            rkey: 0,
            remote_addr: 0,
            compare_add: 0,
            swap: 0,
            has_data: false,
            first_sge: 0,
            sges: 0,
            rare: 0,
        }
    }
}

/// What only few requests have: kept apart, so that the others are short.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rare {
    /// Destination of a datagram.
    pub(crate) ud: Option<UdAddress>,
    /// The binding of a window.
    pub(crate) bind: Option<MwBind>,
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
    rares: Vec<Rare>,
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
        self.rares.clear();
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

    /// What only few requests have, of the last one.
    pub(crate) fn rare(&mut self) -> Option<&mut Rare> {
        let next = self.rares.len() as u32 + 1;
        let last = self.last()?;
        let index = last.rare;
        if index > 0 {
            return self.rares.get_mut(index as usize - 1);
        }
        last.rare = next;
        self.rares.push(Rare::default());
        self.rares.last_mut()
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

    /// Assigns the elements from `first` on to the last request, after [`Batch::takes_data`].
    #[inline]
    pub(crate) fn take_sges(&mut self, first: usize) {
        let sges = (self.sges.len() - first) as u32;
        if let Some(last) = self.staged.last_mut() {
            (last.first_sge, last.sges) = (first as u32, sges);
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

    /// Makes the bytes from `first` on the payload of the last request, after
    /// [`Batch::takes_data`].
    #[inline]
    pub(crate) fn take_bytes(&mut self, first: usize) {
        let (length, at) = ((self.bytes.len() - first) as u32, self.sges.len());
        self.sges.push(Sge { addr: first as u64, length, lkey: 0 });
        if let Some(last) = self.staged.last_mut() {
            last.flags = last.flags | SendFlags::INLINE;
            (last.first_sge, last.sges) = (at as u32, 1);
        }
    }

    /// Turns the offsets of inline elements into addresses, now that the bytes stay where they are.
    #[inline]
    pub(crate) fn place_inline(&mut self) {
        if self.bytes.is_empty() {
            return;
        }
        let base = self.bytes.as_ptr() as u64;
        for staged in self.staged.iter().filter(|s| s.flags.contains(SendFlags::INLINE)) {
            if staged.sges == 1 {
                self.sges[staged.first_sge as usize].addr += base;
            }
        }
    }

    /// The requests, in order.
    pub(crate) fn requests(&self) -> impl Iterator<Item = SendWr<'_>> {
        self.staged.iter().map(|staged| {
            let first = staged.first_sge as usize;
            let rare = match staged.rare {
                0 => Rare::default(),
                index => self.rares[index as usize - 1],
            };
            SendWr {
                wr_id: staged.wr_id,
                opcode: staged.opcode,
                flags: staged.flags,
                imm_or_rkey: staged.imm_or_rkey,
                sges: &self.sges[first..first + staged.sges as usize],
                remote_addr: staged.remote_addr,
                rkey: staged.rkey,
                compare_add: staged.compare_add,
                swap: staged.swap,
                ud: rare.ud,
                bind: rare.bind,
            }
        })
    }
}
