//! Resolves addresses and routes: which device and which GIDs lead to a peer, and whether the peer
//! is on this host or on another one.

use core::ffi::c_int;
use std::net::{IpAddr, SocketAddr};

use rdmalab_abi::*;
use rdmalab_wire::ids::Gid;

use crate::blocking::wait_for_event;
use crate::cm_id::{CmId, own};
use crate::conn_params::ConnParams;
use crate::errno::{CallResult, Errno, answer, errno_of, failed, last_errno};
use crate::event_queue::QueuedEvent;
use crate::id::bind;
use crate::lookups::{Path, Request, Target};
use crate::os::{now_ns, start_thread};
use crate::process::{CmProcess, process};
use crate::{address, device};

/// The shortest time-out of a lookup, ms. A thread has to start first, and a peer that exists
/// usually answers at once.
const MIN_TIMEOUT_MS: u64 = 100;
/// How long one of our addresses may stay tentative (`softnic/udp/tentative`), ms. The program's
/// time-out is longer by this time then.
const TENTATIVE_MS: u64 = 3000;

/// Resolves the address of a peer; 0, or -1 and `errno`. The result is an event. If the peer is on
/// another host of this link, it must answer within `timeout_ms`, else the event is
/// `RDMA_CM_EVENT_ADDR_ERROR` with `-ETIMEDOUT`. As in Linux, a negative time-out waits for ever,
/// and a missing route fails at once. The time while our address is tentative does not count.
pub unsafe fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    src_addr: *mut libc::sockaddr,
    dst_addr: *mut libc::sockaddr,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: the caller's id and addresses.
    answer(unsafe { resolve_addr(id, src_addr, dst_addr, timeout_ms) })
}

/// See [`rdma_resolve_addr`].
pub unsafe fn resolve_addr(
    id: *mut rdma_cm_id,
    src_addr: *const libc::sockaddr,
    dst_addr: *const libc::sockaddr,
    timeout_ms: c_int,
) -> CallResult<()> {
    // SAFETY: the caller's contract.
    let own = unsafe { own(id)? };
    // SAFETY: as above.
    let (source, destination) = unsafe { (address::read(src_addr), address::read(dst_addr)) };
    let Some(destination) = destination else {
        return Err(failed(libc::EINVAL, "rdma_resolve_addr", || {
            "the destination must be an IPv4 or IPv6 address".to_owned()
        }));
    };
    if source.is_none() && !src_addr.is_null() {
        return Err(Errno(libc::EINVAL));
    }
    if let Some(source) = source
        && !is_bound(own)?
        && (source.port() != 0 || !source.ip().is_unspecified())
    {
        // SAFETY: as above.
        unsafe { bind(id, src_addr)? };
    }
    own.with_route(|route| route.addr.dst_storage = address::to_c(destination).0);
    let process = process()?;
    match find_path(own, destination)? {
        // A lookup thread waits for the answer, because this thread may hold locks of the program.
        Some(path) if !path.is_local => {
            let deadline_ns = deadline_ns(now_ns(), timeout_ms, path.source);
            start_lookup(process, Request { id: own.number, deadline_ns, destination, path })?;
        }
        found => {
            let found = found.ok_or(Errno(libc::ENODEV));
            process.lock().finish_resolution(own.number, destination, found)?;
        }
    }
    // SAFETY: as above.
    unsafe { wait_for_event(id) }
}

/// When a lookup times out; `None` for never.
fn deadline_ns(now_ns: u64, timeout_ms: c_int, source: IpAddr) -> Option<u64> {
    let timeout_ms = u64::try_from(timeout_ms).ok()?.max(MIN_TIMEOUT_MS);
    let tentative_ms = if address::is_tentative(source) { TENTATIVE_MS } else { 0 };
    Some(now_ns + (timeout_ms + tentative_ms) * 1_000_000)
}

/// Starts a lookup, or adds the request to the one that waits for the same peer.
///
/// # Errors
/// `EINVAL` if the id has a lookup already; the kernel's error if no thread can be started.
fn start_lookup(process: &'static CmProcess, request: Request) -> CallResult<()> {
    let mut cm = process.lock();
    cm.id(request.id)?;
    if cm.lookups.has(request.id) {
        return Err(failed(libc::EINVAL, "rdma_resolve_addr", || {
            "the id's address is being resolved: wait for the event".to_owned()
        }));
    }
    let target = request.target();
    let is_new = cm.lookups.add(request);
    cm.update_deadline();
    if !is_new || !cm.lookups.add_thread() {
        return Ok(());
    }
    if let Err(error) = start_thread("rdmalab-resolve", move || run_lookups(process)) {
        cm.lookups.remove_thread();
        // A running thread takes over the lookup when it is free.
        if !cm.lookups.has_threads() {
            cm.lookups.remove(target);
            return Err(errno_of(&error));
        }
    }
    Ok(())
}

/// The body of a lookup thread: runs lookups until there are none left.
fn run_lookups(process: &'static CmProcess) {
    let mut cm = process.lock();
    while let Some(target) = cm.lookups.next() {
        drop(cm);
        let reached = look_up(process, target);
        cm = process.lock();
        for request in cm.lookups.finish(target, reached) {
            let found = reached.map(|()| request.path);
            // The id may be gone.
            let _gone = cm.finish_resolution(request.id, request.destination, found);
        }
    }
    cm.lookups.remove_thread();
}

