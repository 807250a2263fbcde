//! Shared receive queues, created by the classic or the extended verb.

use core::ffi::c_void;

use rdmalab_abi::{ibv_pd, ibv_srq, ibv_srq_attr};
use rdmalab_engine::backend::{Backend, SrqInfo, SrqInit, VerbsResult};

use crate::context;
use crate::object::{PdObject, SrqObject, SrqOwn};
use crate::registry::{Element, new_cookie};
use crate::sync::acks;

/// Creates an SRQ and writes its capacities to `attr`.
///
/// # Safety
/// `pd` is of this backend; `attr` is the caller's variable.
pub(crate) unsafe fn create<B: Backend>(
    pd: *mut ibv_pd,
    srq_context: *mut c_void,
    attr: *mut ibv_srq_attr,
) -> VerbsResult<*mut ibv_srq> {
    // SAFETY: by the contract.
    let (own, context, wanted) = unsafe { (PdObject::<B>::find(pd)?, (*pd).context, *attr) };
    let cookie = new_cookie();
    // The limit has no meaning when an SRQ is made; ibv_modify_srq arms it.
    let init = SrqInit { max_wr: wanted.max_wr, max_sge: wanted.max_sge, srq_limit: 0, cookie };
    let (backend, info) = B::create_srq(&own.backend, init)?;
    let mut public = ibv_srq::zeroed();
    public.context = context;
    public.srq_context = srq_context;
    public.pd = pd;
    public.handle = cookie as u32;
    let srq = SrqObject::<B>::leak(public, SrqOwn { backend, cookie });
    // SAFETY: the object is new and not used elsewhere; the rest is by the contract.
    unsafe {
        (*attr).max_wr = info.max_wr;
        (*attr).max_sge = info.max_sge;
        acks!(srq, events_completed).init();
        context::hold::<B>(context);
        context::own::<B>(context).registry.add(cookie, Element::Srq(srq));
    }
    Ok(srq)
}

/// Destroys an SRQ, once the program has acknowledged its events; on an error it stays.
///
/// # Safety
/// `srq` is of this backend, and not used elsewhere, except to acknowledge events.
pub(crate) unsafe fn destroy<B: Backend>(srq: *mut ibv_srq) -> VerbsResult<()> {
    // SAFETY: by the contract; see `cq::destroy` for the order.
    unsafe {
        let own = SrqObject::<B>::find(srq)?;
        B::destroy_srq(&own.backend)?;
        let context = (*srq).context;
        let delivered = context::own::<B>(context).registry.remove(own.cookie);
        acks!(srq, events_completed).wait(delivered.asynchronous);
        acks!(srq, events_completed).destroy();
        SrqObject::<B>::free(srq);
        context::release::<B>(context);
    }
    Ok(())
}

/// The state of an SRQ as a C structure.
pub(crate) fn info_to_c(info: &SrqInfo) -> ibv_srq_attr {
    ibv_srq_attr { max_wr: info.max_wr, max_sge: info.max_sge, srq_limit: info.srq_limit }
}
