//! Memory windows.

use core::ffi::c_int;
use core::{iter, ptr};

use rdmalab_abi::{IBV_MW_TYPE_1, IBV_MW_TYPE_2, ibv_mw, ibv_mw_bind, ibv_pd, ibv_qp};
use rdmalab_engine::backend::{Backend, MwType, VerbsError, VerbsResult};
use rdmalab_engine::vocab::{SendFlags, WrOpcode};

use super::post::{self, SEND_FLAGS, blank, window};
use crate::object::{MwObject, MwOwn, PdObject, QpObject};
use crate::registry::new_cookie;
use crate::{answer, context};

/// `ibv_alloc_mw`: a window, or null and `errno`.
///
/// # Safety
/// `pd` is a protection domain of this backend.
pub(crate) unsafe extern "C-unwind" fn alloc_mw<B: Backend>(
    pd: *mut ibv_pd,
    mw_type: u32,
) -> *mut ibv_mw {
    // SAFETY: by the contract.
    answer::pointer("ibv_alloc_mw", unsafe { alloc::<B>(pd, mw_type) })
}

/// # Safety
/// As for [`alloc_mw`].
unsafe fn alloc<B: Backend>(pd: *mut ibv_pd, mw_type: u32) -> VerbsResult<*mut ibv_mw> {
    let kind = match mw_type {
        IBV_MW_TYPE_1 => MwType::Type1,
        IBV_MW_TYPE_2 => MwType::Type2,
        other => {
            return Err(VerbsError::invalid(format!("{other} is no type of window (1 or 2)")));
        }
    };
    // SAFETY: by the contract.
    let (own, context) = unsafe { (PdObject::<B>::find(pd)?, (*pd).context) };
    let (backend, rkey) = B::alloc_mw(&own.backend, kind)?;
    let public = ibv_mw { context, pd, rkey, handle: new_cookie() as u32, r#type: mw_type };
    // SAFETY: the context of a live domain.
    unsafe { context::hold::<B>(context) };
    Ok(MwObject::<B>::leak(public, MwOwn { backend }))
}

/// `ibv_dealloc_mw`: 0, or an error number.
///
/// # Safety
/// `mw` is a window of this backend.
pub(crate) unsafe extern "C-unwind" fn dealloc_mw<B: Backend>(mw: *mut ibv_mw) -> c_int {
    // SAFETY: by the contract; the window is freed only after the backend has freed its part.
    let result = unsafe {
        MwObject::<B>::find(mw).and_then(|own| B::dealloc_mw(&own.backend)).map(|()| {
            let context = (*mw).context;
            MwObject::<B>::free(mw);
            context::release::<B>(context);
        })
    };
    answer::status("ibv_dealloc_mw", result)
}

/// `ibv_bind_mw`: 0, or an error number. The window has its new key when this returns.
///
/// # Safety
/// The QP, the window and the region of `bind` are of this backend.
pub(crate) unsafe extern "C-unwind" fn bind_mw<B: Backend>(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    if qp.is_null() || mw.is_null() || bind.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: by the contract.
    answer::status("ibv_bind_mw", unsafe { bind_type_1::<B>(qp, mw, &*bind) })
}

/// # Safety
/// As for [`bind_mw`].
unsafe fn bind_type_1<B: Backend>(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: &ibv_mw_bind,
) -> VerbsResult<()> {
    if bind.send_flags & !SEND_FLAGS != 0 {
        let flags = bind.send_flags;
        return Err(VerbsError::invalid(format!("send_flags {flags:#x} has unknown bits")));
    }
    // SAFETY: by the contract.
    let (qp, own) = unsafe { (QpObject::<B>::own(qp.cast()), MwObject::<B>::own(mw)) };
    let new_rkey = B::next_mw_rkey(&own.backend);
    let mut request = blank(bind.wr_id, WrOpcode::BindMw, SendFlags(bind.send_flags));
    // SAFETY: by the contract; `rkey` is a plain number.
    let rkey = unsafe { ptr::read(&raw const (*mw).rkey) };
    // SAFETY: by the contract.
    request.bind = Some(unsafe { window(rkey, new_rkey, &bind.bind_info) });
    B::post_send(&qp.backend, iter::once(request))
        .map_err(|(_, error)| VerbsError::new(error.errno(), post::sentence(error)))?;
    // SAFETY: the caller passed the window to this call.
    unsafe { (*mw).rkey = new_rkey };
    Ok(())
}