/// Asks the device whether the peer answers, by creating an address handle. Blocks while our
/// address is tentative.
fn look_up(process: &CmProcess, (device, sgid_index, remote_gid): Target) -> CallResult<()> {
    let (verbs, device) = (device::verbs()?, process.device(device)?);
    let params = ConnParams { sgid_index, remote_gid, ..ConnParams::default() };
    let mut attr = params.address_vector();
    // SAFETY: an open device's domain, and attributes that live during the call. The handle is
    // destroyed at once.
    unsafe {
        let ah = (verbs.create_ah)(device.pd, &raw mut attr);
        if ah.is_null() {
            let Errno(errno) = last_errno();
            return Err(failed(errno, "rdma_resolve_addr", || {
                format!("no packet can be sent to {} now", remote_gid.to_ip())
            }));
        }
        (verbs.destroy_ah)(ah);
    }
    Ok(())
}

fn is_bound(own: &CmId) -> CallResult<bool> {
    Ok(process()?.lock().id(own.number)?.source.is_some())
}

/// The path to an address, or `None` when there is none.
fn find_path(own: &CmId, destination: SocketAddr) -> CallResult<Option<Path>> {
    let process = process()?;
    let bound = process.lock().id(own.number)?.source.map(|source| source.ip());
    let bound = bound.filter(|ip| !ip.is_unspecified());
    let ip = destination.ip();
    let is_group = ip.is_multicast();
    if !is_group && !address::is_local(ip) {
        return path_to_host(process, ip, bound);
    }
    let there = if ip.is_unspecified() || is_group { address::loopback(ip) } else { ip };
    let (remote, _, remote_gid) = process.device_of(there)?;
    let here = bound.unwrap_or(there);
    let (device, sgid_index, local_gid) = process.device_of(here)?;
    let remote_lid = process.device(remote)?.lid;
    Ok(Some(Path {
        device,
        sgid_index,
        local_gid,
        remote_gid,
        remote_lid,
        is_local: true,
        source: here,
    }))
}

/// The path to another host. It begins at an address of ours that is a GID of a port.
fn path_to_host(
    process: &'static CmProcess,
    ip: IpAddr,
    bound: Option<IpAddr>,
) -> CallResult<Option<Path>> {
    let unreachable = |why: String| {
        let _reported = failed(libc::ENODEV, "rdma_resolve_addr", || why);
        Ok(None)
    };
    if !process.lock().transport.has_network() {
        return unreachable(format!(
            "{ip} is not on this host: name the interface that leads there (RDMALAB_INTERFACE, \
             rdmalab exec --interface)"
        ));
    }
    let found = address::source_for(ip, bound).or_else(|error| match bound {
        // Other errors concern this socket only, and not RDMA.
        Some(bound) if !address::is_no_route(&error) => Ok(bound),
        // The call fails without an event, as in Linux.
        _ => Err(failed(errno_of(&error).0, "rdma_resolve_addr", || {
            format!("there is no route to {ip} ({error}): see `ip route get {ip}`")
        })),
    });
    let source = bound.unwrap_or(found?);
    let local_gid = Gid::of_ip(address::plain(source));
    for (device, found) in process.devices()?.iter().enumerate() {
        if let Some(sgid_index) = found.index_of(local_gid) {
            let remote_gid = Gid::of_ip(address::plain(ip));
            let (remote_lid, is_local) = (0xffff, false);
            return Ok(Some(Path {
                device,
                sgid_index,
                local_gid,
                remote_gid,
                remote_lid,
                is_local,
                source,
            }));
        }
    }
    unreachable(format!(
        "the route to {ip} uses {source}, which is not an address of the named interface"
    ))
}

/// Resolves the route to a peer; 0, or -1 and `errno`. The result is an event. On Ethernet the
/// route follows from the address, also in Linux, so no time-out can occur.
pub unsafe fn rdma_resolve_route(id: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int {
    // SAFETY: the caller's id.
    answer(unsafe { resolve_route(id) })
}

/// See [`rdma_resolve_route`].
pub unsafe fn resolve_route(id: *mut rdma_cm_id) -> CallResult<()> {
    // SAFETY: the caller's contract.
    let own = unsafe { own(id)? };
    let mut cm = process()?.lock();
    if cm.id(own.number)?.destination.is_none() {
        return Err(failed(libc::EINVAL, "rdma_resolve_route", || {
            "call rdma_resolve_addr first, and wait for its event".to_owned()
        }));
    }
    cm.queue_event(QueuedEvent::new(RDMA_CM_EVENT_ROUTE_RESOLVED, own.number));
    drop(cm);
    // SAFETY: as above.
    unsafe { wait_for_event(id) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_out_of_the_program_counts() {
        let here = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(deadline_ns(7, 2000, here), Some(2_000_000_007));
        assert_eq!(deadline_ns(7, c_int::MAX, here), Some(2_147_483_647_000_007));
        // A thread has to start first.
        assert_eq!(deadline_ns(7, 0, here), Some(100_000_007));
        assert_eq!(deadline_ns(7, -1, here), None);
    }
}
