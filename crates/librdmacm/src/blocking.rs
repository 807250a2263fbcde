//! Ids that were created without an event channel: each call blocks until its event comes.

use rdmalab_abi::*;

use crate::cm_id::own;
use crate::errno::{CallResult, Errno, last_errno};
use crate::events;
use crate::id::ack_last_event;

/// Waits for the event of a call on an id without a channel. Returns at once on other ids.
///
/// # Safety
/// The id is the caller's.
pub unsafe fn wait_for_event(id: *mut rdma_cm_id) -> CallResult<()> {
    // SAFETY: the caller's contract.
    let own = unsafe { own(id)? };
    if !own.is_sync() {
        return Ok(());
    }
    ack_last_event(own);
    // SAFETY: the id's own channel.
    unsafe {
        let mut event = std::ptr::null_mut();
        if events::rdma_get_cm_event(own.channel(), &raw mut event) != 0 {
            return Err(last_errno());
        }
        own.set_event(event);
        match ((*event).status, (*event).event) {
            (0, _) => Ok(()),
            (_, RDMA_CM_EVENT_REJECTED) => Err(Errno(libc::ECONNREFUSED)),
            (status, _) => Err(Errno(status.abs())),
        }
    }
}
