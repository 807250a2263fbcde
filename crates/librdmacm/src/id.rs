//! Creating, destroying and binding ids, and their options.

use core::ffi::{c_int, c_void};
use std::net::SocketAddr;

use rdmalab_abi::*;

use crate::channel;
use crate::cm_id::{CmId, New, own};
use crate::conn_params::{ConnParams, HOP_LIMIT, PACKET_LIFE_TIME, PKEY};
use crate::device::Device;
use crate::errno::{CallResult, Errno, answer, failed};
use crate::event_queue::QueuedEvent;
use crate::process::process;
use crate::state::IdState;
use crate::{address, group};

/// Acknowledges the event that an id without a channel kept from its last call.
pub fn ack_last_event(own: &CmId) {
    let event = own.set_event(std::ptr::null_mut());
    if !event.is_null() {
        // SAFETY: from `rdma_get_cm_event`. `set_event` gave it to this thread only.
        unsafe { channel::rdma_ack_cm_event(event) };
    }
}

/// The queue pair type of a port space.
fn type_of(ps: u32) -> CallResult<u32> {
    match ps {
        RDMA_PS_TCP | RDMA_PS_IB => Ok(IBV_QPT_RC),
        RDMA_PS_UDP | RDMA_PS_IPOIB => Ok(IBV_QPT_UD),
        other => Err(failed(libc::EPROTONOSUPPORT, "rdma_create_id", || {
            format!("port space {other:#x}: known are TCP, UDP, IB and IPOIB")
        })),
    }
}

/// Creates an id. Without a channel the id gets its own, and its calls block.
pub unsafe fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    ps: u32,
    qp_type: u32,
) -> CallResult<*mut rdma_cm_id> {
    let process = process()?;
    let is_sync = channel.is_null();
    let channel = if is_sync { channel::create_own()?.cast() } else { channel };
    // SAFETY: the caller's channel, or the one just created.
    let queue = unsafe { channel::queue_of(channel) };
    let mut cm = process.lock();
    let number = cm.add(IdState::new(queue, ps, qp_type));
    let id = Box::into_raw(CmId::new(&New { number, channel, context, ps, qp_type, is_sync }));
    cm.id(number)?.c = id;
    Ok(id.cast())
}

/// Creates an id; returns 0, or -1 and `errno`.
pub unsafe fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: u32,
) -> c_int {
    let made = type_of(ps).and_then(|qp_type| {
        // SAFETY: the caller's channel.
        unsafe { create(channel, context, ps, qp_type) }
    });
    // SAFETY: the caller's out-parameter.
    answer(made.map(|made| unsafe { id.write(made) }))
}

/// Destroys an id, after the program has acknowledged its events; returns 0, or -1 and `errno`.
pub unsafe fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's id, given back once.
    answer(unsafe { destroy(id) })
}

unsafe fn destroy(id: *mut rdma_cm_id) -> CallResult<()> {
    // SAFETY: the caller's contract.
    let own = unsafe { own(id)? };
    let process = process()?;
    let groups = std::mem::take(&mut *own.groups());
    groups.iter().for_each(|group| group::leave(own, group));
    if own.is_sync() {
        ack_last_event(own);
    }
    let mut cm = process.lock();
    let number = own.number;
    cm.lookups.cancel(number);
    if let Some(queue) = cm.ids.get(&number).map(|state| state.queue.clone()) {
        // Connection requests that were not fetched are destroyed with their listener.
        for queued in queue.take_all(|queued| queued.owner() == number) {
            if queued.listener.is_some() {
                cm.remove(queued.id);
            }
        }
    }
    cm.detach(number);
    cm.stop_listening(number);
    cm.release_port(number);
    cm.process_outputs();
    drop(cm);
    process.wait_for_acknowledgements(number);
    process.lock().remove(number);
    if own.is_sync() {
        // SAFETY: the channel that was created with the id.
        unsafe { channel::rdma_destroy_event_channel(own.channel()) };
    }
    // SAFETY: the path comes from `libc::calloc` or is null; the id comes from `Box::into_raw`.
    unsafe {
        own.with_route(|route| libc::free(route.path_rec.cast()));
        drop(Box::from_raw(id.cast::<CmId>()));
    }
    Ok(())
}

