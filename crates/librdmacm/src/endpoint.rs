//! Endpoints (an id with its queue pair, created in one call), and listening.

use core::ffi::c_int;

use rdmalab_abi::*;

use crate::cm_id::{CmId, own};
use crate::errno::{CallResult, Errno, answer, last_errno};
use crate::events;
use crate::process::process;
use crate::{id, qp, resolve};

/// Time-out of resolving the address of an endpoint, ms, as in rdma-core.
const RESOLVE_MS: c_int = 2000;

/// Creates an endpoint from a result of `rdma_getaddrinfo`; returns 0, or -1 and `errno`.
pub unsafe fn rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller's out-parameter, address, domain and attributes.
    answer(unsafe {
        match create(res, pd, qp_init_attr) {
            Ok(made) => {
                id.write(made);
                Ok(())
            }
            Err(error) => Err(error),
        }
    })
}

unsafe fn create(
    res: *const rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> CallResult<*mut rdma_cm_id> {
    // SAFETY: the caller's contract.
    unsafe {
        let res = res.as_ref().ok_or(Errno(libc::EINVAL))?;
        let (ps, qp_type) = (res.ai_port_space as u32, res.ai_qp_type as u32);
        qp::refuse_xrc("rdma_create_ep", qp_type)?;
        let made = id::create(std::ptr::null_mut(), std::ptr::null_mut(), ps, qp_type)?;
        let prepared = match res.ai_flags & RAI_PASSIVE {
            0 => active(made, res, pd, qp_init_attr),
            _ => passive(made, res, pd, qp_init_attr),
        };
        if let Err(error) = prepared {
            rdma_destroy_ep(made);
            return Err(error);
        }
        Ok(made)
    }
}

unsafe fn passive(
    made: *mut rdma_cm_id,
    res: &rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> CallResult<()> {
    // SAFETY: the caller's contract.
    unsafe {
        id::bind(made, res.ai_src_addr)?;
        let own = own(made)?;
        if !pd.is_null() {
            own.set_pd(pd);
        }
        if let Some(attr) = qp_init_attr.as_ref() {
            let mut kept = *attr;
            kept.qp_type = res.ai_qp_type as u32;
            *own.qp_init_attr() = Some(kept);
        }
    }
    Ok(())
}

unsafe fn active(
    made: *mut rdma_cm_id,
    res: &rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> CallResult<()> {
    // SAFETY: the caller's contract.
    unsafe {
        resolve::resolve_addr(made, res.ai_src_addr, res.ai_dst_addr, RESOLVE_MS)?;
        resolve::resolve_route(made)?;
        if let Some(attr) = qp_init_attr.as_mut() {
            attr.qp_type = res.ai_qp_type as u32;
            qp::create_qp(made, pd, attr)?;
        }
        if res.ai_connect_len > 0 && !res.ai_connect.is_null() {
            let bytes = res.ai_connect.cast::<u8>();
            *own(made)?.connect_data() =
                std::slice::from_raw_parts(bytes, res.ai_connect_len).to_vec();
        }
    }
    Ok(())
}

/// Frees an endpoint.
pub unsafe fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    // SAFETY: the caller's endpoint, given back once.
    unsafe {
        if !(*id).qp.is_null() {
            qp::rdma_destroy_qp(id);
        }
        if !(*id).srq.is_null() {
            qp::rdma_destroy_srq(id);
        }
        id::rdma_destroy_id(id);
    }
}

/// Listens; returns 0, or -1 and `errno`.
pub unsafe fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    // SAFETY: the caller's id.
    answer(unsafe { listen(id, backlog) })
}

/// See [`rdma_listen`].
pub unsafe fn listen(id: *mut rdma_cm_id, backlog: c_int) -> CallResult<()> {
    // SAFETY: the caller's contract.
    let own = unsafe { own(id)? };
    let mut cm = process()?.lock();
    if cm.id(own.number)?.bound.is_none() {
        let any = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
        cm.bind(own.number, any)?;
    }
    cm.start_listening(own.number, usize::try_from(backlog).unwrap_or(0))?;
    let state = cm.id(own.number)?;
    let (shown, params) = ((state.source, state.destination), state.params);
    cm.process_outputs();
    drop(cm);
    id::show_addresses(own, shown, params);
    Ok(())
}

/// Waits for the next request to a listener without a channel; returns 0, or -1 and `errno`.
pub unsafe fn rdma_get_request(listen: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's listener and out-parameter.
    answer(unsafe { get_request(listen).map(|made| id.write(made)) })
}

unsafe fn get_request(listen: *mut rdma_cm_id) -> CallResult<*mut rdma_cm_id> {
    // SAFETY: the caller's contract.
    unsafe {
        let on = begin_request(listen)?;
        let mut event = std::ptr::null_mut();
        if events::rdma_get_cm_event(on.channel(), &raw mut event) != 0 {
            return Err(last_errno());
        }
        end_request(on, listen, event)
    }
}

/// The next request to a listener without a channel; `EAGAIN` while there is none.
///
/// # Safety
/// `listen` is an id of ours, and no thread frees it during the call.
pub unsafe fn try_request(listen: *mut rdma_cm_id) -> CallResult<*mut rdma_cm_id> {
    // SAFETY: the caller's contract.
    unsafe {
        let on = begin_request(listen)?;
        let event = events::try_next(on.channel()).ok_or(Errno(libc::EAGAIN))?;
        end_request(on, listen, event)
    }
}

unsafe fn begin_request<'a>(listen: *mut rdma_cm_id) -> CallResult<&'a CmId> {
    // SAFETY: the caller's contract.
    let on = unsafe { own(listen)? };
    if !on.is_sync() {
        return Err(Errno(libc::EINVAL));
    }
    id::ack_last_event(on);
    Ok(on)
}

/// The id of a connection request, from its event.
unsafe fn end_request(
    on: &CmId,
    listen: *mut rdma_cm_id,
    event: *mut rdma_cm_event,
) -> CallResult<*mut rdma_cm_id> {
    // SAFETY: the caller's listener, and an event of its channel.
    unsafe {
        let made = match ((*event).status, (*event).event) {
            (0, RDMA_CM_EVENT_CONNECT_REQUEST) => prepare((*event).id, listen),
            (0, _) => Err(Errno(libc::EINVAL)),
            (status, _) => Err(Errno(status.abs())),
        };
        match made {
            Ok(id) => {
                own(id)?.set_event(event);
                Ok(id)
            }
            Err(error) => {
                on.set_event(event);
                Err(error)
            }
        }
    }
}

/// Creates the queue pair of a request, if the listener has attributes for it.
unsafe fn prepare(id: *mut rdma_cm_id, listen: *mut rdma_cm_id) -> CallResult<*mut rdma_cm_id> {
    // SAFETY: the caller's contract.
    unsafe {
        let on = own(listen)?;
        let kept = *on.qp_init_attr();
        if let Some(mut attr) = kept {
            qp::create_qp(id, on.pd(), &raw mut attr)?;
        }
    }
    Ok(id)
}
