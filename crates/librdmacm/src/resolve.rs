//! Ways to peers: which device, which GIDs, over the host's own letters or over the network.

use core::ffi::c_int;
use std::net::{IpAddr, SocketAddr};

use rdmalab_abi::*;
use rdmalab_wire::ids::Gid;

use crate::address;
use crate::errno::{CallResult, Errno, answer, errno_of, failed};
use crate::id::{CmId, bind, complete, own, process};
use crate::lookups;
use crate::mad_transport::Peer;
use crate::state::{self, CmProcess, CmState, EventParam, QueuedEvent};

/// For so long a peer is looked for at least, whatever the time-out says, ms: who lookups is a thread
/// that has to begin first, and that one is there is known at once as a rule.
const MIN_TIMEOUT_MS: u64 = 100;
/// For so long an address of ours may be new (`softnic/udp/onset`), ms: that does not count.
const TENTATIVE_MS: u64 = 3000;

/// Lookups for the path to a peer, on this params the peer itself; the result is an event: after
/// `timeout_ms` without an answer `RDMA_CM_EVENT_ADDR_ERROR` with `-ETIMEDOUT`, and a negative
/// number waits for ever, as in Linux. 0, or -1 and `errno`: that there is no route is known at
/// once. What it takes until an address of ours is in use that is new does not count.
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
        // Somebody has to answer first, and the program's thread may hold locks, or have other
        // things to do.
        Some(path) if !path.is_local => {
            let (id, target) = (own.number, (path.device, path.sgid_index, path.remote_gid));
            let until_ns = deadline_ns(state::now_ns(), timeout_ms, path.source);
            lookups::begin(process, id, target, until_ns, move |cm, reached| {
                // Who freed the id does not ask any more.
                let _gone = finish(cm, id, destination, reached.map(|()| path));
            })?;
        }
        found => {
            let found = found.ok_or(Errno(libc::ENODEV));
            finish(&mut process.lock(), own.number, destination, found)?;
        }
    }
    // SAFETY: as above.
    unsafe { complete(id) }
}

/// When a peer is no longer looked for from an address of ours; `None`: never.
fn deadline_ns(now_ns: u64, timeout_ms: c_int, source: IpAddr) -> Option<u64> {
    let timeout_ms = u64::try_from(timeout_ms).ok()?.max(MIN_TIMEOUT_MS);
    let tentative_ms = if address::is_tentative(source) { TENTATIVE_MS } else { 0 };
    Some(now_ns + (timeout_ms + tentative_ms) * 1_000_000)
}

/// Tells the program of the path that was found, or why there is none.
///
/// # Errors
/// `EINVAL` for an id that is gone.
fn finish(
    cm: &mut CmState,
    id: u64,
    destination: SocketAddr,
    found: CallResult<Path>,
) -> CallResult<()> {
    let (event, status) = match found {
        Ok(path) => (store_path(cm, id, destination, path)?, 0),
        Err(Errno(errno)) => (RDMA_CM_EVENT_ADDR_ERROR, -errno),
    };
    cm.queue_event(QueuedEvent { event, status, id, listener: None, param: EventParam::None });
    Ok(())
}

fn is_bound(own: &CmId) -> CallResult<bool> {
    Ok(process()?.lock().id(own.number)?.source.is_some())
}

/// The path to a peer.
#[derive(Clone, Copy)]
struct Path {
    device: usize,
    sgid_index: u8,
    local_gid: Gid,
    remote_gid: Gid,
    remote_lid: u16,
    is_local: bool,
    /// Our address, if none was bound.
    source: IpAddr,
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

/// The path to another host: from an address of ours that a device has, over the network.
fn path_to_host(
    process: &'static CmProcess,
    ip: IpAddr,
    bound: Option<IpAddr>,
) -> CallResult<Option<Path>> {
    let no = |why: String| {
        let _told = failed(libc::ENODEV, "rdma_resolve_addr", || why);
        Ok(None)
    };
    if !process.lock().transport.has_network() {
        return no(format!(
            "{ip} is not on this host: name the interface that leads there (RDMALAB_INTERFACE, \
             rdmalab exec --interface)"
        ));
    }
    let found = address::source_for(ip, bound).or_else(|error| match bound {
        // What else a socket may not do from there is no matter.
        Some(bound) if !address::is_no_route(&error) => Ok(bound),
        // No event, as in Linux.
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
    no(format!("the path to {ip} leads over {source}, which is not the named interface's"))
}

/// MadCapture the path to a peer.
fn store_path(
    cm: &mut CmState,
    number: u64,
    destination: SocketAddr,
    path: Path,
) -> CallResult<u32> {
    let port = cm.next_port();
    let device = path.device;
    let state = cm.id(number)?;
    let before = state.source.map_or(port, |source| source.port());
    state.source = Some(SocketAddr::new(path.source, before));
    state.destination = Some(destination);
    state.device = Some(device);
    state.params.sgid_index = path.sgid_index;
    state.params.local_gid = path.local_gid;
    state.params.remote_gid = path.remote_gid;
    state.params.remote_lid = path.remote_lid;
    let service = state::service_of(state.ps, destination.port());
    state.peer = Some(match path.is_local {
        true => Peer::Service(service),
        false => Peer::Remote { local: path.local_gid, remote: path.remote_gid },
    });
    Ok(RDMA_CM_EVENT_ADDR_RESOLVED)
}

/// Lookups for a path to a peer; the result is an event. 0, or -1 and `errno`. On Ethernet nobody is
/// asked for it, by Linux neither, so that no time-out ever is over.
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
    let event = RDMA_CM_EVENT_ROUTE_RESOLVED;
    cm.queue_event(QueuedEvent {
        event,
        status: 0,
        id: own.number,
        listener: None,
        param: EventParam::None,
    });
    drop(cm);
    // SAFETY: as above.
    unsafe { complete(id) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_ends_when_the_program_says() {
        let here = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(deadline_ns(7, 2000, here), Some(2_000_000_007));
        assert_eq!(deadline_ns(7, c_int::MAX, here), Some(2_147_483_647_000_007));
        // A thread has to lookup at all.
        assert_eq!(deadline_ns(7, 0, here), Some(100_000_007));
        assert_eq!(deadline_ns(7, -1, here), None);
    }
}
