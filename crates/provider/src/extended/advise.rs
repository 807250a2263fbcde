//! Advice about memory that is paged on demand.

use core::ffi::c_int;

use rdmalab_abi::{IBV_ADVISE_MR_FLAG_FLUSH, ibv_pd, ibv_sge};
use rdmalab_engine::backend::{Backend, VerbsError, VerbsResult};
use rdmalab_engine::odp::Advice;
use rdmalab_engine::vocab::Sge;

use crate::answer;
use crate::object::PdObject;

/// `ibv_advise_mr`: 0, or an error number.
pub(crate) unsafe extern "C-unwind" fn advise_mr<B: Backend>(
    pd: *mut ibv_pd,
    advice: u32,
    flags: u32,
    sg_list: *mut ibv_sge,
    num_sge: u32,
) -> c_int {
    // SAFETY: the header calls with a domain of this backend, and the caller's list.
    match unsafe { advised::<B>(pd, advice, flags, sg_list, num_sge) } {
        Ok(()) => 0,
        Err(error) => answer::number("ibv_advise_mr", &error),
    }
}

/// # Safety
/// `pd` is of this backend; `sg_list` has `num_sge` elements.
unsafe fn advised<B: Backend>(
    pd: *mut ibv_pd,
    advice: u32,
    flags: u32,
    sg_list: *mut ibv_sge,
    num_sge: u32,
) -> VerbsResult<()> {
    let Some(advice) = Advice::from_ibv(advice) else {
        return Err(VerbsError::unsupported(format!("advice {advice}: 0 to 2 are known")));
    };
    if flags & !IBV_ADVISE_MR_FLAG_FLUSH != 0 {
        return Err(VerbsError::invalid("the only flag of advice is IBV_ADVISE_MR_FLAG_FLUSH"));
    }
    if num_sge == 0 || sg_list.is_null() {
        return Err(VerbsError::invalid("advice needs a list of at least one element"));
    }
    // SAFETY: by the contract.
    let (own, list) = unsafe {
        (PdObject::<B>::find(pd)?, core::slice::from_raw_parts(sg_list, num_sge as usize))
    };
    let sges: Vec<Sge> =
        list.iter().map(|sge| Sge { addr: sge.addr, length: sge.length, lkey: sge.lkey }).collect();
    B::advise_mr(&own.backend, advice, flags & IBV_ADVISE_MR_FLAG_FLUSH != 0, &sges)
}
