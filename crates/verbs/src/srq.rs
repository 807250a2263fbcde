//! Shared receive queues.

use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rdmalab_abi as abi;
use rdmalab_abi::inline;

use crate::domain::Pd;
use crate::error::{PostError, VerbsError};
use crate::list;
use crate::recv::RecvRequest;

/// A shared receive queue, from which several queue pairs take receives. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Srq(Arc<SrqInner>);

#[derive(Debug)]
struct SrqInner {
    raw: NonNull<abi::ibv_srq>,
    pd: Pd,
}

// SAFETY: libibverbs may be called from any thread with any of its objects.
unsafe impl Send for SrqInner {}
// SAFETY: as above.
unsafe impl Sync for SrqInner {}

impl Drop for SrqInner {
    fn drop(&mut self) {
        let table = self.pd.context().library().table();
        // SAFETY: made by this library, and its queue pairs are gone: each keeps this alive.
        let _ = unsafe { (table.destroy_srq)(self.raw.as_ptr()) };
    }
}

impl Pd {
    /// Makes a shared receive queue.
    ///
    /// # Errors
    /// `EINVAL` beyond what the device can.
    pub fn create_srq(&self, max_wr: u32, max_sge: u32) -> Result<Srq, VerbsError> {
        let library = self.context().library();
        let attr = abi::ibv_srq_attr { max_wr, max_sge, srq_limit: 0 };
        let mut init = abi::ibv_srq_init_attr { srq_context: null_mut(), attr };
        // SAFETY: the domain is alive, and the attributes are valid.
        let raw = unsafe { (library.table().create_srq)(self.raw(), &raw mut init) };
        let raw = library.not_null("ibv_create_srq", raw)?;
        Ok(Srq(Arc::new(SrqInner { raw, pd: self.clone() })))
    }
}

impl Srq {
    pub(crate) fn raw(&self) -> *mut abi::ibv_srq {
        self.0.raw.as_ptr()
    }

    /// Posts receives, in order. Allocates nothing.
    ///
    /// # Errors
    /// How many were posted, and why the next one was not.
    pub fn post_recv(&self, requests: &[RecvRequest<'_, '_>]) -> Result<(), PostError> {
        // SAFETY: the queue is alive, and posting copies what it needs of the list.
        let result = unsafe {
            list::post(requests, RecvRequest::raw, |wr, bad| {
                inline::ibv_post_srq_recv(self.raw(), wr, bad)
            })
        };
        result.map_err(|(posted, errno)| PostError {
            posted,
            error: self.0.pd.context().library().error("ibv_post_srq_recv", errno.abs()),
        })
    }

    /// Requests one event when fewer receives than this remain; 0 requests none.
    ///
    /// # Errors
    /// `EINVAL` for more than the queue holds.
    pub fn arm_limit(&self, srq_limit: u32) -> Result<(), VerbsError> {
        let library = self.0.pd.context().library();
        let mut attr = abi::ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit };
        let mask = abi::IBV_SRQ_LIMIT as i32;
        // SAFETY: the queue is alive, and the attributes are valid.
        let result = unsafe { (library.table().modify_srq)(self.raw(), &raw mut attr, mask) };
        library.zero("ibv_modify_srq", result)
    }
}
