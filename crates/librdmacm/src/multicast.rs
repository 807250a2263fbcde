//! Joining and leaving multicast groups.

use core::ffi::{c_int, c_void};
use std::net::IpAddr;

use rdmalab_abi::*;
use rdmalab_wire::ids::Gid;

use crate::address;
use crate::blocking::wait_for_event;
use crate::cm_id::{Group, own};
use crate::errno::{CallResult, Errno, answer, failed};
use crate::event_queue::{EventParam, QueuedEvent};
use crate::group::leave;
use crate::process::process;

/// Q_Key of IP over InfiniBand (RFC 4391, 4.3).
const IPOIB_QKEY: u32 = 0x0b1b;
/// The first LID of multicast groups.
const FIRST_MLID: u16 = 0xc000;

/// The GID of a multicast group. On Ethernet it is the IP address itself. On InfiniBand it is the
/// GID of IPoIB (RFC 4391, 4); the port space UDP has rdma_cm's own signature in it.
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

/// Joins a multicast group; the result comes as an event. Returns 0, or -1 and `errno`.
pub unsafe fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    addr: *mut libc::sockaddr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's id and address.
    answer(unsafe { join(id, addr, false, context) })
}

/// Joins a multicast group, perhaps as a send-only member; the result comes as an event. Returns 0,
/// or -1 and `errno`.
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
    let mut cm = process()?.lock();
    cm.queue_event(QueuedEvent {
        param,
        ..QueuedEvent::new(RDMA_CM_EVENT_MULTICAST_JOIN, own.number)
    });
    drop(cm);
    // SAFETY: as above.
    unsafe { wait_for_event(id) }
}

/// Leaves a multicast group; returns 0, or -1 and `errno`.
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
