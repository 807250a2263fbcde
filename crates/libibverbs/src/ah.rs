//! The address of the sender of a datagram, from the work completion and the GRH.

use crate::{dispatch, gid};
use core::ffi::c_int;
use rdmalab_abi::consts::*;
use rdmalab_abi::inline::set_errno;
use rdmalab_abi::types::*;

/// Next header UDP: RoCE version 2.
const NEXT_HEADER_UDP: u8 = 0x11;
/// Next header InfiniBand transport: InfiniBand or RoCE version 1 (IBA 8.3.4).
const NEXT_HEADER_IBA: u8 = 0x1b;
/// The hop limit of replies: the largest.
const HOP_LIMIT: u8 = 0xff;

/// The address of a reply, as the 40 bytes before the datagram give it.
#[derive(Debug, PartialEq, Eq)]
struct Reply {
    /// The GID of the sender.
    dgid: [u8; 16],
    /// The GID of ours that the datagram was sent to.
    own_gid: [u8; 16],
    flow_label: u32,
    traffic_class: u8,
    /// The GID is of RoCE version 2, not of InfiniBand or RoCE version 1.
    roce_v2: bool,
}

/// Converts an IPv4 address to a GID (RFC 4291, 2.5.5.2).
fn mapped(ip: &[u8]) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[10..12].fill(0xff);
    gid[12..].copy_from_slice(ip);
    gid
}

/// Whether 20 bytes are an IPv4 header without options and with a correct checksum (RFC 1071).
fn is_ipv4(header: &[u8]) -> bool {
    let words =
        header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    header[0] == 0x45 && (sum & 0xffff) + (sum >> 16) == 0xffff
}

/// Parses the header. IPv6 and InfiniBand fill all 40 bytes. An IPv4 header is the last 20 bytes;
/// the bytes before it are undefined (RoCEv2 annex A17.4.5.2). `None` for other headers.
fn parse(header: &[u8; 40]) -> Option<Reply> {
    let ipv4 = &header[20..];
    let says_6 = header[0] >> 4 == 6;
    if (!says_6 && ipv4[0] == 0x45) || (says_6 && is_ipv4(ipv4)) {
        return Some(Reply {
            dgid: mapped(&ipv4[12..16]),
            own_gid: mapped(&ipv4[16..20]),
            flow_label: 0,
            traffic_class: ipv4[1],
            roce_v2: true,
        });
    }
    let roce_v2 = match header[6] {
        NEXT_HEADER_UDP => true,
        NEXT_HEADER_IBA => false,
        _ => return None,
    };
    if !says_6 {
        return None;
    }
    let flow = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
    Some(Reply {
        dgid: header[8..24].try_into().expect("16 bytes"),
        own_gid: header[24..40].try_into().expect("16 bytes"),
        flow_label: flow & 0xf_ffff,
        traffic_class: (flow >> 20) as u8,
        roce_v2,
    })
}

/// The address for a reply to the sender of a datagram; returns 0, or -1 and `errno`.
///
/// # Safety
/// `context` is live, `wc` is valid, `grh` is valid if the completion has the GRH flag, and
/// `ah_attr` is valid for writes.
pub unsafe fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port_num: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    ah_attr: *mut ibv_ah_attr,
) -> c_int {
    // SAFETY: the caller's contract.
    let wc = unsafe { &*wc };
    let mut attr = ibv_ah_attr::zeroed();
    attr.dlid = wc.slid;
    attr.sl = wc.sl;
    attr.src_path_bits = wc.dlid_path_bits;
    attr.port_num = port_num;
    if wc.wc_flags & IBV_WC_GRH != 0 {
        // SAFETY: the caller's contract: 40 bytes, of which any pattern is valid.
        let header = unsafe { grh.cast::<[u8; 40]>().read() };
        let Some(reply) = parse(&header) else {
            set_errno(libc::EPROTONOSUPPORT);
            return -1;
        };
        let accepts = |gid_type| (gid_type == IBV_GID_TYPE_ROCE_V2) == reply.roce_v2;
        // SAFETY: the caller's contract.
        let found = unsafe { gid::find(context, port_num, reply.own_gid, accepts) };
        let Some(sgid_index) = found else { return -1 };
        attr.is_global = 1;
        attr.grh = ibv_global_route {
            dgid: ibv_gid { raw: reply.dgid },
            flow_label: reply.flow_label,
            sgid_index,
            hop_limit: HOP_LIMIT,
            traffic_class: reply.traffic_class,
        };
    }
    // SAFETY: the caller's contract.
    unsafe { ah_attr.write(attr) };
    0
}

