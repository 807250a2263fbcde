//! Queue pairs and multicast.

use core::ffi::c_int;
use core::ptr;

use rdmalab_abi::{ibv_gid, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_ex, ibv_qp_init_attr};
use rdmalab_engine::backend::{Backend, VerbsResult};
use rdmalab_engine::vocab::QpState;

use crate::object::QpObject;
use crate::{answer, convert, qp};

/// Creates a QP and writes its capacities to `init->cap`; null and `errno` when that fails.
pub unsafe extern "C-unwind" fn ibv_create_qp<B: Backend>(
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: by the contract of the module.
    answer::pointer("ibv_create_qp", unsafe { qp::create::<B>(pd, init, None) })
}

/// Changes state and attributes: 0, or an error number. `qp->state` is the new state.
pub unsafe extern "C-unwind" fn ibv_modify_qp<B: Backend>(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    attr_mask: c_int,
) -> c_int {
    // SAFETY: by the contract of the module.
    let state = unsafe { modify::<B>(qp, &*attr, attr_mask) };
    // SAFETY: as above.
    let result = state.map(|state| unsafe { (*qp).state = state as u32 });
    answer::status("ibv_modify_qp", result)
}

/// # Safety
/// `qp` is of this backend.
unsafe fn modify<B: Backend>(
    qp: *mut ibv_qp,
    attr: &ibv_qp_attr,
    attr_mask: c_int,
) -> VerbsResult<QpState> {
    let mask = convert::attr_mask_from_c(attr_mask)?;
    let attr = convert::qp_attr_from_c(attr, mask)?;
    // SAFETY: by the contract.
    B::modify_qp(unsafe { &QpObject::<B>::find(qp.cast())?.backend }, &attr, mask)
}

/// Writes all attributes, whatever the mask, and the creation attributes: 0, or an error number.
/// `init_attr` may be null.
pub unsafe extern "C-unwind" fn ibv_query_qp<B: Backend>(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _attr_mask: c_int,
    init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: by the contract of the module.
    let result = unsafe {
        QpObject::<B>::find(qp.cast()).and_then(|own| Ok((own, B::query_qp(&own.backend)?))).map(
            |(own, found)| {
                attr.write(convert::qp_attr_to_c(&found));
                (*qp).state = found.qp_state as u32;
                if !init_attr.is_null() {
                    qp::write_made(&own.made, init_attr);
                }
            },
        )
    };
    answer::status("ibv_query_qp", result)
}

/// Destroys a QP: 0, or an error number. Waits until its events are acknowledged.
pub unsafe extern "C-unwind" fn ibv_destroy_qp<B: Backend>(qp: *mut ibv_qp) -> c_int {
    // SAFETY: by the contract of the module.
    answer::status("ibv_destroy_qp", unsafe { qp::destroy::<B>(qp) })
}

/// A QP's extended structure; null if created without `IBV_QP_INIT_ATTR_SEND_OPS_FLAGS`.
pub unsafe extern "C-unwind" fn ibv_qp_to_qp_ex<B: Backend>(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: by the contract of the module; every QP is allocated as the extended one.
    match unsafe { &QpObject::<B>::own(qp.cast()).builder } {
        Some(_) => qp.cast(),
        None => ptr::null_mut(),
    }
}

/// Whether payload is written strictly in order: no (0). Only the last bytes of a message are
/// written last for certain.
pub unsafe extern "C-unwind" fn ibv_query_qp_data_in_order<B: Backend>(
    _qp: *mut ibv_qp,
    _op: u32,
    _flags: u32,
) -> c_int {
    0
}

/// Joins a UD QP to a multicast group: 0, or an error number.
pub unsafe extern "C-unwind" fn ibv_attach_mcast<B: Backend>(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    lid: u16,
) -> c_int {
    // SAFETY: by the contract of the module.
    let (own, gid) = unsafe { (QpObject::<B>::find(qp.cast()), convert::gid_from_c(&*gid)) };
    let result = own.and_then(|own| B::attach_mcast(&own.backend, gid, lid));
    answer::status("ibv_attach_mcast", result)
}

/// Leaves a multicast group: 0, or an error number.
pub unsafe extern "C-unwind" fn ibv_detach_mcast<B: Backend>(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    lid: u16,
) -> c_int {
    // SAFETY: by the contract of the module.
    let (own, gid) = unsafe { (QpObject::<B>::find(qp.cast()), convert::gid_from_c(&*gid)) };
    let result = own.and_then(|own| B::detach_mcast(&own.backend, gid, lid));
    answer::status("ibv_detach_mcast", result)
}
