//! Creates queue pairs on ids, and moves them through their states as the connection advances.

use core::ffi::c_int;
use std::ptr::null_mut;

use rdmalab_abi::*;

use crate::cm_id::{CmId, own};
use crate::conn_params::is_datagram;
use crate::device::{PORT, verbs};
use crate::errno::{CallResult, Errno, answer, failed, last_errno, verb};
use crate::process::process;

/// Inline bytes that every queue pair gets, even if the program asks for none.
const INLINE_ALWAYS: u32 = 16;

/// The attributes that move an id's queue pair to `state`, and their mask. As in the kernel,
/// `min_rnr_timer` stays 0, which means 655 ms: programs that expect RNR set it themselves.
fn attributes(own: &CmId, state: u32) -> CallResult<(ibv_qp_attr, u32)> {
    let mut cm = process()?.lock();
    let known = cm.id(own.number)?;
    let params = known.params;
    let is_connected = known.comm.is_some() && !is_datagram(known.ps);
    let qp_type = known.qp_type;
    let ack_timeout = known.ack_timeout.unwrap_or(params.ack_timeout);
    drop(cm);
    let mut attr = ibv_qp_attr::zeroed();
    attr.qp_state = state;
    let reliable = qp_type != IBV_QPT_UC;
    let mask = match state {
        IBV_QPS_INIT => {
            attr.port_num = PORT;
            if qp_type == IBV_QPT_UD {
                attr.qkey = RDMA_UDP_QKEY;
                IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY
            } else {
                if is_connected {
                    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
                    if params.responder_resources > 0 && reliable {
                        attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
                    }
                }
                IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS
            }
        }
        IBV_QPS_RTR if is_connected => {
            attr.ah_attr = params.address_vector();
            attr.path_mtu = u32::from(params.mtu);
            attr.dest_qp_num = params.remote_qpn.get();
            attr.rq_psn = params.rq_psn.get();
            attr.max_dest_rd_atomic = params.responder_resources;
            let mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
            let more = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
            if reliable { mask | more } else { mask }
        }
        IBV_QPS_RTS if is_connected => {
            attr.sq_psn = params.sq_psn.get();
            attr.retry_cnt = params.retry_count;
            attr.rnr_retry = params.rnr_retry_count;
            attr.max_rd_atomic = params.initiator_depth;
            attr.timeout = ack_timeout;
            let more =
                IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
            let mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
            if reliable { mask | more } else { mask }
        }
        _ => return Err(Errno(libc::EINVAL)),
    };
    Ok((attr, mask as u32))
}

/// Fills in the attributes for the state in `qp_attr`; returns 0, or -1 and `errno`.
pub unsafe fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    qp_attr: *mut ibv_qp_attr,
    qp_attr_mask: *mut c_int,
) -> c_int {
    // SAFETY: the caller's id, and attributes with their state set.
    answer(unsafe { own(id) }.and_then(|own| unsafe {
        let (attr, mask) = attributes(own, (*qp_attr).qp_state)?;
        qp_attr.write(attr);
        qp_attr_mask.write(mask as c_int);
        Ok(())
    }))
}

fn modify(qp: *mut ibv_qp, mut attr: ibv_qp_attr, mask: u32) -> CallResult<()> {
    // SAFETY: a queue pair of the library, and attributes that live during the call.
    verb(unsafe { (verbs()?.modify_qp)(qp, &raw mut attr, mask as c_int) })
}

/// Moves the queue pair of an id, if it has one, to RTR.
pub fn to_rtr(own: &CmId, responder_resources: Option<u8>) -> CallResult<()> {
    let qp = own.qp();
    if qp.is_null() {
        return Ok(());
    }
    // INIT again: the access rights are known only now.
    let (attr, mask) = attributes(own, IBV_QPS_INIT)?;
    modify(qp, attr, mask)?;
    let (mut attr, mask) = attributes(own, IBV_QPS_RTR)?;
    if let Some(count) = responder_resources {
        attr.max_dest_rd_atomic = count;
    }
    modify(qp, attr, mask)
}

