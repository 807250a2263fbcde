//! Queue pairs, created by the classic or the extended verb.

use rdmalab_abi::{IBV_QPS_RESET, ibv_pd, ibv_qp, ibv_qp_ex, ibv_qp_init_attr};
use rdmalab_engine::backend::{Backend, QpInit, VerbsError, VerbsResult};
use rdmalab_engine::vocab::QpType;

use crate::batch::Builder;
use crate::object::{CqObject, PdObject, QpMade, QpObject, QpOwn, SrqObject};
use crate::qp_ex;
use crate::registry::{Element, new_cookie};
use crate::sync::acks;
use crate::{context, convert};

/// Creates a QP and writes its capacities to `init.cap`. `send_ops` are the operations that will be
/// posted through `ibv_wr_*`; `None` creates a QP without them.
///
/// # Safety
/// `pd` and the objects in `init` are of this backend. Only the fields of `init` are valid: bytes
/// after the last one belong to the extended structure.
pub(crate) unsafe fn create<B: Backend>(
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
    send_ops: Option<u64>,
) -> VerbsResult<*mut ibv_qp> {
    // SAFETY: by the contract.
    let mut made = unsafe { read_made(init) };
    let qp_type = QpType::from_ibv(made.qp_type).ok_or_else(|| {
        let asked = made.qp_type;
        VerbsError::unsupported(format!("QP type {asked}; there are RC (2), UC (3) and UD (4)"))
    })?;
    if made.send_cq.is_null() || made.recv_cq.is_null() {
        return Err(VerbsError::invalid(
            "a QP needs a send_cq and a recv_cq; they may be the same",
        ));
    }
    if let Some(wanted) = send_ops {
        qp_ex::check_operations(qp_type, wanted)?;
    }
    let cookie = new_cookie();
    // SAFETY: by the contract; pointers that are null are not followed.
    let (backend, qpn, cap, context) = unsafe {
        let srq = if made.srq.is_null() { None } else { Some(SrqObject::<B>::find(made.srq)?) };
        let wanted = QpInit {
            qp_type,
            send_cq: &CqObject::<B>::find(made.send_cq.cast())?.backend,
            recv_cq: &CqObject::<B>::find(made.recv_cq.cast())?.backend,
            srq: srq.map(|srq| &srq.backend),
            cap: convert::cap_from_c(&made.cap),
            sq_sig_all: made.sq_sig_all != 0,
            cookie,
        };
        let (backend, qpn, cap) = B::create_qp(&PdObject::<B>::find(pd)?.backend, wanted)?;
        (backend, qpn, cap, (*pd).context)
    };
    made.cap = convert::cap_to_c(&cap);
    let mut public = ibv_qp_ex::zeroed();
    public.qp_base.context = context;
    public.qp_base.qp_context = made.qp_context;
    public.qp_base.pd = pd;
    public.qp_base.send_cq = made.send_cq;
    public.qp_base.recv_cq = made.recv_cq;
    public.qp_base.srq = made.srq;
    public.qp_base.handle = cookie as u32;
    public.qp_base.qp_num = qpn.get();
    public.qp_base.state = IBV_QPS_RESET;
    public.qp_base.qp_type = made.qp_type;
    qp_ex::fill::<B>(&mut public);
    let builder = send_ops.map(|granted| Builder::new(granted, &cap));
    let is_ud = qp_type == QpType::Ud;
    let own = QpOwn { backend, is_ud, cookie, made, builder };
    let qp = QpObject::<B>::leak(public, own).cast::<ibv_qp>();
    // SAFETY: the object is new and not used elsewhere; the rest is by the contract.
    unsafe {
        (*init).cap = made.cap;
        acks!(qp, events_completed).init();
        context::hold::<B>(context);
        context::own::<B>(context).registry.add(cookie, Element::Qp(qp));
    }
    Ok(qp)
}

/// # Safety
/// The fields of `init` are valid.
unsafe fn read_made(init: *const ibv_qp_init_attr) -> QpMade {
    // SAFETY: by the contract; field by field, because the padding may belong to other fields.
    unsafe {
        QpMade {
            qp_context: (*init).qp_context,
            send_cq: (*init).send_cq,
            recv_cq: (*init).recv_cq,
            srq: (*init).srq,
            cap: (*init).cap,
            qp_type: (*init).qp_type,
            sq_sig_all: (*init).sq_sig_all,
        }
    }
}

/// Writes the attributes with which a QP was created.
///
/// # Safety
/// `init` is the caller's variable.
pub(crate) unsafe fn write_made(made: &QpMade, init: *mut ibv_qp_init_attr) {
    // SAFETY: by the contract; field by field, because the padding may belong to other fields.
    unsafe {
        (*init).qp_context = made.qp_context;
        (*init).send_cq = made.send_cq;
        (*init).recv_cq = made.recv_cq;
        (*init).srq = made.srq;
        (*init).cap = made.cap;
        (*init).qp_type = made.qp_type;
        (*init).sq_sig_all = made.sq_sig_all;
    }
}

/// Destroys a QP, once the program has acknowledged its events; on an error it stays.
///
/// # Safety
/// `qp` is of this backend, and not used elsewhere, except to acknowledge events.
pub(crate) unsafe fn destroy<B: Backend>(qp: *mut ibv_qp) -> VerbsResult<()> {
    // SAFETY: by the contract; see `cq::destroy` for the order.
    unsafe {
        let own = QpObject::<B>::find(qp.cast())?;
        B::destroy_qp(&own.backend)?;
        let context = (*qp).context;
        let delivered = context::own::<B>(context).registry.remove(own.cookie);
        acks!(qp, events_completed).wait(delivered.asynchronous);
        acks!(qp, events_completed).destroy();
        QpObject::<B>::free(qp.cast());
        context::release::<B>(context);
    }
    Ok(())
}
