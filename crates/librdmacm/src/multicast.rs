//! Groups of datagram receivers.

use core::ffi::{c_int, c_void};
use std::net::{IpAddr, SocketAddr};

use rdmalab_abi::*;
use rdmalab_wire::ids::{Gid, Qpn};

use crate::address;
use crate::channel::Event;
use crate::device::verbs;
use crate::errno::{CallResult, Errno, answer, failed, verb};
use crate::id::{CmId, complete, own, process};
use crate::qp::address_vector;
use crate::state::{ConnParams, EventParam, QueuedEvent};

/// Q_Key of IP over InfiniBand (RFC 4391, 4.3).
const IPOIB_QKEY: u32 = 0x0b1b;
/// The first LID of multicast groups.
const FIRST_MLID: u16 = 0xc000;

/// A group that an id joined.
pub struct Group {
    number: u64,
    address: SocketAddr,
    context: *mut c_void,
    mgid: Gid,
    mlid: u16,
    is_send_only: bool,
    is_attached: bool,
}

/// The GID of a group. On InfiniBand it is that of IPoIB (RFC 4391, 4), with rdma_cm's own
/// signature for its datagrams; on Ethernet the address itself.
fn group_gid(ip: IpAddr, ps: u32, is_ethernet: bool) -> Gid {
    let mut gid = [0u8; 16];
    match ip {
        IpAddr::V4(v4) if is_ethernet => {
            gid[10..12].copy_from_slice(&[0xff, 0xff]);
            gid[12..].copy_from_slice(&v4.octets());
        }
        IpAddr::V4(v4) => {
            gid[..6].copy_from_slice(&[0xff, 0x12, 0x40, 0x1b, 0xff, 0xff]);
            gid[12..].copy_from_slice(&v4.octets());
            gid[12] &= 0x0f;
        }
        IpAddr::V6(v6) if is_ethernet || v6.octets()[2] == 0x40 => gid = v6.octets(),
        IpAddr::V6(v6) => {
            gid[..6].copy_from_slice(&[0xff, 0x12, 0x60, 0x1b, 0xff, 0xff]);
            gid[6..].copy_from_slice(&v6.octets()[6..]);
        }
    }
    if ps == RDMA_PS_UDP && !is_ethernet && matches!(gid[2], 0x40 | 0x60) {
        gid[3] = 0x01;
    }
    Gid(gid)
}

/// Joins a group; the result is an event. 0, or -1 and `errno`.
pub unsafe fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    addr: *mut libc::sockaddr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's id and address.
    answer(unsafe { join(id, addr, false, context) })
}

/// Joins a group, perhaps only to send; the result is an event. 0, or -1 and `errno`.
pub unsafe fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    mc_join_attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's attributes.
    let attr = unsafe { mc_join_attr.as_ref() }.ok_or(Errno(libc::EINVAL));
    answer(attr.and_then(|attr| {
        let needed = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
        if attr.comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED {
            return Err(Errno(libc::ENOTSUP));
        }
        if attr.comp_mask != needed || attr.join_flags >= RDMA_MC_JOIN_FLAG_RESERVED {
            return Err(Errno(libc::EINVAL));
        }
        let is_send_only = attr.join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
        // SAFETY: the caller's id and address.
        unsafe { join(id, attr.addr, is_send_only, context) }
    }))
}

