//! What happened, as events of C, with what follows from it for ids and queue pairs: this is done
//! when the program fetches an event, in its own thread.

use core::ffi::c_void;

use rdmalab_abi::*;

use crate::channel::{Event, PRIVATE_MAX};
use crate::connect::establish;
use crate::debug::{CallResult, Errno};
use crate::id::{self, CmId, world};
use crate::qp;
use crate::world::{Link, Param, Posted};

/// Turns something that happened into an event of C, with what follows from it for the queue pair;
/// `None` if nobody is to hear of it.
pub fn to_event(posted: Posted, channel: *mut rdma_event_channel) -> Option<Box<Event>> {
    let world = world().ok()?;
    let owner = posted.listener.unwrap_or(posted.id);
    let (c, link, addresses, device) = {
        let mut inner = world.lock();
        inner.ids.get_mut(&owner)?.fetched += 1;
        if posted.event == RDMA_CM_EVENT_CONNECT_REQUEST
            && let Some(comm) = inner.ids.get(&posted.id).and_then(|state| state.comm)
        {
            inner.cm.take_request(comm);
        }
        let state = inner.ids.get(&posted.id)?;
        (state.c, state.link, (state.source, state.destination), state.device)
    };
    let mut event = Event::new(posted.event, posted.status, owner);
    event.public.id = c.cast();
    fill_param(&mut event, &posted, link, device);
    let heard = match posted.event {
        RDMA_CM_EVENT_CONNECT_REQUEST => requested(&mut event, &posted, channel),
        RDMA_CM_EVENT_ADDR_RESOLVED => with(c, |own| {
            if let Some(device) = device.and_then(|index| world.device(index).ok()) {
                own.set_device(device);
            }
            id::show_addresses(own, addresses, link);
            Ok(true)
        }),
        RDMA_CM_EVENT_ROUTE_RESOLVED => with(c, |own| {
            id::show_path(own, link);
            Ok(true)
        }),
        RDMA_CM_EVENT_CONNECT_RESPONSE => with(c, |own| Ok(responded(own, &mut event))),
        RDMA_CM_EVENT_REJECTED => with(c, |own| {
            qp::to_error(own);
            Ok(!own.has_connect_error())
        }),
        RDMA_CM_EVENT_DISCONNECTED => with(c, |own| Ok(!own.has_connect_error())),
        RDMA_CM_EVENT_MULTICAST_JOIN => {
            with(c, |own| Ok(crate::multicast::joined(own, &mut event, &posted)))
        }
        _ => Ok(true),
    };
    if heard != Ok(true) {
        world.acknowledge(owner);
        return None;
    }
    Some(event)
}

/// Does something with the id of an event.
fn with(c: *mut CmId, body: impl FnOnce(&CmId) -> CallResult<bool>) -> CallResult<bool> {
    // SAFETY: the state's pointer: an id that the program has not freed, because it would have
    // taken this event out of the queue.
    unsafe { c.as_ref() }.map_or(Ok(false), body)
}

/// The peer accepts.
fn responded(own: &CmId, event: &mut Event) -> bool {
    if own.qp().is_null() {
        return true;
    }
    match establish(own) {
        Ok(()) => event.public.event = RDMA_CM_EVENT_ESTABLISHED,
        Err(Errno(errno)) => {
            event.public.event = RDMA_CM_EVENT_CONNECT_ERROR;
            event.public.status = -errno;
            own.set_connect_error(true);
        }
    }
    true
}

/// Makes the id of a request.
fn requested(
    event: &mut Event,
    posted: &Posted,
    channel: *mut rdma_event_channel,
) -> CallResult<bool> {
    let world = world()?;
    world.devices()?;
    let listener = posted.listener.ok_or(Errno(libc::EINVAL))?;
    let (on, remote_ip) = {
        let mut inner = world.lock();
        let remote_ip = inner.id(posted.id)?.source.map(|source| source.ip());
        (inner.id(listener)?.c, remote_ip)
    };
    // SAFETY: the listener's id, which the program has not freed, as above.
    let Some(on) = (unsafe { on.as_ref() }) else { return Ok(false) };
    let (device, index_of_ip, gid_of_ip) =
        world.device_of(remote_ip.unwrap_or(std::net::Ipv4Addr::LOCALHOST.into()))?;
    let (context, ps, qp_type) = (on.context(), on.ps(), on.qp_type());
    let number = posted.id;
    let child = CmId::new(&id::New { number, channel, context, ps, qp_type, is_sync: false });
    child.set_device(world.device(device)?);
    let mut inner = world.lock();
    let state = inner.id(posted.id)?;
    state.device = Some(device);
    // The peer says by which GID it came; if it is none of ours, the address does.
    let wanted = state.link.local_gid;
    match world.device(device)?.index_of(wanted) {
        Some(index) => state.link.sgid_index = index,
        None => (state.link.sgid_index, state.link.local_gid) = (index_of_ip, gid_of_ip),
    }
    if let Param::Conn { responder_resources, initiator_depth, .. } = posted.param {
        child.set_responder_resources(responder_resources);
        child.set_initiator_depth(initiator_depth);
    }
    id::show_addresses(&child, (state.source, state.destination), state.link);
    id::show_path(&child, state.link);
    let child = Box::into_raw(child);
    state.c = child;
    drop(inner);
    event.public.id = child.cast();
    event.public.listen_id = on.as_c();
    if on.is_sync() {
        // SAFETY: the id that was just made.
        unsafe { id::migrate(child.cast(), std::ptr::null_mut())? };
    }
    Ok(true)
}

/// Writes the parameters of an event.
fn fill_param(event: &mut Event, posted: &Posted, link: Link, device: Option<usize>) {
    let keep = |event: &mut Event, data: &[u8]| {
        let length = data.len().min(PRIVATE_MAX);
        event.private_data[..length].copy_from_slice(&data[..length]);
        ((&raw const event.private_data).cast::<c_void>(), length as u8)
    };
    match &posted.param {
        Param::None | Param::Group { .. } => {}
        Param::Conn { private_data, .. } => {
            let (pointer, length) = keep(event, private_data);
            let conn = conn_param(&posted.param, pointer, length);
            event.public.param = rdma_cm_event_param { conn };
        }
        Param::Ud { qp_num, qkey, private_data } => {
            let (pointer, length) = keep(event, private_data);
            let mut ud = rdma_ud_param::zeroed();
            (ud.private_data, ud.private_data_len) = (pointer, length);
            (ud.qp_num, ud.qkey) = (*qp_num, *qkey);
            if device.is_some() {
                ud.ah_attr = qp::address_vector(&link);
            }
            event.public.param = rdma_cm_event_param { ud };
        }
    }
}

fn conn_param(param: &Param, private_data: *const c_void, length: u8) -> rdma_conn_param {
    let mut conn = rdma_conn_param::zeroed();
    if let Param::Conn {
        responder_resources,
        initiator_depth,
        flow_control,
        retry_count,
        rnr_retry_count,
        srq,
        qp_num,
        ..
    } = param
    {
        conn.responder_resources = *responder_resources;
        conn.initiator_depth = *initiator_depth;
        conn.flow_control = u8::from(*flow_control);
        conn.retry_count = *retry_count;
        conn.rnr_retry_count = *rnr_retry_count;
        conn.srq = u8::from(*srq);
        conn.qp_num = *qp_num;
    }
    conn.private_data = if length == 0 { std::ptr::null() } else { private_data };
    conn.private_data_len = length;
    conn
}
