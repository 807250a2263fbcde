//! Shared receive queues.

use core::ffi::c_int;

use rdmalab_abi::{
    IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_init_attr,
};
use rdmalab_engine::backend::{Backend, VerbsError};

use crate::object::SrqObject;
use crate::{answer, srq};

/// Creates an SRQ and writes its capacities to `init`; null and `errno` when that fails.
pub unsafe extern "C-unwind" fn ibv_create_srq<B: Backend>(
    pd: *mut ibv_pd,
    init: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    // SAFETY: by the contract of the module.
    let made = unsafe { srq::create::<B>(pd, (*init).srq_context, &raw mut (*init).attr) };
    answer::pointer("ibv_create_srq", made)
}

/// Arms the limit of an SRQ, or changes its size: 0, or an error number.
pub unsafe extern "C-unwind" fn ibv_modify_srq<B: Backend>(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    let mask = mask as u32;
    let unknown = mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT);
    if unknown != 0 {
        let message = format!("srq_attr_mask {mask:#x} has the unknown bits {unknown:#x}");
        return answer::number("ibv_modify_srq", &VerbsError::invalid(message));
    }
    // SAFETY: by the contract of the module.
    let result = unsafe {
        let max_wr = (mask & IBV_SRQ_MAX_WR != 0).then(|| (*attr).max_wr);
        let limit = (mask & IBV_SRQ_LIMIT != 0).then(|| (*attr).srq_limit);
        SrqObject::<B>::find(srq).and_then(|own| B::modify_srq(&own.backend, max_wr, limit))
    };
    answer::status("ibv_modify_srq", result)
}

/// The state of an SRQ: 0, or an error number.
pub unsafe extern "C-unwind" fn ibv_query_srq<B: Backend>(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
) -> c_int {
    // SAFETY: by the contract of the module.
    let result = unsafe {
        SrqObject::<B>::find(srq)
            .and_then(|own| B::query_srq(&own.backend))
            .map(|info| attr.write(srq::info_to_c(&info)))
    };
    answer::status("ibv_query_srq", result)
}

/// Destroys an SRQ: 0, or an error number (`EBUSY` while QPs use it). Waits until its events are
/// acknowledged.
pub unsafe extern "C-unwind" fn ibv_destroy_srq<B: Backend>(srq: *mut ibv_srq) -> c_int {
    // SAFETY: by the contract of the module.
    answer::status("ibv_destroy_srq", unsafe { srq::destroy::<B>(srq) })
}