/// Moves the queue pair of an id, if it has one, to RTS.
pub fn to_rts(own: &CmId, initiator_depth: Option<u8>) -> CallResult<()> {
    let qp = own.qp();
    if qp.is_null() {
        return Ok(());
    }
    let (mut attr, mask) = attributes(own, IBV_QPS_RTS)?;
    if let Some(count) = initiator_depth {
        attr.max_rd_atomic = count;
    }
    modify(qp, attr, mask)
}

/// Moves the queue pair of an id, if it has one, to the error state.
pub fn to_error(own: &CmId) {
    if own.qp().is_null() {
        return;
    }
    let mut attr = ibv_qp_attr::zeroed();
    attr.qp_state = IBV_QPS_ERR;
    // A queue pair that cannot be modified any more is as good as in the error state.
    let _as_far_as_possible = modify(own.qp(), attr, IBV_QP_STATE);
}

/// Moves a new queue pair to INIT, and one for datagrams (UD) on to RTS.
fn prepare(own: &CmId, qp: *mut ibv_qp) -> CallResult<()> {
    let (attr, mask) = attributes(own, IBV_QPS_INIT)?;
    modify(qp, attr, mask)?;
    if own.qp_type() != IBV_QPT_UD {
        return Ok(());
    }
    let mut attr = ibv_qp_attr::zeroed();
    attr.qp_state = IBV_QPS_RTR;
    modify(qp, attr, IBV_QP_STATE)?;
    attr.qp_state = IBV_QPS_RTS;
    modify(qp, attr, IBV_QP_STATE | IBV_QP_SQ_PSN)
}

/// Creates a completion queue with a channel, for an id whose program gave none.
fn create_cq(
    id: *mut rdma_cm_id,
    context: *mut ibv_context,
    depth: u32,
) -> CallResult<(*mut ibv_comp_channel, *mut ibv_cq)> {
    let verbs = verbs()?;
    // SAFETY: the id's open device; what is made is kept in the id, and freed with the queue pair.
    unsafe {
        let channel = (verbs.create_comp_channel)(context);
        if channel.is_null() {
            return Err(last_errno());
        }
        let cq = (verbs.create_cq)(context, depth as c_int, id.cast(), channel, 0);
        if cq.is_null() {
            let error = last_errno();
            (verbs.destroy_comp_channel)(channel);
            return Err(error);
        }
        Ok((channel, cq))
    }
}

fn create_cqs(own: &CmId, send: u32, receive: u32) -> CallResult<()> {
    let id: *mut rdma_cm_id = own.as_c();
    let context = own.verbs();
    if receive > 0 {
        let (channel, cq) = create_cq(id, context, receive)?;
        own.set_recv_cq_channel(channel);
        own.set_recv_cq(cq);
    }
    if send > 0 {
        let (channel, cq) = create_cq(id, context, send).inspect_err(|_| destroy_cqs(own))?;
        own.set_send_cq_channel(channel);
        own.set_send_cq(cq);
    }
    Ok(())
}

/// Frees the completion queues that were created with a queue pair.
fn destroy_cqs(own: &CmId) {
    let Ok(verbs) = verbs() else { return };
    // The thread that takes the queues out of the id frees them.
    let queues = [
        (own.set_recv_cq(null_mut()), own.set_recv_cq_channel(null_mut())),
        (own.set_send_cq(null_mut()), own.set_send_cq_channel(null_mut())),
    ];
    for (at, (cq, channel)) in queues.into_iter().enumerate() {
        let is_second = at == 1 && cq == queues[0].0;
        // SAFETY: made by `create_cqs`, and freed once: the id has forgotten them above.
        unsafe {
            if !cq.is_null() && !is_second {
                (verbs.destroy_cq)(cq);
            }
            if !channel.is_null() && !is_second {
                (verbs.destroy_comp_channel)(channel);
            }
        }
    }
}

/// Creates a queue pair on an id; returns 0, or -1 and `errno`.
pub unsafe fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller's id, domain and attributes.
    answer(unsafe { create_qp(id, pd, qp_init_attr) })
}