/// Creates an address handle for a reply; null and `errno` on failure.
///
/// # Safety
/// `pd` is live, `wc` is valid, and `grh` is valid if the completion has the GRH flag.
pub unsafe fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port_num: u8,
) -> *mut ibv_ah {
    let mut attr = ibv_ah_attr::zeroed();
    // SAFETY: the caller's contract.
    unsafe {
        if ibv_init_ah_from_wc((*pd).context, port_num, wc, grh, &mut attr) != 0 {
            return core::ptr::null_mut();
        }
        dispatch::ibv_create_ah(pd, &mut attr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IPV4: [u8; 20] =
        [0x45, 0x68, 0, 60, 0, 0, 0x40, 0, 64, 0x11, 0x26, 0x50, 10, 0, 0, 1, 10, 0, 0, 2];

    fn with_ipv4(front: u8) -> [u8; 40] {
        let mut header = [0; 40];
        header[0] = front;
        header[20..].copy_from_slice(&IPV4);
        let sum: u32 =
            IPV4.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        let old = u32::from(u16::from_be_bytes([IPV4[10], IPV4[11]]));
        let rest = sum - old;
        let check = !(((rest & 0xffff) + (rest >> 16)) as u16);
        header[30..32].copy_from_slice(&check.to_be_bytes());
        header
    }

    #[test]
    fn ipv4_is_recognised_behind_any_bytes() {
        for front in [0x00, 0x60, 0xff] {
            let reply = parse(&with_ipv4(front)).expect("a reply");
            assert_eq!(reply.dgid, mapped(&[10, 0, 0, 1]));
            assert_eq!(reply.own_gid, mapped(&[10, 0, 0, 2]));
            assert_eq!((reply.traffic_class, reply.roce_v2), (0x68, true));
        }
    }

    #[test]
    fn ipv6_with_an_address_that_looks_like_ipv4_stays_ipv6() {
        let mut header = with_ipv4(0x60);
        header[6] = NEXT_HEADER_IBA;
        header[31] ^= 1; // The checksum no longer fits.
        let reply = parse(&header).expect("a reply");
        assert!(!reply.roce_v2);
        assert_eq!(reply.dgid, header[8..24]);
        assert_eq!(reply.own_gid, header[24..]);
    }

    #[test]
    fn flow_label_and_class_come_from_the_first_word() {
        let mut header = [0; 40];
        header[..4].copy_from_slice(&0x6a5f_1234_u32.to_be_bytes());
        header[6] = NEXT_HEADER_UDP;
        let reply = parse(&header).expect("a reply");
        assert_eq!((reply.traffic_class, reply.flow_label), (0xa5, 0xf_1234));
        assert!(reply.roce_v2);
    }

    #[test]
    fn other_headers_are_refused() {
        let mut header = [0; 40];
        assert_eq!(parse(&header), None);
        header[0] = 0x60;
        header[6] = 6; // TCP
        assert_eq!(parse(&header), None);
    }

    #[test]
    fn without_a_grh_the_local_address_is_enough() {
        let mut wc = ibv_wc::zeroed();
        (wc.slid, wc.sl, wc.dlid_path_bits) = (7, 3, 1);
        let mut attr = ibv_ah_attr::zeroed();
        let none = core::ptr::null_mut();
        let grh = core::ptr::null_mut();
        // SAFETY: without the GRH flag, neither context nor header is looked at.
        let ret = unsafe { ibv_init_ah_from_wc(none, 2, &mut wc, grh, &mut attr) };
        assert_eq!(ret, 0);
        assert_eq!((attr.dlid, attr.sl, attr.src_path_bits), (7, 3, 1));
        assert_eq!((attr.port_num, attr.is_global), (2, 0));
    }
}
