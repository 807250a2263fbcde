//! Completion channels and queues.

use core::ffi::{c_int, c_void};

use rdmalab_abi::{IBV_WC_STANDARD_FLAGS, ibv_comp_channel, ibv_context, ibv_cq};
use rdmalab_engine::backend::{Backend, VerbsError, VerbsResult};

use crate::cq::Wanted;
use crate::object::{ChannelObject, ChannelOwn, CqObject};
use crate::{answer, context, cq};

/// Makes a completion channel, whose `fd` programs may poll unless it is -1; null and `errno` when
/// that fails.
pub unsafe extern "C-unwind" fn ibv_create_comp_channel<B: Backend>(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    // SAFETY: by the contract of the module.
    let made = B::create_channel(unsafe { &context::own::<B>(context).backend }).map(|backend| {
        // SAFETY: by the contract of the module.
        unsafe { context::hold::<B>(context) };
        let public =
            ibv_comp_channel { context, fd: B::channel_fd(&backend).unwrap_or(-1), refcnt: 0 };
        ChannelObject::<B>::leak(public, ChannelOwn { backend })
    });
    answer::pointer("ibv_create_comp_channel", made)
}

/// Destroys a completion channel: 0, or an error number (`EBUSY` while CQs use it).
pub unsafe extern "C-unwind" fn ibv_destroy_comp_channel<B: Backend>(
    channel: *mut ibv_comp_channel,
) -> c_int {
    // SAFETY: by the contract of the module.
    answer::status("ibv_destroy_comp_channel", unsafe { destroy_channel::<B>(channel) })
}

/// # Safety
/// As for [`ibv_destroy_comp_channel`].
unsafe fn destroy_channel<B: Backend>(channel: *mut ibv_comp_channel) -> VerbsResult<()> {
    // SAFETY: by the contract; it is freed only after the backend has destroyed its part.
    unsafe {
        let own = ChannelObject::<B>::find(channel)?;
        let users = cq::channel_users(channel);
        if users != 0 {
            return Err(VerbsError::busy(format!("{users} CQs use this channel")));
        }
        B::destroy_channel(&own.backend)?;
        let context = (*channel).context;
        ChannelObject::<B>::free(channel);
        context::release::<B>(context);
    }
    Ok(())
}

/// Makes a CQ; null and `errno` when that fails. `channel` may be null.
pub unsafe extern "C-unwind" fn ibv_create_cq<B: Backend>(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    let wanted = Wanted {
        // Negative numbers become large ones, which are refused.
        cqe: cqe as u32,
        cq_context,
        channel,
        comp_vector: comp_vector as u32,
        wc_flags: IBV_WC_STANDARD_FLAGS,
        timestamps: false,
        ignore_overrun: false,
        single_threaded: false,
    };
    // SAFETY: by the contract of the module.
    answer::pointer("ibv_create_cq", unsafe { cq::create::<B>(context, &wanted) }).cast()
}

/// Changes the size of a CQ: 0, or an error number. `cq->cqe` is the new capacity.
pub unsafe extern "C-unwind" fn ibv_resize_cq<B: Backend>(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    let result = match u32::try_from(cqe) {
        Ok(wanted) if wanted > 0 => {
            // SAFETY: by the contract of the module.
            unsafe {
                CqObject::<B>::find(cq.cast())
                    .and_then(|own| B::resize_cq(&own.backend, wanted))
                    .map(|capacity| (*cq).cqe = c_int::try_from(capacity).unwrap_or(c_int::MAX))
            }
        }
        _ => Err(VerbsError::invalid(format!("a CQ of {cqe} entries; it takes at least 1"))),
    };
    answer::status("ibv_resize_cq", result)
}

/// Destroys a CQ: 0, or an error number (`EBUSY` while QPs use it). Waits until all events that
/// were taken from its channel are acknowledged.
pub unsafe extern "C-unwind" fn ibv_destroy_cq<B: Backend>(cq: *mut ibv_cq) -> c_int {
    // SAFETY: by the contract of the module.
    answer::status("ibv_destroy_cq", unsafe { cq::destroy::<B>(cq) })
}