unsafe fn join(
    id: *mut rdma_cm_id,
    addr: *const libc::sockaddr,
    is_send_only: bool,
    context: *mut c_void,
) -> CallResult<()> {
    // SAFETY: the caller's contract.
    let (own, address) = unsafe { (own(id)?, address::read(addr)) };
    let address = address.filter(|address| address.ip().is_multicast()).ok_or_else(|| {
        failed(libc::EINVAL, "rdma_join_multicast", || {
            "the address must be a multicast address of IPv4 or IPv6".to_owned()
        })
    })?;
    let Some(device) = own.device() else {
        return Err(failed(libc::EINVAL, "rdma_join_multicast", || {
            "the id has no device yet: bind or resolve an address first".to_owned()
        }));
    };
    let ps = own.ps();
    if !matches!(ps, RDMA_PS_UDP | RDMA_PS_IPOIB) {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let mgid = group_gid(address.ip(), ps, device.is_ethernet);
    let low = u16::from_be_bytes([mgid.0[14], mgid.0[15]]) & 0x3ffe;
    let mlid = if device.is_ethernet { 0 } else { FIRST_MLID | low };
    let mut groups = own.groups();
    let number = groups.iter().map(|group| group.number).max().unwrap_or(0) + 1;
    groups.push(Group { number, address, context, mgid, mlid, is_send_only, is_attached: false });
    drop(groups);
    let qkey = if ps == RDMA_PS_UDP { RDMA_UDP_QKEY } else { IPOIB_QKEY };
    let param = EventParam::Group { number, mgid, mlid, qkey };
    let event = RDMA_CM_EVENT_MULTICAST_JOIN;
    let mut cm = process()?.lock();
    cm.queue_event(QueuedEvent { event, status: 0, id: own.number, listener: None, param });
    drop(cm);
    // SAFETY: as above.
    unsafe { complete(id) }
}

/// Attaches the queue pair of an id to a group that it joined, and fills in the event; `false` if
/// it left meanwhile.
pub fn joined(own: &CmId, event: &mut Event, queued: &QueuedEvent) -> bool {
    let EventParam::Group { number, mgid, mlid, qkey } = queued.param else { return false };
    let params = ConnParams { remote_gid: mgid, remote_lid: mlid, ..params_of(own) };
    let qp = own.qp();
    let mut groups = own.groups();
    let Some(group) = groups.iter_mut().find(|group| group.number == number) else {
        return false;
    };
    let mut ud = rdma_ud_param::zeroed();
    ud.private_data = group.context;
    ud.ah_attr = address_vector(&params);
    ud.qp_num = Qpn::MULTICAST.get();
    ud.qkey = qkey;
    event.public.param = rdma_cm_event_param { ud };
    if qp.is_null() || group.is_send_only {
        return true;
    }
    let gid = ibv_gid { raw: mgid.0 };
    // SAFETY: the id's queue pair, and a GID that lives during the call.
    match verbs().and_then(|verbs| verb(unsafe { (verbs.attach_mcast)(qp, &raw const gid, mlid) }))
    {
        Ok(()) => group.is_attached = true,
        Err(Errno(errno)) => {
            event.public.event = RDMA_CM_EVENT_MULTICAST_ERROR;
            event.public.status = -errno;
        }
    }
    true
}

fn params_of(own: &CmId) -> ConnParams {
    let state =
        process().ok().and_then(|process| process.lock().id(own.number).ok().map(|id| id.params));
    state.unwrap_or_default()
}

/// Leaves a group; 0, or -1 and `errno`.
pub unsafe fn rdma_leave_multicast(id: *mut rdma_cm_id, addr: *mut libc::sockaddr) -> c_int {
    // SAFETY: the caller's id and address.
    let (own, address) = unsafe { (own(id), address::read(addr)) };
    answer(own.and_then(|own| {
        let address = address.ok_or(Errno(libc::EINVAL))?;
        let is_it = |group: &Group| group.address == address;
        let mut groups = own.groups();
        let at = groups.iter().position(is_it).ok_or(Errno(libc::EADDRNOTAVAIL))?;
        let group = groups.remove(at);
        drop(groups);
        leave(own, &group);
        Ok(())
    }))
}

/// Takes the queue pair of an id out of a group.
pub fn leave(own: &CmId, group: &Group) {
    if let Ok(process) = process() {
        let cm = process.lock();
        let is_it = |queued: &QueuedEvent| {
            queued.id == own.number
                && matches!(queued.param, EventParam::Group { number, .. } if number == group.number)
        };
        if let Some(state) = cm.ids.get(&own.number) {
            state.queue.take_all(is_it);
        }
    }
    let qp = own.qp();
    if !group.is_attached || qp.is_null() {
        return;
    }
    let gid = ibv_gid { raw: group.mgid.0 };
    if let Ok(verbs) = verbs() {
        // SAFETY: the id's queue pair, and a GID that lives during the call.
        unsafe { (verbs.detach_mcast)(qp, &raw const gid, group.mlid) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_the_gids_of_ipoib_and_of_rocev2() {
        let gid = |text: &str, ps, ethernet| {
            format!(
                "{}",
                std::net::Ipv6Addr::from(group_gid(text.parse().unwrap(), ps, ethernet).0)
            )
        };
        assert_eq!(gid("239.77.0.1", RDMA_PS_UDP, false), "ff12:4001:ffff::f4d:1");
        assert_eq!(gid("239.77.0.1", RDMA_PS_IPOIB, false), "ff12:401b:ffff::f4d:1");
        assert_eq!(gid("239.77.0.1", RDMA_PS_UDP, true), "::ffff:239.77.0.1");
        assert_eq!(gid("ff0e::5", RDMA_PS_UDP, true), "ff0e::5");
    }
}