/// Writes the addresses of an id to the route that the program sees.
pub fn show_addresses(
    own: &CmId,
    state: (Option<SocketAddr>, Option<SocketAddr>),
    params: ConnParams,
) {
    own.with_route(|route| {
        let shown = &mut route.addr;
        if let Some(source) = state.0 {
            shown.src_storage = address::to_c(source).0;
        }
        if let Some(destination) = state.1 {
            shown.dst_storage = address::to_c(destination).0;
        }
        shown.addr.sgid.raw = params.local_gid.0;
        shown.addr.dgid.raw = params.remote_gid.0;
        shown.addr.pkey = PKEY.to_be();
    });
}

/// Binds an id to an address of this host; returns 0, or -1 and `errno`.
pub unsafe fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut libc::sockaddr) -> c_int {
    // SAFETY: the caller's id and address.
    answer(unsafe { bind(id, addr) })
}

/// See [`rdma_bind_addr`].
pub unsafe fn bind(id: *mut rdma_cm_id, addr: *const libc::sockaddr) -> CallResult<()> {
    // SAFETY: the caller's contract.
    let (own, address) = unsafe { (own(id)?, address::read(addr)) };
    let address = address.ok_or_else(|| {
        failed(libc::EINVAL, "rdma_bind_addr", || "the address must be IPv4 or IPv6".to_owned())
    })?;
    if !address::is_local(address.ip()) {
        let why = || format!("{} is no address of this host", address.ip());
        return Err(failed(libc::EADDRNOTAVAIL, "rdma_bind_addr", why));
    }
    let process = process()?;
    let at = match address.ip().is_unspecified() {
        true => None,
        false => Some(process.device_of(address.ip())?),
    };
    let mut cm = process.lock();
    if cm.id(own.number)?.bound.is_some() {
        return Err(Errno(libc::EINVAL));
    }
    cm.bind(own.number, address)?;
    let state = cm.id(own.number)?;
    if let Some((device, sgid_index, local_gid)) = at {
        state.device = Some(device);
        state.params.sgid_index = sgid_index;
        state.params.local_gid = local_gid;
    }
    let (shown, params) = ((state.source, state.destination), state.params);
    drop(cm);
    if let Some((device, ..)) = at {
        own.set_device(process.device(device)?);
    }
    show_addresses(own, shown, params);
    Ok(())
}

/// Writes the path of an id to the route that the program sees.
pub fn show_path(own: &CmId, params: ConnParams) {
    let Some(device) = own.device() else { return };
    own.with_route(|route| write_path(route, device, params));
}

fn write_path(route: &mut rdma_route, device: &Device, params: ConnParams) {
    if route.path_rec.is_null() {
        // SAFETY: plain allocation; freed with the id, by C or by us.
        route.path_rec = unsafe { libc::calloc(1, size_of::<ibv_sa_path_rec>()) }.cast();
    }
    // SAFETY: null, or room for one path.
    let Some(path) = (unsafe { route.path_rec.as_mut() }) else { return };
    route.num_paths = 1;
    path.dgid.raw = params.remote_gid.0;
    path.sgid.raw = params.local_gid.0;
    path.dlid = params.remote_lid.to_be();
    path.slid = device.lid.to_be();
    path.hop_limit = HOP_LIMIT;
    path.traffic_class = params.traffic_class;
    path.reversible = 1;
    path.numb_path = 1;
    path.pkey = PKEY.to_be();
    // Selector 2: exactly this value.
    path.mtu_selector = 2;
    path.mtu = device.mtu;
    path.rate_selector = 2;
    path.packet_life_time_selector = 2;
    path.packet_life_time = PACKET_LIFE_TIME;
}

/// The local port, network byte order.
pub unsafe fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the caller's id, whose storage holds an address or zeros.
    unsafe { address::read((&raw const (*id).route.addr.src_storage).cast()) }
        .map_or(0, |address| address.port().to_be())
}

