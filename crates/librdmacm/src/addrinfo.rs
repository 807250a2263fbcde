//! Name resolution: `rdma_getaddrinfo` and `rdma_freeaddrinfo`.

use core::ffi::{c_char, c_int};
use std::ptr::null_mut;

use libc::{addrinfo, sockaddr, socklen_t};
use rdmalab_abi::*;

/// Resolves a name and a service; returns 0, an error of `getaddrinfo`, or -1 and `errno`.
pub unsafe fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    let nothing = rdma_addrinfo::zeroed();
    // SAFETY: the caller's hints, or none.
    let wanted = unsafe { hints.as_ref() }.unwrap_or(&nothing);
    if node.is_null() && service.is_null() && wanted.ai_src_len == 0 && wanted.ai_dst_len == 0 {
        inline::set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: zeroed memory of the size of the structure, which is plain data.
    let made: *mut rdma_addrinfo = unsafe { libc::calloc(1, size_of::<rdma_addrinfo>()) }.cast();
    // SAFETY: null, or what was just allocated.
    let Some(found) = (unsafe { made.as_mut() }) else {
        inline::set_errno(libc::ENOMEM);
        return -1;
    };
    // SAFETY: the caller's strings and hints.
    let ret = unsafe { look_up(node, service, wanted, found) };
    if ret != 0 {
        // SAFETY: what was just made.
        unsafe { rdma_freeaddrinfo(made) };
        return ret;
    }
    kinds(wanted, found);
    // SAFETY: the caller's out-parameter.
    unsafe { res.write(made) };
    0
}

/// Fills in the queue pair type and the port space. If the hints name only one, the other follows.
fn kinds(wanted: &rdma_addrinfo, found: &mut rdma_addrinfo) {
    let (qp_type, ps) = (wanted.ai_qp_type as u32, wanted.ai_port_space as u32);
    found.ai_qp_type = match (qp_type, ps) {
        (0, RDMA_PS_UDP | RDMA_PS_IPOIB) => IBV_QPT_UD,
        (0, _) => IBV_QPT_RC,
        (given, _) => given,
    } as c_int;
    found.ai_port_space = match (ps, found.ai_qp_type as u32) {
        (0, IBV_QPT_UD) => RDMA_PS_UDP,
        (0, _) => RDMA_PS_TCP,
        (given, _) => given,
    } as c_int;
}

unsafe fn look_up(
    node: *const c_char,
    service: *const c_char,
    wanted: &rdma_addrinfo,
    found: &mut rdma_addrinfo,
) -> c_int {
    // SAFETY: all-zero is a valid value of this plain C structure.
    let mut hints: addrinfo = unsafe { std::mem::zeroed() };
    if wanted.ai_flags & RAI_PASSIVE != 0 {
        hints.ai_flags |= libc::AI_PASSIVE;
        found.ai_flags = RAI_PASSIVE;
    }
    if wanted.ai_flags & RAI_NUMERICHOST != 0 {
        hints.ai_flags |= libc::AI_NUMERICHOST;
    }
    if wanted.ai_flags & RAI_FAMILY != 0
        || matches!(wanted.ai_family, libc::AF_INET | libc::AF_INET6)
    {
        hints.ai_family = wanted.ai_family;
    }
    // With a socket type, `getaddrinfo` returns each address once.
    hints.ai_socktype = libc::SOCK_STREAM;
    let mut list: *mut addrinfo = null_mut();
    if !node.is_null() || !service.is_null() {
        // SAFETY: the caller's strings, and our hints.
        let ret = unsafe { libc::getaddrinfo(node, service, &raw const hints, &raw mut list) };
        if ret != 0 {
            return ret;
        }
    }
    // SAFETY: `list` is null or the first result; the addresses in `wanted` are the caller's.
    unsafe {
        if let Some(first) = list.as_ref() {
            found.ai_family = first.ai_family;
            let (address, length) = copy(first.ai_addr, first.ai_addrlen);
            if wanted.ai_flags & RAI_PASSIVE != 0 {
                (found.ai_src_addr, found.ai_src_len) = (address, length);
            } else {
                (found.ai_dst_addr, found.ai_dst_len) = (address, length);
            }
            libc::freeaddrinfo(list);
        }
        if found.ai_src_len == 0 && wanted.ai_src_len > 0 {
            (found.ai_src_addr, found.ai_src_len) = copy(wanted.ai_src_addr, wanted.ai_src_len);
        }
        if found.ai_dst_len == 0 && wanted.ai_dst_len > 0 {
            (found.ai_dst_addr, found.ai_dst_len) = copy(wanted.ai_dst_addr, wanted.ai_dst_len);
        }
    }
    if found.ai_family == 0 {
        found.ai_family = wanted.ai_family;
    }
    0
}

/// Copies an address for `rdma_freeaddrinfo` to free; null if there is no memory.
unsafe fn copy(address: *const sockaddr, length: socklen_t) -> (*mut sockaddr, socklen_t) {
    if address.is_null() || length == 0 {
        return (null_mut(), 0);
    }
    // SAFETY: the caller's address of that length, and room for it.
    unsafe {
        let made: *mut u8 = libc::calloc(1, length as usize).cast();
        if made.is_null() {
            return (null_mut(), 0);
        }
        made.copy_from_nonoverlapping(address.cast(), length as usize);
        (made.cast(), length)
    }
}

/// Frees the result of `rdma_getaddrinfo`.
pub unsafe fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
    let mut at = res;
    while !at.is_null() {
        // SAFETY: an element of the list, all of which `rdma_getaddrinfo` allocated, or null.
        unsafe {
            let this = *at;
            libc::free(this.ai_src_addr.cast());
            libc::free(this.ai_dst_addr.cast());
            libc::free(this.ai_src_canonname.cast());
            libc::free(this.ai_dst_canonname.cast());
            libc::free(this.ai_route);
            libc::free(this.ai_connect);
            libc::free(at.cast());
            at = this.ai_next;
        }
    }
}
