//! Fetching events. As in rdma-core's librdmacm, ids and queue pairs change while the program
//! fetches an event, in the program's thread.

use core::ffi::{c_int, c_void};

use rdmalab_abi::*;

use crate::channel::{Event, PRIVATE_MAX, queue_of};
use crate::cm_id::{CmId, New};
use crate::conn_params::ConnParams;
use crate::errno::{CallResult, Errno, answer};
use crate::establish::establish;
use crate::event_queue::{EventParam, EventQueue, QueuedEvent};
use crate::process::process;
use crate::{group, id, qp};

/// Waits for the next event; returns 0, or -1 and `errno`.
pub unsafe fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    // SAFETY: the caller's channel, which lives during the call, and out-parameter.
    answer(unsafe { next(channel, event) })
}

unsafe fn next(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> CallResult<()> {
    if event.is_null() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: the caller's contract.
    let queue = unsafe { queue_of(channel) };
    loop {
        // SAFETY: the caller's contract, and the caller's out-parameter.
        unsafe {
            if let Some(made) = take(channel, &queue) {
                event.write(made);
                return Ok(());
            }
        }
        if !queue.is_blocking() {
            return Err(Errno(libc::EAGAIN));
        }
        queue.wait()?;
    }
}

/// The next event, without waiting. The caller acknowledges it like any other event.
///
/// # Safety
/// The channel is one of ours, and alive.
pub unsafe fn try_next(channel: *mut rdma_event_channel) -> Option<*mut rdma_cm_event> {
    // SAFETY: the caller's contract.
    unsafe { take(channel, &queue_of(channel)) }
}

unsafe fn take(channel: *mut rdma_event_channel, queue: &EventQueue) -> Option<*mut rdma_cm_event> {
    while let Some(queued) = queue.pop() {
        if let Some(made) = to_event(queued, channel) {
            // `rdma_ack_cm_event` frees it.
            return Some(Box::into_raw(made).cast());
        }
    }
    None
}

/// Makes the event that C sees, and changes the id and its queue pair accordingly. `None` if the
/// event is not reported to the program.
fn to_event(queued: QueuedEvent, channel: *mut rdma_event_channel) -> Option<Box<Event>> {
    let process = process().ok()?;
    let owner = queued.owner();
    let (c, params, addresses, device) = {
        let mut cm = process.lock();
        cm.ids.get_mut(&owner)?.fetched += 1;
        if queued.event == RDMA_CM_EVENT_CONNECT_REQUEST
            && let Some(comm) = cm.ids.get(&queued.id).and_then(|state| state.comm)
        {
            cm.manager.take_request(comm);
        }
        let state = cm.ids.get(&queued.id)?;
        (state.c, state.params, (state.source, state.destination), state.device)
    };
    let mut event = Event::new(queued.event, queued.status, owner);
    event.public.id = c.cast();
    fill_param(&mut event, &queued, params, device);
    let is_reported = match queued.event {
        RDMA_CM_EVENT_CONNECT_REQUEST => requested(&mut event, &queued, channel),
        RDMA_CM_EVENT_ADDR_RESOLVED => with(c, |own| {
            if let Some(device) = device.and_then(|index| process.device(index).ok()) {
                own.set_device(device);
            }
            id::show_addresses(own, addresses, params);
            Ok(true)
        }),
        RDMA_CM_EVENT_ROUTE_RESOLVED => with(c, |own| {
            id::show_path(own, params);
            Ok(true)
        }),
        RDMA_CM_EVENT_CONNECT_RESPONSE => with(c, |own| Ok(responded(own, &mut event))),
        RDMA_CM_EVENT_REJECTED => with(c, |own| {
            qp::to_error(own);
            Ok(!own.has_connect_error())
        }),
        RDMA_CM_EVENT_DISCONNECTED => with(c, |own| Ok(!own.has_connect_error())),
        RDMA_CM_EVENT_MULTICAST_JOIN => with(c, |own| Ok(group::attach(own, &mut event, &queued))),
        _ => Ok(true),
    };
    if is_reported != Ok(true) {
        process.acknowledge(owner);
        return None;
    }
    Some(event)
}

/// Runs `body` with the id of an event; `Ok(false)` without an id.
fn with(c: *mut CmId, body: impl FnOnce(&CmId) -> CallResult<bool>) -> CallResult<bool> {
    // SAFETY: null, or a live id: `rdma_destroy_id` removes the events of the id from the queue.
    unsafe { c.as_ref() }.map_or(Ok(false), body)
}

/// Handles a REP: moves the id's queue pair, if it has one, to RTS, and sends the RTU.
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

/// Creates the id of a connection request.
fn requested(
    event: &mut Event,
    queued: &QueuedEvent,
    channel: *mut rdma_event_channel,
) -> CallResult<bool> {
    let process = process()?;
    process.devices()?;
    let listener = queued.listener.ok_or(Errno(libc::EINVAL))?;
    let (on, remote_ip) = {
        let mut cm = process.lock();
        let remote_ip = cm.id(queued.id)?.source.map(|source| source.ip());
        (cm.id(listener)?.c, remote_ip)
    };
    // SAFETY: the listener's id, which the program has not destroyed, as above.
    let Some(on) = (unsafe { on.as_ref() }) else { return Ok(false) };
    let (device, index_of_ip, gid_of_ip) =
        process.device_of(remote_ip.unwrap_or(std::net::Ipv4Addr::LOCALHOST.into()))?;
    let (context, ps, qp_type) = (on.context(), on.ps(), on.qp_type());
    let number = queued.id;
    let child = CmId::new(&New { number, channel, context, ps, qp_type, is_sync: false });
    child.set_device(process.device(device)?);
    let mut cm = process.lock();
    let state = cm.id(queued.id)?;
    state.device = Some(device);
    // The request names our GID. If no port has it, use the GID of the address.
    let wanted = state.params.local_gid;
    match process.device(device)?.index_of(wanted) {
        Some(index) => state.params.sgid_index = index,
        None => (state.params.sgid_index, state.params.local_gid) = (index_of_ip, gid_of_ip),
    }
    if let EventParam::Conn { responder_resources, initiator_depth, .. } = queued.param {
        child.set_responder_resources(responder_resources);
        child.set_initiator_depth(initiator_depth);
    }
    id::show_addresses(&child, (state.source, state.destination), state.params);
    id::show_path(&child, state.params);
    let child = Box::into_raw(child);
    state.c = child;
    drop(cm);
    event.public.id = child.cast();
    event.public.listen_id = on.as_c();
    if on.is_sync() {
        // SAFETY: the id that was just created.
        unsafe { id::migrate(child.cast(), std::ptr::null_mut())? };
    }
    Ok(true)
}

/// Writes the parameters of an event.
fn fill_param(event: &mut Event, queued: &QueuedEvent, params: ConnParams, device: Option<usize>) {
    let keep = |event: &mut Event, data: &[u8]| {
        let length = data.len().min(PRIVATE_MAX);
        event.private_data[..length].copy_from_slice(&data[..length]);
        ((&raw const event.private_data).cast::<c_void>(), length as u8)
    };
    match &queued.param {
        EventParam::None | EventParam::Group { .. } => {}
        EventParam::Conn { private_data, .. } => {
            let (pointer, length) = keep(event, private_data);
            let conn = conn_param(&queued.param, pointer, length);
            event.public.param = rdma_cm_event_param { conn };
        }
        EventParam::Ud { qp_num, qkey, private_data } => {
            let (pointer, length) = keep(event, private_data);
            let mut ud = rdma_ud_param::zeroed();
            (ud.private_data, ud.private_data_len) = (pointer, length);
            (ud.qp_num, ud.qkey) = (*qp_num, *qkey);
            if device.is_some() {
                ud.ah_attr = params.address_vector();
            }
            event.public.param = rdma_cm_event_param { ud };
        }
    }
}

fn conn_param(param: &EventParam, private_data: *const c_void, length: u8) -> rdma_conn_param {
    let mut conn = rdma_conn_param::zeroed();
    if let EventParam::Conn {
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