/// The peer's port, network byte order.
pub unsafe fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: as above.
    unsafe { address::read((&raw const (*id).route.addr.dst_storage).cast()) }
        .map_or(0, |address| address.port().to_be())
}

/// Sets an option; returns 0, or -1 and `errno`.
pub unsafe fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: usize,
) -> c_int {
    // SAFETY: the caller's id, and a value of that length.
    answer(unsafe { set_option(id, level, optname, optval, optlen) })
}

unsafe fn set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: usize,
) -> CallResult<()> {
    // SAFETY: the caller's contract.
    let own = unsafe { own(id)? };
    if level == RDMA_OPTION_IB && name == RDMA_OPTION_IB_PATH {
        // The path follows from the addresses. A path that the program sets is ignored.
        let mut cm = process()?.lock();
        cm.queue_event(QueuedEvent::new(RDMA_CM_EVENT_ROUTE_RESOLVED, own.number));
        return Ok(());
    }
    if level != RDMA_OPTION_ID {
        return Err(Errno(libc::ENOSYS));
    }
    let wanted = match name {
        RDMA_OPTION_ID_TOS | RDMA_OPTION_ID_ACK_TIMEOUT => 1,
        RDMA_OPTION_ID_REUSEADDR | RDMA_OPTION_ID_AFONLY => size_of::<c_int>(),
        _ => return Err(Errno(libc::ENOSYS)),
    };
    if length != wanted || value.is_null() {
        return Err(failed(libc::EINVAL, "rdma_set_option", || {
            format!("option {name} is {wanted} bytes long, not {length}")
        }));
    }
    // SAFETY: the caller's value, of the length that was just checked.
    let (byte, number) = unsafe {
        match wanted {
            1 => (value.cast::<u8>().read(), 0),
            _ => (0, value.cast::<c_int>().read_unaligned()),
        }
    };
    let mut cm = process()?.lock();
    let state = cm.id(own.number)?;
    match name {
        RDMA_OPTION_ID_TOS => state.tos = byte,
        RDMA_OPTION_ID_ACK_TIMEOUT if byte > 31 => return Err(Errno(libc::EINVAL)),
        RDMA_OPTION_ID_ACK_TIMEOUT => state.ack_timeout = Some(byte),
        RDMA_OPTION_ID_REUSEADDR => return state.set_reuse_address(number != 0),
        _ if state.listening.is_some() => return Err(Errno(libc::EINVAL)),
        // Without RDMA_OPTION_ID_AFONLY, a listener at a wildcard address accepts both families.
        _ => state.is_family_only = Some(number != 0),
    }
    Ok(())
}

/// Moves an id to another channel, with the events that were not fetched; 0, or -1 and `errno`.
pub unsafe fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int {
    // SAFETY: the caller's id, and its channel or null.
    answer(unsafe { migrate(id, channel) })
}

/// See [`rdma_migrate_id`]. Without a channel the id gets its own.
pub unsafe fn migrate(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> CallResult<()> {
    // SAFETY: the caller's contract.
    let own = unsafe { own(id)? };
    if own.is_sync() && channel.is_null() {
        return Err(Errno(libc::EINVAL));
    }
    let is_sync = channel.is_null();
    let channel = if is_sync { channel::create_own()?.cast() } else { channel };
    // SAFETY: the caller's channel, or the one just created.
    let queue = unsafe { channel::queue_of(channel) };
    let process = process()?;
    let mut cm = process.lock();
    let number = own.number;
    let state = cm.id(number)?;
    let before = std::mem::replace(&mut state.queue, queue.clone());
    for queued in before.take_all(|queued| queued.owner() == number) {
        queue.push(queued);
    }
    drop(cm);
    if own.is_sync() {
        ack_last_event(own);
        // SAFETY: the channel that was created with the id.
        unsafe { channel::rdma_destroy_event_channel(own.channel()) };
    }
    own.set_sync(is_sync);
    own.set_channel(channel);
    process.wait_for_acknowledgements(number);
    Ok(())
}
