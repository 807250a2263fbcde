//! Extended creation.

use rdmalab_abi::*;
use rdmalab_engine::backend::{Backend, VerbsError, VerbsResult};

use crate::cq::Wanted;
use crate::cq_ex::READABLE;
use crate::{answer, context, cq, qp, srq};

/// Refuses bits of a mask that this device does not support.
fn only(name: &str, given: u64, known: u64) -> VerbsResult<()> {
    match given & !known {
        0 => Ok(()),
        missing => Err(VerbsError::unsupported(format!(
            "{name} {given:#x}: the bits {missing:#x} are not supported"
        ))),
    }
}

/// `ibv_create_cq_ex`: a CQ, or null and `errno`. Also usable by `ibv_poll_cq`.
pub(crate) unsafe extern "C-unwind" fn create_cq_ex<B: Backend>(
    context: *mut ibv_context,
    init: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: the header calls with a context whose function this is, and the caller's attributes.
    let made = unsafe {
        wanted_cq::<B>(context, init).and_then(|wanted| cq::create::<B>(context, &wanted))
    };
    answer::pointer("ibv_create_cq_ex", made)
}

/// # Safety
/// `context` is of this backend; the fields of `init` that its `comp_mask` names are valid.
unsafe fn wanted_cq<B: Backend>(
    context: *mut ibv_context,
    init: *const ibv_cq_init_attr_ex,
) -> VerbsResult<Wanted> {
    // SAFETY: by the contract.
    let (comp_mask, wc_flags, flags, caps) = unsafe {
        let comp_mask = (*init).comp_mask;
        let has_flags = comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0;
        let flags = if has_flags { (*init).flags } else { 0 };
        (comp_mask, (*init).wc_flags, flags, B::query_device(&context::own::<B>(context).backend))
    };
    only("comp_mask", comp_mask.into(), IBV_CQ_INIT_ATTR_MASK_FLAGS.into())?;
    let known = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    only("flags", flags.into(), known.into())?;
    let has_clock = caps.completion_timestamp_mask != 0;
    let readable = if has_clock { READABLE } else { IBV_WC_STANDARD_FLAGS };
    only("wc_flags", wc_flags, readable)?;
    // SAFETY: by the contract.
    unsafe {
        Ok(Wanted {
            cqe: (*init).cqe,
            cq_context: (*init).cq_context,
            channel: (*init).channel,
            comp_vector: (*init).comp_vector,
            wc_flags,
            timestamps: wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP != 0,
            ignore_overrun: flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN != 0,
            single_threaded: flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0,
        })
    }
}

/// `ibv_create_qp_ex`: a QP, or null and `errno`.
pub(crate) unsafe extern "C-unwind" fn create_qp_ex<B: Backend>(
    _context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the header calls with the caller's attributes.
    answer::pointer("ibv_create_qp_ex", unsafe { make_qp::<B>(init) })
}

/// # Safety
/// The fields of `init` that its `comp_mask` names are valid.
unsafe fn make_qp<B: Backend>(init: *mut ibv_qp_init_attr_ex) -> VerbsResult<*mut ibv_qp> {
    let known =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    // SAFETY: by the contract; the extended structure starts as the classic one.
    unsafe {
        let comp_mask = (*init).comp_mask;
        only("comp_mask", comp_mask.into(), known.into())?;
        if comp_mask & IBV_QP_INIT_ATTR_PD == 0 || (*init).pd.is_null() {
            return Err(VerbsError::invalid("a QP needs a PD: set IBV_QP_INIT_ATTR_PD and pd"));
        }
        if comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS != 0 {
            only("create_flags", (*init).create_flags.into(), 0)?;
        }
        let has_ops = comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
        let send_ops = has_ops.then(|| (*init).send_ops_flags);
        qp::create::<B>((*init).pd, init.cast(), send_ops)
    }
}

/// `ibv_create_srq_ex`: an SRQ of the basic type, or null and `errno`.
pub(crate) unsafe extern "C-unwind" fn create_srq_ex<B: Backend>(
    _context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: the header calls with the caller's attributes.
    answer::pointer("ibv_create_srq_ex", unsafe { make_srq::<B>(init) })
}

/// # Safety
/// The fields of `init` that its `comp_mask` names are valid.
unsafe fn make_srq<B: Backend>(init: *mut ibv_srq_init_attr_ex) -> VerbsResult<*mut ibv_srq> {
    let known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    // SAFETY: by the contract.
    unsafe {
        let comp_mask = (*init).comp_mask;
        if comp_mask & IBV_SRQ_INIT_ATTR_TYPE != 0 && (*init).srq_type != IBV_SRQT_BASIC {
            return Err(VerbsError::unsupported("there are only basic SRQs: no XRC, no tags"));
        }
        only("comp_mask", comp_mask.into(), known.into())?;
        if comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 || (*init).pd.is_null() {
            return Err(VerbsError::invalid("an SRQ needs a PD: set IBV_SRQ_INIT_ATTR_PD and pd"));
        }
        srq::create::<B>((*init).pd, (*init).srq_context, &raw mut (*init).attr)
    }
}