/// See [`rdma_create_qp`].
pub unsafe fn create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> CallResult<()> {
    // SAFETY: the caller's contract.
    let (own, given) = unsafe { (own(id)?, attr.as_mut().ok_or(Errno(libc::EINVAL))?) };
    let mut whole = ibv_qp_init_attr_ex::zeroed();
    whole.qp_context = given.qp_context;
    (whole.send_cq, whole.recv_cq, whole.srq) = (given.send_cq, given.recv_cq, given.srq);
    (whole.cap, whole.qp_type, whole.sq_sig_all) = (given.cap, given.qp_type, given.sq_sig_all);
    whole.comp_mask = IBV_QP_INIT_ATTR_PD;
    whole.pd = if pd.is_null() { own.pd() } else { pd };
    make(own, &mut whole)?;
    (given.send_cq, given.recv_cq, given.srq) = (whole.send_cq, whole.recv_cq, whole.srq);
    given.cap = whole.cap;
    Ok(())
}

/// Creates a queue pair with extended attributes on an id; returns 0, or -1 and `errno`.
pub unsafe fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    qp_init_attr: *mut ibv_qp_init_attr_ex,
) -> c_int {
    // SAFETY: the caller's id and attributes.
    answer(unsafe { own(id) }.and_then(|own| {
        // SAFETY: as above.
        let attr = unsafe { qp_init_attr.as_mut() }.ok_or(Errno(libc::EINVAL))?;
        make(own, attr)
    }))
}

/// Refuses XRC queue pairs.
///
/// # Errors
/// `EOPNOTSUPP` for the XRC types.
pub fn refuse_xrc(call: &str, qp_type: u32) -> CallResult<()> {
    match qp_type {
        IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV => Err(crate::errno::unsupported(
            call,
            "the soft device has no XRC queue pairs, by decision: use RC, with a shared receive \
             queue where many peers shall share buffers",
        )),
        _ => Ok(()),
    }
}

fn make(own: &CmId, attr: &mut ibv_qp_init_attr_ex) -> CallResult<()> {
    let verbs = verbs()?;
    if !own.qp().is_null() || own.verbs().is_null() {
        return Err(failed(libc::EINVAL, "rdma_create_qp", || {
            "the id has a queue pair, or no device yet: resolve or bind its address first".into()
        }));
    }
    if attr.comp_mask & IBV_QP_INIT_ATTR_PD == 0 || attr.pd.is_null() {
        attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
        attr.pd = own.pd();
    // SAFETY: the caller's domain.
    } else if unsafe { (*attr.pd).context } != own.verbs() {
        return Err(failed(libc::EINVAL, "rdma_create_qp", || {
            "the domain belongs to another device than the id: make it on id->verbs".to_owned()
        }));
    }
    refuse_xrc("rdma_create_qp", attr.qp_type)?;
    // Adapters grant the inline bytes that fit beside one gather element (rxe 16 bytes, mlx5 more).
    // Some programs, such as rdma_xclient, use inline data without asking for it.
    attr.cap.max_inline_data = attr.cap.max_inline_data.max(INLINE_ALWAYS);
    let differs = |of_id: *mut ibv_cq, given: *mut ibv_cq| {
        !of_id.is_null() && !given.is_null() && of_id != given
    };
    if differs(own.recv_cq(), attr.recv_cq) || differs(own.send_cq(), attr.send_cq) {
        return Err(Errno(libc::EINVAL));
    }
    let depth = |is_there: bool, wanted: u32| if is_there { 0 } else { wanted };
    let send = depth(!attr.send_cq.is_null() || !own.send_cq().is_null(), attr.cap.max_send_wr);
    let receive = depth(!attr.recv_cq.is_null() || !own.recv_cq().is_null(), attr.cap.max_recv_wr);
    create_cqs(own, send, receive)?;
    let or = |given: *mut ibv_cq, of_id: *mut ibv_cq| if given.is_null() { of_id } else { given };
    attr.send_cq = or(attr.send_cq, own.send_cq());
    attr.recv_cq = or(attr.recv_cq, own.recv_cq());
    if attr.srq.is_null() {
        attr.srq = own.srq();
    }
    // SAFETY: the id's open device, and attributes that are filled in.
    let qp = unsafe { inline::ibv_create_qp_ex(verbs, own.verbs(), attr) };
    let made = match qp.is_null() {
        true => Err(last_errno()),
        false => prepare(own, qp),
    };
    if made.is_err() {
        if !qp.is_null() {
            // SAFETY: the queue pair that was just made.
            unsafe { (verbs.destroy_qp)(qp) };
        }
        destroy_cqs(own);
        return made;
    }
    // SAFETY: the queue pair that was just made.
    own.set_pd(unsafe { (*qp).pd });
    own.set_qp(qp);
    Ok(())
}

/// Frees the queue pair of an id, and the completion queues that were created with it.
pub unsafe fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    // SAFETY: the caller's id.
    if let (Ok(own), Ok(verbs)) = (unsafe { own(id) }, verbs()) {
        if !own.qp().is_null() {
            // SAFETY: the queue pair of the id, freed once.
            unsafe { (verbs.destroy_qp)(own.qp()) };
            own.set_qp(null_mut());
        }
        destroy_cqs(own);
    }
}

/// Creates a shared receive queue on an id; returns 0, or -1 and `errno`.
pub unsafe fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    // SAFETY: the caller's id, domain and attributes.
    answer(unsafe { own(id) }.and_then(|own| create_srq(own, pd, attr)))
}

fn create_srq(own: &CmId, pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> CallResult<()> {
    let pd = if pd.is_null() { own.pd() } else { pd };
    if pd.is_null() {
        return Err(failed(libc::EINVAL, "rdma_create_srq", || {
            "the id has no device yet: resolve or bind its address, or give a domain".to_owned()
        }));
    }
    // SAFETY: the caller's domain and attributes.
    let srq = unsafe { (verbs()?.create_srq)(pd, attr) };
    if srq.is_null() {
        return Err(last_errno());
    }
    own.set_srq(srq);
    if own.pd().is_null() {
        own.set_pd(pd);
    }
    Ok(())
}

/// Creates a shared receive queue with extended attributes on an id; returns 0, or -1 and `errno`.
pub unsafe fn rdma_create_srq_ex(id: *mut rdma_cm_id, attr: *mut ibv_srq_init_attr_ex) -> c_int {
    // SAFETY: the caller's id and attributes.
    answer(unsafe { own(id) }.and_then(|own| {
        // SAFETY: as above.
        let given = unsafe { attr.as_mut() }.ok_or(Errno(libc::EINVAL))?;
        if given.comp_mask & IBV_SRQ_INIT_ATTR_TYPE == 0 {
            return Err(Errno(libc::EINVAL));
        }
        if given.srq_type != IBV_SRQT_BASIC {
            return Err(failed(libc::EOPNOTSUPP, "rdma_create_srq", || {
                "the soft device has basic shared receive queues only, not XRC".to_owned()
            }));
        }
        let has_pd = given.comp_mask & IBV_SRQ_INIT_ATTR_PD != 0;
        let pd = if has_pd { given.pd } else { null_mut() };
        let mut plain = ibv_srq_init_attr::zeroed();
        (plain.srq_context, plain.attr) = (given.srq_context, given.attr);
        create_srq(own, pd, &raw mut plain)?;
        given.attr = plain.attr;
        Ok(())
    }))
}

/// Frees the shared receive queue of an id.
pub unsafe fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    // SAFETY: the caller's id.
    if let (Ok(own), Ok(verbs)) = (unsafe { own(id) }, verbs()) {
        if !own.srq().is_null() {
            // SAFETY: the queue of the id, freed once.
            unsafe { (verbs.destroy_srq)(own.srq()) };
            own.set_srq(null_mut());
        }
        destroy_cqs(own);
    }
}
